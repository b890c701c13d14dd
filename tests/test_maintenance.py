"""The part of the storage contract for whole installations: snapshot and load, for each backend."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from cached_pictures import generate_picture

from storage import (
    ADMINISTRATOR,
    BadInstallation,
    Client,
    DamagedRecord,
    Invite,
    Load,
    NoSuchUser,
    Session,
    Storage,
    User,
    now_ms,
    sha256,
)

ADA, CLEO = 7, 8  # ids; Cleo is deleted
TIME = 1_700_000_000_000  # milliseconds since 1970
INVITE = "an invitation"
EXPIRES = now_ms() + 86_400_000
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
    load.add_client(
        chess(redirect_uris=[], owner_id=ADA, game_url="https://chess.example/", listed=True)
    )
    load.add_invite(sha256(INVITE), Invite(EXPIRES))
    load.add_audit_log(io.BytesIO(LINE))
    load.next_user_id = 100


@contextmanager
def load_is_refused(storage: Storage, error: type[Exception]) -> Iterator[Load]:
    """Expect that the load in this block raises `error` and changes nothing."""
    keys = storage.keys()
    with pytest.raises(error), storage.load() as load:
        yield load
    assert (storage.user_ids(), storage.client_ids()) == ([], [])
    assert not storage.find_invite(INVITE)
    assert storage.keys() == keys


def test_load_adds_everything_with_its_indexes(storage):
    with storage.load() as load:
        fill(load)
    assert [storage.read_user(each).name for each in storage.user_ids()] == ["Ada", "Bob"]
    found = storage.find_user("ada")
    assert found == storage.find_user("ADA@example.org") == storage.read_user(ADA)
    assert found == ada(created=found.created, sessions=[Session("s", TIME, "Firefox")])
    assert storage.read_picture("small", f"7-{TIME}.webp")[0] == generate_picture(99)["small"]
    assert storage.read_picture("small", "9.webp")[0] == generate_picture(9)["small"]
    assert [each.id for each in storage.administrators()] == [ADA, 9]
    assert storage.clients_of(ADA) == storage.games(listed=True) != []
    assert [line["act"] for line in storage.audit_of(9)] == ["user suspend"]
    assert storage.add_user("New", "new@example.org", "", invite=INVITE).id == 100
    assert not storage.find_invite(INVITE)
    assert list(storage.verify()) == []


def test_snapshot_reads_what_load_added(storage):
    with storage.load() as load:
        fill(load)
    with storage.snapshot() as snapshot:
        assert (snapshot.users_total, snapshot.next_user_id) == (2, 100)
        users = list(snapshot.users())
        assert [user.id for user, _ in users] == [ADA, 9]
        assert [pictures for _, pictures in users] == [generate_picture(99), {}]
        assert [user.sessions for user, _ in users] == [[Session("s", TIME, "Firefox")], []]
        assert list(snapshot.deleted_ids()) == [CLEO]
        assert [each.name for each in snapshot.clients()] == ["Chess"]
        assert list(snapshot.invites()) == [(sha256(INVITE), Invite(EXPIRES))]
        assert snapshot.keys() == storage.keys()
        with snapshot.audit_log() as log:
            assert log.read() == LINE


def test_nothing_is_visible_before_a_load_ends(storage):
    seen = []
    with storage.load(before=lambda: seen.append(storage.user_ids())) as load:
        fill(load)
        seen.append(storage.client_ids())
        assert storage.find_user("ada") is None
    assert seen == [[], []]


def test_load_replaces_keys_and_keeps_audit_lines(storage):
    old = storage.keys()
    storage.write_audit("invite", "command", days=1)
    with storage.load(before=lambda: storage.write_audit("restore", "command")) as load:
        fill(load)
    assert not set(storage.keys()) & set(old)
    acts = [line["act"] for line in storage.read_audit()]
    assert acts == ["user suspend", "invite", "restore"]


def test_load_takes_over_the_keys_of_another_installation(storage):
    with storage.load() as load:
        fill(load)
        load.keys = (b"older", b"newer")
    assert storage.keys() == (b"older", b"newer")


def test_snapshot_has_no_used_invitation_and_load_keeps_those_that_are_there(storage):
    issued, used = storage.issue_invite(1), storage.issue_invite(1)
    user = storage.add_user("Zoe", "zoe@example.org", "", invite=used)
    with storage.snapshot() as snapshot:
        assert [invite_hash for invite_hash, _ in snapshot.invites()] == [sha256(issued)]
    storage.delete_user(user.id)
    with storage.load() as load:
        fill(load)
    assert storage.find_invite(issued)
    assert storage.find_invite(INVITE)


def test_ids_given_before_a_load_are_not_given_again(storage):
    storage.reserve_user_ids(500)
    with storage.load() as load:
        fill(load)
    assert storage.add_user("New", "new@example.org", "").id == 501


def test_load_that_raises_changes_nothing(storage):
    called = []
    with pytest.raises(ZeroDivisionError), storage.load(lambda: called.append(1)) as load:
        fill(load)
        raise ZeroDivisionError
    with load_is_refused(storage, ZeroDivisionError) as load:
        fill(load)
        raise ZeroDivisionError
    assert called == []
    assert storage.is_new()
    with storage.load() as load:
        fill(load)
    assert storage.user_ids() == [ADA, 9]


@pytest.mark.parametrize("record", ["user", "client"])
def test_load_into_an_installation_in_use_is_refused(storage, record):
    called = []
    if record == "user":
        storage.add_user("Zoe", "zoe@example.org", "")
    else:
        storage.add_client("Go", [], None)
    with pytest.raises(BadInstallation), storage.load(lambda: called.append(1)) as load:
        fill(load)
    assert called == []
    with pytest.raises(NoSuchUser):
        storage.read_user(ADA)


DUPLICATES: dict[str, Callable[[Load], None]] = {
    "an id": lambda load: load.add_user(ada(name="Zoe", email="zoe@example.org"), {}),
    "a name": lambda load: load.add_user(ada(id=10, name="ADA", email="zoe@example.org"), {}),
    "an email": lambda load: load.add_user(ada(id=10, name="Zoe", email="Ada@example.org"), {}),
    "a deleted id": lambda load: load.add_deleted_id(CLEO),
    "a deleted id of a user": lambda load: load.add_deleted_id(ADA),
    "an invitation": lambda load: load.add_invite(sha256(INVITE), Invite(EXPIRES)),
    "a client": lambda load: load.add_client(chess(redirect_uris=[])),
}


@pytest.mark.parametrize("add", DUPLICATES.values(), ids=DUPLICATES)
def test_load_of_a_duplicate_is_refused(storage, add):
    with load_is_refused(storage, DamagedRecord) as load:
        fill(load)
        add(load)
