"""Synapse, a Matrix server: Matrix IDs, display names and pictures."""

import json
import secrets
from base64 import b64encode
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from playwright.sync_api import Page
from programs import free_port
from waiting import PATIENCE, wait_until

from .conftest import BOB
from .driving import give_name_up, register, running_program, sign_in, suspend
from .environments import python_environment

pytestmark = pytest.mark.heavy_apps


@pytest.fixture(scope="module")
def synapse(openid_server, tmp_path_factory):
    """The address of a Synapse with the settings of its page."""
    folder = tmp_path_factory.mktemp("synapse")
    python = python_environment("synapse", "matrix-synapse[oidc]==1.163.0") / "bin/python"
    address = f"http://localhost:{(port := free_port())}"
    _, [settings] = register(openid_server, "synapse", address)
    (folder / "homeserver.yaml").write_text(settings)
    listener = {"port": port, "bind_addresses": ["127.0.0.1"], "type": "http"}
    beside = {
        "server_name": "localhost",
        "public_baseurl": address,
        "listeners": [listener | {"resources": [{"names": ["client"]}]}],
        "database": {"name": "sqlite3", "args": {"database": "homeserver.db"}},
        "signing_key": f"ed25519 a_1 {b64encode(secrets.token_bytes(32)).decode().rstrip('=')}",
        "report_stats": False,
        "ip_range_whitelist": ["127.0.0.1"],  # where the pictures are
    }
    (folder / "beside.yaml").write_text(json.dumps(beside))  # JSON is YAML
    command = [str(python), "-m", "synapse.app.homeserver"]
    command += ["-c", "homeserver.yaml", "-c", "beside.yaml"]
    # Its OAuth library accepts http only with this variable.
    with running_program(command, folder, port, AUTHLIB_INSECURE_TRANSPORT="1"):
        yield address


def sign_in_at(synapse: str, page: Page, name: str) -> dict:
    """Sign in; return the user's user_id, displayname, avatar_url and access_token."""
    chat = "https://chat.example.org/"  # the Matrix client, which is not opened
    page.goto(f"{synapse}/_matrix/client/v3/login/sso/redirect?redirectUrl={chat}")
    sign_in(page, name)
    back = page.get_by_role("link", name="Continue").get_attribute("href")
    [token] = parse_qs(urlsplit(back).query)["loginToken"]
    login = {"type": "m.login.token", "token": token}
    api = f"{synapse}/_matrix/client/v3"
    user = requests.post(f"{api}/login", json=login, timeout=PATIENCE).json()
    return user | requests.get(f"{api}/profile/{user['user_id']}", timeout=PATIENCE).json()


def test_synapse_knows_handles_names_and_pictures(openid_server, synapse, browse):
    """The picture's address in the ID token is that of the current one."""
    for id, name, handle in ((1, "ada", "ada"), (2, BOB, "player2")):
        user = sign_in_at(synapse, browse(), name)
        assert (user["user_id"], user["displayname"]) == (f"@{handle}:localhost", name)
        media = user["avatar_url"].removeprefix("mxc://")
        downloaded = requests.get(
            f"{synapse}/_matrix/client/v1/media/download/{media}",
            headers={"Authorization": f"Bearer {user['access_token']}"},
            timeout=PATIENCE,
        )
        address = f"{openid_server.address}/users/{id}/picture"
        assert downloaded.content == requests.get(address, timeout=PATIENCE).content


def test_synapse_account_stays_with_renamed_player(openid_server, synapse, browse):
    grace = openid_server.add_user("grace")
    assert sign_in_at(synapse, browse(), "grace")["user_id"] == "@grace:localhost"
    give_name_up(openid_server, grace["id"], "Grace H")
    newcomer = openid_server.add_user("grace", "newcomer@example.org")
    for name, handle in (("grace", f"player{newcomer['id']}"), ("Grace H", "grace")):
        user = sign_in_at(synapse, browse(), name)
        assert (user["user_id"], user["displayname"]) == (f"@{handle}:localhost", name)


def test_suspended_player_is_out_of_synapse(openid_server, synapse, browse):
    openid_server.add_user("dora")
    user = sign_in_at(synapse, browse(), "dora")
    suspend(openid_server, "synapse", synapse, "dora")
    address = f"{synapse}/_matrix/client/v3/account/whoami"
    headers = {"Authorization": f"Bearer {user['access_token']}"}
    wait_until(lambda: requests.get(address, headers=headers, timeout=PATIENCE).status_code == 401)
