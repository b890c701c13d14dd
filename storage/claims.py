"""What a claim on a name or an email address is: a link to the record of the user who has it."""

import os
import re

from storage import User, claim_key
from storage.rules import NAME_KEY_BYTES

NAME_CLAIM = re.compile(r"[^./@][^/@]*", re.DOTALL)


def can_be_claimed(kind: str, key: str) -> bool:
    """True where the name or address makes a path, and one by which its user is found."""
    if not key.isprintable():  # half a character, for one, has no bytes
        return False
    if kind == "emails":
        return "@" in key
    return bool(NAME_CLAIM.fullmatch(key)) and len(key.encode()) <= NAME_KEY_BYTES


def user_id_in(target: str) -> int | None:
    """The id of the user that a claim's link leads to."""
    number = os.path.basename(target).removesuffix(".json")
    return int(number) if number.isdecimal() else None


def bears(user: User, kind: str, key: str) -> bool:
    """True where this is the key of the user's name or email address."""
    return claim_key(user.name if kind == "names" else user.email) == key
