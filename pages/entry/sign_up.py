"""Sign-up: who may create an account, and the sign-up form."""

from urllib.parse import urlencode

from flask import Blueprint, current_app, redirect, request, session
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from identity.access.letters import ask_confirmation
from identity.access.links import is_first_account_invite
from identity.access.passwords import hash_password
from identity.access.sessions import next_address, query_to, signed_in_player
from identity.access.signing_in import start_session
from identity.acts.invitations import audit_sign_up
from identity.acts.naming import name_actor
from identity.http.context import base_url, get_storage, site_look, site_name
from identity.http.languages import page_language
from identity.http.limits import (
    Busy,
    client_address,
    limits_of_address,
    password_place,
    refund_attempts,
)
from identity.messages.outbox import announce
from identity.site.formatting import DAY
from identity.site.pasted import find_secret, unwrap
from identity.site.settings import site_words
from model.addresses import check_email, normal_email
from model.errors import EmailTaken, InvalidField, StorageFailed
from model.names import normal_name
from model.records import ADMINISTRATOR, PLAYER, User
from model.rules import check_password, normal_password
from model.words import say
from pages.community.games import find_game_beside
from pages.entry.welcome import popular_games, welcome_address
from pages.kit import forms
from pages.kit.rendering import render_guest_page, render_page, welcome_of

FIRST_DONE = say("Account created. To invite others, open Admin, then Invitations.")
UNKNOWN_INVITE = say(
    "We don't recognise this invitation. It may be used or too old. Ask for a new one."
)
SIGN_UPS_A_DAY = 10  # from an address
GAMES_SHOWN = 3  # to who has an invitation

sign_up = Blueprint("sign_up", __name__)


@sign_up.get("/sign-up")
def show_sign_up() -> Response | tuple:
    """Show the form for a new account; `invite` is an invitation, `next` where the form leads."""
    player, invite = signed_in_player(), read_invite(request.args)
    if player is None:
        return sign_up_page(request.args, get_storage().users.is_new(), {})
    leads_to = next_address()
    return show_invitation(player, invite, leads_to) if invite else redirect(leads_to, 303)


def show_invitation(player: User, invite: str, leads_to: str) -> str:
    """Return a page that tells a player, who has an account already, what an invitation is for."""
    found = get_storage().invites.find_unused(invite)
    refusal = refusal_of_sign_up(invite, first=False) or (None if found else UNKNOWN_INVITE)
    return render_page(
        "entry/invitation.html",
        player,
        refusal=refusal,
        until=found and found.ends,
        next=leads_to,
        again=f"/sign-up?{urlencode({'invite': invite})}",
    )


def sign_up_page(fields: MultiDict, first: bool, problems: dict[str, str]) -> tuple[str, dict]:
    """Return the sign-up page, with all that was typed except the password, and its headers.

    `first` is True while nobody has an account: the first one is an administrator's.
    """
    invite, leads_to = read_invite(fields), next_address()
    refusal = refusal_of_sign_up(invite, first)
    asks_invite = bool(refusal) and not first and current_app.config["SIGN_UP"] == "invite"
    if asks_invite and invite:
        problems = {"invite": refusal}
    return render_guest_page(
        "entry/sign_up.html",
        leads_to,
        invited=None if first or refusal else describe_invitation(invite),
        refusal=refusal,
        asks_invite=asks_invite,
        first=first,
        beside=find_game_beside(leads_to),
        name=fields.get("name", ""),
        email=fields.get("email", ""),
        invite=invite,
        problems=problems,
    )


def describe_invitation(secret: str) -> dict | None:
    """Return what the page of an invitation shows, None for one that is not good.

    That is the `inviter`, None unless named, the `welcome` text and the `games` played most.
    """
    store = get_storage()
    invite = store.invites.find_unused(secret)
    if invite is None:
        return None
    inviter = name_actor(store, invite.by).user if invite.names_inviter else None
    return {
        "inviter": inviter if inviter and not inviter.suspended else None,
        "welcome": welcome_of(site_look()),
        "games": [game for game, _ in popular_games()[:GAMES_SHOWN]],
    }


@sign_up.post("/sign-up")
@forms.form_view(lambda: (request.form, get_storage().users.is_new()), sign_up_page)
def create_account(form: MultiDict, first: bool) -> Response:
    """Create an account by `name`, `email`, `password` and an `invite` if needed; sign it in."""
    if refusal_of_sign_up(read_invite(form), first):
        raise forms.FormRefused({}, 403)  # the page says why
    forms.require_cookie()
    user = add_account(form, first)
    joined = say("New player: %(name)s.", name=user.name)
    announce(get_storage(), "player", joined, f"/users/{user.id}")
    leads_to = next_address()
    try:
        start_session(user, normal_password(form["password"]))
    except (Busy, StorageFailed):  # the account is saved, only the session failed
        session.clear()  # another player may have been signed in here
        address = f"/sign-in?{query_to(leads_to)}"
        return forms.redirect_with_notice(say("Account created. Sign in to continue."), address)
    ask_confirmation(user)
    if first and current_app.config["SIGN_UP"] == "invite":
        return forms.redirect_with_notice(FIRST_DONE, welcome_address(leads_to))
    return redirect(welcome_address(leads_to), 303)


def read_invite(fields: MultiDict) -> str:
    """Return the invitation in a form or an address: by itself, or pasted as the whole link."""
    return find_secret(fields.get("invite", ""), "invite=")


def refusal_of_sign_up(invite: str, first: bool) -> str | None:
    """Return why nobody can create an account with this invitation, "" for none; or None."""
    if first:
        if is_first_account_invite(get_storage(), invite):
            return None
        return say(
            "This site is new. The person who runs it creates the first account, with the link "
            "that the server printed when it started."
        )
    if current_app.config["SIGN_UP"] == "open":
        return None
    if current_app.config["SIGN_UP"] == "closed":
        return say("Sign-up is closed. Ask the people who run this site.")
    if not invite:
        return say("You need an invitation. Ask the people who run this site.")
    if not get_storage().invites.find_unused(invite):
        return UNKNOWN_INVITE
    return None


def add_account(form: MultiDict, first: bool) -> User:
    """Add the account of a sign-up form. Raises the errors of `as_form_errors`."""
    name = normal_name(form.get("name", ""))
    email = normal_email(unwrap(form.get("email", "")))
    password = form.get("password", "")
    forms.refuse_problems(
        name=forms.check_player_name(name),
        email=check_email(email, current_app.config["EMAIL"] == "required"),
        password=check_password(password, name, email, *site_words(site_name(), base_url())),
    )
    get_storage().users.require_name(name)
    invite = None if first else read_invite(form)
    if current_app.config["SIGN_UP"] == "open" and not get_storage().invites.find_unused(
        invite or ""
    ):
        invite = None  # a used one stops nobody
    address, counted = request.remote_addr, []
    sign_ups = limits_of_address(address, "sign-up", SIGN_UPS_A_DAY, window=DAY)
    questions = forms.limits_of_email_questions() if email else []
    try:
        with password_place(limits=[*sign_ups, *questions]) as counted:
            if forms.has_account(email):
                raise EmailTaken
            password_hash = hash_password(password)
        mod_level = ADMINISTRATOR if first else PLAYER
        before = audit_sign_up(get_storage(), client_address(address))
        return get_storage().users.register(
            *(name, email, password_hash, mod_level, invite, first, before),
            language=page_language(),  # then letters are in it, too
        )
    except (StorageFailed, InvalidField):
        # Only the sign-up: the response told something of the email address.
        refund_attempts(get_storage(), counted[: len(sign_ups)])
        raise
