"""Auth.js, with the two kinds of providers that sites have: by issuer, or made by hand."""

import pytest

from ..running import RunningServer
from .conftest import BOB
from .driving import node_site, shown_json, sign_in

pytestmark = [pytest.mark.apps, pytest.mark.xdist_group("authjs")]
PACKAGES = ["@auth/express@0.12.3", "express@4.22.1"]


def start_sign_in(page, site: str) -> None:
    page.goto(f"{site}/auth/signin")
    page.get_by_role("button", name="Sign in with Identity Server").click()
    sign_in(page, BOB)


@pytest.mark.parametrize("provider", ["oidc", "oauth"])
def test_sign_in_by_each_type_of_provider(openid_server, browse, tmp_path, provider: str):
    with node_site(openid_server, "authjs", PACKAGES, tmp_path, PROVIDER=provider) as (site, _):
        page = browse()
        start_sign_in(page, site)
        page.wait_for_url(f"{site}/")
        assert shown_json(page)["user"] == {
            "name": BOB,
            "email": "bob@example.org",
            "image": f"{openid_server.address}/users/2/picture",
        }


def test_oauth_provider_without_issuer_is_refused(openid_server: RunningServer, browse, tmp_path):
    """As docs/apps/authjs.md says."""
    settings = {"PROVIDER": "oauth without issuer"}
    with node_site(openid_server, "authjs", PACKAGES, tmp_path, **settings) as (site, read_log):
        page = browse()
        start_sign_in(page, site)
        page.wait_for_url(f"{site}/auth/error?*")
        assert 'unexpected "iss" (issuer) response parameter value' in read_log()
