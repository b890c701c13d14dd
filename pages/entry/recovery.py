"""A lost password, and confirming an email address: what the links and codes of letters do."""

from flask import Blueprint, abort, redirect, request
from werkzeug.wrappers import Response

from identity.access.letters import ask_confirmation, count_letter, notify, request_recovery
from identity.access.links import (
    CONFIRMATION,
    PASSWORD,
    Link,
    ask,
    find_asked,
    find_by_address,
    find_link,
    find_way_back,
    is_right_code,
)
from identity.access.passwords import clear_wrong_passwords
from identity.access.sessions import (
    find_application,
    first_to_terms,
    next_address,
    query_to,
    require_player,
    signed_in_player,
)
from identity.access.signing_in import LINK_AMR, require_allowed_network
from identity.acts import applications, emails
from identity.http.context import get_storage, mail_is_on
from identity.site.formatting import MINUTE
from identity.site.pasted import unwrap
from model.addresses import check_email, normal_email
from model.door_records import Application
from model.errors import TooManyAttempts
from model.records import FormerEmail, User
from model.words import Words, say, say_number
from pages.account.security import read_new_password, set_new_password
from pages.entry.welcome import welcome_address
from pages.kit import forms
from pages.kit.actors import authority_of
from pages.kit.proof import ask_proof
from pages.kit.rendering import render_page

UNKNOWN_LINK = say("We don't recognise this link. It may be used or too old. Ask for a new one.")
WRONG_CODE = say("Wrong code. Type the six digits from the newest email, or open its link.")
NO_LINK = say("Paste the whole link.")

recovery = Blueprint("recovery", __name__)


def require_mail() -> None:
    """Raise NotFound unless letters can be sent."""
    if not mail_is_on():
        abort(404)


# -- a lost password ----------------------------------------------------------------------------


@recovery.get("/recover")
def show_recovery() -> str:
    """Show the page that a link opens: a script puts the link, which stays unused, into a form."""
    return recovery_page({})


def recovery_page(problems: dict[str, str]) -> str:
    """Return the page where a letter is asked for, or the code of one is typed."""
    is_asking = "again" in request.args or (problems and request.path == "/recover")
    asked = None if is_asking else find_asked(PASSWORD)
    leads_to = next_address()
    return render_page(
        "entry/recover.html",
        None,
        asked=asked,
        mail=mail_is_on(),
        email=request.form.get("email", ""),
        next=leads_to,
        next_query=None if leads_to == "/" else query_to(leads_to),
        problems=problems,
    )


