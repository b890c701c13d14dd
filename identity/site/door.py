"""Who may come in, and on which terms: what administrators decided, as the pages read it."""

from identity.site.look import LOOK_ID
from model.door_records import Text
from model.kinds import LOOKS, TEXTS
from model.records import User, now_ms
from model.site_records import Look
from storage import Storage

TERMS, PRIVACY, REFUSED, ALLOWED = "terms", "privacy", "refused", "allowed"  # ids of texts
AGREED_TERMS, AGREED_AGE = "terms {}", "age {}"  # keys of `User.agreed`: a version, and years


def read_door(store: Storage) -> Look:
    """Return the look, which has the rules of who may come in. Raises StorageError."""
    return store.records(LOOKS).find(LOOK_ID) or Look(LOOK_ID, 0)


def read_text(store: Storage, text_id: str) -> Text:
    """Return a text of administrators, an empty one if there is none. Raises StorageError."""
    return store.records(TEXTS).find(text_id) or Text(text_id, "")


def agreed_version(user: User) -> int:
    """Return the newest version of the terms that a player agreed to, 0 for none."""
    versions = (key.split() for key in user.agreed)
    return max((int(number) for word, number in versions if word == "terms"), default=0)


def must_agree(user: User, look: Look) -> bool:
    """Return True if a player has to agree to the terms before anything else."""
    return now_ms() >= look.terms_from and is_asked(user, look)


def is_asked(user: User, look: Look) -> bool:
    """Return True if a player has not agreed to the terms that count now or will."""
    return look.terms > 0 and agreed_version(user) < look.terms_asked
