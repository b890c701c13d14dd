"""Recovery codes: ten texts on paper, each good once in place of the password.

The acts are logged, as those on passkeys.
"""

import secrets

from identity.acts.actors import Authority
from identity.acts.rights import is_oneself
from identity.site.pasted import find_code
from model.errors import AlreadyThere
from model.kinds import RECOVERY_CODES
from model.records import RecoveryCodes, now_ms, sha256
from model.words import say, say_number
from storage import Storage

CODES = 10
# 31, without 0 and O, 1, I and L. Sixteen are 79 random bits, so a code needs no slow hash.
LETTERS = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"


def hash_of_code(text: str) -> str | None:
    """Return the SHA-256 of a recovery code as somebody typed it, None for other text."""
    code = find_code(text, LETTERS, length=16)
    return sha256(code) if code else None


def count_codes(store: Storage, user_id: int) -> int:
    """Return how many recovery codes a player has left."""
    found = store.records(RECOVERY_CODES).find(user_id)
    return len(found.hashes) if found else 0


def is_recovery_code(store: Storage, user_id: int, text: str) -> bool:
    """Return True for an unused recovery code of a player."""
    typed = hash_of_code(text)
    found = store.records(RECOVERY_CODES).find(user_id) if typed else None
    return found is not None and typed in found.hashes


def issue(by: Authority, user_id: int, replace: bool = True) -> list[str]:
    """Replace the codes of a player, and return the new ones, which cannot be read again.

    Without `replace`, return [] if the player has codes: of racing calls one makes them.
    """
    letters = ["".join(map(secrets.choice, [LETTERS] * 16)) for _ in range(CODES)]
    new = RecoveryCodes(user_id, [sha256(each) for each in letters], now_ms())

    kept = by.store.records(RECOVERY_CODES)

    def begin() -> None:
        by.require(is_oneself, by.store.users.read(user_id))
        by.audit("user recovery-codes", user=user_id)

    try:
        with kept.adding(new):
            begin()
    except AlreadyThere:
        with kept.edit(user_id) as codes:
            if codes.hashes and not replace:
                return []
            begin()
            codes.hashes, codes.created = new.hashes, new.created
    return ["-".join(each[start : start + 4] for start in range(0, 16, 4)) for each in letters]


def use(by: Authority, user_id: int, text: str) -> bool:
    """Use a recovery code up; False if `text` is no unused code: of racing uses one wins.

    The player is told. Raises NotFound for a player who never had codes.
    """
    typed = hash_of_code(text)
    with by.store.records(RECOVERY_CODES).edit(user_id) as codes:
        if typed not in codes.hashes:
            return False
        by.audit("user recovery-code", user=user_id)
        codes.hashes.remove(typed)
    text = say("A recovery code was used for your account. You have no recovery code left.")
    if codes.hashes:
        text = say_number(
            "A recovery code was used for your account. You have %(number)s recovery code left.",
            "A recovery code was used for your account. You have %(number)s recovery codes left.",
            len(codes.hashes),
        )
    with by.store.users.edit(user_id) as user:
        user.notify(text)
    return True
