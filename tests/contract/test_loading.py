"""Whole installations: a snapshot reads one state of it, a load adds everything or nothing."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from cached_pictures import generate_picture

from model.errors import BadInstallation, DamagedRecord, NoSuchUser
from model.kind import DAY_MS
from model.kinds import CLIENTS, FORMER_NAMES, INVITES
from model.records import ADMINISTRATOR, Client, FormerName, Session, User, now_ms, sha256
from model.site_records import Invite
from storage import Storage
from storage.maintenance import Load

from .base import find_all, ids_of

ADA, CLEO = 7, 8  # ids; Cleo is deleted
TIME = 1_700_000_000_000  # milliseconds since 1970
INVITE = "an invitation"
UNUSED = Invite(sha256(INVITE), now_ms() + DAY_MS)
LINE = b'{"time": 1, "act": "user suspend", "by": 7, "user": 9}\n'


def ada(**values) -> User:
    fields = {"name": "Ada", "email": "ada@example.org", "password_hash": ""}
    return User(**{"id": ADA, "mod_level": ADMINISTRATOR, "pfp_timestamp": TIME} | fields | values)


def chess(**values) -> Client:
    return Client(**{"id": "c" * 24, "name": "Chess", "secret_sha256": "0" * 64} | values)


def fill(load: Load) -> None:
    load.add_user(ada(sessions=[Session("s", TIME, "Firefox")]), generate_picture(99))
    load.add_user(ada(id=9, name="Bob", email="bob@example.org", pfp_timestamp=None), {})
    load.add_deleted_id(CLEO)
    game = {"game_url": "https://chess.example/", "listed": True}
    load.add(CLIENTS, chess(redirect_uris=[], owner_id=ADA, **game))
    load.add(INVITES, UNUSED)
    load.add_audit_log(io.BytesIO(LINE))
    load.next_user_id = 100


@contextmanager
def load_is_refused(storage: Storage, error: type[Exception]) -> Iterator[Load]:
    """Expect that the load in this block raises `error` and changes nothing."""
    keys, called = storage.keys.current(), []
    with pytest.raises(error), storage.load(lambda: called.append(1)) as load:
        yield load
    assert called == []
    assert (storage.users.ids(), storage.clients.ids()) == ([], [])
    assert not storage.invites.find_unused(INVITE)
    assert storage.keys.current() == keys
    assert storage.users.is_new()


DUPLICATES: dict[str, Callable[[Load], None]] = {
    "an id": lambda load: load.add_user(ada(name="Zoe", email="zoe@example.org"), {}),
    "a name": lambda load: load.add_user(ada(id=10, name="ADA", email="zoe@example.org"), {}),
    "an email": lambda load: load.add_user(ada(id=10, name="Zoe", email="Ada@example.org"), {}),
    "a deleted id": lambda load: load.add_deleted_id(CLEO),
    "a deleted id of a user": lambda load: load.add_deleted_id(ADA),
    "an invitation": lambda load: load.add(INVITES, UNUSED),
    "a client": lambda load: load.add(CLIENTS, chess(redirect_uris=[])),
}


class TestLoad:
    def test_load_adds_everything_with_its_indexes(self, storage):
        with storage.load() as load:
            fill(load)
        assert [storage.users.read(each).name for each in storage.users.ids()] == ["Ada", "Bob"]
        found = storage.users.read(ADA)
        assert find_all(storage, "ada", "ADA@example.org") == [found] * 2
        assert found == ada(created=found.created, sessions=[Session("s", TIME, "Firefox")])
        assert storage.pictures.read("small", f"7-{TIME}.webp")[0] == generate_picture(99)["small"]
        assert storage.pictures.read("small", "9.webp")[0] == generate_picture(9)["small"]
        assert ids_of(storage.users.administrators()) == [ADA, 9]
        assert storage.clients.of_owner(ADA) == storage.clients.games(listed=True) != []
        assert [line["act"] for line in storage.audit.about({9})] == ["user suspend"]
        assert storage.users.register("New", "new@example.org", "", invite=INVITE).id == 100
        assert not storage.invites.find_unused(INVITE)
        assert list(storage.verify()) == []

    def test_load_is_in_the_lists_of_every_process(self, storage, open_installation):
        stores = [storage, open_installation()]
        for store in stores:
            assert (store.users.by_name(""), store.users.newest(9)) == ([], [])
        with storage.load() as load:
            fill(load)
            load.keys = (b"older", b"newer")  # of another installation
        for store in (*stores, open_installation()):
            assert ids_of(store.users.by_name("")) == [ADA, 9]
            assert ids_of(store.users.newest(9)) == [9, ADA]
            assert store.keys.current() == (b"older", b"newer")

    def test_snapshot_reads_what_a_load_added(self, storage):
        with storage.load() as load:
            fill(load)
        with storage.snapshot() as snapshot:
            assert snapshot.next_user_id == 100
            users = list(snapshot.users())
            assert [user.id for user, _ in users] == [ADA, 9]
            assert [pictures for _, pictures in users] == [generate_picture(99), {}]
            assert [user.sessions for user, _ in users] == [[Session("s", TIME, "Firefox")], []]
            assert list(snapshot.deleted_ids()) == [CLEO]
            assert [each.name for each in snapshot.records(CLIENTS)] == ["Chess"]
            assert list(snapshot.records(INVITES)) == [UNUSED]
            assert snapshot.keys() == storage.keys.current()
            assert list(snapshot.audit_lines()) == [LINE]

    def test_load_is_visible_only_when_it_ends(self, storage):
        seen = []
        with storage.load(before=lambda: seen.append(storage.users.ids())) as load:
            fill(load)
            seen.append(storage.clients.ids())
            assert storage.users.find_by_login("ada") is None
        assert seen == [[], []]

    def test_load_replaces_keys_and_keeps_audit_lines(self, storage):
        old = storage.keys.current()
        storage.audit.write("invite", "command", days=1)
        with storage.load(before=lambda: storage.audit.write("restore", "command")) as load:
            fill(load)
        assert not set(storage.keys.current()) & set(old)
        acts = [line["act"] for line in storage.audit.read()]
        assert acts == ["user suspend", "invite", "restore"]

    def test_ids_reserved_before_a_load_are_not_given(self, storage):
        storage.users.reserve_ids(500)
        with storage.load() as load:
            fill(load)
        assert storage.users.register("New", "new@example.org", "").id == 501

    def test_load_can_have_a_name_that_was_kept_here(self, storage):
        gone = storage.users.register("Grace", "grace@example.org", "")
        storage.users.delete(gone.id)
        former = FormerName(sha256("grace"), ADA, now_ms() + DAY_MS)
        with storage.load() as load:
            fill(load)
            load.add(FORMER_NAMES, former)
        assert storage.users.former_names.find_kept("Grace").user_id in (ADA, gone.id)

    def test_load_that_raises_changes_nothing(self, storage, subtests):
        with load_is_refused(storage, ZeroDivisionError) as load:
            fill(load)
            raise ZeroDivisionError
        for name, add in DUPLICATES.items():
            with subtests.test(name), load_is_refused(storage, DamagedRecord) as load:
                fill(load)
                add(load)
        with storage.load() as load:
            fill(load)
        assert storage.users.ids() == [ADA, 9]

    def test_load_into_an_installation_in_use_is_refused(self, storage):
        zoe = storage.users.register("Zoe", "zoe@example.org", "")
        called = []

        def load_everything() -> None:
            with storage.load(lambda: called.append(1)) as load:
                fill(load)

        with pytest.raises(BadInstallation):
            load_everything()
        storage.users.delete(zoe.id)
        handle = storage.handles.of(zoe)
        with pytest.raises(BadInstallation, match="handles of players who left"):
            load_everything()
        storage.handles.delete(handle)
        storage.clients.register("Go", [], None)
        with pytest.raises(BadInstallation):
            load_everything()
        assert called == []
        with pytest.raises(NoSuchUser):
            storage.users.read(ADA)
