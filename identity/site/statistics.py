"""The numbers of a site, for its administrators."""

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from identity.site.formatting import DAY
from identity.site.states import edit_state, find_state
from model.kind import DAY_MS, day_of, hour_of
from model.records import now_ms
from model.site_records import State
from storage import Storage

NUMBERS_KEPT = 60_000  # milliseconds
COUNTED = 1000  # games and reports at most
BACKUP = "backup"  # the id of its state
OLD_BACKUP = 2 * DAY * 1000  # milliseconds

last_numbers: WeakKeyDictionary = WeakKeyDictionary()  # of each storage


@dataclass(frozen=True)
class Numbers:
    """What was counted, and when. None for what is not known."""

    time: int
    players: int
    active_day: int  # who played in the last 24 to 25 hours
    active_week: int
    new_week: int  # who signed up in the last 7 to 8 days
    games: int
    free_space: int | None  # bytes
    backup: State  # when the last one ended whole, and what went wrong since

    @property
    def backup_is_old(self) -> bool:
        return now_ms() - self.backup.time > OLD_BACKUP


def count_numbers(store: Storage) -> Numbers:
    """Return the numbers of now."""
    now, users = now_ms(), store.users
    return Numbers(
        time=now,
        players=users.number(),
        active_day=users.count_between("played", hour_of(now - DAY_MS), hour_of(now)),
        active_week=users.count_between("played", hour_of(now - 7 * DAY_MS), hour_of(now)),
        new_week=users.count_between("joined", day_of(now - 7 * DAY_MS), day_of(now)),
        games=store.clients.count("games", "listed", COUNTED),
        free_space=store.free_space(),
        backup=read_backup(store),
    )


def read_numbers(store: Storage) -> Numbers:
    """Return the numbers, up to a minute old. The state of the backup is that of now."""
    kept = last_numbers.get(store)
    if kept is None or not 0 <= now_ms() - kept.time < NUMBERS_KEPT:
        kept = last_numbers[store] = count_numbers(store)
    return replace(kept, backup=read_backup(store))


def read_backup(store: Storage) -> State:
    """Return when the last backup ended whole (time 0: never), and what went wrong since."""
    return find_state(store, BACKUP) or State(BACKUP, 0)


def note_backup(store: Storage, problem: str = "") -> None:
    """Keep that a backup ended whole now, or else the `problem` that stopped it."""
    with edit_state(store, BACKUP) as state:
        state.problem = problem
        state.time = state.time if problem else now_ms()
