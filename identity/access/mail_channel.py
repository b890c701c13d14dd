"""The channel of the outbox that sends letters, and composes those that somebody asked for."""

import time
from collections import Counter
from collections.abc import Callable, Mapping

from identity.access.letters import Holder, language_of_letters
from identity.access.links import CONFIRMATION, PASSWORD, codes_of, find_by_address, issue_link
from identity.messages.letter import Letter, confirmation_letter, recovery_letter
from identity.messages.mail import compose, new_mailer, read_template
from identity.messages.outbox import MAIL, Channel, Paused, Postponed, Refused
from identity.site.clock import note_clock
from identity.site.look import read_site_name
from identity.site.states import edit_state
from model.errors import StorageError
from model.kind import HOUR_MS
from model.kinds import OUTBOX
from model.records import User, now_ms
from model.site_records import Message
from storage import Storage

CREATED_LINKS = "user recovery-link"  # the act in the audit log
UNCONFIRMED_AN_HOUR = 20  # letters to addresses that nobody has confirmed here
REPEATED_AN_HOUR = 10  # of these turns: letters that are asked for again hold up no newcomer
UNCONFIRMED = "unconfirmed"  # the id of the state that has their times
LONGEST_DELAY = 30  # seconds


class Mail(Channel):
    """The channel of letters."""

    name = MAIL
    poll = 0.25  # seconds: somebody waits for the letter
    delays = [60, 300, 1800, 7200]  # seconds

    def __init__(self, store: Storage, config: Mapping[str, str]) -> None:
        self._config = config
        self._store = store
        self._mailer = new_mailer(config, log=self._read_greeting)
        self._took = 0.5  # seconds for the last letter that was composed as it was sent
        self._postponed = Counter()  # letters since the connection began, by their limit
        read_template()

    def _read_greeting(self, line: str) -> None:
        """Compare our clock with the date that some servers greet with (RFC 5321 4.3.1)."""
        if line.startswith("< 220 "):
            note_clock(self._store, MAIL, line)

    def send(self, message: Message) -> None:
        """Send a letter; one without a recipient here counts as sent. Raises NotSent.

        The time that it takes does not tell those who wait behind it whether somebody got it.
        """
        with self._mailer.connected():
            begun = time.monotonic()
            body = message.body or self._compose(message)
            if body:
                self._mailer.send(message.to, body.encode())
            elif message.event != CONFIRMATION:
                time.sleep(self._took)
            if body and not message.body:
                self._took = min(time.monotonic() - begun, LONGEST_DELAY)

    def _compose(self, message: Message) -> str:
        """Return the letter, composed now; "" if nobody has its address. Raises NotSent."""
        is_unconfirmed = message.event == CONFIRMATION
        try:
            user = find_by_address(self._store, message.to, confirmed=not is_unconfirmed)
            if user is None:
                return ""
            message.to = user.email
            compose = self._compose_confirmation if is_unconfirmed else self._compose_recovery
            return compose(user, message)
        except ValueError as error:
            raise Refused(str(error)) from error
        except StorageError as error:
            raise Paused(f"The letter cannot be composed: {error}") from error

    def _compose_recovery(self, user: User, message: Message) -> str:
        """Return the letter. It is saved in the outbox first: a second try sends the same one."""
        self._store.audit.write(CREATED_LINKS, user.id, user=user.id)
        body = self._with_link(PASSWORD, recovery_letter, user, message)
        with self._store.records(OUTBOX).edit(message.id) as kept:
            kept.to, kept.body = user.email, body
        return body

    def _compose_confirmation(self, user: Holder, message: Message) -> str:
        """Return the letter, unsaved: its link is good from when it is sent. Raises Postponed."""
        body = self._with_link(CONFIRMATION, confirmation_letter, user, message)
        is_first = message.created - user.created < HOUR_MS // 60  # the sign-up asked for it
        limit = UNCONFIRMED_AN_HOUR if is_first else REPEATED_AN_HOUR
        try:
            count_unconfirmed_letter(self._store, limit)
        except Postponed as error:
            # As many as fit into an hour come in it, the next ones an hour later, and so on.
            error.due += self._postponed[limit] // limit * HOUR_MS
            self._postponed[limit] += 1
            raise
        return body

    def _with_link(
        self, purpose: str, make: Callable[..., Letter], user: Holder, message: Message
    ) -> str:
        """Return the letter that `make` makes of a new link and its code, with its headers."""
        store, config = self._store, self._config
        text = issue_link(store, purpose, user, message.browser)
        code = codes_of(store, purpose, user, message.browser)[0]
        name = user.name if purpose == PASSWORD else ""  # an address that the player confirmed
        letter = make(read_site_name(store, config), config["BASE_URL"], text, code)
        language = language_of_letters(user, config, message.language)
        return compose(store, config, user.email, letter, language, name)

    def close(self) -> None:
        """End the connection."""
        self._mailer.close()
        self._postponed.clear()


def count_unconfirmed_letter(store: Storage, limit: int) -> None:
    """Count a letter to an address that nobody has confirmed.

    Raises Postponed if there were `limit` of them in the last hour, and StorageFailed.
    """
    now = now_ms()
    with edit_state(store, UNCONFIRMED) as state:
        # Those in the future are from before the clock was set back.
        counted = [each for each in state.times if abs(now - each) < HOUR_MS]
        if len(counted) >= limit:
            raise Postponed(counted[-limit] + HOUR_MS)
        state.times = [*counted, now]
