"""The commands of docs/grant.md and docs/games/staying.md, against a running server."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from documents import read_blocks

from .running import PASSWORD, RunningServer

REDIRECT_URI = "http://127.0.0.1:5000/callback"


def run(script: str, folder: Path, **values: str) -> list[str]:
    """Run a script of the documentation with these values; return the lines that it prints."""
    for name, value in values.items():
        script, count = re.subn(f"^{name}=.*$", f"{name}={value}", script, count=1, flags=re.M)
        assert count == 1
    done = subprocess.run(["sh"], input=script, cwd=folder, capture_output=True, text=True)
    return done.stdout.splitlines()


def add_space_game(server: RunningServer) -> dict[str, str]:
    client = server.add_client("Space Game", REDIRECT_URI)
    values = {"SITE": server.address, "CLIENT_ID": client["client_id"]}
    return values | {"CLIENT_SECRET": client["client_secret"]}


@pytest.mark.ci  # needs curl and openssl
def test_documented_commands_complete_the_grant(server, ada, tmp_path):
    """Twice: on the first run the consent page is shown, and the consent is remembered."""
    values = add_space_game(server) | {"PASSWORD": f"'{PASSWORD}'"}
    script = read_blocks("docs/grant.md")["grant"].replace("info?id=1", f"info?id={ada['id']}")
    for _ in range(2):
        location, token, player, profile = run(script, tmp_path, **values)
        assert location.startswith(f"Location: {REDIRECT_URI}?code=")
        assert json.loads(token)["expires_in"] == 600
        assert json.loads(player)["email"] == "ada@example.org"
        assert json.loads(profile)["message"] == "yes"


@pytest.mark.ci  # needs curl and openssl
def test_documented_commands_refresh_and_revoke(server, ada, tmp_path):
    values = add_space_game(server)
    grant = read_blocks("docs/grant.md")["grant"].replace("/api/oauth/token", "/oauth/token")
    grant = grant.replace("scope=email", "scope=userinfo%20offline_access")
    signed_in = json.loads(run(grant, tmp_path, PASSWORD=f"'{PASSWORD}'", **values)[1])
    blocks = read_blocks("docs/games/staying.md")
    script = "".join(blocks[name] for name in ("refresh", "introspect", "revoke", "introspect"))
    printed = run(script, tmp_path, REFRESH_TOKEN=signed_in["refresh_token"], **values)
    tokens, player, before, status, after = map(json.loads, printed)
    assert tokens.keys() == signed_in.keys()
    assert tokens["refresh_token"] != signed_in["refresh_token"]
    assert (player["name"], status, after) == (ada["name"], 200, {"active": False})
    assert (before["scope"], before["token_type"]) == ("userinfo offline_access", "refresh_token")
