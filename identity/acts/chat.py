"""What administrators may do to the webhook and its messages, as in `identity.acts.accounts`."""

import contextlib

from identity.acts.actors import Actor, Authority
from identity.acts.rights import may_administer
from identity.messages.outbox import CHAT, MOST_WAITING, WEBHOOK_ID
from identity.messages.webhook import EVENTS, FORMATS, check_address, new_key
from model.errors import AlreadyThere, ChangedBefore, InvalidField, NotFound
from model.kinds import OUTBOX, WEBHOOKS, given_up_of
from model.records import now_ms
from model.rules import refuse
from model.site_records import Message, Webhook
from storage import Storage


class ChatActs:
    """What an actor does to the webhook.

    All acts raise NotAllowed, StorageFailed, InvalidField, TooManyAttempts, and ChangedBefore if it
    was changed since the time `seen`, which is 0 if there was none.
    """

    def __init__(self, store: Storage, actor: Actor) -> None:
        self._store = store
        self._authority = Authority(store, actor)

    def save(
        self, seen: int, url: str, format_name: str, events: list[str], private: bool
    ) -> str | None:
        """Save the webhook; with "" its address stays. Return the key if there is a new one."""
        self._authority.require(may_administer)
        if format_name not in FORMATS:
            raise InvalidField("format", "Choose what your chat reads.")
        if not events or not EVENTS.keys() >= set(events):
            raise InvalidField("events", "Choose what the chat is told.")
        old = find_webhook(self._store)
        if url or old is None:
            refuse("url", check_address(url, private))  # asks for the name of the host: no lock yet
        key = new_key() if format_name == "json" and not (old and old.key) else None
        with self._changing(seen) as webhook:
            webhook.url, webhook.format = url or webhook.url, format_name
            webhook.events, webhook.key = events, key or webhook.key
        return key

    def replace_key(self, seen: int) -> str:
        """Give the webhook a new key, and return it."""
        key = new_key()
        if find_webhook(self._store) is None:
            raise ChangedBefore
        with self._changing(seen) as webhook:
            webhook.key = key
        return key

    @contextlib.contextmanager
    def _changing(self, seen: int):
        webhooks = self._store.records(WEBHOOKS)

        def before(_: Webhook) -> None:
            self._authority.require(may_administer)
            if seen:
                raise ChangedBefore
            self._authority.audit("chat")

        if find_webhook(self._store) is None:
            new = Webhook(WEBHOOK_ID, now_ms(), "", "", [])
            yield new
            try:
                webhooks.add(new, before)
            except AlreadyThere as error:  # another administrator was faster
                raise ChangedBefore from error
            return
        with webhooks.edit(WEBHOOK_ID) as webhook:
            self._authority.begin_change(webhook, seen, "chat")
            webhook.changed = max(now_ms(), seen + 1)
            yield webhook

    def remove(self, seen: int) -> None:
        """Tell the chat nothing more."""

        def before(webhook: Webhook) -> None:
            self._authority.begin_change(webhook, seen, "chat")

        try:
            self._store.records(WEBHOOKS).delete(WEBHOOK_ID, before)
        except NotFound as error:
            raise ChangedBefore from error

    def send_again(self) -> None:
        """Try all messages that were given up once more."""
        self._authority.require(may_administer)
        self._authority.audit("chat")
        for each in given_up(self._store):
            with (
                contextlib.suppress(NotFound),
                self._store.records(OUTBOX).edit(each.id) as message,
            ):
                message.given_up, message.tries, message.due = 0, 0, now_ms()

    def discard(self) -> None:
        """Delete all messages that were given up."""
        self._authority.require(may_administer)
        self._authority.audit("chat")
        for each in given_up(self._store):
            with contextlib.suppress(NotFound):
                self._store.records(OUTBOX).delete(each.id)


def find_webhook(store: Storage) -> Webhook | None:
    """Return the webhook, None without one."""
    return store.records(WEBHOOKS).find(WEBHOOK_ID)


def given_up(store: Storage, at_most: int = MOST_WAITING) -> list[Message]:
    """Return the messages that were given up, the newest first."""
    return store.records(OUTBOX).page("queue", given_up_of(CHAT), None, at_most, newest_first=True)
