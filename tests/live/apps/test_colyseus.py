"""Colyseus, a game server, whose pages sign in in a popup."""

import base64
import json

import pytest

from ..running import RunningServer
from .conftest import BOB
from .driving import running_node_site, shown_json, sign_in

pytestmark = pytest.mark.apps


def test_page_gets_a_token_of_the_game(openid_server: RunningServer, browse, tmp_path):
    packages = [
        "@colyseus/core@0.17.51",
        "@colyseus/auth@0.17.9",
        "@colyseus/ws-transport@0.17.13",
        "express@5.3.0",
        "zod@4.1.12",
    ]
    variables = {"SESSION_SECRET": "of the tests", "JWT_SECRET": "of the tests"}
    with running_node_site(openid_server, "colyseus", packages, tmp_path, **variables) as site:
        page = browse()
        page.goto(site)
        with page.expect_popup() as popup:
            page.get_by_role("button", name="Sign in").click()
        sign_in(popup.value, BOB)
        page.locator("pre:not(:empty)").wait_for()
        known = shown_json(page)
        assert known["user"] == {"id": "2", "name": BOB}
        payload = known["token"].split(".")[1]
        assert json.loads(base64.urlsafe_b64decode(payload + "==")).items() >= known["user"].items()
