"""Flask-AppBuilder, which Superset and Airflow are made with: accounts and roles."""

import pytest

from model.records import ADMINISTRATOR

from ..running import RunningServer
from .conftest import BOB
from .driving import running_site, shown_json, sign_in
from .environments import python_environment

pytestmark = pytest.mark.apps


def test_accounts_are_keyed_on_sub_and_roles_follow_groups(
    openid_server: RunningServer, browse, tmp_path
):
    def account_of(name: str) -> dict:
        page = browse()
        page.goto(f"{site}/login/identity")
        sign_in(page, name)
        page.wait_for_url(f"{site}/")
        page.goto(f"{site}/account")
        return shown_json(page)

    program, files = "flask-appbuilder", ("flask_appbuilder_site.py", "config.py")
    environment = python_environment(
        program, "flask-appbuilder==5.3.0", "authlib==1.9.10", "requests"
    )
    command = [environment / "bin/python", files[0]]
    with running_site(openid_server, program, command, tmp_path, *files) as site:
        with openid_server.open_storage().users.edit(1) as ada:
            ada.mod_level = ADMINISTRATOR
        assert account_of(BOB) == {"username": "player-2", "name": BOB, "roles": ["Public"]}
        known = account_of("ada")
        assert (known["username"], sorted(known["roles"])) == ("player-1", ["Admin", "Public"])
