"""What storage promises, whatever keeps it: only the interface in `storage` is used here.

The fixture `backend` in conftest.py names the backends. What is particular to
files on disk is in flat_files/.
"""

import dataclasses
import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from storage import kinds, records
from storage.contract import ATTEMPTS_WINDOW
from storage.errors import (
    AlreadyThere,
    CodeSpent,
    EmailTaken,
    IdTaken,
    InvalidField,
    LastAdministrator,
    NameTaken,
    NoSuchClient,
    NoSuchCode,
    NoSuchPicture,
    NoSuchUser,
    StorageError,
    TooManyAttempts,
)
from storage.pictures import generate_picture
from storage.records import (
    ADMINISTRATOR,
    MODERATOR,
    PICTURE_SIZES,
    PLAYER,
    AuthorizationCode,
    Client,
    Grant,
    Notice,
    Session,
    Suspension,
    User,
    now_ms,
)

pytestmark = pytest.mark.contract
PICTURE = {size: size.encode() for size in PICTURE_SIZES}  # storage does not look into them
UNKNOWN_ID = 404
TICK = 0.1  # seconds: kernels round a file's time down to when their clock last ticked


@pytest.fixture
def ada(storage) -> User:
    return storage.users.register("Ada", "ada@example.org", "a hash")


@pytest.fixture
def bob(storage) -> User:
    return storage.users.register("Bob", "bob@example.org", "a hash")


@pytest.fixture
def client(storage) -> Client:
    return storage.clients.register("Chess", ["https://chess.example/cb"], None)[0]