@recovery.post("/recover")
@forms.form_view(lambda: (), recovery_page)
def ask_for_letter() -> Response:
    """Send a letter to the `email`, if that is the confirmed address of a player.

    The response does not tell whether it is.
    """
    require_mail()
    email = normal_email(unwrap(request.form.get("email", "")))
    forms.refuse_problems(email=check_email(email, required=True))
    try:
        count_letter(PASSWORD, email)
    except TooManyAttempts as error:
        problem = say_number(
            "Look in your mailbox, in the spam folder too. You can ask again in %(number)s minute.",
            "Look in your mailbox, in the spam folder too. "
            "You can ask again in %(number)s minutes.",
            -(-error.retry_after // MINUTE),
        )
        raise forms.FormRefused({"email": problem}, 429, error.retry_after) from error
    request_recovery(ask(PASSWORD, email))
    leads_to = next_address()
    return redirect("/recover" if leads_to == "/" else f"/recover?{query_to(leads_to)}", 303)


def find_target() -> tuple[str]:
    """Return the `link` in the form, "" without one; a `find` of `form_view`."""
    return (request.form.get("link", "").strip(),)


def read_link(text: str) -> tuple[Link | None, tuple[str, FormerEmail] | None]:
    """Return what a link says, and the former email address that it gives back, with its record.

    The first is None if the link is not good, the second if it gives no address back.
    """
    if way_back := find_way_back(get_storage(), text):
        return Link(way_back[0]), way_back[1:]
    return find_link(get_storage(), PASSWORD, text), None


def needs_code(found: Link) -> bool:
    """Return True if the link needs the code of its letter: another browser asked for the link."""
    asked = find_asked(PASSWORD)
    return found.browser not in ("", asked.browser if asked else "")


def new_password_page(link: str, problems: dict[str, str]) -> str:
    """Return the page for a new password: a form, or why not; without a link, `recovery_page`."""
    if not link:
        return recovery_page(problems)
    found, way_back = read_link(link)
    refusal = None if found else UNKNOWN_LINK
    if found and found.user.suspended:
        refusal = forms.describe_own_suspension(found.user.suspension)
    return render_page(
        "entry/new_password.html",
        None,
        refusal=refusal,
        user_name=found.user.name if found else "",
        link=link,
        next=next_address(),
        needs_code=bool(found) and needs_code(found),
        email=way_back and way_back[0],
        problems=problems,
    )


@recovery.post("/recover/password")
@forms.form_view(find_target, new_password_page)
def take_new_password(link: str) -> Response | str:
    """Set the `new_password` of the player whom a `link` or the `code` of a letter names.

    Without a new password the page asks for one. `next` is where it leads. Wrong passwords from
    this address count no longer: they may be why there is a link.
    """
    found, way_back = read_link(link) if link else (None, None)
    if link and (found is None or found.user.suspended):
        raise forms.FormRefused({}, 403)  # the page says why
    if link and "new_password" not in request.form:
        return new_password_page(link, {})
    user = found.user if found and not needs_code(found) else read_user_by_code(found)
    if user.suspended:
        raise forms.FormRefused({"form": forms.describe_own_suspension(user.suspension)}, 403)
    require_allowed_network(user)  # before anything ends
    password = read_new_password(user)
    authority_of(user).log("user new-password", user=user.id)
    if way_back:  # first: a session that a passkey starts after the others ended would stay
        emails.remove_other_ways(authority_of(user), user.id)
    set_new_password(user, password, LINK_AMR)
    if way_back:
        emails.take_back(authority_of(user), user.id, *way_back)
    clear_wrong_passwords(*user.logins)
    notify(get_storage().users.read(user.id), "password")  # whose address may be another one now
    leads_to = next_address()
    done = "/account" if leads_to == "/" else welcome_address(leads_to)  # no form leads to an app
    return forms.redirect_with_notice(say("Password set. You are signed in."), first_to_terms(done))


def read_user_by_code(found: Link | None) -> User:
    """Return the player whom a link names, or a letter to the address typed in this browser.

    Nothing else names a player. Raises FormRefused without the right `code` in the form.
    """
    if found:
        (user, browser), email = found, None
    elif asked := find_asked(PASSWORD):
        email, browser = asked.address, asked.browser
        user = find_by_address(get_storage(), email, confirmed=True)
    else:
        raise forms.FormRefused({"link": NO_LINK})
    require_code(PASSWORD, user, browser, email)
    return user


def require_code(purpose: str, user: User | None, browser: str, email: str | None) -> None:
    """Raise FormRefused unless the form has the `code` of a letter to this user in this browser.

    `email` is the address of the letter, None if its link was sent, too. None as user has no code.
    """
    code = request.form.get("code", "")
    forms.refuse_problems(code=None if code else say("Type the code from the email."))
    with forms.as_form_errors("code"):
        if not is_right_code(get_storage(), purpose, user, browser, code, email):
            raise forms.FormRefused({"code": WRONG_CODE}, 403)


# -- confirming an address ----------------------------------------------------------------------


@recovery.get("/confirm")
def show_confirmation() -> str:
    """Show the page that a link opens: a script puts the link, which stays unused, into a form."""
    require_mail()
    return confirmation_page("", {})


def confirmation_page(link: str, problems: dict[str, str]) -> str:
    """Return the page where an address is confirmed, by a link, "" for none, or by a code."""
    found = find_link(get_storage(), CONFIRMATION, link) if link else None
    player = signed_in_player()
    own = player or find_application()
    return render_page(
        "entry/confirm.html",
        player,
        link=link,
        email=found.user.email if found else None,
        needs_code=bool(found) and (own is None or own.id != found.user.id),
        takes_code=own is not None and not link,
        problems=problems,
    )


@recovery.post("/confirm")
@forms.form_view(find_target, confirmation_page)
def confirm_email(link: str) -> Response:
    """Confirm the address of whom a `link` names; elsewhere with the `code` as well.

    A signed-in player, or who applies, may type the code alone.
    """
    require_mail()
    player, asked = signed_in_player(), find_asked(CONFIRMATION)
    own = player or find_application()
    if link:
        found = find_link(get_storage(), CONFIRMATION, link)
    else:
        found = Link(own, asked.browser) if own and asked else None
    if found is None:
        problem = UNKNOWN_LINK if link else NO_LINK
        raise forms.FormRefused({"link": problem}, 403 if link else 400)
    if not (link and own and own.id == found.user.id):
        require_code(CONFIRMATION, *found, email=None if link else found.user.email)
    if isinstance(found.user, Application):
        with applications.editing(get_storage(), found.user.id) as kept:
            kept.email_verified = kept.email == found.user.email
        return forms.redirect_with_notice(say("Email confirmed."), "/application")
    if found.user.suspended:
        suspension = forms.describe_own_suspension(found.user.suspension)
        raise forms.FormRefused({"form": suspension}, 403)
    emails.confirm(authority_of(found.user), found.user.id, found.user.email)
    leads_to = "/account/security" if player else "/"
    return forms.redirect_with_notice(say("Email confirmed."), leads_to)


@recovery.post("/account/email/confirm")
def send_confirmation() -> Response:
    """Send the letter that asks the player to confirm the address once more."""
    require_mail()
    return forms.redirect_with_notice(ask_again(require_player()), "/account/security")


def ask_again(user: User | Application) -> Words:
    """Ask for the letter that confirms an address once more, and return what was done."""
    if user.email_verified or not user.email:
        return say("There is nothing to confirm.")
    if check_email(user.email):
        return say("We can't send emails to this address. Enter another one.")
    if ask_confirmation(user):
        return say("An email is on its way. Open its link, or type its code.")
    return say("We sent several emails there lately. Look in your mailbox, in the spam folder too.")


@recovery.post("/account/email/letters")
def change_letters() -> Response:
    """Turn off the letters of `emails.CHOICES` but those whose kinds are in `letters`."""
    require_mail()
    player = require_player()
    muted = [kind for kind in emails.CHOICES if kind not in request.form.getlist("letters")]
    mutes_sign_ins = "sign-in" in muted and "sign-in" not in emails.muted_by(player)
    if mutes_sign_ins:
        ask_proof(player)
    emails.change_letters(authority_of(player), player.id, muted)
    if mutes_sign_ins:
        notify(player, "letters")
    return forms.redirect_with_notice(say("Saved."), "/account/security")
