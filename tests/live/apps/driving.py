"""What the tests of all programs do: register a program, run it, and sign in at this server."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page
from programs import ROOT, is_open, logging_program
from waiting import wait_until

from ..running import RunningServer
from ..test_browser import sign_in as send_sign_in_form

SIGN_IN, CONSENT = "form[action='/sign-in']", "form[action='/oauth/authorize']"


def register(server: RunningServer, program: str, address: str) -> tuple[dict, list[str]]:
    """Register a program of docs/apps/ at this address.

    Returns the client, with `client_id` and `client_secret`, and the code blocks of the program's
    settings, filled in.
    """
    text = (ROOT / f"docs/apps/{program}.md").read_text()
    [example] = re.findall(rf"client add --for {program} (\S+)", text)
    text = text.replace(example, address).replace("https://id.example.org", server.address)
    redirect_uris = re.findall(r"^- Redirect URI: `(.*)`", text, re.MULTILINE)
    client = server.add_client(program, *redirect_uris)
    for placeholder in ("client_id", "client_secret"):
        text = text.replace(placeholder.upper(), client[placeholder])
    settings = text.partition("\n## Settings\n")[2].partition("\n## ")[0]
    return client, re.findall(r"^```\w*\n(.*?)^```$", settings, re.MULTILINE | re.DOTALL)


@contextlib.contextmanager
def running_program(
    command: list[str], folder: Path, port: int, **environment: str
) -> Iterator[None]:
    """Run a program's server, which listens at this port of 127.0.0.1, until the block ends."""
    with logging_program(command, folder, **environment) as (process, read_log):
        wait_until(lambda: is_open(port), process, read_log)
        yield


def sign_in(page: Page, name: str = "ada") -> None:
    """Fill in this server's sign-in form and press Allow, each if shown; one of them has to be."""
    page.locator(f"{SIGN_IN}, {CONSENT}").first.wait_for()
    if page.locator(SIGN_IN).count():
        with page.expect_navigation():
            send_sign_in_form(page, name)
    if page.locator(CONSENT).count():
        page.get_by_role("button", name="Allow").click()
