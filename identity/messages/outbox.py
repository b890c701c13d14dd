"""The outbox: messages that are sent after the response, and survive a kill of the server.

A thread of each worker sends those of one channel. On flat files one worker does: if it ends,
another one takes its place. On a database each does, and claims a message for a while in the
message itself. A message that was sent is removed; one whose sender was killed is sent again.
"""

import contextlib
import itertools
import json
import logging
import threading
import time
from collections.abc import Iterator

from model.errors import NotFound, StorageError, StorageFailed
from model.kind import DAY_MS
from model.kinds import OUTBOX, WEBHOOKS, waiting_queues
from model.records import now_ms
from model.site_records import Message
from model.words import dump_words, plain
from storage import Storage
from storage.repositories import new_time_id

INTERVAL = 5  # seconds between two looks at what failed before
KEPT_DAYS = 30
MOST_CHAT_MESSAGES = 1000  # messages to the chat; further ones are dropped
PAGE, LATER_PAGE = 100, 10  # messages that are sent before the first queue is looked at again
LONGEST_PAUSE, LONGEST_WAIT = 60, 3600  # seconds: of our own, and one that a receiver asks for
MOST_PAUSES = 2  # of the channel for one message, which then waits alone
STOP_TIMEOUT = 8  # seconds for the messages that are being sent
WEBHOOK_ID = "chat"
CHAT, MAIL, LOGOUT = "chat", "mail", "logout"  # channels
LOG = logging.getLogger(__name__)


class NotSent(Exception):
    """A message was not sent, and is tried again later; the text is for administrators."""

    stops_channel = True  # the next message would fail as well


class Deferred(NotSent):
    """A message was not sent, for a reason that others need not have."""

    stops_channel = False


class Refused(Deferred):
    """A message was not sent, and never will be."""


class Expired(Refused):
    """A message was not sent, because it is too late."""


class Postponed(Deferred):
    """The turn of a message comes at a time in milliseconds, which is no failure."""

    def __init__(self, due: int) -> None:
        super().__init__()
        self.due = due


class Paused(NotSent):
    """Nothing can be sent for some seconds, which is no failure of the message."""

    def __init__(self, problem: str, seconds: int = 0) -> None:
        super().__init__(problem)
        self.seconds = seconds  # 0: twice as many as the last time


class CutOff(Paused):
    """The receiver broke off as it was given a message, which may be the reason or not."""


class Channel:
    """A way in which messages are sent."""

    name: str
    poll: float  # seconds between two looks at how many messages wait, where one process sends
    delays: list[int]  # seconds before each further try

    def send(self, message: Message) -> None:
        """Send a message. Raises NotSent."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what was kept for the next message."""


def post(store: Storage, message: Message, at_most: int) -> None:
    """Put a message into the outbox. Raises StorageError, also if `at_most` of its queue wait."""
    outbox, queue = store.records(OUTBOX), OUTBOX.key("queue").of(message)
    if outbox.count_between("queue", queue, queue) >= at_most:
        raise StorageFailed("the outbox is full")
    outbox.add(message)


def new_message(channel: str, event: str, body: str, **fields: str | int) -> Message:
    now = now_ms()
    expires = now + KEPT_DAYS * DAY_MS
    return Message(new_time_id(now), channel, event, body, now, expires, due=now, **fields)


def announce(store: Storage, event: str, text: str, path: str) -> None:
    """Tell the chat what happened, if an administrator wants that; `path` is of a page here.

    `event` is one of `webhook.EVENTS`, or "test". The chat gets words in the language of the site.
    If the message cannot be saved, that is logged.
    """
    try:
        webhook = store.records(WEBHOOKS).find(WEBHOOK_ID)
        if webhook and event in (*webhook.events, "test"):
            body = json.dumps({"text": text, "words": dump_words(text), "path": path})
            post(store, new_message(CHAT, event, body), MOST_CHAT_MESSAGES)
    except StorageError as error:
        LOG.error("a message is dropped: %s", error)


def count_messages(store: Storage, channel: str) -> int:
    """Return how many messages wait for a channel, without reading them."""
    count = store.records(OUTBOX).count_between
    return sum(count("queue", queue, queue) for queue in waiting_queues(channel))


class Repeater:
    """A thread of each process, of which one at a time does a task, again and again."""

    first_pause = 0.0  # seconds
    idle = 1.0  # seconds until the next look at whether this process leads

    def __init__(self, store: Storage, task: str) -> None:
        self._store = store
        self._task = task
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start the thread, once in a process."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._task, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Begin nothing further."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        """Wait so many seconds for what is being done."""
        if self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        """Do the task, and wait, until `end` is called. No error ends the thread."""
        self._stopping.wait(self.first_pause)
        while not self._stopping.is_set():
            pause = float(INTERVAL)
            try:
                claim = self._store.lead(self._task)
                pause = self.idle if claim is None else self.work(claim)
            except StorageError as error:
                LOG.warning("%s waits: %s", self._task, error)
            except Exception:  # the thread goes on
                LOG.exception("%s failed", self._task)
            self._stopping.wait(pause)

    def work(self, claim: int) -> float:
        """Do the task, as `Storage.lead` says of `claim`; return the seconds until the next time.

        Raises StorageError.
        """
        raise NotImplementedError


