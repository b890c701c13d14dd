"""The rules of a client's fields, and its keys.

Every record holds those of `model.rules`. A new redirect URI or game URL is, besides, one that
browsers open: records from before that rule are read as they are.
"""

import re
import socket
import unicodedata
from urllib.parse import urlsplit

from model import names, rules
from model.kind import Rules
from model.records import Client
from model.words import say_in

# WHATWG Fetch 2.10: they are those of protocols that a request could be mistaken for.
BLOCKED_PORTS = {0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87}
BLOCKED_PORTS |= {95, 101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139}
BLOCKED_PORTS |= {143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548}
BLOCKED_PORTS |= {554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659}
BLOCKED_PORTS |= {4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697, 10080}
WILDCARD = re.compile(r"[/\w*]\*(?=/|$)")
IN_NUMBERS = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")  # WHATWG URL 3.5: an IPv4 address
TAGS = {  # what a game may be, and what pages call it
    "action": say_in("tag", "Action"),
    "adventure": say_in("tag", "Adventure"),
    "arcade": say_in("tag", "Arcade"),
    "board": say_in("tag", "Board"),
    "cards": say_in("tag", "Cards"),
    "creative": say_in("tag", "Creative"),
    "multiplayer": say_in("tag", "Multiplayer"),
    "platformer": say_in("tag", "Platformer"),
    "puzzle": say_in("tag", "Puzzle"),
    "quiz": say_in("tag", "Quiz"),
    "racing": say_in("tag", "Racing"),
    "role-playing": say_in("tag", "Role-playing"),
    "simulation": say_in("tag", "Simulation"),
    "sports": say_in("tag", "Sports"),
    "strategy": say_in("tag", "Strategy"),
}
TAGS_LENGTH = 3  # of one game
TITLE_BYTES = 28  # of a name; each is two letters of a key, behind the shelf
HOST_LENGTH, LABEL_LENGTH = 253, 63  # characters (RFC 1035 2.3.4)
A_LABEL = "xn--"  # RFC 5890 2.3.2.1


def kept_rules(client: Client) -> Rules:
    """Return the rules that no record of a client may break, by field."""
    return {
        "secret_sha256": lambda secret: rules.check_secret_hash(secret, client.public),
        "redirect_uris": lambda uris: rules.check_redirect_uris(uris, client.public),
        "game_url": rules.check_game_url,
        "post_logout_redirect_uris": lambda uris: rules.check_redirect_uris(uris, client.public),
        "backchannel_logout_uri": lambda uri: (uri and rules.check_redirect_uri(uri)) or None,
    }


def new_rules(client: Client) -> Rules:
    """Return the rules, by field, of values that are about to be set."""
    return kept_rules(client) | {
        "name": names.check_client_name,
        "redirect_uris": lambda uris: check_new_uris(uris, client.public),
        "game_url": lambda url: rules.check_game_url(url) or (url and check_opens(url)),
        "description": rules.check_bio,
        "post_logout_redirect_uris": lambda uris: check_new_uris(uris, client.public),
        "backchannel_logout_uri": check_logout_uri,
        "only_groups": rules.check_groups,
        "device": lambda device: rules.check_device(device, client.public),
        "tags": check_tags,
    }


def check_new_uris(uris: list[str], public: bool = False) -> str | None:
    """Check the redirect URIs that a confidential or a public client is about to get."""
    if problem := rules.check_redirect_uris(uris, public):
        return problem
    problems = ((uri, check_opens(uri)) for uri in uris)
    return next((f"{uri!r}: {problem}" for uri, problem in problems if problem), None)


def check_logout_uri(uri: str) -> str | None:
    """Check where an app is about to be told of sign-outs, "" for nowhere."""
    return (rules.check_redirect_uri(uri) or check_opens(uri)) if uri else None


def check_opens(uri: str) -> str | None:
    """Check that browsers open a redirect URI that `rules.check_redirect_uri` accepts."""
    parts = urlsplit(uri)
    if WILDCARD.search(parts.path):
        return "Write the whole address. A * does not stand for other ones."
    if not rules.has_origin(uri):
        return None
    if parts.port in BLOCKED_PORTS:
        return f"Browsers don't open port {parts.port}. Use another one."
    if ":" not in parts.hostname and not _is_opened(parts.hostname):
        return "Browsers don't open this host. Check its dots and numbers."
    return None


def _is_opened(host: str) -> bool:
    """Return True for a host, in lower case, that browsers look up."""
    if IN_NUMBERS.fullmatch(host):
        return _is_ipv4(host)
    return len(host) <= HOST_LENGTH and all(map(_is_label, host.split(".")))


def _is_ipv4(host: str) -> bool:
    """Return True for an IPv4 address in any of the forms that browsers know: 127.1, 0x7f.1."""
    try:
        socket.inet_aton(host)
    except OSError:
        return False
    return True


def _is_label(label: str) -> bool:
    """Return True for a label of a host name, which is in Punycode if it is an A-label."""
    if not label.startswith(A_LABEL):
        return 0 < len(label) <= LABEL_LENGTH
    try:
        text = label.removeprefix(A_LABEL).encode().decode("punycode")
    except UnicodeError:
        return False
    return len(label) <= LABEL_LENGTH and not text.isascii()


def check_tags(tags: list[str]) -> str | None:
    """Check that a game has few tags, each of TAGS and once."""
    if unknown := next((tag for tag in tags if tag not in TAGS), None):
        return f"{unknown!r} is no tag. The tags are {', '.join(TAGS)}."
    if len(tags) > TAGS_LENGTH or len(set(tags)) < len(tags):
        return f"Choose up to {TAGS_LENGTH} different tags."
    return None


def may_get_email(client: Client) -> bool:
    """Return True for a client that may ask for emails; on the play page no game gets one."""
    return not client.no_email and bool(client.redirect_uris or client.device)


# -- keys, for the indexes of `model.kinds` --------------------------------------------------------


def shelf(client: Client) -> str | None:
    """Return whether a game is on the home page, as a key; None for an app that is no game."""
    return ("listed" if client.listed else "unlisted") if client.is_game else None


def by_time(client: Client) -> str | None:
    """Return the key of a game on its shelf in the order in which games were registered."""
    place = shelf(client)
    return place and f"{place}{client.created:015d}"


def by_title(client: Client) -> str | None:
    """Return the key of a game on its shelf in the order of names, accents and case aside."""
    place, name = shelf(client), unicodedata.normalize("NFKD", client.name).casefold()
    return place and place + name.encode(errors="replace")[:TITLE_BYTES].hex()


def awaits_listing(client: Client) -> str | None:
    """Return the key of a game that no moderator has listed, declined or disabled, else None."""
    is_decided = client.listed or client.declined or client.disabled
    return "waiting" if client.is_game and not is_decided else None


def signs_out(client: Client) -> str | None:
    """Return the key of an app to which a sign-out may return (OpenID Connect), else None."""
    return "returns" if client.post_logout_redirect_uris else None
