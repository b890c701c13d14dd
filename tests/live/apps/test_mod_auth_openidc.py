"""mod_auth_openidc in front of pages of Apache."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.records import MODERATOR

from ..running import MEMORY, RunningServer
from .conftest import BOB
from .driving import SIGN_IN, running_site, shown_json, sign_in

pytestmark = [pytest.mark.apps, pytest.mark.xdist_group("mod_auth_openidc")]


@pytest.fixture(scope="module")
def site(openid_server: RunningServer) -> Iterator[str]:
    """The address of an Apache with pages for players, and /moderators for moderators."""
    # Apache's workers are not root, and cannot read folders of pytest.
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="apache-") as name:
        folder, files = Path(name), ("apache.conf", "page.html")
        folder.chmod(0o755)
        command = [shutil.which("apache2"), "-D", "FOREGROUND", "-f", folder / "apache.conf"]
        program = "mod-auth-openidc"
        with running_site(openid_server, program, command, folder, *files, FOLDER=name) as site:
            yield site


def test_pages_know_the_claims(site: str, browse):
    page = browse()
    page.goto(site)
    sign_in(page, BOB)
    page.wait_for_url(f"{site}/")
    known = {"REMOTE_USER": "player2", "name": BOB, "email": "bob@example.org", "groups": "players"}
    assert shown_json(page) == known
    page.goto(f"{site}/signed-in?logout={site}/")
    page.locator(SIGN_IN).wait_for()  # both have forgotten the player


def test_groups_decide_who_may_enter(openid_server: RunningServer, site: str, browse):
    moderator = openid_server.add_user("chidi")
    with openid_server.open_storage().users.edit(moderator["id"]) as user:
        user.mod_level = MODERATOR
    for name, status in ("ada", 401), ("chidi", 200):
        page = browse()
        page.goto(f"{site}/moderators")
        with page.expect_response(f"{site}/moderators") as response:
            sign_in(page, name)
        assert response.value.status == status
