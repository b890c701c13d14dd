"""Email addresses: their rule, and the one form in which an address is stored, given and sent.

The form has a domain in ASCII (IDNA 2008): no program can read it as the domain of somebody else.
Earlier versions stored a domain as it was typed; such an address is found, and stays as it is.
"""

import re
import unicodedata

from model.names import INVISIBLE, NORMALISED_LENGTH, can_be_key, unique_key
from model.words import say

# RFC 5321 4.1.2 and RFC 6531 3.3: atoms between dots, and no quoted string. Without % and !, by
# which a relay sends on to another host, and =?, with which an encoded word begins (RFC 2047).
_ATOM = r"(?:[A-Za-z0-9#$&'*+/?^_`{|}~-]|=(?!\?)|[^\x00-\x7f])+"
LOCAL_PART = re.compile(rf"{_ATOM}(?:\.{_ATOM})*")
# RFC 1123 2.1, RFC 5321 4.1.2; the last label is no number (RFC 3696 2).
_LABEL = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
DOMAIN = re.compile(rf"(?:{_LABEL}\.)*(?![0-9]+$){_LABEL}")
A_LABEL = re.compile(r"(?:.*\.)?xn--", re.DOTALL | re.IGNORECASE)
LOCAL_PART_BYTES, DOMAIN_BYTES, ADDRESS_BYTES = 64, 255, 254  # RFC 5321 4.5.3.1


def check_email(email: str, required: bool = False) -> str | None:
    """Check the format of an email address, not whose it is; "" is none."""
    if (not email and not required) or ascii_email(email) is not None:
        return None
    return say("Enter an email like ada@example.org.")


def ascii_email(email: str) -> str | None:
    """Return an address with its domain in ASCII, None for one that breaks the rule."""
    local, _, domain = email.rpartition("@")
    ascii_domain = _ascii_domain(domain)
    if ascii_domain is None or not _is_local_part(local):
        return None
    address = f"{local}@{ascii_domain}"
    return address if len(address.encode()) <= ADDRESS_BYTES else None


def _is_local_part(text: str) -> bool:
    """Return True for dot-atoms of ASCII and of letters that no program takes for others."""
    if len(text) > LOCAL_PART_BYTES or not LOCAL_PART.fullmatch(text):
        return False
    if text.isascii():
        return True
    kinds = [unicodedata.category(each) for each in text if not each.isascii()]
    are_letters = all(kind[0] in "LM" or kind == "Nd" for kind in kinds)
    is_normal = unicodedata.is_normalized("NFKC", text) and not INVISIBLE.search(text)
    return are_letters and is_normal and len(text.encode()) <= LOCAL_PART_BYTES


def _ascii_domain(domain: str) -> str | None:
    """Return a domain in ASCII, None for one that is no host name."""
    if len(domain) > DOMAIN_BYTES:
        return None
    if not domain.isascii() or A_LABEL.match(domain):
        import idna  # rarely needed

        if not unicodedata.is_normalized("NFKC", domain):
            return None
        small = "".join(map(str.lower, domain))  # letter by letter: a last sigma is as any other
        try:
            domain = idna.encode(small, strict=True).decode()
        except UnicodeError:
            return None
    return domain if DOMAIN.fullmatch(domain) else None


def normal_email(text: str) -> str:
    """Return a typed address in the form in which it is stored.

    The letters are mapped as RFC 5895 says. Then the domain becomes ASCII, unless the address
    breaks the rule.
    """
    if len(text) > NORMALISED_LENGTH:  # too long to be an address
        return text
    email = unicodedata.normalize("NFKC", text.strip())
    local, at, domain = email.rpartition("@")
    email = local + at + domain.replace("\u3002", ".")  # an ideographic full stop
    return ascii_email(email) or email


def login_key(text: str) -> str:
    """Return the same key for all spellings of a name or of an address."""
    return unique_key(normal_email(text))


def login_keys(text: str) -> list[str]:
    """Return the key of a name or an address, and those under which earlier versions stored it."""
    normal = normal_email(text)
    keys = [unique_key(normal), unique_key(text)]
    as_read = attempts_key(text)
    if login_key(as_read) == keys[0]:  # not of "\u00df", whose key has "ss"
        keys.append(as_read)
    return list(dict.fromkeys(keys))


def attempts_key(text: str) -> str:
    """Return the same key for all texts by which `login_keys` finds one player.

    Addresses of two players may have the same one: "ss" and "\u00df" are one letter in it.
    """
    normal = normal_email(text)
    local, _, domain = normal.rpartition("@")
    if not (A_LABEL.match(domain) and ascii_email(normal)):
        return unique_key(normal)
    import idna

    return unique_key(f"{local}@{idna.decode(domain)}")


def check_email_key(email: str) -> str | None:
    """Check that a player can be found by a stored address, whatever its format; "" is none."""
    return None if not email or email_key(email) else "Nobody can be found by this."


def email_key(email: str) -> str | None:
    """Return the key under which a stored address is found, or None if it has none."""
    key = unique_key(email)
    return key if can_be_key("email", key) else None
