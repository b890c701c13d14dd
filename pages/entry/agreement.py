"""The terms of the site and its page on privacy, and agreeing to new terms."""

import html
import re

from flask import (
    Blueprint,
    Response,
    abort,
    current_app,
    g,
    redirect,
    render_template,
    request,
    session,
)
from markupsafe import Markup

from identity.access import letters, sessions
from identity.access.sessions import MUST_AGREE, next_address, require_player, signed_in_player
from identity.acts import applications, reports
from identity.acts import door as door_acts
from identity.acts.chat import find_webhook
from identity.http.context import get_storage, mail_is_on, site_look
from identity.http.languages import page_language
from identity.http.responses import security_policy
from identity.oauth.openid import is_on
from identity.oauth.terms import find_pending_authorization, redirect_targets
from identity.site.door import PRIVACY, TERMS, is_asked, read_text
from identity.site.formatting import DAY
from identity.site.languages import speaking
from model import names
from model.records import User
from model.words import say
from pages.community.players import link_addresses
from pages.entry.language import KEPT
from pages.kit.actors import authority_of
from pages.kit.forms import FormRefused, form_view, pop_notice
from pages.kit.rendering import Preview, contact_of, lists_profiles, render_page

CHANGED = say("The terms have just changed. Read them again.")

agreement = Blueprint("agreement", __name__)


@agreement.get("/terms")
def show_terms() -> tuple:
    return terms_page(signed_in_player(), {})


def terms_page(player: User | None, problems: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the terms, with a form for who has not agreed to them, and headers.

    The form leads to `next`, which may be an authorization request. Raises NotFound without terms.
    """
    look, leads_to = site_look(), next_address()
    if not look.terms:
        abort(404)
    asks = player is not None and is_asked(player, look)
    pending = find_pending_authorization(leads_to) if asks else None
    page = render_page(
        "entry/terms.html",
        player,
        Preview(say("Terms"), address="/terms"),
        text=link_addresses(read_text(get_storage(), TERMS).text),
        asks=asks,
        waits="must_agree" in g,
        next=leads_to,
        notice=pop_notice(),
        problems=problems,
    )
    return page, security_policy(form_targets=redirect_targets(pending[1])) if pending else {}


@agreement.post("/terms")
@form_view(lambda: (require_player(),), terms_page, stamped=True)
def agree(player: User) -> Response:
    """Agree to the `version` of the terms that the page showed, then redirect to `next`."""
    version = site_look().terms
    if not version or request.form.get("version") != str(version):
        raise FormRefused({"form": CHANGED}, 409)
    door_acts.agree(authority_of(player), player.id, version)
    session.pop(MUST_AGREE, None)  # later: after a kill in between the next page removes it
    return redirect(next_address(), 303)


@agreement.get("/privacy")
def show_privacy() -> str:
    """Show the administrators' text about privacy, else what is so on this installation."""
    player, text = signed_in_player(), read_text(get_storage(), PRIVACY).text
    values = {"text": link_addresses(text), "lines": [] if text else describe_privacy()}
    preview = Preview(say("Privacy"), address="/privacy")
    return render_page("entry/privacy.html", player, preview, **values)


@agreement.get("/privacy.txt")
def privacy_text() -> Response:
    """Return the page about privacy as plain text in the language of the page, to be edited."""
    signed_in_player()  # whose language it is
    text = read_text(get_storage(), PRIVACY).text
    if not text:
        text = re.sub("^= ", "\n", html.unescape("\n".join(describe_privacy())), flags=re.MULTILINE)
    return Response(f"{text.strip()}\n", mimetype="text/plain")


def describe_privacy() -> list[Markup]:
    """Return what is so on this installation as lines of HTML without elements; "= " is a heading.

    The sentences are in templates/entry/privacy_text.html, the numbers are those of the code.
    """
    values = {
        "session": sessions.SESSION_MAX_AGE.days,
        "known": letters.KNOWN_AGE // DAY,
        "chosen": KEPT // DAY,
        "look": site_look(),
        "mail": mail_is_on(),
        "is_open": current_app.config["SIGN_UP"] in ("open", "approval"),
        "is_listed": lists_profiles(),
        "has_openid": is_on(),
        "has_chat": find_webhook(get_storage()) is not None,
        "contact": contact_of(site_look()),
    }
    modules = {"names": names, "applications": applications, "reports": reports}  # for constants
    with speaking(page_language()):
        text = render_template("entry/privacy_text.html", **modules, **values)
    return [Markup(line) for line in text.splitlines() if line]
