"""oidc-client-ts in a page: a public client, without a server of its own."""

import pytest
from playwright.sync_api import expect

from ..running import RunningServer
from ..test_browser import Game
from .conftest import BOB
from .driving import SOURCES, fill_in, shown_json, sign_in
from .environments import npm_environment

pytestmark = [pytest.mark.apps, pytest.mark.xdist_group("oidc-client-ts")]


@pytest.fixture
def site(openid_server: RunningServer, game: Game) -> str:
    """The address of a web site with a page that uses oidc-client-ts."""
    packages = npm_environment("oidc-client-ts", "oidc-client-ts@3.5.0")
    library = packages / "node_modules/oidc-client-ts/dist/browser/oidc-client-ts.min.js"
    site = game.origin()
    uris = f"{site}/callback", f"{site}/"
    client = openid_server.add_client("oidc-client-ts", uris[0], public=True)
    with openid_server.open_storage().clients.edit(client["client_id"]) as record:
        record.post_logout_redirect_uris = [uris[1]]
    [settings] = fill_in(openid_server, "oidc-client-ts", site, client)
    page = (SOURCES / "oidc-client-ts.html").read_text().replace("SETTINGS", settings)
    game.pages = {"/": page, "/callback": page, "/library.js": library.read_text()}
    return site


def test_sign_in_and_out(openid_server: RunningServer, site: str, browse):
    page = browse()
    page.goto(site)
    page.get_by_role("button", name="Sign in").click()
    sign_in(page, BOB)
    shown = page.locator("pre")
    expect(shown).to_contain_text("player2")
    profile = shown_json(page)
    assert (profile["sub"], profile["name"], profile["email"]) == ("2", BOB, "bob@example.org")
    page.get_by_role("button", name="Renew in a frame").click()
    expect(shown).to_have_text('{"error":"interaction_required"}')
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{site}/")
    page.goto(openid_server.address)
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()
