"""The commands of docs/grant.md, against a running server."""

import json
import re
import subprocess

import pytest
from documents import read_blocks

from .running import PASSWORD

REDIRECT_URI = "http://127.0.0.1:5000/callback"


@pytest.mark.ci  # needs curl and openssl
def test_documented_commands_complete_the_grant(server, tmp_path):
    """Twice: on the first run the consent page is shown, and the consent is remembered."""
    ada = server.add_user("ada")
    client = server.add_client("Space Game", REDIRECT_URI)
    values = {"SITE": server.address, "PASSWORD": f"'{PASSWORD}'"}
    values |= {"CLIENT_ID": client["client_id"], "CLIENT_SECRET": client["client_secret"]}
    script = read_blocks("docs/grant.md")["grant"]
    for name, value in values.items():
        script, count = re.subn(f"^{name}=.*$", f"{name}={value}", script, flags=re.MULTILINE)
        assert count == 1
    script = script.replace("info?id=1", f"info?id={ada['id']}")
    for _ in range(2):
        run = subprocess.run(["sh"], input=script, cwd=tmp_path, capture_output=True, text=True)
        location, token, player, profile = run.stdout.splitlines()
        assert location.startswith(f"Location: {REDIRECT_URI}?code=")
        assert json.loads(token)["expires_in"] == 600
        assert json.loads(player)["email"] == "ada@example.org"
        assert json.loads(profile)["message"] == "yes"
