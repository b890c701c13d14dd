"""Commits that take long: one player's saves leave room for the saves of others."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from model.errors import StorageFailed

pytestmark = pytest.mark.postgresql
SAVERS = 20  # threads of one player; a worker has twelve, and the database is slow
# Each commit of a record takes this long, as with a standby that is far away.
SLOW = """
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait AFTER INSERT OR UPDATE ON {}
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()
"""


def edit(storage, user_id: int) -> None:
    with storage.users.edit(user_id) as user:
        user.play_ms += 1


def register(storage, user_id: int) -> None:
    storage.clients.register("Game", [], user_id)


SAVES = {
    "users": (edit, lambda storage, user_id: storage.users.read(user_id).play_ms),
    "clients": (register, lambda storage, user_id: len(storage.clients.of_owner(user_id))),
}


@pytest.mark.parametrize("table", SAVES)
def test_one_saving_player_leaves_room_for_others(storage, run, table):
    save, count = SAVES[table]
    mallory, *others = [
        storage.users.register(name, f"{name}@example.org", "")
        for name in ("mallory", "ada", "bob")
    ]
    run(SLOW.format(table))
    over, saved = threading.Event(), []

    def save_all_the_time() -> None:
        while not over.is_set():
            try:
                save(storage, mallory.id)
                saved.append(True)
            except StorageFailed:
                saved.append(False)

    with ThreadPoolExecutor(SAVERS) as threads:
        try:
            savers = [threads.submit(save_all_the_time) for _ in range(SAVERS)]
            for number in range(20):
                save(storage, others[number % 2].id)  # raises nothing
        finally:
            over.set()
    assert not any(each.exception() for each in savers)
    assert [count(storage, each.id) for each in others] == [10, 10]
    assert count(storage, mallory.id) == saved.count(True)
    assert False in saved  # the player's own saves were too many
