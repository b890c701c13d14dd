"""The domains of email addresses that a site takes, as administrators decided.

A domain counts for all domains below it. Of the site's own lists a process keeps sorted hashes: a
set of the texts would take fifteen times the memory.
"""

import bisect
import functools
import importlib.util
import io
import logging
import re
from array import array
from collections.abc import Set

from identity.site.door import ALLOWED, REFUSED, read_door, read_text
from model.addresses import A_LABEL, DOMAIN, DOMAIN_BYTES, ascii_email, normal_email
from model.errors import InvalidField
from model.words import say
from storage import Storage

LOG = logging.getLogger(__name__)
INSTALL = "pip install 'identity-server[domains]'"
MOST_LINES, MOST_BYTES, LONGEST_LINE = 100_000, 4 * 2**20, 300
# "@example.org", "*.example.org", "ada@example.org", "https://example.org:8443/path"
PASTED = re.compile(r"(?:https?://)?(?:[^@\s/]*@)?(?:\*?\.)?([^@\s/:*<>]+)(?::\d+)?(?:/\S*)?")
DOTS = ".\u3002\uff0e\uff61"  # IDNA takes all of them for full stops (RFC 5895 2)


def check_domain(store: Storage, email: str) -> str | None:
    """Return why the site does not take an email address, None if it does; "" is none."""
    door = read_door(store)
    if not (door.lists_changed or door.refuses_throwaway or door.only_allowed):
        return None
    labels = (normal_domain(email.rpartition("@")[2]) or "").split(".")
    domains = [".".join(labels[number:]) for number in range(len(labels))]  # and those above it
    if _is_listed(store, ALLOWED, door.lists_changed, domains):
        return None
    if door.only_allowed:
        return say("This site takes only email addresses of some domains. Use one of those.")
    is_bad = bool(email) and not domains[0]  # which `check_email` refuses, too
    is_bad = is_bad or (door.refuses_throwaway and not read_throwaway().isdisjoint(domains))
    if is_bad or _is_listed(store, REFUSED, door.lists_changed, domains):
        return say("This site does not take email addresses of this domain. Use another one.")
    return None


def normal_domain(text: str) -> str | None:
    """Return a domain in ASCII and in lower case, None for text that is none."""
    text = text.rstrip(DOTS)
    if len(text) < DOMAIN_BYTES and DOMAIN.fullmatch(text) and not A_LABEL.match(text):
        return text.lower()  # as most are, a tenth of the time
    email = ascii_email(normal_email(f"a@{text}"))
    return email and email.removeprefix("a@").lower()


def knows_throwaway() -> bool:
    """Return True if the library that lists throw-away domains is installed."""
    return importlib.util.find_spec("disposable_email_domains") is not None


def read_throwaway() -> Set[str]:
    """Return the domains that this library lists, none if somebody removed it."""
    try:
        from disposable_email_domains import blocklist  # 1.3 MiB, for sites that want it
    except ImportError:
        LOG.warning("addresses of throw-away services are taken, no list is installed: %s", INSTALL)
        return frozenset()
    return blocklist


def _is_listed(store: Storage, text_id: str, changed: int, domains: list[str]) -> bool:
    """Return True if a list of the site, as it was `changed` last, has one of the domains."""
    hashes = _read_hashes(store, text_id, changed)
    places = ((bisect.bisect_left(hashes, hash(each)), hash(each)) for each in domains)
    return any(hashes[place : place + 1] == array("q", [each]) for place, each in places)


@functools.lru_cache(maxsize=2)  # two lists; an older one goes at the first look after a change
def _read_hashes(store: Storage, text_id: str, _changed: int) -> array:
    return hash_domains(read_text(store, text_id).text)


def hash_domains(text: str) -> array:
    """Return the sorted hashes of the domains in a list that `tidy_list` returned."""
    lines = (line.partition("#")[0].strip() for line in io.StringIO(text))
    return array("q", sorted(map(hash, filter(None, lines))))


def tidy_list(text: str) -> str:
    """Return a typed list with each domain in its normal form. Raises InvalidField."""
    lines = [each.replace("\t", " ").strip() for each in text.strip().splitlines()]
    if len(lines) <= MOST_LINES:
        text = "\n".join(_tidy_line(*each) for each in enumerate(lines, 1))
    if len(lines) > MOST_LINES or len(text.encode()) > MOST_BYTES:
        values = {"most": MOST_LINES, "number": len(lines)}
        problem = say("Use up to %(most)s lines and 4 MB. You sent %(number)s lines.", **values)
        raise InvalidField("list", problem)
    return text


def _tidy_line(number: int, line: str) -> str:
    typed, mark, comment = line.partition("#")
    is_plain = len(line) <= LONGEST_LINE and line.isprintable()
    match = PASTED.fullmatch(typed.strip()) if is_plain else None
    domain = (match and normal_domain(match[1])) or ""
    if not is_plain or (typed and "." not in domain):  # "com" would be half of the world
        raise InvalidField(
            "list", say("Line %(number)s is no domain like example.org.", number=number)
        )
    return f"{domain} {mark}{comment}".strip()
