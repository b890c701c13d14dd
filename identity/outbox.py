"""The outbox: messages that are sent after the response, and survive a kill of the server.

A thread of each worker sends what is due. It takes a message by moving its time in an edit of the
record, so that nobody else takes it for a while, sends it, and deletes the record. A message whose
sender was killed is due again after LEASE: it is sent at least once, and its id tells a receiver
that it was there before.
"""

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from storage import Storage
from storage.errors import NotFound, StorageError
from storage.kind import DAY_MS
from storage.kinds import OUTBOX, WEBHOOKS
from storage.records import now_ms
from storage.repositories import new_time_id
from storage.site_records import Message

if TYPE_CHECKING:  # the command starts without it
    from flask import Flask

INTERVAL = 5  # seconds between two looks at what others left
LEASE = 60_000  # milliseconds
DELAYS = [60, 300, 1800, 7200, 21_600, 86_400]  # seconds before each further try
KEPT_DAYS = 30
MOST_WAITING = 1000  # messages; further ones are dropped
WEBHOOK_ID, CHANNEL = "chat", "chat"  # of the community's chat
LONGEST_WAIT = 3600  # seconds that a receiver may ask to wait
ASKED_TO_WAIT = "It asked to wait."  # the problem of such a message
LOG = logging.getLogger(__name__)


class NotSent(Exception):
    """A message was not sent; the text is for administrators."""


class AskedToWait(NotSent):
    """The receiver asks to wait for so many seconds, which is no failure of the message."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(ASKED_TO_WAIT)
        self.retry_after = retry_after


Send = Callable[[Message], None]  # sends a message of a channel; raises NotSent


def post(store: Storage, channel: str, event: str, body: str) -> None:
    """Put a message into the outbox. What it tells of goes on if that cannot be saved."""
    outbox, now = store.records(OUTBOX), now_ms()
    try:
        if outbox.count_between("state", "waiting", "waiting") >= MOST_WAITING:
            LOG.error("the outbox is full: a message is dropped")
            return
        expires = now + KEPT_DAYS * DAY_MS
        outbox.add(Message(new_time_id(now), channel, event, body, now, expires, due=now))
    except StorageError as error:
        LOG.error("a message is dropped: %s", error)


def announce(store: Storage, event: str, text: str, path: str) -> None:
    """Tell the chat what happened, if an administrator wants that; `path` is of a page here."""
    with contextlib.suppress(StorageError):
        webhook = store.records(WEBHOOKS).find(WEBHOOK_ID)
        if webhook and event in (*webhook.events, "test"):
            post(store, CHANNEL, event, json.dumps({"text": text, "path": path}))


def send_due(store: Storage, channels: dict[str, Send]) -> None:
    """Send what is due. After a failure the rest of its channel waits for the next time.

    If the receiver asked to wait, all of its channel does.
    """
    waiting, now = store.records(OUTBOX).page("state", "waiting", at_most=MOST_WAITING), now_ms()
    failed = {each.channel for each in waiting if each.problem == ASKED_TO_WAIT and each.due > now}
    for seen in waiting:  # a later version may have had other channels
        if seen.due <= now_ms() and seen.channel in channels.keys() - failed:
            with contextlib.suppress(NotFound, StorageError):
                if not _send(store, seen, channels[seen.channel]):
                    failed.add(seen.channel)


def _send(store: Storage, seen: Message, send: Send) -> bool:
    """Send a message unless another sender has taken it; return False if that failed."""
    outbox = store.records(OUTBOX)
    with outbox.edit(seen.id) as message:
        if message.due != seen.due:
            return True
        message.due = now_ms() + LEASE
    try:
        send(message)
    except NotSent as error:
        with outbox.edit(seen.id) as message:
            note_failure(message, error)
        return False
    outbox.delete(seen.id)
    return True


def note_failure(message: Message, error: NotSent) -> None:
    """Set when a message is tried next, or that it is given up."""
    now, message.problem = now_ms(), str(error)
    if isinstance(error, AskedToWait):
        message.due = now + min(error.retry_after, LONGEST_WAIT) * 1000
        return
    if message.tries == len(DELAYS):
        message.given_up = now
        return
    message.due = now + DELAYS[message.tries] * 1000
    message.tries += 1


def start_at_first_request(app: "Flask", channels: dict[str, Send]) -> None:
    """Start the thread that sends as this process gets its first request, so after a fork."""
    inner = app.wsgi_app

    def first(environ: dict, start_response: Callable) -> object:
        app.wsgi_app = inner
        arguments = app.extensions["storage"], channels
        threading.Thread(target=send_forever, args=arguments, name="outbox", daemon=True).start()
        return inner(environ, start_response)

    app.wsgi_app = first


def send_forever(store: Storage, channels: dict[str, Send]) -> None:
    """Send what is due, every few seconds."""
    pause = threading.Event()
    while True:
        try:
            send_due(store, channels)
        except StorageError as error:
            LOG.warning("the outbox cannot be read: %s", error)
        except Exception:  # the thread goes on
            LOG.exception("a message was not sent")
        pause.wait(INTERVAL)
