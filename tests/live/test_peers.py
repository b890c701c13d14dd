"""The servers that `python -m benchmarks.peers` races with do what they are measured for."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from benchmarks.load import Load
from benchmarks.peers import (
    DRIVERS,
    TOKEN_SCOPE,
    USERINFO_SCOPE,
    Peer,
    exchange_form,
    install,
    running_peer,
)

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both peers."""
    folder = tmp_path_factory.mktemp("peers")
    install(folder)
    return folder


@pytest.fixture(scope="module", params=DRIVERS)
def peer(request, packages: Path) -> Iterator[Peer]:
    """Each peer, running."""
    with running_peer(packages, request.param) as peer:
        yield peer


def send(peer: Peer, path: str, form: str = "", token: str = "") -> tuple[int, dict]:
    """Return the status of a response, and its body if that is JSON."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = Request(f"{peer.address}{path}", form.encode() or None, headers)
    try:
        with urlopen(request) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            return error.code, {}


def test_peer_exchanges_a_code_and_looks_up_the_token(peer: Peer):
    """In the race it issues an access token alone, as this server: signing others takes time."""
    with_user, in_race = peer.issue_codes(1, USERINFO_SCOPE)[0], peer.issue_codes(1, TOKEN_SCOPE)[0]
    token = peer.exchange(with_user)
    assert token["token_type"] == "Bearer"
    assert 590 <= token["expires_in"] <= 600  # seconds
    status, player = send(peer, "/me", token=token["access_token"])
    assert (status, player["name"]) == (200, f"Player {player['sub']}")
    assert player["email"] == f"player{player['sub']}@example.org"
    assert peer.exchange(in_race).keys() == {"access_token", "token_type", "expires_in", "scope"}


def test_peer_refuses_invalid_credentials(peer: Peer):
    used, unused = peer.issue_codes(2, TOKEN_SCOPE)
    peer.exchange(used)
    assert send(peer, "/token", exchange_form(used))[0] == 400
    assert send(peer, "/token", exchange_form(unused, "wrong"))[0] in (400, 401)
    assert send(peer, "/me", token="unknown")[0] == 401


def test_peer_sign_in_hashes_the_password(peer: Peer):
    """With the parameters of this server, which take more than 50 ms on any machine."""
    result = Load(peer.server.port, peer.sign_in_requests(2), seconds=60, connections=1).run()
    assert (result.responses, result.failures) == (2, {})
    assert result.p50 > 50
    assert send(peer, "/sign-in", "name=1&password=wrong")[0] == 401
