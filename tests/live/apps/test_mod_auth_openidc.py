"""mod_auth_openidc in front of pages of Apache."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.records import MODERATOR

from ..running import MEMORY, RunningServer
from .conftest import BOB
from .driving import SIGN_IN, SOURCES, register_site, running_program, shown_json, sign_in

pytestmark = [pytest.mark.apps, pytest.mark.xdist_group("mod_auth_openidc")]


@pytest.fixture(scope="module")
def site(openid_server: RunningServer) -> Iterator[str]:
    """The address of an Apache with a page for players, /, and one for moderators."""
    # Apache's workers are not root, and cannot read folders of pytest.
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="apache-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        port, address, [settings] = register_site(openid_server, "mod-auth-openidc")
        shutil.copy(SOURCES / "apache.conf", folder)
        (folder / "settings.conf").write_text(settings)
        pages = folder / "pages"
        (pages / "moderators").mkdir(parents=True)
        for page in pages, pages / "moderators":
            shutil.copy(SOURCES / "index.shtml", page)
        command = [shutil.which("apache2"), "-D", "FOREGROUND", "-f", folder / "apache.conf"]
        with running_program(command, folder, port, FOLDER=name, PORT=str(port)):
            yield address


def test_headers_have_the_claims(openid_server: RunningServer, site: str, browse):
    page = browse()
    page.goto(site)
    sign_in(page, BOB)
    page.wait_for_url(f"{site}/")
    assert shown_json(page) == {
        "REMOTE_USER": "player2",
        "sub": "2",
        "name": BOB,
        "email": "bob@example.org",
        "groups": "players",
    }
    page.goto(f"{site}/signed-in?logout={site}/")
    page.locator(SIGN_IN).wait_for()  # both have forgotten the player


def test_groups_decide_who_may_enter(openid_server: RunningServer, site: str, browse):
    moderator = openid_server.add_user("chidi")
    with openid_server.open_storage().users.edit(moderator["id"]) as user:
        user.mod_level = MODERATOR
    for name, status in ("ada", 401), ("chidi", 200):
        page = browse()
        page.goto(f"{site}/moderators/")
        with page.expect_response(f"{site}/moderators/") as response:
            sign_in(page, name)
        assert response.value.status == status
