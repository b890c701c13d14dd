"""The rules of each field but names and email addresses: `model.names`, `model.addresses`.

Each `check_` function returns None, or a sentence that says how to correct the value.
"""

import base64
import functools
import ipaddress
import re
import socket
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from model.errors import InvalidField
from model.names import NORMALISED_LENGTH, unique_key
from model.texts import BIO_CONTROLS, check_line, find_hidden, show_character
from model.words import say

BIO_LENGTH = 1000  # characters
SHORT_TEXT_LENGTH = 200  # characters
PASSWORD_LENGTH = (12, 1024)  # characters
# The parameters of a hash decide what checking it costs. These allow the cost of our own hashes,
# about 32 MiB and 0.3 s. One of gigabytes or hours would end the worker that checks it.
SCRYPT_HASH = re.compile(r"scrypt:(\d{1,7}):(\d{1,2}):(\d{1,2})\$[!-#%-~]{1,64}\$[0-9a-f]{128}")
MOST_SCRYPT_MEMORY = 2**18  # n * r: 32 MiB
MOST_SCRYPT = 2**20  # n * r * p
PBKDF2_HASH = re.compile(r"pbkdf2:sha(?:1|256|512):(\d{1,7})\$[!-#%-~]{1,64}\$[0-9a-f]{40,128}")
MOST_PBKDF2 = 2_000_000  # rounds
PASSWORD_METHOD = "scrypt:32768:8:3"  # OWASP's; Werkzeug's default costs a third of it
# A hash of another server's hash: wrapped:<our hash>|<method>$<salt>, without the other's digest.
WRAPPED = "wrapped:"
COMMON_PASSWORDS = Path(__file__).with_name("common_passwords.txt")  # lower case, one a line
COMMON_LENGTH = 4  # characters; shorter ones are part of half of all passwords
LETTERS_ADDED = 4  # to a common password make it an uncommon one
FLAIR_LENGTH = 30  # characters
GROUPS = ("players", "moderators", "administrators")  # by mod level, each a part of the one before
USER_ID = re.compile(r"[1-9][0-9]{0,14}")
IDS_LEFT_OUT = 10_000  # by a restore: games may know users who signed up after the backup
USER_IDS_END = 10**15 - 2 * IDS_LEFT_OUT  # ids have up to 15 digits, after a restore too
TIME_END = 10**15  # milliseconds: the address of a picture has room for 15 digits
PICTURE_FILE = re.compile(rf"({USER_ID.pattern})(-[1-9][0-9]{{0,14}})?\.webp")  # id, timestamp
CLIENT_ID = re.compile(r"[a-z0-9]{16,64}")
HANDLE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")  # a name has up to 30 letters; "ß" is two
COVER_ID = re.compile(rf"({CLIENT_ID.pattern})-([1-9][0-9]{{0,14}})")  # client id, timestamp
TIME_ID = re.compile(r"[0-9]{15}-[0-9a-f]{8}")  # milliseconds since 1970, random digits
REPORT_REASONS = {  # as the form words them
    "insults": say("Insults or threats"),
    "profile": say("The name, picture or text"),
    "cheating": say("Cheating"),
    "spam": say("Spam"),
    "other": say("Something else"),
}
REPORT_LENGTH = 500  # characters
THUMBPRINT = re.compile(r"[A-Za-z0-9_-]{43}")  # RFC 7638: a SHA-256 in base64url
SHA256 = re.compile(r"[0-9a-f]{64}")
FAMILY_ID = re.compile(r"[A-Za-z0-9_-]{16}")
INVITE_ID = re.compile(rf"{TIME_ID.pattern}|{SHA256.pattern}")
WORD = re.compile(r"[a-z]{1,30}")  # the id of a record of which there is one
NOTE_LENGTH = 300  # characters
TERMS_LENGTH = 20_000  # characters
SITE_NAME_LENGTH = 60  # characters
PASSKEY_NAME_LENGTH = 60  # characters
REDIRECT_URI_LENGTH = 2000  # characters
LOOPBACK_PORT = re.compile(r"^(https?://(?:127\.0\.0\.1|\[::1\]))(?::[0-9]{1,5})?(?=[/?]|$)")
# RFC 6761 6.3, and the other names in /etc/hosts of Debian and Red Hat.
LOOPBACK_NAME = re.compile(
    r"(?:.*\.)?localhost|ip6-(?:localhost|loopback)|localhost[46]?(?:\.localdomain[46]?)?"
)
# RFC 8252 7.1: the developer's domain name in reverse. A scheme without a dot may be anybody's.
PRIVATE_USE = re.compile(r"[a-z][a-z0-9+-]*(?:\.[a-z0-9+-]+)+:/")
NO_FRAGMENT = "Leave out the # and everything after it."
HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])")


