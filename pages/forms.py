"""What the pages with forms share."""

import contextlib
import functools
from collections.abc import Callable, Iterator

from flask import redirect, session
from werkzeug.wrappers import Response

import storage
from identity.context import get_storage
from identity.passwords import (
    PASSWORD_REFUSED,
    Busy,
    count_guess,
    describe_refusal,
    describe_unavailability,
    give_back,
    verify_password_with_limits,
)


class FormRefused(Exception):
    """A form that is to be shown again.

    `problems` maps the names of its fields ("form" for the whole) to what is wrong, in a sentence.
    """

    def __init__(
        self, problems: dict[str, str], status: int = 400, headers: dict[str, str] | None = None
    ) -> None:
        self.problems = problems
        self.status = status
        self.headers = headers or {}


def form_view(
    form_name: str,
    find: Callable[..., tuple],
    show: Callable[..., str],
    told: Callable[[], contextlib.AbstractContextManager],
) -> Callable:
    """A decorator: a view that changes what `find` makes of the address.

    Where it raises FormRefused, or what `told` lets out as that, `show` makes the page again, with
    the problems by form and field.
    """

    def decorate(change: Callable) -> Callable:
        @functools.wraps(change)
        def view(**parts: str) -> Response | str | tuple:
            found = find(**parts)
            try:
                with told():
                    return change(*found)
            except FormRefused as error:
                page = show(*found, {form_name: error.problems})
                return page, error.status, error.headers

        return view

    return decorate


LABELS = {  # of the fields
    "bio": "About you",
    "equippedFlair": "Flair",
    "game_url": "Game URL",
    "mod_level": "Level",
    "redirect_uris": "Redirect URI",
}


def refuse_problems(**problems: str | None) -> None:
    """Raise FormRefused where a field has a problem, worded as storage's rules word it."""
    found = {field: sentence(field, problem) for field, problem in problems.items() if problem}
    if found:
        raise FormRefused(found)


def sentence(field: str, problem: str) -> str:
    """ "Name is taken." """
    label = LABELS.get(field, field.replace("_", " ").capitalize())
    return f"{label} {problem}."


def refuse_wrong_password(player: storage.User, field: str, password: str) -> None:
    """Raise FormRefused unless this is the player's password."""
    with limits_told(field):
        # At the email address too: another name, which takes no password, gives no more guesses.
        right = verify_password_with_limits(
            player.password_hash, password, player.name, player.email
        )
    if not right:
        raise FormRefused({field: "That is not your password."}, 403)


def refuse_taken_email(email: str) -> None:
    """Raise FormRefused where the address has an account.

    That tells who has one, so it counts like a wrong password: nobody can ask for many.
    """
    with limits_told("form"):
        counted = count_guess(email)
    if get_storage().find_user(email):
        raise FormRefused({"email": "Email belongs to another account. Sign in with it?"}, 409)
    give_back(counted)


@contextlib.contextmanager
def limits_told(field: str) -> Iterator[None]:
    """Let PASSWORD_REFUSED out as FormRefused, which says it at this field."""
    try:
        yield
    except PASSWORD_REFUSED as error:
        problem, status, headers = describe_refusal(error)
        raise FormRefused({field: problem}, status, headers) from error


@contextlib.contextmanager
def trouble_told() -> Iterator[None]:
    """Let Busy and StorageFailed out as FormRefused: the form is shown again, as it was typed."""
    try:
        yield
    except (Busy, storage.StorageFailed) as error:
        problem, status, headers = describe_unavailability(error)
        raise FormRefused({"form": problem}, status, headers) from error


def redirect_with_notice(message: str, address: str) -> Response:
    """Go on to a page of this server, which says what was done."""
    session["done"] = message  # not flash(): what nobody looks at would pile up in the cookie
    return redirect(address, 303)


def pop_notice() -> str | None:
    """What `redirect_with_notice` said, once."""
    return session.pop("done", None)
