"""The threads of a process that serves an app: senders of what is in the outbox, and the upkeep."""

import time
from collections.abc import Callable

from flask import Flask

from identity.acts.upkeep import Upkeep
from identity.messages.outbox import STOP_TIMEOUT, Channel, Sender
from identity.messages.webhook import Chat
from storage import Storage


class Senders:
    """The senders of an app, and its other threads."""

    def __init__(self, store: Storage, channels: list[Channel], *others: Upkeep) -> None:
        self._senders = [*(Sender(store, each) for each in channels), *others]

    def start(self) -> None:
        """Start the threads; a second call in the same process starts no more."""
        for each in self._senders:
            each.start()

    def stop(self) -> None:
        """Send nothing more; wait up to STOP_TIMEOUT for all messages that are being sent."""
        for each in self._senders:
            each.end()
        until = time.monotonic() + STOP_TIMEOUT
        for each in self._senders:
            each.join(max(until - time.monotonic(), 0))


def send_messages(app: Flask) -> None:
    """Let a process that serves the app send messages.

    serving/gunicorn_config.py and serving/granian_server.py start and stop the senders of each
    worker. With other servers they start at the first request, so after a fork.
    """
    store, private = app.extensions["storage"], app.config["WEBHOOK_PRIVATE"] == "on"
    channels: list[Channel] = [Chat(store, app.config["BASE_URL"], private, app.config["LANGUAGE"])]
    if app.config["SMTP_URL"]:
        from identity.access.mail_channel import Mail  # not without mail

        channels.append(Mail(store, app.config))
    if app.config["OPENID"] == "on":
        from identity.oauth.logout_channel import Logouts  # not without

        channels.append(Logouts(store, app.config["BASE_URL"]))
    app.senders = senders = Senders(store, channels, Upkeep(store, app.config))
    inner = app.wsgi_app

    def first(environ: dict, start_response: Callable) -> object:
        app.wsgi_app = inner
        senders.start()
        return inner(environ, start_response)

    app.wsgi_app = first
