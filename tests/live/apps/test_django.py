"""The two usual programs for accounts in Django: django-allauth and Python Social Auth."""

import shutil

import pytest

from ..running import RunningServer
from .conftest import BOB
from .driving import SOURCES, python_site, shown_json, sign_in

pytestmark = [pytest.mark.apps, pytest.mark.xdist_group("django")]
PACKAGES = {
    "django-allauth": ["django==5.2.19", "django-allauth[openid,socialaccount]==65.21.1"],
    "python-social-auth": [
        "django==5.2.19",
        "social-auth-core==7.0.0",
        "social-auth-app-django==8.0.0",
    ],
}


@pytest.mark.parametrize("program", PACKAGES)
def test_accounts_are_keyed_on_sub(openid_server: RunningServer, browse, tmp_path, program: str):
    """A renamed player keeps the account, and a newcomer with the old name gets another one."""

    def sign_in_as(name: str) -> dict:
        page = browse()
        page.goto(site)
        page.get_by_role("button", name="Sign in").click()
        sign_in(page, name)
        page.wait_for_url(f"{site}/")
        return shown_json(page)

    def account(player: dict, handle: str) -> dict:
        return {"username": handle, "email": player["email"], "uid": str(player["id"])}

    folder = tmp_path / "site"
    shutil.copytree(SOURCES / "django", folder)
    head = "from base_settings import *"
    with python_site(openid_server, program, PACKAGES[program], folder, head) as site:
        bob = sign_in_as(BOB)
        assert (bob["username"], bob["name"], bob["uid"]) == ("player2", BOB, "2")
        name, new_name = f"fan-of-{program}", f"{program}-fan"  # no name twice on the server
        player = openid_server.add_user(name)
        assert sign_in_as(name).items() >= account(player, name).items()
        openid_server.open_storage().users.rename(player["id"], new_name)
        assert sign_in_as(new_name).items() >= account(player, name).items()
        other = openid_server.add_user(name, f"{program}@example.org")
        assert sign_in_as(name).items() >= account(other, f"player{other['id']}").items()
