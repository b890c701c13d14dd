"""Better Auth, which knows one address of this server: the discovery document."""

import pytest

from ..running import RunningServer
from .conftest import BOB
from .driving import running_node_site, shown_json, sign_in

pytestmark = pytest.mark.apps


def test_sign_in_makes_an_account(openid_server: RunningServer, browse, tmp_path):
    packages = ["better-auth@1.7.25"]
    with running_node_site(openid_server, "better-auth", packages, tmp_path) as site:
        page = browse()
        page.goto(site)
        page.get_by_role("button", name="Sign in").click()
        sign_in(page, BOB)
        page.wait_for_url(f"{site}/api/auth/get-session")
        user = shown_json(page)["user"]
        assert (user["name"], user["email"]) == (BOB, "bob@example.org")
        assert user["image"] == f"{openid_server.address}/users/2/picture"
        assert user["emailVerified"] is False
        page.goto(f"{site}/accounts")
        assert [each["accountId"] for each in shown_json(page)] == ["2"]
