"""What the tests of all programs do: register a program, run it, and sign in at this server."""

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from playwright.sync_api import Page
from programs import free_port, is_open, logging_program
from waiting import wait_until

from identity.oauth.programs import find_program_pages, read_page, split_settings

from ..running import PASSWORD, RunningServer
from .environments import npm_environment

SITES = Path(__file__).parent / "sites"
SIGN_IN, CONSENT = "form[action='/sign-in']", "form[action='/oauth/authorize']"


def register(
    server: RunningServer, program: str, address: str, *options: str
) -> tuple[dict, list[str]]:
    """Register a program of docs/apps/ at this address, with options of `client add`.

    Returns the client, with `client_id` and `client_secret`, and the code blocks of the program's
    settings, filled in.
    """
    client = server.command("client", "add", "--for", program, address, *options)
    return client, code_blocks(client["settings"])


def suspend(server: RunningServer, program: str, address: str, name: str) -> None:
    """Suspend a player; the program is told of that at the address that its page names."""
    page = find_program_pages()[program]
    example = read_page(page)
    [uri] = re.findall("^- Back-channel logout: `(.+)`$", page, re.MULTILINE)
    clients = server.open_storage().clients
    [client_id] = [each for each in clients.ids() if clients.read(each).name == example.title]
    with clients.edit(client_id) as client:
        client.backchannel_logout_uri = uri.replace(example.address, address)
    server.command_output("user", "suspend", name)


def code_blocks(text: str) -> list[str]:
    """Return the fenced blocks of code in Markdown."""
    return [code for _, code in split_settings(text) if code]


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


@contextlib.contextmanager
def running_site(
    server: RunningServer, program: str, command: list, folder: Path, *files: str, **variables: str
) -> Iterator[str]:
    """Run a site that signs in with a program until the block ends; yield its address.

    The command runs in this folder with these files of sites/, in which the program's settings
    replace the line SETTINGS. A second block of settings is a file, which the text above it names.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    client, [settings, *_] = register(server, program, address)
    for text, code in split_settings(client["settings"])[1:]:
        (folder / text[1]).write_text(code)
    for name in files:
        text = re.sub(
            "^(#|//) SETTINGS$", lambda _: settings, (SITES / name).read_text(), flags=re.M
        )
        (folder / name).write_text(text)
    variables |= {"PORT": str(port), "ADDRESS": address}
    with running_program(command, folder, port, **variables):
        yield address


def running_node_site(
    server: RunningServer, program: str, packages: list[str], folder: Path, **variables: str
) -> contextlib.AbstractContextManager[str]:
    """Run sites/<program>.mjs, like `running_site`, with these packages of npm."""
    (folder / "node_modules").symlink_to(npm_environment(program, *packages) / "node_modules")
    main = f"{program}.mjs"
    return running_site(server, program, [shutil.which("node"), main], folder, main, **variables)


def sign_in(page: Page, name: str = "ada") -> None:
    """Fill in this server's sign-in form and press Allow, each if shown; one of them has to be."""
    page.locator(f"{SIGN_IN}, {CONSENT}").first.wait_for()
    if page.locator(SIGN_IN).count():
        if page.locator("#name").is_editable():  # not if the program asks for the password again
            page.locator("#name").fill(name)
        page.get_by_label("Password", exact=True).fill(PASSWORD)
        with page.expect_navigation():
            page.get_by_role("button", name="Sign in").click()
    if page.locator(CONSENT).count():
        page.get_by_role("button", name="Allow").click()


def give_name_up(server: RunningServer, user_id: int, new_name: str) -> None:
    """Rename a player, and let the old name be free at once, as it is 90 days later."""
    users = server.open_storage().users
    users.rename(user_id, new_name)
    for kept in users.former_names.of(user_id):
        users.former_names.delete(kept.id)


def shown_json(page: Page) -> dict:
    """Return the JSON that the page shows."""
    return json.loads(page.locator("pre").inner_text())  # Chromium's page for JSON