def check_bio(bio: str) -> str | None:
    """Check a bio or the description of a game: plain text, in one or more lines."""
    return _check_lines(bio, BIO_LENGTH)


def _check_lines(text: str, most: int) -> str | None:
    """Check a text of several lines: its length, and that it shows all of its characters."""
    if len(text) > most:
        values = {"most": most, "length": len(text)}
        return say("Use up to %(most)s characters. This text has %(length)s.", **values)
    refused = find_hidden(text, allowed=BIO_CONTROLS)
    if not refused:
        return None
    shown = show_character(refused)
    return say("Use plain text. %(character)s can't be shown.", character=shown)


def check_flair(flair: str) -> str | None:
    """Check a flair, a short text that an administrator grants."""
    return check_line(flair, FLAIR_LENGTH)


def normal_password(text: str) -> str:
    """Return a typed password in the form that is hashed.

    OpaqueString (RFC 8265 4.2): letters keep their case, each space is U+0020. But wide letters
    become plain ones (NFKC): some keyboards type them, and their players do not see which.
    """
    if len(text) > NORMALISED_LENGTH:  # no password is as long
        return text
    return unicodedata.normalize("NFKC", text.replace("\u1680", " "))  # NFKC maps all other spaces


def check_password(password: str, name: str, email: str, *site_words: str) -> str | None:
    """Check a new password: its length, and that it is not common and has none of these words.

    They are the player's name and email and the names of the site (`site_words`). Attackers try
    them first, also without their spaces.
    """
    typed, password = password, normal_password(password)
    # One character may stand for eighteen: as many have to be typed.
    if min(len(typed), len(password)) < PASSWORD_LENGTH[0] or len(password) > PASSWORD_LENGTH[1]:
        least, most = PASSWORD_LENGTH
        return say("Use %(least)s or more characters, up to %(most)s.", least=least, most=most)
    folded = unique_key(password)[: PASSWORD_LENGTH[1]]  # some letters have longer small ones
    words = [unique_key(each) for each in (name, email.partition("@")[0], *site_words)]
    for word in (*words, *(each.replace(" ", "") for each in words)):
        if len(word) >= 4 and word in folded:
            return say("Leave your name, your email and this site's name out of your password.")
    if _is_common(folded):
        return say("Too common. Try three random words.")
    return None


def check_hash_format(kept_hash: str) -> str | None:
    """Check the format of a stored password hash, which is empty for a user without a password."""
    hashes = [kept_hash] if kept_hash else []
    if kept_hash.startswith(WRAPPED):
        ours, _, theirs = kept_hash.removeprefix(WRAPPED).partition("|")
        hashes = [ours, f"{theirs}${'0' * 128}"]
    if all(map(_is_affordable, hashes)):
        return None
    return "This is not a Werkzeug hash, or it takes too long to check."


def _is_affordable(kept_hash: str) -> bool:
    """Return True for a hash in a Werkzeug format that takes little memory and time to check."""
    if match := SCRYPT_HASH.fullmatch(kept_hash):
        n, r, p = map(int, match.groups())
        affordable = n * r <= MOST_SCRYPT_MEMORY and 0 < n * r * p <= MOST_SCRYPT
        return affordable and n > 1 and n & (n - 1) == 0
    match = PBKDF2_HASH.fullmatch(kept_hash)
    return bool(match) and 0 < int(match[1]) <= MOST_PBKDF2


def _is_common(folded: str) -> bool:
    """Return True for a common password, also repeated or with a few letters added.

    Attackers' lists have such variants: "password1234", "qwertyqwerty", "!iloveyou!".
    """
    # Read again for each new password, in 2 ms: workers rarely need it and do not keep it.
    for common in COMMON_PASSWORDS.read_text(encoding="utf-8").split("\n"):
        if common in folded and len(common) >= COMMON_LENGTH:
            added = folded.replace(common, "")
            if sum(map(str.isalpha, added)) < LETTERS_ADDED:
                return True
    return False


