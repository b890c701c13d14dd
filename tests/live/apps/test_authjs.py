"""Auth.js, with both types of providers that sites have: by issuer, or by endpoints."""

import pytest

from ..running import RunningServer
from .conftest import BOB
from .driving import running_node_site, shown_json, sign_in

pytestmark = [pytest.mark.apps, pytest.mark.xdist_group("authjs")]


@pytest.mark.parametrize("kind", ["oidc", "oauth"])
def test_sign_in_by_each_type(openid_server: RunningServer, browse, tmp_path, kind: str):
    packages = ["@auth/express@0.12.3", "express@4.22.1"]
    with running_node_site(openid_server, "authjs", packages, tmp_path, TYPE=kind) as site:
        page = browse()
        page.goto(f"{site}/auth/signin")
        page.get_by_role("button", name="Sign in with Identity Server").click()
        sign_in(page, BOB)
        page.wait_for_url(f"{site}/")
        assert shown_json(page)["user"] == {
            "name": BOB,
            "email": "bob@example.org",
            "image": f"{openid_server.address}/users/2/picture",
        }
