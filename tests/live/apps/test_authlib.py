"""Authlib in a Flask site."""

import pytest

from ..running import RunningServer
from .conftest import BOB
from .driving import SOURCES, python_site, shown_json, sign_in

pytestmark = [pytest.mark.apps, pytest.mark.xdist_group("authlib")]
PACKAGES = ["authlib==1.9.10", "flask==3.1.3", "requests==2.34.2"]


def test_claims_are_in_id_token_and_userinfo(openid_server: RunningServer, browse, tmp_path):
    (tmp_path / "main.py").write_text((SOURCES / "flask_site.py").read_text())
    head = "from flask import Flask\n\napp = Flask(__name__)"
    with python_site(openid_server, "authlib", PACKAGES, tmp_path, head) as site:
        page = browse()
        page.goto(f"{site}/sign-in")
        sign_in(page, BOB)
        page.wait_for_url(f"{site}/")
        known = shown_json(page)
    for claims in known["id_token"], known["userinfo"]:
        assert (claims["sub"], claims["name"], claims["email"]) == ("2", BOB, "bob@example.org")
        assert claims["preferred_username"] == "player2"
        assert claims["picture"] == f"{openid_server.address}/users/2/picture"
    assert known["id_token"]["nonce"]
