"""The acts of administrators on the look of the site; `identity.site.look` shows it.

They raise NotAllowed, StorageFailed, InvalidField, TooManyAttempts, and ChangedBefore if the
look was changed since the time `seen`.
"""

import base64
import contextlib
import re
from collections.abc import Iterator

from identity.acts.actors import Authority
from identity.acts.blobs import adding, discard
from identity.acts.rights import may_administer
from identity.site.look import LOOK_ID
from identity.site.settings import WELCOME_LENGTH
from model.errors import AlreadyThere, ChangedBefore
from model.kinds import LOGOS, LOOKS
from model.records import now_ms
from model.rules import check_accent, check_site_name, refuse
from model.site_records import Logo, Look
from model.texts import check_line
from model.words import say

EMAIL = re.compile(r"[^\s@?&%<>\"]+@[^\s@?&%<>\"]+")
WEB = re.compile(r"https?://[^\s<>\"]+")


def parse_accent(text: str) -> str:
    """Return a colour as "#7a3fb0", "" for none. Raises InvalidField."""
    digits = text.strip().lower().removeprefix("#")
    digits = "".join(each * 2 for each in digits) if len(digits) == 3 else digits
    accent = f"#{digits}" if text.strip() else ""
    refuse("accent", check_accent(accent))
    return accent


def check_contact(text: str) -> str | None:
    """Return what is wrong with a web or email address, None for a good or an empty one."""
    is_address = WEB.fullmatch(text) or EMAIL.fullmatch(text)
    if not text or (is_address and check_line(text, 200) is None):
        return None
    return say("Enter an address like https://example.org/contact or ada@example.org.")


def check_welcome(text: str) -> str | None:
    """Return what is wrong with the text that guests read on the home page, or None."""
    return check_line(text, WELCOME_LENGTH, least=0)


TEXTS = {"name": check_site_name, "welcome": check_welcome, "contact": check_contact}


def change(by: Authority, seen: int, accent: str, **texts: str | None) -> None:
    """Change the accent, and `name`, `welcome` and `contact`.

    A name of "" and a welcome of None are the setting's.
    """
    for name, check in TEXTS.items():
        refuse(name, check(texts[name] or ""))
    save_fields(by, seen, "look", accent=parse_accent(accent), **texts)


def save_logo(by: Authority, seen: int, image: bytes) -> None:
    """Make a webp file the logo."""
    by.require(may_administer)
    new = Logo(max(now_ms(), seen + 1), base64.b64encode(image).decode())
    try:
        with adding(by.store.records(LOGOS), new):
            save_fields(by, seen, "look", logo=new.id)
    except AlreadyThere as error:  # of this millisecond, by another administrator
        raise ChangedBefore from error


def remove_logo(by: Authority, seen: int) -> None:
    """Remove the logo: pages show the picture of a door, as before there was one."""
    save_fields(by, seen, "look", logo=None)


@contextlib.contextmanager
def editing(by: Authority, seen: int, act: str) -> Iterator[Look]:
    """`with editing(by, seen, act) as look:` change the look, which is added if there is none.

    The `act` is for the audit log.
    """
    looks = by.store.records(LOOKS)
    with contextlib.suppress(AlreadyThere), looks.adding(Look(LOOK_ID, 0)):
        by.require(may_administer)
    with looks.edit(LOOK_ID) as look:
        by.begin_change(look, seen, act)
        look.changed = max(now_ms(), look.changed + 1)
        yield look


def save_fields(by: Authority, seen: int, act: str, **fields: str | int | None) -> None:
    """Change fields of the look, and delete a replaced logo."""
    with editing(by, seen, act) as look:
        old = look.logo
        for name, value in fields.items():
            setattr(look, name, value)
    if "logo" in fields:
        discard(by.store.records(LOGOS), old)
