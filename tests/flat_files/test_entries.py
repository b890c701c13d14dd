"""The entries of keys, while several processes change them."""

import threading

from model.kinds import USERS
from storage.flat_files.entries import Entries

DAY = "020783"


def test_racing_edits_keep_their_entries(store):
    """Each holds the lock of another record, and the last to leave removes the folder."""
    entries, key = Entries(store.layout, USERS), USERS.key("suspended")
    begin, problems = threading.Barrier(8), []

    def come_and_go(user_id: int) -> None:
        begin.wait()
        try:
            for _ in range(1000):
                entries.put(key, DAY, user_id, durable=False)
                if user_id not in entries.members(key, DAY):
                    problems.append(f"the entry of {user_id} is lost")
                entries.remove(key, DAY, user_id)
        except OSError as error:
            problems.append(str(error))

    threads = [threading.Thread(target=come_and_go, args=[each]) for each in range(1, 9)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert problems == [] and entries.values(key) == []


def test_entry_on_a_broken_disk_holds_nobody(store, monkeypatch):
    """It is there, and nothing more can be known of it."""
    entries, key = Entries(store.layout, USERS), USERS.key("suspended")
    entries.put(key, DAY, 1)
    monkeypatch.setattr("os.path.lexists", lambda path: False)  # its answer to every error
    entries.put(key, DAY, 1)
    assert entries.members(key, DAY) == [1]
