"""The states of things that happen now and then, each a record of its own."""

import contextlib
from collections.abc import Iterator

from model.errors import AlreadyThere, DamagedRecord
from model.kinds import STATES
from model.site_records import State
from storage import Storage


def find_state(store: Storage, state_id: str) -> State | None:
    """Return a state; None without one, and for a damaged one, which costs nobody a page."""
    with contextlib.suppress(DamagedRecord):
        return store.records(STATES).find(state_id)
    return None


@contextlib.contextmanager
def edit_state(store: Storage, state_id: str) -> Iterator[State]:
    """`with edit_state(...) as state:` edits a state, which is added if it is missing."""
    states = store.records(STATES)
    if states.find(state_id) is None:
        with contextlib.suppress(AlreadyThere):
            states.add(State(state_id, 0))
    with states.edit(state_id) as state:
        yield state
