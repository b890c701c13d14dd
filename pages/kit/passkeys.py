"""Passkeys on pages: where they are offered, what is shown of them, and their challenges."""

import contextlib
from collections.abc import Iterator

from flask import abort, request, session
from markupsafe import Markup

from identity.access.passkeys import CEREMONY_TIME, PasskeyRefused, UnknownPasskey, new_bytes
from identity.acts.passkeys import passkeys_of
from identity.acts.recovery_codes import count_codes
from identity.http.context import base_url, get_storage
from identity.http.languages import shown
from identity.http.limits import ATTEMPTS_PER_ADDRESS, count_attempts, limits_of_address
from identity.http.responses import NO_STORE
from identity.site.formatting import format_date
from identity.site.hosts import find_rp_id
from model.errors import TooManyAttempts
from model.records import CLOCK_TOLERANCE, User, now_ms
from model.words import say
from pages.kit import forms

USE_KEPT = 2 * CEREMONY_TIME  # seconds: longer than a challenge is good
TRY_AGAIN = say("This took too long, or was sent before. Try again.")
NOT_ACCEPTED = say("This passkey was not accepted. Try again, or use another way to sign in.")
UNKNOWN = say("This site doesn't know that passkey any more. Use another way to sign in.")


def own_rp_id() -> str | None:
    """Return the host that this site's passkeys are bound to, None if it offers none."""
    return find_rp_id(base_url())


def require_offer() -> None:
    """Raise NotFound where passkeys are not offered."""
    if own_rp_id() is None:
        abort(404)


def passkey_card(player: User, codes: list[str] | None = None) -> dict | None:
    """Return the passkeys of a player as the page shows them, None where they are not offered.

    `codes` are new recovery codes, which no other page shows.
    """
    rp_id = own_rp_id()
    if rp_id is None:
        return None
    found = passkeys_of(get_storage(), player.id, rp_id)
    return {
        "passkeys": [
            {
                "id": each.id,
                "name": each.name,
                "synced": each.synced,
                "created": format_date(each.created),
                "used": format_date(each.used) if each.used else None,
            }
            for each in sorted(found, key=lambda passkey: passkey.created)
        ],
        "codes_left": count_codes(get_storage(), player.id),
        "codes": codes,
    }


def message(*found: object) -> tuple[dict, dict]:
    """Return the first problem of a form as JSON, `{"message": <a sentence>}`, and headers.

    This is a `show` of `form_view`: the last argument has the problems by field.
    """
    [problem, *_] = found[-1].values()
    text = problem.striptags() if isinstance(problem, Markup) else shown(problem)
    return {"message": text}, NO_STORE


def issue_challenge(purpose: str, handle: str = "") -> str:
    """Return a challenge that is good once, in this session, for CEREMONY_TIME seconds.

    `handle` names the player: to add a passkey the user handle, to confirm with one the id.
    The challenge stands in the signed cookie of the session. A later challenge replaces it.
    """
    challenge = new_bytes()
    session["challenge"] = [purpose, challenge, now_ms(), handle]
    return challenge


def use_challenge(purpose: str) -> tuple[str, str]:
    """Use up the challenge of this session for a purpose; return the challenge and its handle.

    An old cookie still has it, so the use is counted, for all workers. Raises FormRefused for a
    challenge that is missing, of another purpose, too old or used.
    """
    problem = TRY_AGAIN if session else forms.NO_COOKIES
    issued_for, challenge, since, handle = session.pop("challenge", ("", "", 0, ""))
    try:
        age = now_ms() - since  # below 0 if the clock of another machine is ahead
        is_good = -CLOCK_TOLERANCE * 1000 <= age < CEREMONY_TIME * 1000
        if issued_for == purpose and is_good:
            get_storage().attempts.count("challenge", challenge, 1, USE_KEPT)
            return challenge, handle
    except TooManyAttempts:
        pass
    raise forms.FormRefused({"form": problem})


@contextlib.contextmanager
def counting_refusals() -> Iterator[None]:
    """Count a passkey that the block refuses against the limits of the address of this request.

    Raises TooManyAttempts, and FormRefused: 404 for an unknown passkey, 400 for one refused.
    """
    store, most = get_storage(), ATTEMPTS_PER_ADDRESS
    limits = limits_of_address(request.remote_addr, "passkey from", most)
    for each in limits:  # what is accepted is not counted: no passkey can be guessed
        store.attempts.require_left(*each)
    try:
        yield
    except UnknownPasskey as error:
        count_attempts(store, limits)
        raise forms.FormRefused({"form": UNKNOWN}, 404) from error
    except PasskeyRefused as error:
        count_attempts(store, limits)
        raise forms.FormRefused({"form": NOT_ACCEPTED}) from error
