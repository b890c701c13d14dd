"""express-openid-connect, which signs out on both sites."""

import pytest

from ..running import RunningServer
from .conftest import BOB
from .driving import SIGN_IN, running_node_site, shown_json, sign_in

pytestmark = pytest.mark.apps


def test_claims_and_sign_out(openid_server: RunningServer, browse, tmp_path):
    packages, variables = (
        ["express-openid-connect@3.4.0", "express@5.3.0"],
        {"COOKIE_SECRET": "s" * 32},
    )
    program = "express-openid-connect"
    with running_node_site(openid_server, program, packages, tmp_path, **variables) as site:
        page = browse()
        page.goto(site)
        sign_in(page, BOB)
        page.wait_for_url(f"{site}/")
        user = shown_json(page)
        assert (user["sub"], user["name"], "email" in user) == ("2", BOB, False)
        page.goto(f"{site}/logout")
        page.locator(SIGN_IN).wait_for()  # both have forgotten the player
