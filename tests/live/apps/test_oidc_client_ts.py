"""oidc-client-ts in a page: a public client, without a server of its own."""

import re
import shlex

import pytest
from playwright.sync_api import expect
from programs import ROOT

from ..running import RunningServer
from ..test_browser import Game
from .conftest import BOB
from .driving import SIGN_IN, SITES, code_blocks, shown_json, sign_in
from .environments import npm_environment

pytestmark = pytest.mark.apps


def test_sign_in_and_out(openid_server: RunningServer, game: Game, browse):
    """Registered with the command of docs/apps/, as the others with --for."""
    site = game.origin()
    text = (ROOT / "docs/apps/oidc-client-ts.md").read_text()
    text = text.replace("https://app.example.org", site)
    [command] = re.findall("^    identity-server (.*)$", text, re.MULTILINE)
    client = openid_server.command(*shlex.split(command))
    text = text.replace("https://id.example.org", openid_server.address)
    [settings] = code_blocks(text.replace("CLIENT_ID", client["client_id"]))
    html = (SITES / "oidc-client-ts.html").read_text().replace("// SETTINGS", settings)
    packages = npm_environment("oidc-client-ts", "oidc-client-ts@3.5.0") / "node_modules"
    library = packages / "oidc-client-ts/dist/browser/oidc-client-ts.min.js"
    game.pages = {"/": html, "/callback": html, "/library.js": library.read_text()}
    page = browse()
    page.goto(site)
    page.get_by_role("button", name="Sign in").click()
    sign_in(page, BOB)
    expect(page.locator("pre")).to_contain_text("player2")
    profile = shown_json(page)
    assert (profile["sub"], profile["name"], profile["email"]) == ("2", BOB, "bob@example.org")
    page.get_by_role("button", name="Renew in a frame").click()
    expect(page.locator("pre")).to_have_text('{"error":"interaction_required"}')
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{site}/")
    page.get_by_role("button", name="Sign in").click()
    page.locator(SIGN_IN).wait_for()
