"""What the pages with forms share."""

import contextlib
import functools
from collections.abc import Callable, Iterator

from flask import current_app, make_response, redirect, request, session
from markupsafe import Markup
from werkzeug.wrappers import Response

from identity.access.letters import notify
from identity.access.passwords import verify_password_with_limits
from identity.acts import recovery_codes
from identity.acts.account_words import say_suspended
from identity.acts.actors import NotAllowed
from identity.acts.recovery_codes import is_recovery_code
from identity.http.context import get_storage, site_look, site_name
from identity.http.languages import page_language, shown
from identity.http.limits import (
    BUSY_RETRY_AFTER,
    EMAIL_QUESTIONS,
    AttemptLimit,
    Busy,
    count_attempts,
    limits_of_address,
)
from identity.http.responses import storage_http_error
from identity.http.stamps import check_stamp
from identity.site.domains import check_domain
from identity.site.formatting import DAY, HOUR, MINUTE
from identity.site.languages import speaking
from model.addresses import check_email
from model.errors import (
    DamagedRecord,
    EmailTaken,
    InvalidField,
    LastAdministrator,
    SaveUnconfirmed,
    StorageFailed,
    TooManyAttempts,
    TooManyClients,
)
from model.names import check_name
from model.records import Suspension, User
from model.rules import USER_ID
from model.words import Words, say, say_number
from pages.kit.actors import authority_of
from pages.kit.rendering import contact_of, link_to, mark_time

NOT_SAVED = {  # by status
    503: say("Nothing was saved. Try again in a moment."),
    507: say("The disk is full, so nothing was saved. Tell the people who run this site."),
}
EMAIL_AS_NAME = say("Everyone sees your name, so choose one that is not an email.")
NO_COOKIES = say(
    "Your browser blocks cookies from this site, so you can't stay signed in. Allow cookies, then "
    "try again."
)
NO_SUCH_FLAIR = say("You do not have this flair. Choose another one.")
MISTAKE = say("A mistake? Write to us.")
ACCOUNT_CHANGED = say("This account has just changed. Try again.")


class FormRefused(Exception):
    """The form has to be shown again.

    `problems` maps the names of its fields ("form" for the whole form) to whole sentences.
    `retry_after` is in seconds.
    """

    def __init__(
        self, problems: dict[str, str], status: int = 400, retry_after: int | None = None
    ) -> None:
        self.problems = problems
        self.status = status
        self.headers = {"Retry-After": str(retry_after)} if retry_after else {}


def form_view(
    find: Callable[..., tuple], show: Callable, form_name: str | None = None, stamped: bool = False
) -> Callable:
    """Return a decorator for a view that handles a form, and is called with what `find` returns.

    If the view raises FormRefused, or an error of `as_form_errors`, `show` is called with the same
    values and the problems by field, and returns the page. On a page of several forms, with names,
    the problems are by form and field. A `stamped` form has a `stamp`, which `render_page` makes:
    what it does is not undone as easily, so a press in the page's first second does not count.
    """

    def decorate(change: Callable) -> Callable:
        @functools.wraps(change)
        def view(**parts: str) -> Response | str:
            found = find(**parts)
            try:
                with as_form_errors():
                    if stamped:
                        refuse_problems(form=check_stamp(request.form.get("stamp", "")))
                    return change(*found)
            except FormRefused as error:
                problems = {form_name: error.problems} if form_name else error.problems
                response = make_response(show(*found, problems))
                response.status_code = error.status
                response.headers.update(error.headers)
                return response

        return view

    return decorate


@contextlib.contextmanager
def as_form_errors(field: str = "form") -> Iterator[None]:
    """Translate the errors of forms to FormRefused, which a view raises to show the form again.

    The problem is shown at the field that an InvalidField names, otherwise at `field`.
    SaveUnconfirmed and other errors pass.
    """
    try:
        yield
    except InvalidField as error:
        status = 400 if type(error) is InvalidField else 409
        raise FormRefused({error.field: error.problem}, status) from error
    except NotAllowed as error:
        raise FormRefused({field: str(error)}, 403) from error
    except (LastAdministrator, TooManyClients) as error:
        raise FormRefused({field: str(error)}, 409) from error
    except TooManyAttempts as error:
        raise FormRefused({field: say_too_many(error)}, 429, error.retry_after) from error
    except Busy as error:
        raise FormRefused({field: error.description}, 503, error.retry_after) from error
    except SaveUnconfirmed:
        raise  # a page of its own says so: the form might no longer be shown
    except StorageFailed as error:
        status = storage_http_error(error, current_app.logger).code
        raise FormRefused({field: NOT_SAVED[status]}, status, BUSY_RETRY_AFTER) from error


