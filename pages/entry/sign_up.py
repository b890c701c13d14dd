"""Sign-up: who may create an account, and the sign-up form."""

import contextlib
from urllib.parse import urlencode

from flask import Blueprint, current_app, redirect, request, session
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from identity.access import admission
from identity.access.letters import ask_confirmation
from identity.access.links import is_first_account_invite
from identity.access.passwords import hash_password
from identity.access.sessions import find_application, next_address, query_to, signed_in_player
from identity.access.signing_in import start_application_session, start_session
from identity.acts import applications
from identity.acts.invitations import announce_player, audit_sign_up
from identity.acts.naming import name_actor
from identity.http.context import base_url, get_storage, mail_is_on, site_look, site_name
from identity.http.languages import page_language
from identity.http.limits import Busy, client_address, password_place, refund_attempts
from identity.site.door import read_door
from identity.site.formatting import DAY
from identity.site.pasted import find_secret, unwrap
from identity.site.settings import site_words
from model.addresses import normal_email
from model.door_records import Application
from model.errors import EmailTaken, InvalidField, StorageFailed
from model.names import normal_name
from model.records import ADMINISTRATOR, PLAYER, User
from model.rules import check_password, normal_password
from model.words import say
from pages.community.games import find_game_beside
from pages.entry.gate import Passed, check_gate, gate_fields, pass_gate, read_text, too_young_page
from pages.entry.welcome import popular_games, welcome_address
from pages.kit import forms
from pages.kit.rendering import render_guest_page, render_page, welcome_of

FIRST_DONE = say("Account created. To invite others, open Admin, then Invitations.")
UNKNOWN_INVITE = say(
    "We don't recognise this invitation. It may be used or too old. Ask for a new one."
)
GAMES_SHOWN = 3  # to who has an invitation

sign_up = Blueprint("sign_up", __name__)


@sign_up.get("/sign-up")
def show_sign_up() -> Response | tuple:
    """Show the form for a new account; `invite` is an invitation, `next` where the form leads."""
    player, invite = signed_in_player(), read_invite(request.args)
    if player is None:
        waiting = None if invite else find_application()
        if waiting and not waiting.declined:
            return redirect("/application", 303)
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
        **({} if refusal or first else gate_fields(fields, bool(find_invite(fields)), problems)),
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
    if not first and (page := too_young_page(form)):
        return page
    forms.require_cookie()
    user = add_entry(form, first)
    if isinstance(user, Application):
        start_application_session(user)
        ask_confirmation(user)
        return redirect("/application", 303)
    announce_player(get_storage(), user)
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
    if current_app.config["SIGN_UP"] in ("open", "approval"):
        return None
    if current_app.config["SIGN_UP"] == "closed":
        return say("Sign-up is closed. Ask the people who run this site.")
    if not invite:
        return say("You need an invitation. Ask the people who run this site.")
    if not get_storage().invites.find_unused(invite):
        return UNKNOWN_INVITE
    return None


def add_entry(form: MultiDict, first: bool) -> User | Application:
    """Add the account of a sign-up form, or an application if it has to wait for a moderator.

    Raises FormRefused and the errors of `as_form_errors`.
    """
    name = normal_name(form.get("name", ""))
    email = normal_email(unwrap(form.get("email", "")))
    password, store = form.get("password", ""), get_storage()
    invite = None if first else find_invite(form)
    invited, address = first or invite is not None, client_address(request.remote_addr)
    door = read_door(store)
    problems = {
        "name": forms.check_player_name(name),
        "email": forms.check_new_email(email),
        "password": check_password(password, name, email, *site_words(site_name(), base_url())),
    }
    if not first:
        problems |= check_gate(form, door, invited)
    forms.refuse_problems(**problems)
    store.users.require_name(name)
    passed = Passed({}, False, False, True) if first else pass_gate(form, door, invited)
    admission.require_left(invited)
    counted, asked = [], []
    try:
        with password_place(limits=forms.limits_of_email_questions() if email else []) as asked:
            counted, gets_in = admission.admit(passed.must_wait, invited)
            if not gets_in:
                applications.require_room(store, passed.has_proof)
            if forms.has_account(email):
                raise EmailTaken
            password_hash = hash_password(password)
        if gets_in:
            user = store.users.new(name, email, password_hash, ADMINISTRATOR if first else PLAYER)
            user.language = page_language()  # then letters are in it, too
            user.agreed, user.underage = passed.agreed, passed.underage
            is_open = current_app.config["SIGN_UP"] == "open"
            user.came_alone = is_open and not invited and mail_is_on()  # to confirm an address
            before = audit_sign_up(store, address)
            entry = store.users.register_user(user, invite, first, before)
        else:
            entry = applications.apply(
                store,
                passed.has_proof,
                name=name,
                email=email,
                password_hash=password_hash,
                text=read_text(form),
                address=address,
                language=page_language(),
                agreed=passed.agreed,
                underage=passed.underage,
            )
    except (StorageFailed, InvalidField) as error:
        # Only the sign-up: the response told something of the email address.
        refund_attempts(store, counted)
        if isinstance(error, applications.QueueFull):
            refund_attempts(store, asked)  # it told nothing
            raise forms.FormRefused({error.field: error.problem}, 429, DAY) from error
        raise
    if invited or not gets_in:  # else a school could not join: these have limits of their own
        with contextlib.suppress(StorageFailed):
            refund_attempts(store, asked)
    return entry


def find_invite(form: MultiDict) -> str | None:
    """Return the invitation in a form, None if it has none that is good where nobody needs one."""
    invite = read_invite(form)
    is_needed = current_app.config["SIGN_UP"] not in ("open", "approval")
    return invite if is_needed or get_storage().invites.find_unused(invite) else None
