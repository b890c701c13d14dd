"""openid-client, which checks each response as the specification says."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from ..running import RunningServer
from .conftest import BOB
from .driving import running_node_site, shown_json, sign_in

pytestmark = [pytest.mark.apps, pytest.mark.xdist_group("openid-client")]


@pytest.fixture(scope="module")
def site(openid_server: RunningServer, tmp_path_factory) -> Iterator[str]:
    """The address of a site that signs in with openid-client."""
    folder = tmp_path_factory.mktemp("site")
    packages = ["openid-client@6.9.0"]
    with running_node_site(openid_server, "openid-client", packages, folder) as site:
        yield site


def test_claims_are_in_id_token_and_userinfo(openid_server: RunningServer, site: str, browse):
    page = browse()
    page.goto(f"{site}/sign-in?scope=openid profile email groups")
    sign_in(page, BOB)
    page.wait_for_url(f"{site}/callback?*")
    known = shown_json(page)
    player = {
        "sub": "2",
        "name": BOB,
        "preferred_username": "player2",
        "picture": f"{openid_server.address}/users/2/picture",
        "email": "bob@example.org",
        "email_verified": False,
        "groups": ["players"],
    }
    for claims in known["claims"], known["user"]:
        assert claims | player == claims
    assert page.request.get(player["picture"]).headers["content-type"] == "image/webp"


def test_password_again_and_sign_out(site: str, browse):
    page = browse()
    page.goto(f"{site}/sign-in")
    sign_in(page)
    page.wait_for_url(f"{site}/callback?*")
    first = shown_json(page)["claims"]
    page.goto(f"{site}/sign-in?prompt=none")
    assert shown_json(page)["claims"]["auth_time"] == first["auth_time"]
    page.goto(f"{site}/sign-in?prompt=login")
    sign_in(page)
    page.wait_for_url(f"{site}/callback?*")
    assert shown_json(page)["claims"]["auth_time"] > first["auth_time"]
    page.goto(f"{site}/sign-out")
    expect(page).to_have_url(f"{site}/")
    page.goto(f"{site}/sign-in?prompt=none")
    assert shown_json(page) == {"error": "login_required"}
