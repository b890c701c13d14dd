"""What a sign-up form has besides name, email and password, to keep bots and banned people out."""

from typing import NamedTuple

from flask import current_app, request
from werkzeug.datastructures import MultiDict

from identity.access import admission
from identity.access.proof_of_work import issue_challenge, spend_proof
from identity.acts.network_bans import must_wait
from identity.http.context import get_storage
from identity.http.limits import client_address
from identity.site.door import AGREED_AGE, AGREED_TERMS, read_door
from model.records import now_ms
from model.rules import check_application
from model.site_records import Look
from model.words import say
from pages.kit.forms import FormRefused
from pages.kit.rendering import render_page

# A field that people do not see, and programs fill in. Browsers fill in no field of this name, and
# none with `display: none`; those with other names, or off the screen, they do.
TRAP = "topic"
YOUNGER = "younger"  # the answer of who is younger than the site asks for
PROOF = "proof"  # the problem of a form without one
NO_PROOF = say(
    "Your browser did not solve the puzzle of this page, or the page was open for more than "
    "15 minutes. Try again, or wait for approval."
)


class Passed(NamedTuple):
    """What a sign-up form brought."""

    agreed: dict[str, int]  # as `User.agreed`
    underage: bool
    must_wait: bool  # for a moderator, whatever the limits say
    has_proof: bool


def gate_fields(form: MultiDict, invited: bool, problems: dict[str, str]) -> dict:
    """Return what the sign-up page shows of the gate, with what was typed."""
    door, waits = read_door(get_storage()), not invited and admission.would_wait()
    return {
        "waits": waits,
        "asks_text": waits or "text" in problems or PROOF in problems,
        "text": form.get("text", ""),
        "minimum_age": door.minimum_age,
        "age": form.get("age"),
        "has_terms": door.terms > 0,
        "agrees": "terms" in form,
        "challenge": issue_challenge() if not invited and admission.needs_proof() else None,
        "has_trap": not invited,
    }


def check_gate(form: MultiDict, door: Look, invited: bool) -> dict[str, str | None]:
    """Return the problems of the fields of the gate, as `refuse_problems` takes them."""
    is_old_or_young = form.get("age") in (str(door.minimum_age), YOUNGER)
    must_agree = door.terms > 0 and "terms" not in form
    return {
        TRAP: say("Leave this field empty.") if form.get(TRAP) and not invited else None,
        "age": say("Choose your age.") if door.minimum_age and not is_old_or_young else None,
        "text": check_application(read_text(form)),
        "terms": say("Agree to the terms to join.") if must_agree else None,
    }


def too_young_page(form: MultiDict) -> tuple[str, int] | None:
    """Return the page, and its status, for who is too young to have an account; or None."""
    door = read_door(get_storage()) if form.get("age") == YOUNGER else None
    if door is None or not door.minimum_age or door.admits_younger:
        return None
    return render_page("entry/too_young.html", None, minimum_age=door.minimum_age), 403


def pass_gate(form: MultiDict, door: Look, invited: bool) -> Passed:
    """Return what a form brought in which `check_gate` found no problem.

    A proof is used up even if something is refused later. Raises FormRefused, NotAllowed.
    """
    has_ban = must_wait(get_storage(), client_address(request.remote_addr))
    minimum, now = door.minimum_age, now_ms()
    underage = minimum > 0 and form.get("age") == YOUNGER
    agreed = {AGREED_AGE.format(minimum): now} if minimum and not underage else {}
    if door.terms:
        agreed[AGREED_TERMS.format(door.terms)] = now
    if invited:
        return Passed(agreed, underage, has_ban, True)
    wants_to_wait, has_proof = "wait" in form, True
    if admission.needs_proof():
        has_proof = spend_proof(form.get("challenge", ""), form.get("nonces", ""))
        if not has_proof and not wants_to_wait:
            raise FormRefused({PROOF: NO_PROOF}, 403)
    is_for_all = current_app.config["SIGN_UP"] == "approval"
    return Passed(agreed, underage, is_for_all or has_ban or wants_to_wait, has_proof)


def read_text(form: MultiDict) -> str:
    """Return what a person wrote who asks to join."""
    return form.get("text", "").strip()