def check_redirect_uri(uri: str, public: bool = False) -> str | None:
    """Check a redirect URI that is to be registered (RFC 6749 3.1.2, RFC 9700 2.1).

    One of a public client may have a private-use scheme (RFC 8252 7.1), and plain http only on the
    player's own device.
    """
    if not uri.isascii() or not uri.isprintable() or re.search(r"[\s\"'<>\\^`{|}]", uri):
        return "Use a full URL in plain ASCII, like https://example.org/callback."
    if len(uri) > REDIRECT_URI_LENGTH:
        return f"Use up to {REDIRECT_URI_LENGTH:,} characters."
    if public and (scheme := PRIVATE_USE.match(uri)):
        if uri.startswith("/", scheme.end()):  # a host there proves nothing
            return "Use one slash after the scheme, like org.example.game:/callback."
        return NO_FRAGMENT if "#" in uri else None
    try:
        parts = urlsplit(uri)
        parts.port  # noqa: B018 -- reading it checks it
    except ValueError:
        return "This is not a URL. Use one like https://example.org/callback."
    if not has_origin(uri):
        if public:
            return "Start with https://, http://127.0.0.1 or a scheme like org.example.game:/."
        return "Start with https:// or http://."
    if "@" in parts.netloc or not _is_host(_without_port(parts.netloc)):
        return "Use a URL with a host name, and without a user name."
    if "#" in uri:
        return NO_FRAGMENT
    if public and uri.startswith("http://") and not _is_loopback(parts.netloc):
        return "Use https://. Plain http:// is only for 127.0.0.1, [::1] and localhost."
    return None


def has_origin(uri: str) -> bool:
    """Return True for a redirect URI with http or https, False for a private-use scheme."""
    return uri.startswith(("https://", "http://"))


def is_on_the_web(uri: str) -> bool:
    """Return True for a URL of another host: neither a loopback address nor a private-use URI."""
    return has_origin(uri) and not _is_loopback(urlsplit(uri).netloc)


def _is_loopback(netloc: str) -> bool:
    """Return True for the player's own device, in each spelling that a browser accepts."""
    host = _without_port(netloc).lower()
    if LOOPBACK_NAME.fullmatch(host):
        return True
    try:
        if host.startswith("["):
            address = ipaddress.IPv6Address(host[1:-1])
            address = address.ipv4_mapped or address
        else:  # one to four numbers: decimal, octal or hexadecimal, as in 127.1 or 0x7f000001
            address = ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return False
    return address.is_loopback or address.is_unspecified


def _is_host(text: str) -> bool:
    """Return True for a host name, an IPv4 address, or an IPv6 address in brackets."""
    # urlsplit checks an IPv6 address only since Python 3.11.4.
    is_address = not text.startswith("[") or _is_ip_address(ipaddress.IPv6Address, text[1:-1])
    return is_address and bool(HOST.fullmatch(text))


def _is_ip_address(address_type: type, text: str) -> bool:
    """Return True if `address_type`, such as ipaddress.IPv4Address, accepts the text."""
    try:
        address_type(text)
    except ValueError:
        return False
    return True


def _without_port(netloc: str) -> str:
    return re.sub(r":[0-9]*$", "", netloc)


def without_loopback_port(uri: str) -> str:
    """Return a redirect URI to compare: RFC 8252 7.3 leaves the port of a loopback address free."""
    return LOOPBACK_PORT.sub(r"\1", uri)


def warn_unencrypted(urls: list[str]) -> str | None:
    """Return a warning about the first URL with plain http that leads over a network, or None."""
    for url in urls:
        if not url.startswith("http://") or check_redirect_uri(url):  # a query may have any text
            continue
        if not _is_loopback(urlsplit(url).netloc):
            return (
                f"{url} is not encrypted: anyone on the network can read and change what is sent "
                "there, codes too. Use https:// instead."
            )
    return None


def check_secret_hash(secret_sha256: str, public: bool = False) -> str | None:
    """Check the hash of the secret of a confidential client; a public client has none."""
    if public:
        return "A public app has no secret." if secret_sha256 else None
    return None if SHA256.fullmatch(secret_sha256) else "This is not a SHA-256."