@pytest.fixture
def code_record(ada, client) -> AuthorizationCode:
    return AuthorizationCode(client.id, ada.id, "a grant", ["userinfo"], "https://a.example", None)


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, at the start of a window; adding to `.now` moves it."""

    class Clock:
        now = time.time() // ATTEMPTS_WINDOW * ATTEMPTS_WINDOW

    monkeypatch.setattr(time, "time", lambda: Clock.now)
    return Clock


def together(act, arguments) -> list:
    """What `act` returns, or the StorageError it raises, for each argument, in racing threads."""
    barrier = threading.Barrier(len(arguments))

    def race(argument):
        barrier.wait()
        try:
            return act(argument)
        except StorageError as error:
            return error

    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(race, arguments))


# ---------------------------------------------------------------------------------------------
# Users: adding and finding
# ---------------------------------------------------------------------------------------------


def test_a_user_is_read_back_as_added(storage, ada):
    assert storage.users.read(ada.id) == ada


def test_a_new_user_is_a_player_with_a_current_heartbeat(storage):
    before = now_ms()
    ada = storage.users.register("Ada", "ada@example.org", "a hash")
    assert (ada.name, ada.email, ada.password_hash) == ("Ada", "ada@example.org", "a hash")
    assert (ada.mod_level, ada.suspended, ada.bio, ada.play_ms) == (PLAYER, False, "", 0)
    assert (ada.flairs, ada.equipped_flair, ada.grants, ada.sessions) == (["none"], "none", {}, [])
    assert before <= ada.created == ada.last_heartbeat <= now_ms()


def test_a_new_user_may_have_a_mod_level(storage):
    grace = storage.users.register("Grace", "grace@example.org", "a hash", ADMINISTRATOR)
    assert storage.users.read(grace.id).mod_level == ADMINISTRATOR


@pytest.mark.parametrize("size", PICTURE_SIZES)
def test_a_new_user_has_a_picture_of_each_size(storage, ada, bob, size):
    pictures = [
        storage.pictures.read(size, f"{user.id}-{user.pfp_timestamp}.webp")[0]
        for user in (ada, bob)
    ]
    assert pictures[0].startswith(b"RIFF") and pictures[1].startswith(b"RIFF")
    assert pictures[0] != pictures[1]


def test_everything_is_there_when_another_process_opens_the_storage(
    storage, open_installation, ada, client, code_record
):
    storage.codes.add("a code", code_record)
    again = open_installation()
    assert again.users.read(ada.id) == ada
    assert again.users.find_by_login("ada") == ada
    assert again.clients.read(client.id) == client
    assert again.codes.read("a code") == code_record
    assert again.keys.current() == storage.keys.current()


def test_a_name_is_stored_in_its_normal_form(storage):
    user = storage.users.register("  Ａｄａ\u00a0ｂ ", " ada@example.org\n", "a hash")
    assert (user.name, user.email) == ("Ada b", "ada@example.org")


@pytest.mark.parametrize(
    "kept, written",
    [
        ("Ada", "Ada"),
        ("Ada", "aDA"),
        ("Ada", "Ａｄａ"),
        ("Ada", " Ada "),  # phones add a space to a name that they complete
        ("Ada L. King", "ada\u00a0l. king"),
        ("José", "Jose\u0301"),
        ("Straße", "STRASSE"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("ﬁne", "FINE"),
        ("アダ", "ｱﾀﾞ"),
        ("İpek", "i\u0307pek"),
    ],
)
def test_a_user_is_found_by_any_spelling_of_the_name(storage, kept, written):
    user = storage.users.register(kept, "ada@example.org", "a hash")
    assert storage.users.find_by_login(written) == user


@pytest.mark.parametrize(
    "written",
    [
        "ada@example.org",
        "ADA@Example.Org",
        "ａda@example.org",
        "ada＠example.org",
        "ada@example.org ",
    ],
)
def test_a_user_is_found_by_any_spelling_of_the_email(storage, ada, written):
    assert storage.users.find_by_login(written) == ada


@pytest.mark.parametrize(
    "written", ["", " ", "Bob", "1", "@", "ada@", "Ada@example.net", "a" * 9999]
)
def test_nobody_is_found_by_an_unknown_name_or_email(storage, ada, written):
    assert storage.users.find_by_login(written) is None


@pytest.mark.parametrize(
    "kept, wanted",
    [("Ada", "ada"), ("Ada", "ＡＤＡ"), ("straße", "Strasse"), ("José", "Jose\u0301")],
)
def test_a_name_that_reads_the_same_is_taken(storage, kept, wanted):
    storage.users.register(kept, "ada@example.org", "a hash")
    with pytest.raises(NameTaken) as refusal:
        storage.users.register(wanted, "other@example.org", "a hash")
    assert refusal.value.field == "name"
    assert storage.users.ids() == [1]


@pytest.mark.parametrize("wanted", ["ada@example.org", "ADA@EXAMPLE.ORG", "ａda@example.org"])
def test_an_email_address_that_reads_the_same_is_taken(storage, ada, wanted):
    with pytest.raises(EmailTaken) as refusal:
        storage.users.register("Other", wanted, "a hash")
    assert refusal.value.field == "email"
    assert storage.users.find_by_login("Other") is None


def test_a_refused_user_takes_neither_name_nor_email(storage, ada):
    with pytest.raises(EmailTaken):
        storage.users.register("Bob", "ada@example.org", "a hash")
    with pytest.raises(NameTaken):
        storage.users.register("Ada", "bob@example.org", "a hash")
    bob = storage.users.register("Bob", "bob@example.org", "a hash")
    assert (
        storage.users.find_by_login("bob") == storage.users.find_by_login("bob@example.org") == bob
    )


@pytest.mark.parametrize(
    "name, email, mod_level, field",
    [
        ("A", "ada@example.org", PLAYER, "name"),
        ("Ada", "ada", PLAYER, "email"),
        ("Ada", "ada@example.org", 3, "mod_level"),
    ],
)
def test_a_user_who_breaks_a_rule_is_refused(storage, name, email, mod_level, field):
    with pytest.raises(InvalidField) as refusal:
        storage.users.register(name, email, "a hash", mod_level)
    assert refusal.value.field == field
    assert storage.users.ids() == []


def test_ids_grow_and_are_never_used_again(storage, open_installation):
    first, second = (storage.users.register(f"Ada {n}", f"{n}@example.org", "").id for n in "ab")
    storage.users.delete(second)
    third = storage.users.register("Ada b", "b@example.org", "").id
    storage.users.delete(third)
    fourth = open_installation().users.register("Ada b", "b@example.org", "").id
    assert 0 < first < second < third < fourth
    assert storage.users.ids() == [first, fourth]


def test_user_ids_are_in_the_order_of_numbers(storage):
    for n in range(11):
        storage.users.register(f"Ada {n}", f"{n}@example.org", "")
    assert storage.users.ids() == list(range(1, 12))


def test_one_of_racing_threads_gets_a_name(storage):
    names = ["Ada", "ADA", "ada", "Ａda", "aDa", "adA", "ａｄａ", "ADa"]
    results = together(lambda n: storage.users.register(names[n], f"{n}@example.org", ""), range(8))
    winners = [result for result in results if isinstance(result, User)]
    assert len(winners) == len(storage.users.ids()) == 1
    assert storage.users.find_by_login("ada") == winners[0]
    assert all(isinstance(result, NameTaken | User) for result in results)


@pytest.mark.parametrize(
    "act",
    [
        lambda storage: storage.users.read(UNKNOWN_ID),
        lambda storage: storage.users.edit(UNKNOWN_ID).__enter__(),
        lambda storage: storage.users.rename(UNKNOWN_ID, "Grace"),
        lambda storage: storage.users.change_email(UNKNOWN_ID, "grace@example.org"),
        lambda storage: storage.pictures.save(UNKNOWN_ID, PICTURE),
        lambda storage: storage.users.delete(UNKNOWN_ID),
    ],
    ids=["read", "edit", "rename", "change_email", "save_picture", "delete"],
)
def test_an_unknown_user_raises_and_leaves_no_trace(storage, ada, act):
    with pytest.raises(NoSuchUser):
        act(storage)
    assert storage.users.ids() == [ada.id]
    storage.users.register("Grace", "grace@example.org", "")  # neither name nor address was taken


# ---------------------------------------------------------------------------------------------
# Users: edits
# ---------------------------------------------------------------------------------------------


def test_an_edit_saves_every_field(storage, ada, client):
    with storage.users.edit(ada.id) as user:
        user.password_hash = "another"
        user.mod_level = MODERATOR
        user.suspension = Suspension("command")
        user.bio = "Two lines,\nmore or less. ☃"
        user.flairs.append("early")
        user.equipped_flair = "early"
        user.play_ms += 60_000
        user.last_heartbeat += 1
        user.pfp_timestamp = None
        user.grants[client.id] = Grant("g", ["userinfo", "email"], 1)
        user.sessions.append(Session("s", 2, "Firefox on Linux"))
    assert storage.users.read(ada.id) == user != ada


def all_saves(storage, user: User) -> list:
    """Return a call of each method that saves this user."""

    def edit() -> None:
        with storage.users.edit(user.id) as edited:
            edited.play_ms += 1

    return [
        edit,
        lambda: storage.users.rename(user.id, "Grace"),
        lambda: storage.users.change_email(user.id, "grace@example.org"),
        lambda: storage.users.reset_name(user.id),
    ]


def test_each_edit_drops_grants_of_deleted_clients(storage, client):
    for number in range(4):
        ada = storage.users.register(f"Ada {number}", f"a{number}@example.org", "")
        gone, _ = storage.clients.register("Gone", [], None)
        with storage.users.edit(ada.id) as user:
            user.grants = {each.id: Grant("g", ["userinfo"], 1) for each in (gone, client)}
        storage.clients.delete(gone.id)
        with storage.users.edit(ada.id):
            pass  # nothing changes, so nothing is saved
        assert gone.id in storage.users.read(ada.id).grants
        all_saves(storage, ada)[number]()
        assert storage.users.read(ada.id).grants == {client.id: Grant("g", ["userinfo"], 1)}
        storage.users.delete(ada.id)


def test_the_newest_grants_are_kept(storage, ada, monkeypatch):
    monkeypatch.setattr(records, "GRANTS_KEPT", 3)
    ids = [storage.clients.register(f"Client {n}", [], None)[0].id for n in range(5)]
    for since, each in zip((50, 10, 40, 30, 20), ids, strict=True):
        with storage.users.edit(ada.id) as user:
            user.grants[each] = Grant("g", ["userinfo"], since)
    # Client 1 went when client 3 came; client 4 is older than the others that are there.
    assert list(storage.users.read(ada.id).grants) == [ids[0], ids[2], ids[3]]


@pytest.mark.parametrize(("age", "kept"), [(600_000, True), (900_000, False)])  # milliseconds
def test_a_save_drops_the_grant_of_an_old_test(storage, ada, client, age, kept):
    with storage.users.edit(ada.id) as user:
        user.grants[client.id] = Grant("g", [], now_ms() - age)
    assert (client.id in storage.users.read(ada.id).grants) == kept


def test_a_notice_is_later_than_one_of_a_machine_whose_clock_is_ahead(storage, ada):
    with storage.users.edit(ada.id) as user:
        user.notices = [Notice("First", now_ms() + 30_000)]
        user.notify("Second")
    first, second = storage.users.read(ada.id).notices
    assert (second.text, second.since) == ("Second", first.since + 1)


def test_a_new_grant_is_kept_after_the_clock_was_set_back(storage, ada, monkeypatch):
    monkeypatch.setattr(records, "GRANTS_KEPT", 2)
    ids = [storage.clients.register(f"Client {n}", [], None)[0].id for n in range(3)]
    with storage.users.edit(ada.id) as user:
        user.grants = {each: Grant("g", ["userinfo"], now_ms() + 9_000_000) for each in ids[:2]}
    with storage.users.edit(ada.id) as user:
        user.grants[ids[2]] = Grant("g", ["userinfo"], now_ms())
    assert list(storage.users.read(ada.id).grants) == ids[1:]


def test_consent_to_a_client_that_is_being_deleted_leaves_no_grant(storage, ada, client):
    with storage.users.edit(ada.id) as user:
        user.bio = "Saved all the same"
        user.grants[client.id] = Grant("g", ["userinfo"], 1)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(storage.clients.delete, client.id).result()
    user = storage.users.read(ada.id)
    assert (user.bio, user.grants) == ("Saved all the same", {})


def test_an_edit_that_raises_saves_nothing_and_blocks_nothing(storage, ada):
    with pytest.raises(LookupError), storage.users.edit(ada.id) as user:
        user.bio = "half done"
        raise LookupError
    assert storage.users.read(ada.id) == ada
    with storage.users.edit(ada.id) as user:
        user.bio = "again"
    assert storage.users.read(ada.id).bio == "again"


@pytest.mark.parametrize(
    "field, value", [("bio", "b" * 1001), ("mod_level", 7), ("mod_level", -1), ("bio", "\x00")]
)
def test_an_edit_that_breaks_a_rule_saves_nothing(storage, ada, field, value):
    with pytest.raises(InvalidField) as refusal, storage.users.edit(ada.id) as user:
        user.play_ms = 1
        setattr(user, field, value)
    assert refusal.value.field == field
    assert storage.users.read(ada.id) == ada


@pytest.mark.parametrize(
    "field, value", [("id", 2), ("name", "Grace"), ("name", "ADA"), ("email", "grace@example.org")]
)
def test_an_edit_changes_neither_id_nor_name_nor_email(storage, ada, field, value):
    with pytest.raises(ValueError, match=field), storage.users.edit(ada.id) as user:
        setattr(user, field, value)
    assert storage.users.read(ada.id) == ada


@pytest.mark.parametrize(
    "field, value",
    [
        ("play_ms", 1.5),
        ("suspension", True),
        ("suspension", Suspension("command", until=1.5)),
        ("mod_level", True),  # equal to 1, but kept as another thing
        ("flairs", []),
        ("equipped_flair", "not owned"),
        ("sessions", [None]),
        ("grants", {"c" * 24: Grant("g", "userinfo", 1)}),
    ],
)
def test_an_edit_saves_nothing_that_could_not_be_read_again(storage, ada, field, value):
    with pytest.raises((ValueError, TypeError)), storage.users.edit(ada.id) as user:
        setattr(user, field, value)
    assert storage.users.read(ada.id) == ada


def test_a_newer_rule_does_not_block_other_changes(storage, ada, monkeypatch):
    monkeypatch.setitem(kinds.USER_RULES, "bio", lambda bio: "must rhyme")
    with storage.users.edit(ada.id) as user:
        user.play_ms = 1
    with pytest.raises(InvalidField, match="must rhyme"), storage.users.edit(ada.id) as user:
        user.bio = "new"


@pytest.mark.parametrize(
    "act",
    [
        lambda storage, bob, client: storage.users.edit(1).__enter__(),
        lambda storage, bob, client: storage.users.edit(bob.id).__enter__(),
        lambda storage, bob, client: storage.users.register("Grace", "grace@example.org", ""),
        lambda storage, bob, client: storage.users.rename(bob.id, "Grace"),
        lambda storage, bob, client: storage.users.change_email(bob.id, "grace@example.org"),
        lambda storage, bob, client: storage.pictures.save(bob.id, PICTURE),
        lambda storage, bob, client: storage.users.delete(1),
        lambda storage, bob, client: storage.users.delete(bob.id),
        lambda storage, bob, client: storage.clients.edit(client.id).__enter__(),
        lambda storage, bob, client: storage.clients.issue_secret(client.id),
        lambda storage, bob, client: storage.clients.delete(client.id),
    ],
    ids=[
        *("edit_same", "edit_other", "add", "rename", "change_email", "save_picture"),
        *("delete_same", "delete_other", "edit_client", "issue_client_secret", "delete_client"),
    ],
)
def test_edits_never_nest(storage, ada, bob, client, act):
    with pytest.raises(RuntimeError, match="never nest"), storage.users.edit(ada.id) as user:
        user.bio = "half done"
        act(storage, bob, client)
    assert [storage.users.read(each.id) for each in (ada, bob)] == [ada, bob]
    assert storage.clients.read(client.id) == client


def test_reading_goes_on_within_an_edit(storage, ada, bob):
    with storage.users.edit(ada.id) as user:
        user.bio = "half done"
        assert storage.users.read(ada.id) == ada
        assert storage.users.find_by_login("bob") == bob


# ---------------------------------------------------------------------------------------------
# Users: names and email addresses that change, deletion
# ---------------------------------------------------------------------------------------------


def test_a_renamed_user_is_found_by_the_new_name_only(storage, ada):
    renamed = storage.users.rename(ada.id, "Grace")
    assert renamed == dataclasses.replace(ada, name="Grace") == storage.users.read(ada.id)
    assert storage.users.find_by_login("grace") == renamed
    assert storage.users.find_by_login("Ada") is None


def test_an_abandoned_name_is_free(storage, ada):
    storage.users.rename(ada.id, "Grace")
    other = storage.users.register("Ada", "other@example.org", "")
    assert storage.users.find_by_login("Ada") == other
    assert storage.users.find_by_login("Grace").id == ada.id


def test_a_user_may_write_their_own_name_in_another_way(storage, ada):
    renamed = storage.users.rename(ada.id, " ＡＤＡ ")
    assert renamed.name == "ADA"
    assert storage.users.find_by_login("Ada") == renamed


def test_a_rename_to_the_same_name_changes_nothing(storage, ada):
    assert storage.users.rename(ada.id, "Ada") == ada
    assert storage.users.find_by_login("ada") == ada


def test_a_user_may_take_back_an_earlier_name(storage, ada):
    for name in ("Grace", "Ada", "Grace", "Ada"):
        storage.users.rename(ada.id, name)
    assert storage.users.find_by_login("Ada") == ada
    assert storage.users.find_by_login("Grace") is None


@pytest.mark.parametrize(
    "name, error",
    [("bob", NameTaken), ("ＢＯＢ", NameTaken), ("B", InvalidField), ("root", InvalidField)],
)
def test_a_refused_rename_changes_nothing(storage, ada, bob, name, error):
    with pytest.raises(error):
        storage.users.rename(ada.id, name)
    assert storage.users.find_by_login("Ada") == ada
    assert storage.users.find_by_login("Bob") == bob


def test_a_changed_email_address_replaces_the_old_one(storage, ada):
    changed = storage.users.change_email(ada.id, "Countess@example.org")
    assert changed == dataclasses.replace(ada, email="Countess@example.org")
    assert (
        storage.users.find_by_login("countess@example.org")
        == storage.users.find_by_login("Ada")
        == changed
    )
    assert storage.users.find_by_login("ada@example.org") is None
    other = storage.users.register("Other", "ada@example.org", "")
    assert storage.users.find_by_login("ada@example.org") == other


@pytest.mark.parametrize(
    "email, error", [("BOB@example.org", EmailTaken), ("bob", InvalidField), ("", InvalidField)]
)
def test_a_refused_email_address_changes_nothing(storage, ada, bob, email, error):
    with pytest.raises(error):
        storage.users.change_email(ada.id, email)
    assert storage.users.find_by_login("ada@example.org") == ada
    assert storage.users.find_by_login("bob@example.org") == bob


def test_a_user_may_write_their_own_email_address_in_another_way(storage, ada):
    changed = storage.users.change_email(ada.id, "Ada@Example.org")
    assert storage.users.find_by_login("ada@example.org") == changed == storage.users.read(ada.id)
    assert changed.email == "Ada@Example.org"


def test_a_deleted_user_is_gone_and_blocks_nothing(storage, ada, bob):
    timestamp = storage.pictures.save(ada.id, PICTURE)
    storage.users.delete(ada.id)
    with pytest.raises(NoSuchUser):
        storage.users.read(ada.id)
    assert (
        storage.users.find_by_login("Ada") is storage.users.find_by_login("ada@example.org") is None
    )
    assert storage.users.ids() == [bob.id]
    for size in PICTURE_SIZES:
        with pytest.raises(NoSuchPicture):
            storage.pictures.read(size, f"{ada.id}-{timestamp}.webp")
    again = storage.users.register("Ada", "ada@example.org", "")
    assert storage.users.find_by_login("Ada") == again
    assert storage.users.read(bob.id) == bob


@pytest.fixture
def administrators(storage, ada, bob) -> list[User]:
    """Ada and Bob, both of them."""
    for user_id in (ada.id, bob.id):
        set_mod_level(storage, user_id, ADMINISTRATOR)
    return [ada, bob]


def set_mod_level(storage, user_id: int, mod_level: int) -> None:
    with storage.users.edit(user_id) as user:
        user.mod_level = mod_level


def test_only_the_last_administrator_cannot_be_lost(storage, administrators):
    first, second = administrators
    for user in (first, second):
        with storage.users.administered_without(user.id):
            pass
    with storage.users.administered_without(first.id):
        storage.users.delete(first.id)
    with pytest.raises(LastAdministrator), storage.users.administered_without(second.id):
        pytest.fail("the block was entered")


@pytest.mark.parametrize(
    "change", [{"suspension": Suspension("command")}, {"mod_level": MODERATOR}]
)
def test_suspended_users_and_moderators_are_no_administrators(storage, administrators, change):
    first, second = administrators
    with storage.users.edit(second.id) as user:
        for name, value in change.items():
            setattr(user, name, value)
    with storage.users.administered_without(second.id):
        pass
    with pytest.raises(LastAdministrator), storage.users.administered_without(first.id):
        pytest.fail("the block was entered")


def test_a_site_without_administrators_blocks_nothing(storage, ada):
    with storage.users.administered_without(ada.id):
        storage.users.delete(ada.id)
    with pytest.raises(NoSuchUser), storage.users.administered_without(ada.id):
        pytest.fail("the block was entered")


def test_of_racing_demotions_one_administrator_is_left(storage, administrators):
    administrators += [storage.users.register(f"C{n}", f"c{n}@example.org", "") for n in range(2)]

    def step_down(user: User) -> None:
        with storage.users.administered_without(user.id):
            set_mod_level(storage, user.id, PLAYER)

    for _ in range(20):
        for user in administrators:
            set_mod_level(storage, user.id, ADMINISTRATOR)
        told = together(step_down, administrators)
        assert [type(each) for each in told if each] == [LastAdministrator]
        assert sum(storage.users.read(user.id).administers for user in administrators) == 1


def test_a_user_is_deleted_once(storage, ada):
    results = together(storage.users.delete, [ada.id] * 4)
    assert sorted(type(result).__name__ for result in results) == ["NoSuchUser"] * 3 + ["NoneType"]


# ---------------------------------------------------------------------------------------------
# Pictures
# ---------------------------------------------------------------------------------------------


def test_a_saved_picture_replaces_the_old_one(storage, ada):
    before = time.time()
    timestamp = storage.pictures.save(ada.id, PICTURE)
    assert storage.users.read(ada.id).pfp_timestamp == timestamp
    for size, content in PICTURE.items():
        read, written = storage.pictures.read(size, f"{ada.id}-{timestamp}.webp")
        assert read == content
        assert before - TICK < written <= time.time()
        with pytest.raises(NoSuchPicture):
            storage.pictures.read(size, f"{ada.id}-{ada.pfp_timestamp}.webp")


def test_the_timestamp_of_a_picture_grows_though_the_clock_does_not(storage, ada):
    timestamps = [ada.pfp_timestamp, *(storage.pictures.save(ada.id, PICTURE) for _ in range(5))]
    in_an_hour = now_ms() + 3_600_000
    with storage.users.edit(ada.id) as user:
        user.pfp_timestamp = in_an_hour
    assert timestamps == sorted(set(timestamps))
    assert storage.pictures.save(ada.id, PICTURE) == in_an_hour + 1


def test_a_picture_saved_by_racing_threads_is_one_of_theirs_and_whole(storage, ada):
    pictures = [dict.fromkeys(PICTURE_SIZES, b"%d" % n) for n in range(6)]
    timestamps = together(lambda picture: storage.pictures.save(ada.id, picture), pictures)
    assert len(set(timestamps)) == 6
    assert storage.users.read(ada.id).pfp_timestamp == max(timestamps)
    read = {
        storage.pictures.read(size, f"{ada.id}-{max(timestamps)}.webp")[0] for size in PICTURE_SIZES
    }
    assert read == {b"%d" % timestamps.index(max(timestamps))}
    for old in {ada.pfp_timestamp, *timestamps} - {max(timestamps)}:
        for size in PICTURE_SIZES:
            with pytest.raises(NoSuchPicture):
                storage.pictures.read(size, f"{ada.id}-{old}.webp")


# ---------------------------------------------------------------------------------------------
# Imported accounts
# ---------------------------------------------------------------------------------------------


def imported(user_id: int, name: str, pfp_timestamp: int | None = None) -> User:
    """A player from elsewhere."""
    return User(user_id, name, f"{name}@example.org", "", pfp_timestamp=pfp_timestamp)


@pytest.fixture
def grace(storage) -> User:
    """A player from elsewhere, without a picture."""
    user = imported(70, "Grace")
    storage.users.insert(user)
    return user


def test_imported_users_keep_their_ids_and_are_found(storage, ada):
    users = [imported(70, "Grace"), imported(9, "Linus"), imported(10**14 - 1, "Edsger")]
    for user in users:
        storage.users.insert(user)
        assert storage.users.read(user.id) == user
        assert (
            storage.users.find_by_login(user.name.upper())
            == storage.users.find_by_login(user.email)
            == user
        )
    assert storage.users.ids() == sorted([ada.id, *(user.id for user in users)])


def test_an_imported_user_is_not_added_twice(storage, grace):
    with storage.users.edit(grace.id) as user:
        user.bio = "new"
    with pytest.raises(AlreadyThere):
        storage.users.insert(imported(70, "GRACE"))
    assert storage.users.read(grace.id).bio == "new"


@pytest.mark.parametrize(
    ("arrival", "refusal"),
    [
        (User(70, "Linus", "grace@example.org", ""), IdTaken),
        (User(70, "Grace", "linus@example.org", ""), IdTaken),
        (User(71, "GRACE", "linus@example.org", ""), NameTaken),
        (User(71, "Linus", "Grace@Example.org", ""), EmailTaken),
        (User(70, "Grace", "grace@example.org", ""), AlreadyThere),
    ],
    ids=["id, name", "id, email", "name", "email", "all of it"],
)
def test_an_import_refuses_users_with_a_taken_id_name_or_email(storage, grace, arrival, refusal):
    with pytest.raises(refusal):
        storage.users.insert(arrival)
    assert storage.users.ids() == [70]
    assert (
        storage.users.find_by_login("grace")
        == storage.users.find_by_login("grace@example.org")
        == grace
    )
    assert (
        storage.users.find_by_login("linus")
        is storage.users.find_by_login("linus@example.org")
        is None
    )


def test_an_import_refuses_the_id_of_a_deleted_user(storage, ada):
    storage.users.delete(ada.id)
    with pytest.raises(IdTaken):
        storage.users.insert(imported(ada.id, "Ada"))
    assert storage.users.ids() == []


def test_reserved_ids_are_given_to_nobody(storage, ada):
    storage.users.reserve_ids(5000)
    assert not storage.users.is_new()
    assert storage.users.register("Bob", "bob@example.org", "").id == 5001
    storage.users.reserve_ids(70)
    assert storage.users.register("Cleo", "cleo@example.org", "").id == 5002


def test_nothing_is_reserved_by_no_ids(storage):
    storage.users.reserve_ids(0)
    assert storage.users.is_new()
    assert storage.users.register("Ada", "ada@example.org", "").id == 1


def test_racing_sign_ups_and_imports_give_a_name_once(storage):
    def arrive(number: int) -> StorageError | None:
        if number % 2:
            storage.users.insert(imported(100 + number, "Grace"))
        else:
            storage.users.register("Grace", "grace@example.org", "")

    storage.users.reserve_ids(200)
    told = together(arrive, list(range(6)))
    assert [type(each) for each in told].count(type(None)) == 1
    # All have one email address as well; another may be added between the two checks.
    assert set(map(type, told)) <= {type(None), NameTaken, EmailTaken}
    (user_id,) = storage.users.ids()
    assert storage.users.find_by_login("Grace").id == user_id


@pytest.mark.parametrize("pfp_timestamp", [None, 1_700_000_000_000])
def test_an_imported_user_may_have_a_picture(storage, pfp_timestamp):
    grace = imported(70, "Grace", pfp_timestamp)
    storage.users.insert(grace, PICTURE)
    for size, content in PICTURE.items():
        assert storage.pictures.read(size, grace.picture_file)[0] == content


@pytest.mark.parametrize("size", PICTURE_SIZES)
def test_a_missing_picture_is_generated(storage, grace, size):
    first, written = storage.pictures.read(size, "70.webp")
    assert first == generate_picture(70)[size]
    assert grace.created / 1000 - TICK < written <= time.time()
    second, third = (storage.pictures.read(size, "70.webp") for _ in range(2))
    assert second == third and second[0] == first  # also when it was drawn
    assert storage.users.read(grace.id) == grace


def test_a_saved_picture_replaces_the_generated_one(storage, grace):
    storage.pictures.read("small", "70.webp")
    timestamp = storage.pictures.save(grace.id, PICTURE)
    assert storage.pictures.read("small", f"70-{timestamp}.webp")[0] == PICTURE["small"]
    for size in PICTURE_SIZES:
        with pytest.raises(NoSuchPicture):
            storage.pictures.read(size, "70.webp")


def test_no_picture_is_generated_for_others(storage, ada, grace):
    storage.pictures.read("small", "70.webp")
    storage.users.delete(grace.id)
    for name in (f"{ada.id}.webp", "70.webp", "71.webp", f"{ada.id}-5.webp"):
        with pytest.raises(NoSuchPicture):
            storage.pictures.read("small", name)


# ---------------------------------------------------------------------------------------------
# Clients
# ---------------------------------------------------------------------------------------------


def test_a_client_is_read_back_as_added(storage, ada):
    uris = ["https://chess.example/cb", "http://127.0.0.1/cb"]
    client, secret = storage.clients.register("Chess", uris, ada.id)
    assert storage.clients.read(client.id) == client
    assert (client.name, client.redirect_uris, client.owner_id) == ("Chess", uris, ada.id)
    assert not client.disabled
    assert len(secret) >= 43
    assert client.secret_sha256 == hashlib.sha256(secret.encode()).hexdigest()


def test_a_client_may_have_no_redirect_uri_and_no_owner(storage):
    client, _ = storage.clients.register("A game", [], None)
    assert storage.clients.read(client.id) == client


@pytest.mark.parametrize(
    "name, uris, field",
    [
        ("", [], "name"),
        ("Chess", ["https://a.example/#x"], "redirect_uris"),
        ("Chess", ["https://a.example/", "javascript:alert(1)"], "redirect_uris"),
    ],
)
def test_a_client_that_breaks_a_rule_is_refused(storage, name, uris, field):
    with pytest.raises(InvalidField) as refusal:
        storage.clients.register(name, uris, None)
    assert refusal.value.field == field
    assert list(map(storage.clients.read, storage.clients.ids())) == []


@pytest.mark.parametrize(
    "client_id",
    [
        "",
        "0" * 24,
        "x",
        "..",
        "../users/1",
        "A" * 24,
        "a" * 65,
        "a\n",
        "\x00" * 24,
        "é" * 24,
        "\ud800",
    ],
)
def test_an_unknown_client_id_of_any_text_raises(storage, client, client_id):
    with pytest.raises(NoSuchClient):
        storage.clients.read(client_id)
    with pytest.raises(NoSuchClient):
        storage.clients.edit(client_id).__enter__()
    with pytest.raises(NoSuchClient):
        storage.clients.issue_secret(client_id)
    with pytest.raises(NoSuchClient):
        storage.clients.delete(client_id)


@pytest.mark.parametrize(
    "field, value, error",
    [
        ("id", "b" * 24, ValueError),
        ("name", "two\nlines", InvalidField),
        ("redirect_uris", ["ftp://a.example/"], InvalidField),
        ("redirect_uris", ["org.example.game:/cb"], InvalidField),
        ("disabled", 1, ValueError),
        ("public", True, ValueError),
    ],
)
def test_a_refused_edit_of_a_client_saves_nothing(storage, client, field, value, error):
    with pytest.raises(error), storage.clients.edit(client.id) as edited:
        setattr(edited, field, value)
    assert list(map(storage.clients.read, storage.clients.ids())) == [client]


def test_a_new_secret_replaces_the_old_one(storage, client):
    secret = storage.clients.issue_secret(client.id)
    kept = storage.clients.read(client.id).secret_sha256
    assert kept == hashlib.sha256(secret.encode()).hexdigest() != client.secret_sha256


@pytest.fixture
def public_client(storage) -> Client:
    return storage.clients.register("Go", ["org.example.go:/cb"], None, public=True)[0]


def test_a_public_client_has_no_secret(storage, public_client):
    client, secret = storage.clients.register("Chess", ["http://127.0.0.1/cb"], None, public=True)
    assert (secret, client.secret_sha256, client.public) == (None, "", True)
    assert storage.clients.read(client.id) == client
    called = []
    with pytest.raises(InvalidField, match="no secret"):
        storage.clients.issue_secret(public_client.id, called.append)
    assert (storage.clients.read(public_client.id), called) == (public_client, [])


def test_a_public_client_stays_public(storage, public_client):
    with (
        pytest.raises(ValueError, match="public"),
        storage.clients.edit(public_client.id) as edited,
    ):
        edited.public = False
    with pytest.raises(InvalidField), storage.clients.edit(public_client.id) as edited:
        edited.redirect_uris = ["http://chess.example/cb"]
    assert storage.clients.read(public_client.id) == public_client


def test_values_of_several_users_come_in_the_asked_order(storage, ada, bob):
    asked = [bob.id, 99, ada.id, bob.id]
    assert storage.users.read_from_many(asked, user_id_of) == [bob.id, ada.id, bob.id]
    assert storage.users.read_from_many([], user_id_of) == []


# ---------------------------------------------------------------------------------------------
# Authorization codes
# ---------------------------------------------------------------------------------------------


def test_a_code_is_read_as_added_until_it_is_used(storage, code_record):
    storage.codes.add("a code", code_record)
    for _ in range(2):  # reading spends nothing
        assert storage.codes.read("a code") == code_record
    storage.codes.spend("a code")


def test_a_code_for_a_game_has_no_redirect_uri(storage, code_record):
    record = dataclasses.replace(code_record, redirect_uri=None, code_challenge="x" * 43)
    storage.codes.add("a code", record)
    assert storage.codes.read("a code") == record


@pytest.mark.parametrize(
    "code", ["", "unknown", "a code ", "A CODE", "../spent", "\x00", "c" * 9999]
)
def test_an_unknown_code_raises(storage, code_record, code):
    storage.codes.add("a code", code_record)
    with pytest.raises(NoSuchCode):
        storage.codes.read(code)
    with pytest.raises(NoSuchCode):
        storage.codes.spend(code)


def test_a_replayed_code_raises_with_its_record(storage, code_record):
    storage.codes.add("a code", code_record)
    storage.codes.spend("a code")
    for act in (storage.codes.read, storage.codes.spend):
        with pytest.raises(CodeSpent) as replay:
            act("a code")
        assert replay.value.record == code_record


def test_spending_one_code_leaves_the_others(storage, code_record):
    for code in ("one", "two"):
        storage.codes.add(code, code_record)
    storage.codes.spend("one")
    assert storage.codes.read("two") == code_record


def test_an_old_code_is_still_read(storage, code_record):
    """Its age is looked at where codes are exchanged, so that the answer can say what is wrong."""
    record = dataclasses.replace(code_record, issued=now_ms() - 600_000)
    storage.codes.add("a code", record)
    assert storage.codes.read("a code") == record


def test_a_code_is_spent_once_by_sixteen_racing_threads(storage, code_record):
    for n in range(10):
        storage.codes.add(f"code {n}", code_record)
        results = together(storage.codes.spend, [f"code {n}"] * 16)
        assert results.count(None) == 1
        assert sum(isinstance(result, CodeSpent) for result in results) == 15


def name_and_bio(user: User) -> tuple[str, str]:
    return user.name, user.bio


def test_values_made_from_a_user_are_those_of_the_last_save(storage, ada, bob):
    """A backend may cache them once the record is a moment old."""
    for bio in ("", "one", "two"):
        with storage.users.edit(ada.id) as user:
            user.bio = bio
        for pause in (0, 0.06, 0):
            time.sleep(pause)
            assert storage.users.read_from(ada.id, name_and_bio) == (ada.name, bio)
            assert storage.users.read_from(bob.id, name_and_bio) == (bob.name, "")
            assert storage.users.read_from(ada.id, user_id_of) == ada.id
    storage.users.delete(ada.id)
    for user_id in (ada.id, 10**9):
        with pytest.raises(NoSuchUser):
            storage.users.read_from(user_id, name_and_bio)


def user_id_of(user: User) -> int:
    return user.id


# ---------------------------------------------------------------------------------------------
# Keys and attempts
# ---------------------------------------------------------------------------------------------


def test_the_keys_are_strong_and_the_same_each_time(storage):
    keys = storage.keys.current()
    assert len(keys) == 1 and len(keys[0]) >= 32
    assert storage.keys.current() == keys


def test_a_rotation_adds_a_key_and_keeps_the_one_before(storage):
    (first,) = storage.keys.current()
    storage.keys.rotate(drop_old=False)
    kept, second = storage.keys.current()
    assert kept == first != second and len(second) >= 32
    storage.keys.rotate(drop_old=False)
    assert storage.keys.current()[0] == second and len(set(storage.keys.current())) == 2


@pytest.mark.parametrize("rotations", [0, 1])
def test_a_rotation_that_drops_the_old_leaves_one_new_key(storage, rotations):
    for _ in range(rotations):
        storage.keys.rotate(drop_old=False)
    before = storage.keys.current()
    storage.keys.rotate(drop_old=True)
    (key,) = storage.keys.current()
    assert key not in before


@pytest.mark.parametrize("drop_old", [False, True])
def test_rotated_keys_reach_other_processes_at_once(storage, open_installation, drop_old):
    other = open_installation()
    before = other.keys.current()
    storage.keys.rotate(drop_old)
    assert other.keys.current() == storage.keys.current() != before


# -- look-ups that do not read everything ---------------------------------------------------------


def ids_of(records) -> list:
    return [each.id for each in records]


def test_clients_of_an_owner(storage, ada, bob):
    chess, go, site = (
        storage.clients.register(name, [], owner)[0]
        for name, owner in (("Chess", ada.id), ("Go", ada.id), ("Site", None))
    )
    assert ids_of(storage.clients.of_owner(ada.id)) == sorted([chess.id, go.id])
    assert ids_of(storage.clients.of_owner(None)) == [site.id]
    assert storage.clients.of_owner(bob.id) == []
    with storage.clients.edit(go.id) as client:
        client.owner_id = bob.id
    storage.clients.delete(chess.id)
    assert (storage.clients.of_owner(ada.id), ids_of(storage.clients.of_owner(bob.id))) == (
        [],
        [go.id],
    )


def test_games_that_are_listed_and_games_that_are_not(storage):
    chess, _ = storage.clients.register("Chess", [], None, game_url="https://chess.example/")
    storage.clients.register("No game", ["https://a.example/"], None)
    assert (ids_of(storage.clients.games(True)), ids_of(storage.clients.games(False))) == (
        [],
        [chess.id],
    )
    with storage.clients.edit(chess.id) as client:
        client.listed = True
    assert (ids_of(storage.clients.games(True)), ids_of(storage.clients.games(False))) == (
        [chess.id],
        [],
    )
    with storage.clients.edit(chess.id) as client:
        client.game_url = None
    assert storage.clients.games(True) == storage.clients.games(False) == []


def test_administrators_are_those_who_can_sign_in(storage, ada, bob):
    assert storage.users.administrators() == []
    for each in (ada, bob):
        with storage.users.edit(each.id) as user:
            user.mod_level = ADMINISTRATOR
    assert ids_of(storage.users.administrators()) == [ada.id, bob.id]
    with storage.users.edit(ada.id) as user:
        user.suspension = Suspension("command")
    assert ids_of(storage.users.administrators()) == [bob.id]
    storage.users.delete(bob.id)
    assert storage.users.administrators() == []


def test_an_administrator_is_one_again_when_the_suspension_ends(storage, ada, bob, monkeypatch):
    until = now_ms() + 1000
    for each in (ada, bob):
        with storage.users.edit(each.id) as user:
            user.mod_level = ADMINISTRATOR
    with storage.users.edit(ada.id) as user:
        user.suspension = Suspension("command", until=until)
    assert ids_of(storage.users.administrators()) == [bob.id]
    with pytest.raises(LastAdministrator), storage.users.administered_without(bob.id):
        pytest.fail("the block was entered")
    monkeypatch.setattr(records, "now_ms", lambda: until)
    assert ids_of(storage.users.administrators()) == [ada.id, bob.id]
    with storage.users.administered_without(bob.id):
        pass


def test_imported_and_new_administrators_are_found(storage):
    first = storage.users.register("First", "first@example.org", "", mod_level=ADMINISTRATOR)
    storage.users.insert(User(7, "Seven", "7@example.org", "", mod_level=ADMINISTRATOR))
    assert ids_of(storage.users.administrators()) == [first.id, 7]


def test_audit_lines_of_a_user_are_those_by_and_about_them(storage, ada, bob, client):
    storage.audit.write("user suspend", ada.id, user=bob.id)
    storage.audit.write("user mod-level", "command", user=bob.id, mod_level=1)
    storage.audit.write("client disable", bob.id, client=client.id)
    storage.audit.write("backup", "command")
    acts = {
        subject: [line["act"] for line in lines]
        for subject, lines in (
            ("ada", storage.audit.about({ada.id})),
            ("bob", storage.audit.about({bob.id})),
            ("client", storage.audit.about({client.id})),
            ("ada and client", storage.audit.about({ada.id, client.id})),
            ("nobody", storage.audit.about({77})),
        )
    }
    assert acts == {
        "ada": ["user suspend"],
        "bob": ["client disable", "user mod-level", "user suspend"],
        "client": ["client disable"],
        "ada and client": ["client disable", "user suspend"],
        "nobody": [],
    }
    assert len(list(storage.audit.read())) == 4


# -- what is checked under the lock ---------------------------------------------------------------

CHANGES = {
    "rename": lambda storage, user, client, before: storage.users.rename(user, "Grace", before),
    "reset name": lambda storage, user, client, before: storage.users.reset_name(user, before),
    "change email": lambda storage, user, client, before: storage.users.change_email(
        user, "grace@example.org", before
    ),
    "delete user": lambda storage, user, client, before: storage.users.delete(user, before),
    "save picture": lambda storage, user, client, before: storage.pictures.save(
        user, dict.fromkeys(PICTURE_SIZES, b"webp"), before
    ),
    "add client": lambda storage, user, client, before: storage.clients.register(
        "Go", [], user, before=before
    ),
    "new secret": lambda storage, user, client, before: storage.clients.issue_secret(
        client, before
    ),
    "delete client": lambda storage, user, client, before: storage.clients.delete(client, before),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_exception_of_before_stops_the_change(storage, ada, client, change):
    seen = []

    def before(record):
        seen.append(record.id)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change(storage, ada.id, client.id, before)
    assert len(seen) == 1
    assert storage.users.read(ada.id) == storage.users.find_by_login("ada") == ada
    assert list(map(storage.clients.read, storage.clients.ids())) == [client]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_before_sees_the_record_as_it_is_and_may_write_an_audit_line(storage, ada, client, change):
    def before(record):
        if record.id in (ada.id, client.id):
            assert record in (ada, client)
        storage.audit.write("seen", "command")

    change(storage, ada.id, client.id, before)
    assert [line["act"] for line in storage.audit.read()] == ["seen"]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_before_may_count_an_attempt_and_refuse_the_change(storage, ada, client, change):
    def before(record):
        storage.attempts.count("act", "ada", limit=1)

    before(ada)
    with pytest.raises(TooManyAttempts):
        change(storage, ada.id, client.id, before)
    assert storage.users.read(ada.id) == ada
    assert list(map(storage.clients.read, storage.clients.ids())) == [client]


def test_a_check_of_attempts_refuses_as_the_count_would_and_counts_nothing(storage, clock):
    for window in (ATTEMPTS_WINDOW, 86_400):
        limit = ("password", "ada", 2, window)
        for _ in range(2):
            for _ in range(5):
                storage.attempts.require_left(*limit)
            storage.attempts.count(*limit)
        with pytest.raises(TooManyAttempts) as refused:
            storage.attempts.count(*limit)
        with pytest.raises(TooManyAttempts) as checked:
            storage.attempts.require_left(*limit)
        assert checked.value.retry_after == refused.value.retry_after


def test_kinds_and_subjects_are_counted_separately(storage, clock):
    for kind, subject in (("password", "ada"), ("password", "bob"), ("sign-up", "ada")):
        storage.attempts.count(kind, subject, limit=1)


def test_a_subject_may_be_any_text(storage, clock):
    for subject in ("../..", "", "ada/\x00\n", "ü" * 5000):
        storage.attempts.count("password", subject, limit=1)
        with pytest.raises(TooManyAttempts):
            storage.attempts.count("password", subject, limit=1)


def test_a_returned_attempt_does_not_count(storage, clock):
    for _ in range(20):
        storage.attempts.refund(storage.attempts.count("password", "ada", limit=2))
    storage.attempts.count("password", "ada", limit=1)


def test_cleared_attempts_do_not_count(storage, clock):
    storage.attempts.clear("password", "ada")  # none is counted yet
    storage.attempts.count("password", "ada", limit=2)
    clock.now += ATTEMPTS_WINDOW
    for name in ("ada", "bob"):
        storage.attempts.count("password", name, limit=2)
    storage.attempts.clear("password", "ada")
    storage.attempts.count("password", "ada", limit=1)
    with pytest.raises(TooManyAttempts):
        storage.attempts.count("password", "bob", limit=1)


def test_a_refused_attempt_is_not_counted(storage, clock):
    attempts = [storage.attempts.count("password", "ada", limit=2) for _ in range(2)]
    for _ in range(20):
        with pytest.raises(TooManyAttempts):
            storage.attempts.count("password", "ada", limit=2)
    storage.attempts.refund(attempts[0])
    storage.attempts.count("password", "ada", limit=2)


def test_only_this_window_and_the_previous_one_count(storage, clock):
    for _ in range(3):
        storage.attempts.count("password", "ada", limit=5)
    clock.now += ATTEMPTS_WINDOW
    for _ in range(2):
        storage.attempts.count("password", "ada", limit=5)
    with pytest.raises(TooManyAttempts):
        storage.attempts.count("password", "ada", limit=5)
    clock.now += ATTEMPTS_WINDOW
    for _ in range(3):
        storage.attempts.count("password", "ada", limit=5)
    with pytest.raises(TooManyAttempts):
        storage.attempts.count("password", "ada", limit=5)


@pytest.mark.parametrize("before, now", [(3, 0), (2, 1), (0, 3), (1, 2)])
@pytest.mark.parametrize("second", [0, 400, ATTEMPTS_WINDOW - 1])
def test_attempts_are_accepted_after_retry_after(storage, clock, before, now, second):
    for _ in range(before):
        storage.attempts.count("password", "ada", limit=3)
    clock.now += ATTEMPTS_WINDOW + second
    for _ in range(now):
        storage.attempts.count("password", "ada", limit=3)
    with pytest.raises(TooManyAttempts) as refusal:
        storage.attempts.count("password", "ada", limit=3)
    clock.now += refusal.value.retry_after - 1
    with pytest.raises(TooManyAttempts):
        storage.attempts.count("password", "ada", limit=3)
    clock.now += 1
    storage.attempts.count("password", "ada", limit=3)


def test_an_attempt_can_be_given_back_in_the_next_window_and_long_after(storage, clock):
    early, late = (storage.attempts.count("password", "ada", limit=2) for _ in range(2))
    clock.now += ATTEMPTS_WINDOW
    storage.attempts.refund(early)
    storage.attempts.refund(storage.attempts.count("password", "ada", limit=2))
    clock.now += 2 * ATTEMPTS_WINDOW
    storage.attempts.count("password", "ada", limit=1)
    storage.attempts.refund(late)
    with pytest.raises(TooManyAttempts):
        storage.attempts.count("password", "ada", limit=1)


def test_parallel_attempts_are_counted_exactly(storage, clock):
    results = together(lambda _: storage.attempts.count("password", "ada", limit=10), range(32))
    assert sum(isinstance(result, TooManyAttempts) for result in results) == 22


def test_attempts_counted_and_returned_in_parallel_leave_none(storage, clock):
    def try_often(_):
        for _ in range(20):
            storage.attempts.refund(storage.attempts.count("password", "ada", limit=8))

    assert together(try_often, range(8)) == [None] * 8
    storage.attempts.count("password", "ada", limit=1)
