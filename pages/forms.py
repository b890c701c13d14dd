"""What the pages with forms share."""

from flask import flash, get_flashed_messages, redirect
from werkzeug.wrappers import Response

import storage
from identity_sessions import PASSWORD_REFUSED, check_password, refusal_in_words


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


def refuse_problems(**problems: str | None) -> None:
    """Raise FormRefused where a field has a problem, worded as storage's rules word it."""
    found = {field: sentence(field, problem) for field, problem in problems.items() if problem}
    if found:
        raise FormRefused(found)


def sentence(field: str, problem: str) -> str:
    """ "Name is taken." """
    words = {"equippedFlair": "Flair"}.get(field, field.replace("_", " ").capitalize())
    return f"{words} {problem}."


def refuse_wrong_password(player: storage.User, field: str, password: str) -> None:
    """Raise FormRefused unless this is the player's password."""
    try:
        right = check_password(player.name, player.password_hash, password)
    except PASSWORD_REFUSED as error:
        problem, status, headers = refusal_in_words(error)
        raise FormRefused({field: problem}, status, headers) from error
    if not right:
        raise FormRefused({field: "That is not your password."}, 403)


def say_done(message: str, address: str) -> Response:
    """Go on to a page of this server, which says what was done."""
    flash(message)
    return redirect(address, 303)


def what_was_done() -> str | None:
    """What `say_done` said, once."""
    return next(iter(get_flashed_messages()), None)
