"""What ends by itself: accounts that nobody confirmed or used, and addresses that are old.

Each hour one process does a page of each task. All of it can be done twice.
"""

import contextlib
import json
import logging
from collections.abc import Mapping

from identity.acts.actors import COMMAND, Authority
from identity.acts.network_bans import drop_ended
from identity.messages.outbox import MAIL, Repeater
from identity.site.states import edit_state
from model.errors import DamagedRecord, NotFound, StorageError
from model.kind import DAY_MS, FIRST_DAY, HOUR_MS, day_of
from model.kinds import FAMILIES, OUTBOX, PASSKEYS, waiting_queues
from model.names import unique_key
from model.records import PLAYER, User, now_ms, sha256
from storage import Storage
from storage.audit_lines import time_of

LOG = logging.getLogger(__name__)
POLL = 300  # seconds between two looks at whether an hour is over
PAGE = 1000  # records an hour
STATE = "upkeep"  # the id of the state that has when that was, and how far each task went


class Used(Exception):
    """An account stays: something has happened since it was read."""


class Upkeep(Repeater):
    """The thread that does the upkeep.

    A task is given how far it went, None at first, and returns how far it is now.
    """

    first_pause = idle = POLL

    def __init__(self, store: Storage, config: Mapping[str, object]) -> None:
        super().__init__(store, STATE)
        self._config = config

    def work(self, claim: int) -> float:
        """Do what is due, unless a process did within the last hour. Raises StorageError."""
        with edit_state(self._store, STATE) as state:
            if 0 <= self._store.time() - state.time < HOUR_MS:
                return POLL
            state.time = self._store.time()
            marks = json.loads(state.problem or "{}")
        addresses = (self.forget_log, self.forget_bans, self.forget_addresses)
        for task in (*addresses, self.end_unconfirmed):
            try:
                marks[task.__name__] = task(marks.get(task.__name__))
            except StorageError as error:  # as of a damaged record: the other tasks go on
                LOG.warning("upkeep: %s waits: %s", task.__name__, error)
                continue
            with edit_state(self._store, STATE) as state:
                state.problem = json.dumps(marks)
        return POLL

    def _before(self, setting: str) -> int:
        """Return the time that was as many days ago as a setting says."""
        return now_ms() - self._config[setting] * DAY_MS

    def end_unconfirmed(self, mark: list | None) -> list | None:
        """Delete accounts of an open sign-up that are unused as UNCONFIRMED_DAYS are over."""
        due, users = self._before("UNCONFIRMED_DAYS"), self._store.users
        if not self._config["SMTP_URL"] or self._letters_wait():
            return mark
        after, day = tuple(mark) if mark else None, day_of(due)
        for user in users.between("joined", FIRST_DAY, day, after, PAGE, newest_first=False):
            if user.created > due:
                break
            if is_unused(self._store, user):
                with contextlib.suppress(NotFound, Used):
                    users.delete(user.id, self._require_unused)
                    users.former_names.delete(sha256(unique_key(user.name)))  # to sign up again
            mark = [day_of(user.created), user.id]
        return mark

    def _letters_wait(self) -> bool:
        """Return True if letters have waited for a day: people could not confirm anything then."""
        outbox, queues = self._store.records(OUTBOX), waiting_queues(MAIL)
        oldest = [each for queue in queues for each in outbox.page("queue", queue, at_most=1)]
        return any(each.created < now_ms() - DAY_MS for each in oldest)

    def _require_unused(self, user: User) -> None:
        if not is_unused(self._store, user):
            raise Used
        Authority(self._store, COMMAND).audit("user unconfirmed", user=user.id)

    def forget_bans(self, _mark: None) -> None:
        """Drop the bans that have ended."""
        drop_ended(self._store)

    def forget_addresses(self, mark: int | None) -> int | None:
        """Drop addresses of sign-ins, also of apps, and suspensions older than NETWORK_DAYS."""
        due, users = self._before("NETWORK_DAYS"), self._store.users
        ids = users.ids(mark, PAGE)
        for each in users.read_from_many(ids):
            if has_addresses(each, due):
                with contextlib.suppress(NotFound), users.edit(each.id) as user:
                    drop_addresses(user, due)
            for family_id in each.families:
                self._forget_use(family_id, due)
        return ids[-1] if ids else None  # then from the first one again

    def _forget_use(self, family_id: str, due: int) -> None:
        """Drop the address from which an app was used last, if that was before `due`."""
        families = self._store.records(FAMILIES)
        with contextlib.suppress(NotFound, DamagedRecord):
            found = families.read(family_id)
            if found.address and found.used < due:
                with families.edit(family_id) as found:
                    found.address = found.address if found.used >= due else ""

    def forget_log(self, mark: list | None) -> list | None:
        """Drop addresses from lines of the log that are older than NETWORK_DAYS, once a day."""
        audit, due = self._store.audit, self._before("NETWORK_DAYS") // DAY_MS * DAY_MS

        def position(time: int) -> int:  # of the last line until a time
            return next(audit.before(audit.seek(time)), audit.ends())[0]

        first = next(map(time_of, audit.lines()), None)
        done = mark[1] if mark and mark[0] == first else 0  # a restore puts lines in front
        if done < due and (not done or position(done) < position(due)):
            audit.forget(position(done), audit.seek(due))
        return [first, due]


def is_unused(store: Storage, user: User) -> bool:
    """Return True for an account that an open sign-up left unconfirmed and that nobody uses."""
    is_alone = user.came_alone and user.email and not user.email_verified
    has_done = user.has_played or user.consents or user.mod_level != PLAYER or user.suspension
    if not is_alone or has_done or store.clients.of_owner(user.id, at_most=1):
        return False
    return not store.records(PASSKEYS).page("user", str(user.id), at_most=1)


def has_addresses(user: User, due: int) -> bool:
    """Return True if a record has addresses from before `due`."""
    networks = user.suspension.networks if user.suspension else {}
    is_old = (each.address and each.used < due for each in user.sessions)
    return any(is_old) or any(ended < due for ended in networks.values())


def drop_addresses(user: User, due: int) -> None:
    """Drop the addresses from before `due` in a record."""
    for each in user.sessions:
        if each.used < due:
            each.address = None
    if user.suspension:
        kept = user.suspension.networks.items()
        user.suspension.networks = {each: ended for each, ended in kept if ended >= due}
