"""Acts of administrators on the webhook of the community's chat, and on its messages.

All of them raise NotAllowed, StorageFailed, TooManyAttempts; those with the time `seen` raise
ChangedBefore if the webhook was changed since then. It is 0 if there was none.
"""

import contextlib
from dataclasses import replace

from identity.acts.actors import Authority
from identity.acts.rights import may_administer
from identity.messages.outbox import CHAT, MOST_CHAT_MESSAGES, WEBHOOK_ID
from identity.messages.webhook import EVENTS, FORMATS, check_address, new_key
from model.errors import AlreadyThere, ChangedBefore, InvalidField, NotFound
from model.kinds import OUTBOX, WEBHOOKS, given_up_of
from model.records import now_ms
from model.rules import refuse
from model.site_records import Message, Webhook
from model.words import say
from storage import Storage


def save(
    by: Authority, seen: int, url: str, format_name: str, events: list[str], private: bool
) -> str | None:
    """Save the webhook; with "" its address stays. Return the new key, None if it gets none.

    `private` allows addresses of this network. Raises InvalidField.
    """
    by.require(may_administer)
    if format_name not in FORMATS:
        raise InvalidField("format", say("Choose a format."))
    if not events or not EVENTS.keys() >= set(events):
        raise InvalidField("events", say("Choose what the chat is told."))
    old = find_webhook(by.store)
    if url or old is None:
        refuse("url", check_address(url, private))  # asks for the name of the host: no lock yet
    key = new_key() if format_name == "json" and not (old and old.key) else None
    new = {"url": url, "key": key, "format": format_name, "events": events}
    _change(by, seen, **{name: value for name, value in new.items() if value})
    return key


def replace_key(by: Authority, seen: int) -> str:
    """Give the webhook a new key, and return the key. Raises ChangedBefore without a webhook."""
    key = new_key()
    if find_webhook(by.store) is None:
        raise ChangedBefore
    _change(by, seen, key=key)
    return key


def _change(by: Authority, seen: int, **fields: str | list[str]) -> None:
    """Change fields of the webhook, which is added if there is none. Raises ChangedBefore."""
    webhooks = by.store.records(WEBHOOKS)
    if find_webhook(by.store) is None:
        none = Webhook(WEBHOOK_ID, 0, "", "", [])
        new = replace(none, changed=now_ms(), **fields)
        try:
            with webhooks.adding(new):
                return by.begin_change(none, seen, "chat")
        except AlreadyThere as error:  # another administrator was faster
            raise ChangedBefore from error
    with webhooks.edit(WEBHOOK_ID) as webhook:
        by.begin_change(webhook, seen, "chat")
        webhook.changed = max(now_ms(), seen + 1)
        for name, value in fields.items():
            setattr(webhook, name, value)


def remove(by: Authority, seen: int) -> None:
    """Delete the webhook: the chat is told nothing more. Raises ChangedBefore without a webhook."""
    try:
        with by.store.records(WEBHOOKS).deleting(WEBHOOK_ID) as webhook:
            by.begin_change(webhook, seen, "chat")
    except NotFound as error:
        raise ChangedBefore from error


def send_again(by: Authority) -> None:
    """Try all messages that were given up once more."""
    by.require(may_administer)
    by.audit("chat")
    for each in given_up(by.store):
        with contextlib.suppress(NotFound), by.store.records(OUTBOX).edit(each.id) as message:
            message.given_up, message.tries, message.due = 0, 0, now_ms()


def discard(by: Authority) -> None:
    """Delete all messages that were given up."""
    by.require(may_administer)
    by.audit("chat")
    for each in given_up(by.store):
        with contextlib.suppress(NotFound):
            by.store.records(OUTBOX).delete(each.id)


def find_webhook(store: Storage) -> Webhook | None:
    """Return the webhook, None without one."""
    return store.records(WEBHOOKS).find(WEBHOOK_ID)


def given_up(store: Storage, at_most: int = MOST_CHAT_MESSAGES) -> list[Message]:
    """Return the messages that were given up, the newest first."""
    return store.records(OUTBOX).page("queue", given_up_of(CHAT), None, at_most, newest_first=True)
