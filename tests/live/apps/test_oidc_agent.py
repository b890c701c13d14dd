"""oidc-agent, which has access tokens for commands: the device flow, and refresh tokens."""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from programs import ROOT
from waiting import PATIENCE

from model.kinds import FAMILIES

from ..form_browser import signed_in_browser
from ..running import PASSWORD, RunningServer
from .conftest import BOB
from .driving import code_blocks

pytestmark = pytest.mark.heavy_apps

PASSWORD_OF_FILE = "--pw-env=PW"
LONGER_THAN_ALL = "--time=700"  # seconds that a token has to be good for: it is refreshed each time


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """A function that runs a command of oidc-agent, with an agent of its own."""
    agents = []

    def run(*command: str) -> subprocess.Popen:
        variables = {"HOME": str(tmp_path), "OIDC_CONFIG_DIR": str(tmp_path), "PW": PASSWORD}
        if agents:
            variables["OIDC_SOCK"] = agents[-1][0]
        return subprocess.Popen(
            command,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start_agent() -> None:
        printed, _ = run("oidc-agent", "--no-autoreauthenticate").communicate(timeout=PATIENCE)
        socket, process_id = re.findall(r"^OIDC\w+=([^;]+);", printed, re.MULTILINE)
        agents.append((socket, int(process_id)))

    start_agent()
    run.start_agent = start_agent
    yield run
    for _, process_id in agents:
        os.kill(process_id, signal.SIGTERM)


def test_agent_refreshes_until_the_player_is_suspended(openid_server: RunningServer, run):
    def token(*options: str) -> str:
        printed, _ = run("oidc-token", "games", *options).communicate(timeout=PATIENCE)
        return printed.strip()

    page = (ROOT / "docs/apps/oidc-agent.md").read_text()
    [command] = re.findall("^    identity-server (.*)$", page, re.MULTILINE)
    client = openid_server.command(*shlex.split(command))
    page = page.replace("https://id.example.org", openid_server.address)
    generate, _ = code_blocks(page.replace("CLIENT_ID", client["client_id"]))
    [*_, command] = generate.replace("\\\n", "").splitlines()
    process = run(*shlex.split(command), "--no-url-call", "--confirm-default", PASSWORD_OF_FILE)
    shown = ""
    while "enter the code" not in shown:
        line = process.stdout.readline()
        assert line, shown
        shown += line
    [code] = re.findall("[A-Z]{4}-[A-Z]{4}", shown)
    with signed_in_browser(openid_server, BOB) as browser:
        page = browser.press(browser.open("/device"), "Continue", user_code=code)
        browser.press(page, "Allow")
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, printed
    families = openid_server.open_storage().records(FAMILIES)
    tokens, refresh_tokens = {token()}, set()

    def refresh() -> None:
        tokens.add(token(LONGER_THAN_ALL))
        refresh_tokens.update(families.read(each).current for each in families.ids())

    for _ in range(3):
        refresh()
    run.start_agent()
    printed, _ = run("oidc-add", "games", PASSWORD_OF_FILE).communicate(timeout=PATIENCE)
    assert printed == "success\n"  # what the first agent saved
    refresh()
    assert len(refresh_tokens) == 4
    assert {openid_server.whois(each).status_code for each in tokens} == {200}
    openid_server.command_output("user", "suspend", BOB)
    assert {openid_server.whois(each).status_code for each in tokens} == {401}
    assert "invalid_grant" in token(LONGER_THAN_ALL)