class Sender(Repeater):
    """What sends the messages of a channel."""

    def __init__(self, store: Storage, channel: Channel) -> None:
        super().__init__(store, f"outbox-{channel.name}")
        self._channel = channel
        self._queues = dict(zip(waiting_queues(channel.name), (PAGE, LATER_PAGE), strict=True))
        self._waiting = 0  # messages, at the last look
        self._next_look = self._paused_until = float("-inf")  # time.monotonic()
        self._pause = 1  # seconds
        self._sent: set[str] = set()  # ids of messages that could not be removed

    def work(self, claim: int) -> float:
        self.send_due(claim, always=False)
        return self._channel.poll if claim == 0 else max(self._channel.poll, 1.0)

    def send_due(self, claim: int, always: bool = True) -> None:
        """Send what is due, each message claimed for `claim` milliseconds; 0: nobody else sends.

        Unless `always`, look only if more messages wait than at the last look, or if it is time.
        """
        waiting, now = count_messages(self._store, self._channel.name), time.monotonic()
        is_time = always or now >= self._next_look or waiting > self._waiting
        if now < self._paused_until or not (waiting and is_time):
            self._waiting = min(waiting, self._waiting)
            return
        try:
            while self._send_page(claim):
                pass
        finally:
            self._channel.close()
            self._waiting, now = count_messages(self._store, self._channel.name), time.monotonic()
            self._next_look = self._paused_until if now < self._paused_until else now + INTERVAL

    def _send_page(self, claim: int) -> bool:
        """Send some messages; return True if there may be more.

        Messages that paused the channel come last. After INTERVAL all queues are looked at anew.
        """
        ends = time.monotonic() + INTERVAL
        for has_paused, queue in itertools.product((False, True), self._queues):
            for number, message in enumerate(self._due(queue, has_paused), 1):
                if self._stopping.is_set() or not self._send(message, claim):
                    return False
                if number == self._queues[queue] or time.monotonic() > ends:
                    return True
        return False

    def _due(self, queue: str, has_paused: bool) -> Iterator[Message]:
        """Yield the due messages of a queue, of those that have paused the channel or of others."""
        after = None
        while page := self._store.records(OUTBOX).page("queue", queue, after, PAGE):
            found = (each for each in page if each.due <= now_ms())
            yield from (each for each in found if bool(each.pauses) == has_paused)
            after = page[-1].id

    def _send(self, message: Message, claim: int) -> bool:
        """Send a message, unless another sender has it; return False if the next would fail too."""
        outbox = self._store.records(OUTBOX)
        try:
            if claim and not self._claim(message, claim):
                return True
            is_late = message.good_until and message.good_until <= now_ms()
            if is_late and message.body:
                raise Expired("Its link has expired.")
            if not is_late and message.id not in self._sent:  # without a body nobody gets a link
                self._channel.send(message)
                self._sent.add(message.id)
        except NotFound:  # another sender was faster
            return True
        except NotSent as error:
            with contextlib.suppress(NotFound), outbox.edit(message.id) as kept:
                self._note_failure(kept, error)
            is_alone = isinstance(error, CutOff) and time.monotonic() >= self._paused_until
            return is_alone or not error.stops_channel
        with contextlib.suppress(NotFound):
            outbox.delete(message.id)  # if that fails, later: it is not sent again
        self._sent.discard(message.id)
        self._pause = 1
        return True

    def _claim(self, message: Message, claim: int) -> bool:
        """Claim a message for so many milliseconds; False if another did. Raises NotFound."""
        now = self._store.time()
        with self._store.records(OUTBOX).edit(message.id) as kept:
            if kept.claimed > now or kept.due != message.due:
                return False
            kept.claimed = now + claim
        return True

    def _note_failure(self, message: Message, error: NotSent) -> None:
        """Set when a message is tried next, or that it is given up. The caller holds its lock."""
        message.problem, message.claimed = plain(str(error)), 0
        if isinstance(error, Postponed):
            message.due = error.due
            return
        if not is_own_failure(message, error):
            self._pause_channel(message, error)
        if is_own_failure(message, error):  # also if it was the last pause for this message
            self._count_try(message, error)

    def _pause_channel(self, message: Message, error: Paused) -> None:
        """Send nothing for the seconds of the error, or else for twice the last pause."""
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        seconds = min(error.seconds, LONGEST_WAIT) or self._pause
        self._paused_until = time.monotonic() + seconds
        # Of several messages another one is tried first then: this may be the one that fails.
        message.pauses += not error.seconds
        message.due = now_ms() + seconds * 1000 + (0 if error.seconds else 1000)

    def _count_try(self, message: Message, error: NotSent) -> None:
        message.tries += not isinstance(error, Expired)
        if isinstance(error, Refused) or message.tries > len(self._channel.delays):
            message.given_up = now_ms()
        else:
            message.due = now_ms() + self._channel.delays[message.tries - 1] * 1000


def is_own_failure(message: Message, error: NotSent) -> bool:
    """Return True for a failure that counts as a try of the message, and not as a pause for all."""
    if isinstance(error, CutOff):
        return message.pauses >= MOST_PAUSES
    return not isinstance(error, Paused)
