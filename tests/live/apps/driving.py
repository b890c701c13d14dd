"""What the tests of all programs do: register a program, run it, and sign in at this server."""

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from playwright.sync_api import Page
from programs import ROOT, free_port, is_open, logging_program
from waiting import wait_until

from ..running import PASSWORD, RunningServer
from .environments import npm_environment, python_environment

SOURCES = Path(__file__).parent / "sources"
SIGN_IN, CONSENT = "form[action='/sign-in']", "form[action='/oauth/authorize']"


def register(server: RunningServer, program: str, address: str) -> tuple[dict, list[str]]:
    """Register a program of docs/apps/ at this address.

    Returns the client, with `client_id` and `client_secret`, and the code blocks of the program's
    settings, filled in.
    """
    text = read_page(program, address)
    uris, after = (
        re.findall(rf"^- {label}: `(.*)`", text, re.MULTILINE)
        for label in ("Redirect URI", "After signing out")
    )
    clients = server.open_storage().clients
    record, secret = clients.register(program, uris, None, post_logout_redirect_uris=after)
    client = {"client_id": record.id, "client_secret": secret}
    return client, fill_in(server, program, address, client)


def read_page(program: str, address: str) -> str:
    """Return docs/apps/<program>.md with this address in place of that of the program."""
    text = (ROOT / f"docs/apps/{program}.md").read_text()
    [example] = re.findall(
        r"^    identity-server client add .*?(https://[^/\s]+)", text, re.MULTILINE
    )
    return text.replace(example, address)


def fill_in(server: RunningServer, program: str, address: str, client: dict) -> list[str]:
    """Return the code blocks of a program's settings, with a client of this server."""
    text = read_page(program, address).replace("https://id.example.org", server.address)
    for placeholder, value in client.items():
        text = text.replace(placeholder.upper(), value)
    settings = text.partition("\n## Settings\n")[2].partition("\n## ")[0]
    return re.findall(r"^```\w*\n(.*?)^```$", settings, re.MULTILINE | re.DOTALL)


@contextlib.contextmanager
def running_program(
    command: list[str], folder: Path, port: int, **environment: str
) -> Iterator[Callable[[], str]]:
    """Run a program's server, which listens at this port of 127.0.0.1, until the block ends.

    Yields a function that reads its standard error.
    """
    with logging_program(command, folder, **environment) as (process, read_log):
        wait_until(lambda: is_open(port), process, read_log)
        yield read_log


def sign_in(page: Page, name: str = "ada") -> None:
    """Fill in this server's sign-in form and press Allow, each if shown; one of them has to be."""
    page.locator(f"{SIGN_IN}, {CONSENT}").first.wait_for()
    if page.locator(SIGN_IN).count():
        if page.get_by_label("Name or email").is_editable():  # not if a program asks for one player
            page.get_by_label("Name or email").fill(name)
        page.get_by_label("Password").fill(PASSWORD)
        with page.expect_navigation():
            page.get_by_role("button", name="Sign in").click()
    if page.locator(CONSENT).count():
        page.get_by_role("button", name="Allow").click()


@contextlib.contextmanager
def node_site(
    server: RunningServer, program: str, packages: list[str], folder: Path, **variables: str
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Run sources/<program>.mjs, below the program's settings, until the block ends.

    Yields its address and a function that reads its standard error.
    """
    port, address, [settings] = register_site(server, program)
    source = (SOURCES / f"{program}.mjs").read_text()
    (folder / "main.mjs").write_text(f"{settings}\n{source}")
    (folder / "node_modules").symlink_to(npm_environment(program, *packages) / "node_modules")
    variables |= {"PORT": str(port), "ADDRESS": address}
    with running_program([shutil.which("node"), "main.mjs"], folder, port, **variables) as read_log:
        yield address, read_log


@contextlib.contextmanager
def python_site(
    server: RunningServer, program: str, packages: list[str], folder: Path, head: str
) -> Iterator[str]:
    """Run the folder's main.py until the block ends; yield its address.

    Its settings.py is made of this head and the program's settings.
    """
    port, address, [settings] = register_site(server, program)
    (folder / "settings.py").write_text(f"{head}\n\n{settings}")
    python = python_environment(program, *packages) / "bin/python"
    variables = {"PROGRAM": program, "PORT": str(port), "ADDRESS": address}
    with running_program([python, "main.py"], folder, port, **variables):
        yield address


def register_site(server: RunningServer, program: str) -> tuple[int, str, list[str]]:
    """Register a program on a free port; return the port, its address and its settings."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    return port, address, register(server, program, address)[1]


def shown_json(page: Page) -> dict:
    """Return the JSON that the page shows."""
    return json.loads(page.locator("pre").inner_text())  # Chromium's page for JSON
