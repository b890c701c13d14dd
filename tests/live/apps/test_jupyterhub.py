"""JupyterHub with oauthenticator: names of accounts, and groups."""

import pytest
import requests
from playwright.sync_api import Page, expect
from programs import free_port
from waiting import PATIENCE, wait_until

from model.records import MODERATOR

from .conftest import BOB
from .driving import give_name_up, register, running_program, sign_in
from .environments import npm_environment, python_environment

pytestmark = pytest.mark.heavy_apps

TOKEN = "token-of-the-tests"


def groups(hub: str) -> dict[str, set[str]]:
    """Return the groups of each account that the hub knows."""
    headers = {"Authorization": f"token {TOKEN}"}
    known = requests.get(f"{hub}/hub/api/users", headers=headers, timeout=PATIENCE).json()
    return {account["name"]: set(account["groups"]) for account in known}


@pytest.fixture(scope="module")
def hub(openid_server, tmp_path_factory):
    """The address of a JupyterHub with the settings of its page."""
    folder = tmp_path_factory.mktemp("jupyterhub")
    python = python_environment("jupyterhub", "jupyterhub==6.1.1", "oauthenticator==17.4.0")
    proxy = npm_environment("jupyterhub-proxy", "configurable-http-proxy@4.6.3")
    address = f"http://127.0.0.1:{(port := free_port())}"
    _, [settings] = register(openid_server, "jupyterhub", address)
    beside = f"""
c.JupyterHub.bind_url = "{address}"
c.JupyterHub.hub_port = {free_port()}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{free_port()}"
c.ConfigurableHTTPProxy.command = ["{proxy}/node_modules/.bin/configurable-http-proxy"]
c.JupyterHub.default_url = "/hub/home"  # starts no notebooks
c.JupyterHub.services = [{{"name": "tests", "api_token": "{TOKEN}"}}]
c.JupyterHub.load_roles = [
    {{"name": "tests", "services": ["tests"], "scopes": ["list:users", "read:users"]}}
]
"""
    (folder / "jupyterhub_config.py").write_text(settings + beside)
    with running_program([f"{python}/bin/python", "-m", "jupyterhub"], folder, port):
        # The proxy answers before the hub.
        wait_until(lambda: requests.get(f"{address}/hub/api", timeout=PATIENCE).ok)
        yield address


def sign_in_at(hub: str, page: Page, name: str, account: str) -> None:
    """Sign in as this player; check that the hub takes it for this account."""
    page.goto(f"{hub}/hub/home")
    page.get_by_role("button", name="Sign in with Identity Server").click()
    sign_in(page, name)
    expect(page).to_have_url(f"{hub}/hub/home")
    expect(page.locator("#login_widget")).to_contain_text(account)


def test_jupyterhub_knows_handles_and_groups(openid_server, hub, browse):
    users = openid_server.open_storage().users
    with users.edit(1) as ada:
        ada.mod_level = MODERATOR
        ada.flairs.append("gold")
    sign_in_at(hub, browse(), "ada", "ada")
    sign_in_at(hub, browse(), BOB, "player2")
    assert groups(hub) == {"ada": {"players", "moderators", "flair:gold"}, "player2": {"players"}}
    with users.edit(1) as ada:
        ada.mod_level = 0
    sign_in_at(hub, browse(), "ada", "ada")
    assert groups(hub)["ada"] == {"players", "flair:gold"}


def test_jupyterhub_account_stays_with_renamed_player(openid_server, hub, browse):
    before = groups(hub).keys()
    grace = openid_server.add_user("grace")
    sign_in_at(hub, browse(), "grace", "grace")
    give_name_up(openid_server, grace["id"], "Grace H")
    newcomer = openid_server.add_user("grace", "newcomer@example.org")
    sign_in_at(hub, browse(), "grace", f"player{newcomer['id']}")
    sign_in_at(hub, browse(), "Grace H", "grace")
    assert groups(hub).keys() - before == {"grace", f"player{newcomer['id']}"}
