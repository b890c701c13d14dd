"""The administrators' page of the webhook that tells the community's chat what happens."""

from urllib.parse import urlsplit

from flask import Blueprint, current_app, request
from werkzeug.wrappers import Response

from identity.acts import chat as chat_acts
from identity.acts.chat import find_webhook, given_up
from identity.http.context import get_storage, site_name
from identity.messages.outbox import CHAT, announce
from identity.messages.webhook import EVENTS, FORMATS
from model.kinds import OUTBOX, queue_of
from model.records import User
from model.words import say
from pages.admin.desk import render_desk
from pages.kit.actors import authority_of, require_administrator
from pages.kit.forms import form_view, redirect_with_notice, seen_time
from pages.kit.proof import with_proof

SHOWN = 20  # messages

chat = Blueprint("chat", __name__)


@chat.get("/admin/chat")
def show_chat() -> str:
    return chat_page(require_administrator(), {})


def chat_page(player: User, problems: dict[str, str], key: str | None = None) -> str:
    """Return the page; `key` is a new key of the webhook, which no other response has."""
    store, form = get_storage(), request.form
    webhook = find_webhook(store)
    is_typed = "format" in form and not key
    waiting = store.records(OUTBOX).page("queue", queue_of(CHAT), at_most=SHOWN)
    return render_desk(
        "admin/chat.html",
        player,
        webhook=webhook,
        host=webhook and urlsplit(webhook.url).hostname,
        seen=form.get("seen", 0) if problems else (webhook.changed if webhook else 0),
        events=EVENTS,
        formats=FORMATS,
        chosen=form.getlist("events") if is_typed else (webhook.events if webhook else []),
        format=form["format"] if is_typed else (webhook.format if webhook else "discord"),
        typed_url=form.get("url", "") if problems else "",
        key=key,
        retried=[each for each in waiting if each.problem],
        given_up=given_up(store, SHOWN),
        problems=problems,
    )


chat_form = form_view(lambda: (require_administrator(),), chat_page, stamped=True)


@chat.post("/admin/chat")
@chat_form
@with_proof
def save_chat(player: User) -> Response | tuple:
    """Save the `url`, the `format` and the `events` of the webhook."""
    form, private = request.form, current_app.config["WEBHOOK_PRIVATE"] == "on"
    typed = form.get("url", "").strip(), form.get("format", ""), form.getlist("events")
    key = chat_acts.save(authority_of(player), seen_time(), *typed, private)
    return show_key(player, key) if key else redirect_with_notice(say("Saved."), "/admin/chat")


def show_key(player: User, key: str) -> tuple:
    """Return the page with a new key of the webhook, its status and its headers."""
    return chat_page(player, {}, key), 201, {"Location": "/admin/chat"}


@chat.post("/admin/chat/key")
@chat_form
@with_proof
def replace_key(player: User) -> tuple:
    return show_key(player, chat_acts.replace_key(authority_of(player), seen_time()))


@chat.post("/admin/chat/remove")
@chat_form
@with_proof
def remove_chat(player: User) -> Response:
    chat_acts.remove(authority_of(player), seen_time())
    return redirect_with_notice(say("The chat is told nothing more."), "/admin/chat")


@chat.post("/admin/chat/test")
@chat_form
def send_test(player: User) -> Response:
    """Post a test message, which is sent whatever events the administrators chose."""
    announce(get_storage(), "test", say("This is a test of %(site)s.", site=site_name()), "/")
    notice = say("A test is on its way. If it does not arrive, look here in a minute.")
    return redirect_with_notice(notice, "/admin/chat")


@chat.post("/admin/chat/given-up")
@chat_form
def handle_given_up(player: User) -> Response:
    """Send again the messages that were given up, or delete these messages with `discard`."""
    if "discard" in request.form:
        chat_acts.discard(authority_of(player))
        return redirect_with_notice(say("Messages deleted."), "/admin/chat")
    chat_acts.send_again(authority_of(player))
    return redirect_with_notice(say("They are sent again."), "/admin/chat")
