"""Authlib in a Flask site."""

import pytest

from ..running import RunningServer
from .conftest import BOB
from .driving import running_site, shown_json, sign_in
from .environments import python_environment

pytestmark = pytest.mark.apps


def test_claims_are_in_id_token_and_userinfo(openid_server: RunningServer, browse, tmp_path):
    packages = ["authlib==1.9.10", "flask==3.1.3", "requests==2.34.2"]
    command = [python_environment("authlib", *packages) / "bin/python", "flask_site.py"]
    with running_site(openid_server, "authlib", command, tmp_path, "flask_site.py") as site:
        page = browse()
        page.goto(f"{site}/sign-in")
        sign_in(page, BOB)
        page.wait_for_url(f"{site}/callback?*")
        known = shown_json(page)
    for claims in known["claims"], known["user"]:
        assert (claims["sub"], claims["name"], claims["email"]) == ("2", BOB, "bob@example.org")
        assert claims["preferred_username"] == "player2"
        assert claims["picture"] == f"{openid_server.address}/users/2/picture"
