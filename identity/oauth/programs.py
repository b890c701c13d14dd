"""Programs that sign players in here: docs/apps/ has their redirect URIs and their settings."""

import contextlib
import functools
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from identity.site.settings import RESOURCES
from model.client_rules import check_opens, may_get_email
from model.errors import InvalidField, StorageError
from model.records import Client
from model.rules import check_redirect_uri, check_redirect_uris, origin_of, refuse, warn_unencrypted
from storage import Storage

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # language, code
PAGE = re.compile(
    r"# ([^\n]+)\n.*?^    identity-server client add --for (\S+) (\S+)\n(.*?)"
    r"^## Settings\n+(.*?)\s*(?:^## .*)?",
    re.MULTILINE | re.DOTALL,
)
LABELS = {"redirect_uris": "Redirect URI", "post_logout_redirect_uris": "After signing out"}
LOGOUT_URI = re.compile("^- Back-channel logout: `(.+?)`", re.MULTILINE)
VERIFIED_ONLY = "- Email: verified addresses alone\n"  # on the page of a program keyed on them
UNVERIFIED = "If this program recognises people by their email, anybody can become anybody there."
SITE_NAME, HANDLE = "Identity Server", "YOUR_HANDLE"  # placeholders, as on the pages
OF_HANDLE = re.compile("handle|preferred_username", re.IGNORECASE)


def _without(characters: str) -> Callable[[str], str]:
    """Return a function that leaves characters out which programs read in different ways."""
    return lambda text: text.translate(dict.fromkeys(map(ord, characters)))


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _before(special: str) -> Callable[[str], str]:
    """Return a function that puts a backslash before these characters."""
    return lambda text: re.sub(f"([{re.escape(special)}])", r"\\\1", text)


# How text is written in a block of code, by its language; the pages have it in double quotes there,
# for PHP in single ones. A block without a language is for the fields of a form.
ESCAPES = dict.fromkeys(("js", "json", "python", "toml", "yaml"), _in_json) | {
    "env": _without('"\\$`'),  # no escape works in systemd, Docker and each library for such files
    "html": html.escape,
    "ini": _without('"\\$`#;%'),
    "php": _before("\\'"),
    "sh": _before('"\\$`'),
}


class Program(NamedTuple):
    """A program at an address. Its settings are Markdown: paragraphs and fenced blocks of code."""

    title: str
    name: str  # in commands and forms
    address: str
    uris: dict[str, list[str]]  # by the names of a client's fields
    logout_uri: str  # of back-channel logout; "": none
    settings: str
    by_email: bool  # it recognises people by their email

    def client_fields(self, mail: bool) -> dict[str, str | list[str] | bool]:
        """Return the fields of a new client; if `by_email`, it gets emails only with `mail`."""
        fields = {"name": self.title, "no_email": self.by_email and not mail}
        return fields | self.uris | {"backchannel_logout_uri": self.logout_uri}

    def fill_in(
        self,
        base_url: str,
        client_id: str,
        secret: str | None,
        site_name: str = SITE_NAME,
        handle: str | None = None,
    ) -> str:
        """Return the settings for a client whose owner has this handle.

        Without the secret or the handle, that placeholder stays.
        """
        values = {"https://id.example.org": base_url, "CLIENT_ID": client_id}
        values |= {"CLIENT_SECRET": secret or "CLIENT_SECRET", HANDLE: handle or HANDLE}
        placeholders = rf"\b({'|'.join(map(re.escape, values))})\b"
        filled = re.sub(placeholders, lambda found: values[found[0]], self.settings)
        return BLOCK.sub(
            lambda block: block[0].replace(SITE_NAME, ESCAPES.get(block[1], str)(site_name)), filled
        )

    def fill_in_for(
        self, store: Storage, client: Client, secret: str | None, base_url: str, site_name: str
    ) -> str:
        """Return the settings for a client, with the handle of its owner, if it has one."""
        handle = handle_of_owner(store, client, self)
        return self.fill_in(base_url, client.id, secret, site_name, handle)


def handle_of_owner(store: Storage, client: Client, program: Program) -> str | None:
    """Return the handle of a client's owner, if it has one and the program's page tells of it."""
    if client.owner_id is not None and OF_HANDLE.search(find_program_pages()[program.name]):
        with contextlib.suppress(StorageError):
            return store.handles.of(store.users.read(client.owner_id))
    return None


def find_warnings(client: Client, program: Program | None, mail: bool) -> list[str]:
    """Return what may be wrong with a client: plain http, and emails that nobody has verified."""
    others = [client.game_url or "", client.backchannel_logout_uri]
    plain = warn_unencrypted([*client.redirect_uris, *others])
    found = [plain] if plain else []
    if not mail and may_get_email(client):
        found.append(UNVERIFIED)
    elif not mail and program and program.by_email:
        found.append(
            f"{program.title} recognises people by their email, and emails are not verified here: "
            "it gets none. Set up mail, then allow this app to get them."
        )
    return found


def read_page(page: str, address: str | None = None) -> Program:
    """Return the program that a page describes, at this address instead of the example's."""
    title, name, example, lines, settings = PAGE.fullmatch(page).groups()
    if address:
        return read_page(page.replace(example, address))
    uris = {
        field: re.findall(rf"^- {label}: `(.+?)`", lines, re.MULTILINE)
        for field, label in LABELS.items()
    }
    logout_uri = "".join(LOGOUT_URI.findall(lines)[:1])
    return Program(title, name, example, uris, logout_uri, settings, VERIFIED_ONLY in lines)


@functools.cache
def find_program_pages() -> dict[str, str]:
    """Return the pages by the names of their programs, in the order of the titles."""
    paths = Path(RESOURCES).glob("docs/apps/*.md")
    pages = sorted((each.read_text("utf-8") for each in paths), key=str.casefold)
    return {match[2]: match[0] for match in map(PAGE.fullmatch, pages) if match}


def read_named_program(name: str, address: str) -> Program:
    """Return a program that is to be registered, at its address. Raises InvalidField."""
    if name not in find_program_pages():
        choices = f"one of {', '.join(find_program_pages())}" if name else "a program"
        raise InvalidField("program", f"Choose {choices}.")
    refuse("address", check_redirect_uri(address) or check_opens(address))
    path = urlsplit(address).path.rstrip("/")
    program = read_page(find_program_pages()[name], f"{origin_of(address)}{path}")
    refuse("address", check_redirect_uris(program.uris["redirect_uris"]))  # they may be too long
    # Few may have http:// here (`identity.acts.apps`).
    return program._replace(logout_uri="") if address.startswith("http:") else program


def split_settings(settings: str) -> list[tuple[list[str], str]]:
    """Return each block of code after the text above it, whose items at odd indexes are code."""
    parts = re.findall(r"(.*?)(?:^```\w*\n(.*?)^```$|\Z)", settings, re.MULTILINE | re.DOTALL)
    return [(text.strip().split("`"), code) for text, code in parts if text.strip() or code]


def program_of(client: Client) -> Program | None:
    """Return the program whose redirect URIs a client has, or None; of several, its namesake.

    Many an app has a path of one part, like /callback: then its name has to be the program's.
    """
    found, first = [], next(iter(client.redirect_uris), "")
    for page in find_program_pages().values():
        example = read_page(page)
        path = example.uris["redirect_uris"][0].removeprefix(example.address)
        if first.endswith(path) and (path.count("/") > 1 or client.name == example.title):
            found.append(read_page(page, first.removesuffix(path)))
    found = [each for each in found if each.uris["redirect_uris"] == client.redirect_uris]
    return min(found, key=lambda each: each.title != client.name, default=None)