def say_too_many(error: TooManyAttempts) -> Words:
    """Return what to do after too many tries: how long to wait for the next one."""
    if error.retry_after <= HOUR:
        minutes = -(-error.retry_after // MINUTE)
        return say_number(
            "Too many tries. Try again in %(number)s minute.",
            "Too many tries. Try again in %(number)s minutes.",
            minutes,
        )
    return say_number(  # a limit of a day
        "Too many tries from you or your network. Try again in %(number)s hour.",
        "Too many tries from you or your network. Try again in %(number)s hours.",
        -(-error.retry_after // HOUR),
    )


def describe_own_suspension(suspension: Suspension) -> Markup:
    """Return what a suspended player reads who has just given the right password or link."""
    address = link_to(contact_of(site_look()))
    with speaking(page_language()):
        advice = Markup('<a href="{}">{}</a>').format(address, MISTAKE) if address else MISTAKE
        return Markup("{} {}").format(say_suspended(suspension, mark_time), advice)


def refuse_problems(**problems: str | None) -> None:
    """Raise FormRefused if a field has a problem: a whole sentence; None and "" are none."""
    found = {field: problem for field, problem in problems.items() if problem}
    if found:
        raise FormRefused(found)


def require_cookie() -> None:
    """Raise FormRefused if the page of this form had a cookie, and the browser did not keep it."""
    if "cookie" in request.form and not session:
        session["guest"] = True  # a lost one: another press works
        raise FormRefused({"form": NO_COOKIES})


def require_own_password(player: User, field: str) -> None:
    """Raise FormRefused unless this field of the form has the player's password.

    A recovery code will do, and is used up. A wrong password counts, and too many are refused.
    """
    password = request.form.get(field, "")
    is_code = is_recovery_code(get_storage(), player.id, password)
    with as_form_errors(field):
        # Counted for the email address too: otherwise a changed name would allow more attempts.
        right = verify_password_with_limits(
            player.password_hash, password, *player.logins, player_id=player.id, is_code=is_code
        )
        right = use_recovery_code(player, password) if is_code else right
    if not right:
        raise FormRefused({field: say("Wrong password. Try again.")}, 403)


def use_recovery_code(user: User, code: str) -> bool:
    """Use up a recovery code of a player; False if another request was faster."""
    is_used = recovery_codes.use(authority_of(user), user.id, code)
    if is_used:
        notify(user, "recovery code")
    return is_used


def tell_language_changed(before: User, language: str) -> None:
    """Write to a player, in the language from `before`, if another one was chosen.

    Otherwise a thief of the session could make all further letters unreadable.
    """
    if language != before.language:
        notify(before, "language", language=language)


def require_unused_email(email: str, player_id: int | None) -> None:
    """Raise EmailTaken if the address has an account, and FormRefused after too many questions."""
    with as_form_errors("email"):
        count_attempts(get_storage(), limits_of_email_questions(player_id))
    if has_account(email):
        raise EmailTaken


def limits_of_email_questions(player_id: int | None = None) -> list[AttemptLimit]:
    """Return the limits on asking whether an email address has an account.

    The limits are of the address of this request, and of the signed-in player, None for a guest. A
    response tells who has an account, so each question counts, whatever the answer.
    """
    address, most = request.remote_addr, EMAIL_QUESTIONS
    limits = limits_of_address(address, "email question from", most, window=DAY)
    if player_id is None:
        return limits
    return [AttemptLimit("email question by", str(player_id), most, DAY), *limits]


def check_player_name(name: str) -> str | None:
    """Return what is wrong with a player's name, or None."""
    return EMAIL_AS_NAME if "@" in name else check_name(name, site_name())


def check_new_email(email: str) -> str | None:
    """Return why the site does not take an email address, "" for none; None if it does."""
    is_needed = current_app.config["EMAIL"] == "required"
    return check_email(email, is_needed) or check_domain(get_storage(), email)


def has_account(name_or_email: str) -> bool:
    """Return True if a player has this name or email address."""
    try:
        return get_storage().users.find_by_login(name_or_email) is not None
    except DamagedRecord:
        return True  # the player keeps both until the record is repaired


def seen_time() -> int:
    """Return when a record had been changed last as its form was shown; 0 if that is unknown."""
    seen = request.form.get("seen", "")
    return int(seen) if USER_ID.fullmatch(seen) else 0


def redirect_with_notice(message: str, address: str) -> Response:
    """Redirect to a page of this server, which shows the message once."""
    # Not flash(): messages that nobody sees would fill the cookie.
    session["notice"] = shown(message)
    return redirect(address, 303)


def pop_notice() -> str | None:
    """Return the message of `redirect_with_notice`, None if there is none or it was shown."""
    return session.pop("notice", None)