def check_device(device: bool, public: bool) -> str | None:
    """Check whether a client may sign players in on another device."""
    return "Only a public app can do this." if device and not public else None


def check_redirect_uris(uris: list[str], public: bool = False) -> str | None:
    """Check the redirect URIs of a confidential or a public client."""
    for uri in uris:
        if problem := check_redirect_uri(uri, public):
            return f"{uri!r}: {problem}"
    return None


def check_groups(groups: list[str]) -> str | None:
    """Check the groups of a client: those of a mod level, or `flair:` and a flair."""
    for each in groups:
        name, _, flair = each.partition(":")
        if each not in GROUPS and (name != "flair" or check_flair(flair)):
            return f"{each!r}: Use {', '.join(GROUPS)} or flair: and a flair."
    return None


@functools.lru_cache(maxsize=2048)  # for each key of each game
def check_game_url(url: str | None) -> str | None:
    """Check the address of a game; None for a client without one."""
    if url is None:
        return None
    if problem := check_redirect_uri(url):
        return problem
    host = _without_port(urlsplit(url).netloc)
    if host.startswith("["):
        return "Use a host name or an IPv4 address. Browsers can't show a game from IPv6."
    # Browsers read 127.1 and 0x7f000001 as 127.0.0.1: one origin must not look like several.
    is_numeric = re.fullmatch(r"(.*\.)?([0-9]+|0[Xx][0-9A-Fa-f]*)", host)
    if is_numeric and not _is_ip_address(ipaddress.IPv4Address, host):
        return "Write the IP address as four numbers, like 127.0.0.1."
    return None


def origin_of(url: str) -> str:
    """Return the origin of a URL, built from its scheme, host and port. Raises ValueError."""
    parts = urlsplit(url)
    host = _without_port(parts.netloc.rpartition("@")[2]).lower()
    if not _is_host(host):
        raise ValueError(f"no host in {url!r}")
    default = {"https": 443, "http": 80}.get(parts.scheme)
    port = "" if parts.port in (None, default) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def check_short_text(text: str) -> str | None:
    """Check a text of one line, such as the reason of a suspension; it may be empty."""
    return check_line(text, SHORT_TEXT_LENGTH, least=0)


def check_report_reason(reason: str) -> str | None:
    """Check that the reason of a report is one of REPORT_REASONS."""
    return None if reason in REPORT_REASONS else say("Choose what is wrong.")


def check_report_text(text: str) -> str | None:
    """Check the text of a report or of an announcement: plain text, which may be empty."""
    return _check_lines(text, REPORT_LENGTH)


def check_application(text: str) -> str | None:
    """Check what a person wrote who asks to join: plain text, which may be empty."""
    return _check_lines(text, NOTE_LENGTH)


def check_terms(text: str) -> str | None:
    """Check the text of the terms, or about privacy: plain text, which may be empty."""
    return _check_lines(text, TERMS_LENGTH)


def check_note(text: str) -> str | None:
    """Check what a moderator wrote about a player."""
    return check_line(text, NOTE_LENGTH)


def check_passkey_name(name: str) -> str | None:
    """Check the name that a player gives to a passkey."""
    return check_line(name, PASSKEY_NAME_LENGTH)


def check_site_name(name: str) -> str | None:
    """Check what the site is called, "" for what its setting says."""
    return check_line(name, SITE_NAME_LENGTH, least=0)


def check_accent(colour: str) -> str | None:
    """Check the accent of the pages, "" for none."""
    is_colour = re.fullmatch("(#[0-9a-f]{6})?", colour)
    return None if is_colour else say("Write a colour as six digits, like #7a3fb0.")


def check_base64(text: str) -> str | None:
    """Check the Base64 of a file."""
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return "This is not Base64."
    return None


def check_mod_level(mod_level: int | None) -> str | None:
    """Check a mod level; None is not one."""
    return None if mod_level in (0, 1, 2) else say("Use 0, 1 or 2.")


def check_times(times: dict[str, int]) -> Iterator[str]:
    """Yield a clause for each field, by name in `times`, whose value is no time."""
    for field, time in times.items():
        if not 0 <= time < TIME_END:
            yield f"{field} is not a time"


def refuse(field_name: str, problem: str | None) -> None:
    """Raise InvalidField if a `check_` function returned a problem; None does nothing."""
    if problem:
        raise InvalidField(field_name, problem)
