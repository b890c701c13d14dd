"""Programs that sign players in here: docs/apps/ has their redirect URIs and their settings."""

import functools
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from identity.settings import RESOURCES
from storage.client_rules import check_opens
from storage.records import Client
from storage.rules import check_redirect_uri, check_redirect_uris, origin_of, refuse

PAGE = re.compile(
    r"# ([^\n]+)\n.*?^    identity-server client add --for (\S+) (\S+)\n(.*?)"
    r"^## Settings\n+(.*?)\s*(?:^## .*)?",
    re.MULTILINE | re.DOTALL,
)
LABELS = {"redirect_uris": "Redirect URI", "post_logout_redirect_uris": "After signing out"}


class Program(NamedTuple):
    """A program at an address. Its settings are Markdown: paragraphs and fenced blocks of code."""

    title: str
    name: str  # in commands and forms
    address: str
    uris: dict[str, list[str]]  # by the names of a client's fields
    settings: str

    def fill_in(self, base_url: str, client_id: str, secret: str | None) -> str:
        """Return the settings for a client; without its secret, that placeholder stays."""
        values = {"https://id.example.org": base_url, "CLIENT_ID": client_id}
        values["CLIENT_SECRET"] = secret or "CLIENT_SECRET"
        placeholders = r"\b(https://id\.example\.org|CLIENT_ID|CLIENT_SECRET)\b"
        return re.sub(placeholders, lambda found: values[found[0]], self.settings)


def read_page(page: str, address: str | None = None) -> Program:
    """Return the program of a page, at this address instead of the example's."""
    title, name, example, lines, settings = PAGE.fullmatch(page).groups()
    if address:
        return read_page(page.replace(example, address))
    uris = {
        field: re.findall(rf"^- {label}: `(.+?)`", lines, re.MULTILINE)
        for field, label in LABELS.items()
    }
    return Program(title, name, example, uris, settings)


@functools.cache
def find_pages() -> dict[str, str]:
    """Return the pages by the names of their programs, in the order of the titles."""
    paths = Path(RESOURCES).glob("docs/apps/*.md")
    pages = sorted((each.read_text("utf-8") for each in paths), key=str.casefold)
    return {match[2]: match[0] for match in map(PAGE.fullmatch, pages) if match}


def find_program(name: str, address: str) -> Program:
    """Return a program that is to be registered, at its address. Raises InvalidField."""
    refuse("program", None if name in find_pages() else f"Choose one of {', '.join(find_pages())}.")
    refuse("address", check_redirect_uri(address) or check_opens(address))
    path = urlsplit(address).path.rstrip("/")
    program = read_page(find_pages()[name], f"{origin_of(address)}{path}")
    refuse("address", check_redirect_uris(program.uris["redirect_uris"]))  # they may be too long
    return program


def split_settings(settings: str) -> list[tuple[list[str], str]]:
    """Return each block of code after the text above it, whose items at odd indexes are code."""
    parts = re.findall(r"(.*?)(?:^```\w*\n(.*?)^```$|\Z)", settings, re.MULTILINE | re.DOTALL)
    return [(text.strip().split("`"), code) for text, code in parts if text.strip() or code]


def program_of(client: Client) -> Program | None:
    """Return the program whose redirect URIs a client has; if several do, the client's namesake.

    Many an app has a path of one part, like /callback: then its name has to be the program's.
    """
    found, first = [], next(iter(client.redirect_uris), "")
    for page in find_pages().values():
        example = read_page(page)
        path = example.uris["redirect_uris"][0].removeprefix(example.address)
        if first.endswith(path) and (path.count("/") > 1 or client.name == example.title):
            found.append(read_page(page, first.removesuffix(path)))
    found = [each for each in found if each.uris["redirect_uris"] == client.redirect_uris]
    return min(found, key=lambda each: each.title != client.name, default=None)
