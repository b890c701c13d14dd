"""Acts on players and apps: rights, audit lines, no-ops. On any storage, without a request."""

import ast
import contextlib
import dataclasses
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import all_clients

from identity import accounts, actors
from identity.accounts import DAY_MS, RENAMES_AN_HOUR, RESETS, Acts
from identity.actors import ACTS_AN_HOUR, COMMAND, Actor, NotAllowed
from identity.apps import CLIENTS_EACH, AppActs
from storage import records as storage_records
from storage.errors import (
    InvalidField,
    LastAdministrator,
    NameTaken,
    NoSuchUser,
    StorageFailed,
    TooManyAttempts,
    TooManyClients,
)
from storage.pictures import generate_picture
from storage.records import (
    ADMINISTRATOR,
    MODERATOR,
    PLAYER,
    Client,
    Grant,
    Session,
    Suspension,
    User,
    now_ms,
)

GAME = "https://game.example/"
NEW_SESSION = Session("a new session", 2, "Firefox")
# Each act on a player: the call, and the additional fields of its audit line.
MODERATION = {
    "user suspend": (lambda acts, user_id: acts.suspend(user_id), {}),
    "user unsuspend": (lambda acts, user_id: acts.unsuspend(user_id), {}),
    "user reset bio": (lambda acts, user_id: acts.reset(user_id, "bio"), {}),
    "user reset name": (lambda acts, user_id: acts.reset(user_id, "name"), {}),
    "user reset picture": (lambda acts, user_id: acts.reset(user_id, "picture"), {}),
}
ADMINISTRATION = {
    "user mod-level": (lambda acts, user_id: acts.set_mod_level(user_id, 1), {"mod_level": 1}),
    "flair grant": (lambda acts, user_id: acts.grant_flair(user_id, "New"), {"flair": "New"}),
    "flair revoke": (lambda acts, user_id: acts.revoke_flair(user_id, "Old"), {"flair": "Old"}),
}
BY_COMMAND = {
    "user set name": (lambda acts, user_id: acts.change_profile(user_id, name="Grace"), {}),
    "user set email": (lambda acts, user_id: acts.change_email(user_id, "g@a.org"), {}),
    "user set bio": (lambda acts, user_id: acts.change_profile(user_id, bio="Go, mostly."), {}),
    "user sign-in-link": (lambda acts, user_id: acts.issue_sign_in_link(user_id, ""), {}),
    "user sign-out": (lambda acts, user_id: acts.sign_out(user_id), {}),
    "user delete": (lambda acts, user_id: acts.delete_user(user_id), {}),
}
# What players do to their own accounts, without an audit line.
OWN = {
    "rename": lambda acts, user: acts.change_profile(user.id, name=f"Grace {user.id}"),
    "email": lambda acts, user: acts.change_email(user.id, f"grace{user.id}@a.org"),
    "bio": lambda acts, user: acts.change_profile(user.id, bio="Go, mostly."),
    "flair": lambda acts, user: acts.change_profile(user.id, equipped_flair="none"),
    "picture": lambda acts, user: acts.save_picture(user.id, generate_picture(78)),
    "no picture": lambda acts, user: acts.remove_picture(user.id),
    "password": lambda acts, user: acts.start_session(user, NEW_SESSION, "new", end_others=True),
    "sign out": lambda acts, user: acts.sign_out(user.id, "a session"),
    "sign out everywhere": lambda acts, user: acts.sign_out(user.id),
    "withdraw": lambda acts, user: acts.withdraw(user.id, next(iter(user.grants))),
    "test": lambda acts, user: acts.end_test(user.id, next(iter(user.grants)), has_token=True),
    "heartbeat": lambda acts, user: acts.add_heartbeat(user.id),
    "delete": lambda acts, user: acts.delete_user(user.id),
}
USER_ACTS = MODERATION | ADMINISTRATION | BY_COMMAND
# Each act on an app that its owner and administrators are allowed to do.
CLIENT_ACTS = {
    "client disable": lambda acts, client_id: acts.set_disabled(client_id, True),
    "client new-secret": lambda acts, client_id: acts.issue_client_secret(client_id),
    "client delete": lambda acts, client_id: acts.delete_client(client_id),
}
# The methods of Storage that lock a record
CHANGES = (
    *("users.edit", "users.rename", "users.reset_name", "users.change_email", "users.delete"),
    *("pictures.save", "clients.register", "clients.edit", "clients.issue_secret"),
    "clients.delete",
)


@pytest.fixture
def add_player(storage) -> Callable[..., User]:
    """A function that adds a player whose record every act of USER_ACTS changes."""
    numbers = itertools.count(1)

    def add_player(mod_level: int = PLAYER, act: str = "", name: str = "") -> User:
        number = next(numbers)
        name = name or f"Somebody {number}"
        user = storage.users.register(name, f"u{number}@example.org", "a hash", mod_level)
        with storage.users.edit(user.id) as user:
            user.bio, user.flairs, user.equipped_flair = "Chess.", ["none", "Old"], "Old"
            user.sessions = [Session("a session", 1, "Firefox")]
            user.suspension = Suspension(user.id) if act == "user unsuspend" else None
        storage.pictures.save(user.id, generate_picture(77))
        return storage.users.read(user.id)

    return add_player


@pytest.fixture
def ada(add_player) -> User:
    return add_player(name="Ada")


@pytest.fixture
def moderator(add_player) -> User:
    return add_player(MODERATOR)


@pytest.fixture
def admin(add_player) -> User:
    return add_player(ADMINISTRATOR, name="Alan")


@pytest.fixture
def game(storage, ada) -> Client:
    """Ada's listed game."""
    return storage.clients.register("Game", [], ada.id, game_url=GAME, listed=True)[0]


@pytest.fixture
def acts_of(storage) -> Callable[[User], Acts]:
    """A function that returns the acts on behalf of a player."""
    return lambda user: Acts(storage, Actor(user.id, "192.0.2.7"))


@pytest.fixture
def app_acts_of(storage) -> Callable[[User], AppActs]:
    """A function that returns the acts on apps on behalf of a player."""
    return lambda user: AppActs(storage, Actor(user.id, "192.0.2.7"))


@pytest.fixture
def command(storage) -> Acts:
    """The acts on behalf of the command."""
    return Acts(storage, COMMAND)


@pytest.fixture
def app_command(storage) -> AppActs:
    """The acts on apps on behalf of the command."""
    return AppActs(storage, COMMAND)


@pytest.fixture
def now(monkeypatch) -> Callable[[], int]:
    """A function that returns the time of storage, which stands still; `now.ahead` moves it."""
    start = now_ms()

    def now() -> int:
        return start + now.ahead

    now.ahead = 0
    for module in (accounts, storage_records):
        monkeypatch.setattr(module, "now_ms", now)
    return now


@pytest.fixture
def before_lock(storage, monkeypatch):
    """A context manager that makes a change just before an act locks its record."""

    @contextlib.contextmanager
    def before_lock(change: Callable[[], None]) -> Iterator[None]:
        with monkeypatch.context() as patch:
            for part_name, name in (each.split(".") for each in CHANGES):
                part = getattr(storage, part_name)
                method = getattr(part, name)

                def change_first(*arguments, method=method, **named):
                    patch.undo()
                    change()
                    return method(*arguments, **named)

                patch.setattr(part, name, change_first)
            yield

    return before_lock


def set_fields(storage, user_id: int, **fields) -> None:
    with storage.users.edit(user_id) as user:
        for name, value in fields.items():
            setattr(user, name, value)


def audit_lines(storage) -> list[dict]:
    """Return the lines of the audit log without their times."""
    return [{k: v for k, v in line.items() if k != "time"} for line in storage.audit.read()]


# -- rights -------------------------------------------------------------------------------------


def is_allowed(level: int, act: str, target_level: int) -> bool:
    """Return whether a player of this level may act on a player of the target level."""
    if act in MODERATION:
        return level >= MODERATOR and target_level < level
    return act in ADMINISTRATION and level == ADMINISTRATOR


def test_rights_by_level(storage, add_player, acts_of, subtests):
    add_player(ADMINISTRATOR)
    actors = [add_player(level) for level in range(3)]
    for act, (do, _) in USER_ACTS.items():
        for target_level in range(3):
            for actor in actors:
                target = add_player(target_level, act)
                with subtests.test(f"{act}: {actor.mod_level} to {target_level}"):
                    if is_allowed(actor.mod_level, act, target_level):
                        do(acts_of(actor), target.id)
                    else:
                        with pytest.raises(NotAllowed):
                            do(acts_of(actor), target.id)
                        assert storage.users.read(target.id) == target


def test_command_may_do_everything(storage, add_player, command, subtests):
    for act, (do, ids) in USER_ACTS.items():
        user = add_player(PLAYER, act)
        with subtests.test(act):
            do(command, user.id)
            line = {"act": act, "by": "command", "user": user.id} | ids
            assert audit_lines(storage)[-1] == line


def test_audit_line_has_actor_act_user_and_address(storage, add_player, admin, acts_of, subtests):
    for act, (do, ids) in (MODERATION | ADMINISTRATION).items():
        user = add_player(PLAYER, act)
        with subtests.test(act):
            do(acts_of(admin), user.id)
            line = {"act": act, "by": admin.id, "user": user.id, "address": "192.0.2.7"} | ids
            assert audit_lines(storage)[-1] == line


def test_actor_demoted_or_suspended_before_the_lock_is_refused(
    storage, add_player, acts_of, before_lock, subtests
):
    add_player(ADMINISTRATOR)
    for act, (do, _) in (MODERATION | ADMINISTRATION).items():
        user = add_player(PLAYER, act)
        for fields in ({"mod_level": PLAYER}, {"suspension": Suspension("command")}):
            actor = add_player(ADMINISTRATOR)
            change = functools.partial(set_fields, storage, actor.id, **fields)
            with subtests.test(act, **fields), pytest.raises(NotAllowed), before_lock(change):
                do(acts_of(actor), user.id)
        assert storage.users.read(user.id) == user
    assert audit_lines(storage) == []


def test_deleted_actor_is_refused(storage, add_player, ada, moderator, acts_of, before_lock):
    with before_lock(lambda: storage.users.delete(moderator.id)), pytest.raises(NotAllowed):
        acts_of(moderator).suspend(ada.id)
    assert (storage.users.read(ada.id), audit_lines(storage)) == (ada, [])


def test_user_promoted_before_the_lock_is_unchanged(
    storage, add_player, moderator, acts_of, before_lock, subtests
):
    for act, (do, _) in MODERATION.items():
        user = add_player(PLAYER, act)
        promote = functools.partial(set_fields, storage, user.id, mod_level=MODERATOR)
        with subtests.test(act), pytest.raises(NotAllowed), before_lock(promote):
            do(acts_of(moderator), user.id)
        user.mod_level = MODERATOR
        assert storage.users.read(user.id) == user
    assert audit_lines(storage) == []


def changes_of_storage(source: str) -> set[str]:
    """Return the methods in CHANGES that a module calls on a storage, not by an act."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Attribute):
            continue
        if (change := f"{node.value.attr}.{node.attr}") in CHANGES:
            root = node.value
            while isinstance(root, ast.Attribute | ast.Call):
                root = root.value if isinstance(root, ast.Attribute) else root.func
            if isinstance(root, ast.Name) and root.id in ("get_storage", "store"):
                found.add(change)
    return found


def test_pages_change_records_only_by_acts(subtests):
    for path in sorted((Path(__file__).parent.parent / "pages").glob("*.py")):
        with subtests.test(path.name):
            assert changes_of_storage(path.read_text(encoding="utf-8")) == set()


def test_change_of_a_record_without_an_act_is_found():
    for source in ("with get_storage().{}(1): ...", "store.{}(1)"):
        assert changes_of_storage(source.format(CHANGES[0])) == {CHANGES[0]}
    assert changes_of_storage(f"acts_of(player).{CHANGES[0]}(1)") == set()


# -- no-ops and the order of steps ---------------------------------------------------------------


def test_no_op_changes_are_not_logged(storage, add_player, command, subtests):
    repeated = {"user sign-in-link", "user delete", "flair revoke"}
    for act in USER_ACTS.keys() - repeated:
        do, _ = USER_ACTS[act]
        user = add_player(PLAYER, act)
        with subtests.test(act):
            do(command, user.id)
            before, lines = storage.users.read(user.id), audit_lines(storage)
            do(command, user.id)
            assert (storage.users.read(user.id), audit_lines(storage)) == (before, lines)
            assert lines[-1]["act"] == act
            if act in ("user set name", "user set email"):
                command.delete_user(user.id)  # frees name and email


def find_user(storage, user_id: int) -> User | None:
    with contextlib.suppress(NoSuchUser):
        return storage.users.read(user_id)


def fail(*_, **__) -> None:
    raise StorageFailed


def test_act_that_cannot_be_logged_changes_nothing(
    storage, add_player, command, game, monkeypatch, subtests, app_command, faults
):
    users = [(add_player(PLAYER, act), act) for act in USER_ACTS]
    before = faults.stored()
    monkeypatch.setattr(storage.audit, "write", fail)
    refused = {act: functools.partial(USER_ACTS[act][0], command, user.id) for user, act in users}
    refused |= {act: functools.partial(do, app_command, game.id) for act, do in CLIENT_ACTS.items()}
    fields = {"name": "Chess", "redirect_uris": []}
    refused["client add"] = functools.partial(app_command.register_client, None, **fields)
    refused["invite"] = functools.partial(command.issue_invites, 7, 1)
    refused["key drop-old"] = functools.partial(command.rotate_keys, drop_old=True)
    for act, do in refused.items():
        with subtests.test(act):
            with pytest.raises(StorageFailed):
                do()
            assert faults.stored() == before


@pytest.mark.parametrize(
    ("error", "do"),
    [
        (InvalidField, lambda acts, user_id: acts.set_mod_level(user_id, 3)),
        (InvalidField, lambda acts, user_id: acts.grant_flair(user_id, "two\nlines")),
        (InvalidField, lambda acts, user_id: acts.revoke_flair(user_id, "none")),
        (InvalidField, lambda acts, user_id: acts.revoke_flair(user_id, "Never had")),
        (InvalidField, lambda acts, user_id: acts.change_profile(user_id, name="")),
        (InvalidField, lambda acts, user_id: acts.change_email(user_id, "x")),
        (InvalidField, lambda acts, user_id: acts.change_profile(user_id, bio="\0")),
        (NameTaken, lambda acts, user_id: acts.change_profile(user_id, name="alan")),
        (ValueError, lambda acts, user_id: acts.reset(user_id, "email")),
    ],
)
def test_refused_change_is_not_logged(storage, ada, admin, command, error, do):
    with pytest.raises(error):
        do(command, ada.id)
    assert (storage.users.read(ada.id), audit_lines(storage)) == (ada, [])


# -- limits --------------------------------------------------------------------------------------


def test_logged_acts_of_a_player_are_limited(storage, ada, game, app_acts_of, app_command):
    for number in range(ACTS_AN_HOUR):
        if number % 2:
            app_acts_of(ada).issue_client_secret(game.id)
        else:
            app_acts_of(ada).set_disabled(game.id, not storage.clients.read(game.id).disabled)
    before, lines = storage.clients.read(game.id), audit_lines(storage)
    assert len(lines) == ACTS_AN_HOUR
    for act in (
        lambda: app_acts_of(ada).issue_client_secret(game.id),
        lambda: app_acts_of(ada).set_disabled(game.id, not before.disabled),
        lambda: app_acts_of(ada).delete_client(game.id),
        lambda: app_acts_of(ada).register_client(ada.id, True, name="Go", redirect_uris=[]),
    ):
        with pytest.raises(TooManyAttempts):
            act()
    assert app_acts_of(ada).set_disabled(game.id, before.disabled) == before  # a no-op
    assert (all_clients(storage), audit_lines(storage)) == ([before], lines)
    app_command.issue_client_secret(game.id)


def test_logged_acts_of_a_moderator_are_limited(
    storage, ada, moderator, admin, acts_of, command, monkeypatch
):
    monkeypatch.setattr(actors, "MODERATORS_ACTS_AN_HOUR", 4)
    for _ in range(2):
        acts_of(moderator).suspend(ada.id)
        acts_of(moderator).unsuspend(ada.id)
    before = storage.users.read(ada.id)
    for act in (Acts.suspend, *(functools.partial(Acts.reset, what=what) for what in RESETS)):
        with pytest.raises(TooManyAttempts):
            act(acts_of(moderator), ada.id)
    assert storage.users.read(ada.id) == before
    assert len(audit_lines(storage)) == 4
    acts_of(admin).suspend(ada.id)
    for _ in range(3):
        command.unsuspend(ada.id)
        command.suspend(ada.id)


def test_no_op_acts_are_not_counted(storage, ada, moderator, acts_of, monkeypatch):
    monkeypatch.setattr(actors, "MODERATORS_ACTS_AN_HOUR", 4)
    for act in (Acts.suspend, *(functools.partial(Acts.reset, what=what) for what in RESETS)):
        for _ in range(5):
            act(acts_of(moderator), ada.id)
    assert len(audit_lines(storage)) == 4


def test_removing_a_generated_picture_is_a_no_op(storage, ada, acts_of):
    acts_of(ada).remove_picture(ada.id)
    first = storage.users.read(ada.id).pfp_timestamp
    acts_of(ada).remove_picture(ada.id)
    assert ada.pfp_timestamp < first == storage.users.read(ada.id).pfp_timestamp


# -- players ------------------------------------------------------------------------------------


def test_suspension_has_actor_reason_and_end(storage, ada, moderator, acts_of, now):
    acts_of(moderator).suspend(ada.id, "Insults.", 7)
    until = now() + 7 * DAY_MS
    expected = Suspension(moderator.id, now(), "Insults.", until)
    assert storage.users.read(ada.id).suspension == expected
    now.ahead = 7 * DAY_MS - 1
    assert storage.users.read(ada.id).suspended
    now.ahead += 1
    assert not storage.users.read(ada.id).suspended
    acts_of(moderator).unsuspend(ada.id)  # a no-op
    [line] = audit_lines(storage)
    assert (line["act"], line["days"]) == ("user suspend", 7)
    assert not {"reason", "until"} & line.keys()


def test_moderator_cannot_lift_or_change_an_administrators_suspension(
    storage, add_player, ada, admin, moderator, acts_of, command, subtests
):
    """Of an administrator: by one, by the command, or by somebody who is gone or unknown."""
    gone = add_player(MODERATOR)
    acts_of(gone).suspend(ada.id)
    storage.users.delete(gone.id)
    by_gone = storage.users.read(ada.id).suspension
    promoted = add_player(MODERATOR)
    set_fields(storage, promoted.id, mod_level=ADMINISTRATOR)
    for name, suspension in {
        "administrator": Suspension(admin.id),
        "command": Suspension("command"),
        "temporary": Suspension("command", until=now_ms() + DAY_MS),
        "unknown": Suspension(None, 0),
        "gone": by_gone,
        "promoted": Suspension(promoted.id),
    }.items():
        set_fields(storage, ada.id, suspension=suspension)
        before, lines = storage.users.read(ada.id), audit_lines(storage)
        for act in (Acts.unsuspend, Acts.suspend, lambda *each: Acts.suspend(*each, "x", 1)):
            with subtests.test(name), pytest.raises(NotAllowed, match="administrator suspended"):
                act(acts_of(moderator), ada.id)
        assert (storage.users.read(ada.id), audit_lines(storage)) == (before, lines)
        with subtests.test(f"{name}, lifted by an administrator"):
            acts_of(admin).unsuspend(ada.id)
            assert storage.users.read(ada.id).suspension is None


def test_moderator_lifts_and_changes_suspensions_by_moderators(
    storage, add_player, ada, admin, moderator, acts_of
):
    other = add_player(MODERATOR)
    for actor in (moderator, other):
        acts_of(other).suspend(ada.id, "First", 1)
        acts_of(actor).suspend(ada.id, "Second")
        suspension = storage.users.read(ada.id).suspension
        assert (suspension.by, suspension.reason, suspension.until) == (actor.id, "Second", None)
        acts_of(moderator).unsuspend(ada.id)
        assert not storage.users.read(ada.id).suspended
    acts_of(moderator).suspend(ada.id)
    acts_of(admin).suspend(ada.id)  # now it is the administrator's
    with pytest.raises(NotAllowed):
        acts_of(moderator).unsuspend(ada.id)


def test_suspension_by_an_administrator_before_the_lock_stays(
    storage, ada, admin, moderator, acts_of, before_lock
):
    def overrule() -> None:
        acts_of(admin).suspend(ada.id)

    acts_of(moderator).suspend(ada.id)
    with before_lock(overrule), pytest.raises(NotAllowed):
        acts_of(moderator).unsuspend(ada.id)
    assert storage.users.read(ada.id).suspension.by == admin.id


def test_ended_suspension_by_an_administrator_does_not_bind_moderators(
    storage, ada, admin, moderator, acts_of, now
):
    acts_of(admin).suspend(ada.id, days=1)
    now.ahead = DAY_MS
    acts_of(moderator).suspend(ada.id)
    assert storage.users.read(ada.id).suspension.by == moderator.id


@pytest.mark.parametrize("reason", ["r" * 201, "two\nlines", "\x1b[2J", " padded", "\u202eright"])
def test_suspension_with_a_bad_reason_is_refused(storage, ada, command, reason):
    with pytest.raises(InvalidField) as refusal:
        command.suspend(ada.id, reason)
    assert refusal.value.field == "reason"
    assert (storage.users.read(ada.id), audit_lines(storage)) == (ada, [])


def test_resets(storage, ada, moderator, acts_of):
    acts_of(moderator).reset(ada.id, "bio")
    assert storage.users.read(ada.id) == dataclasses.replace(ada, bio="")
    for what in RESETS:
        acts_of(moderator).reset(ada.id, what)
    user = storage.users.read(ada.id)
    assert (user.bio, user.name) == ("", f"player{ada.id}")
    assert user.pfp_timestamp > ada.pfp_timestamp


def test_last_administrator_cannot_be_demoted_or_deleted(
    storage, add_player, admin, moderator, acts_of, command
):
    add_player(ADMINISTRATOR, "user unsuspend")
    for act in (
        lambda: acts_of(admin).set_mod_level(admin.id, MODERATOR),
        lambda: acts_of(admin).delete_user(admin.id),
    ):
        with pytest.raises(LastAdministrator):
            act()
    for actor in (moderator, admin):
        with pytest.raises(NotAllowed):  # does not reveal the last administrator
            acts_of(actor).suspend(admin.id)
    assert (storage.users.read(admin.id), audit_lines(storage)) == (admin, [])
    acts_of(admin).set_mod_level(admin.id, ADMINISTRATOR)
    command.suspend(admin.id)
    command.unsuspend(admin.id)
    command.set_mod_level(admin.id, PLAYER)
    assert storage.users.administrators() == []


def test_moderator_cannot_suspend_a_new_last_administrator(
    storage, ada, moderator, acts_of, monkeypatch
):
    administered_without = storage.users.administered_without

    def promote_first(user_id: int):
        set_fields(storage, ada.id, mod_level=ADMINISTRATOR)
        return administered_without(user_id)

    monkeypatch.setattr(storage.users, "administered_without", promote_first)
    with pytest.raises(LastAdministrator):
        acts_of(moderator).suspend(ada.id)
    assert storage.users.read(ada.id).administers


@pytest.mark.parametrize("how", ["demotion", "deletion"])
def test_one_of_two_administrators_who_leave_at_once_is_refused(
    storage, add_player, acts_of, monkeypatch, how
):
    """Each change comes a moment after its check, so that both would pass without the lock."""
    both = [add_player(ADMINISTRATOR) for _ in range(2)]
    barrier = threading.Barrier(2)
    for name in ("edit", "delete"):
        change = getattr(storage.users, name)

        def change_later(*arguments, change=change):
            time.sleep(0.02)
            return change(*arguments)

        monkeypatch.setattr(storage.users, name, change_later)

    def leave(user: User) -> bool:
        barrier.wait()
        with contextlib.suppress(LastAdministrator):
            if how == "deletion":
                acts_of(user).delete_user(user.id)
            else:
                acts_of(user).set_mod_level(user.id, PLAYER)
            return True
        return False

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(leave, both)) == [False, True]
    assert len(storage.users.administrators()) == 1


def test_players_change_only_their_own_accounts(
    storage, add_player, admin, game, acts_of, before_lock, subtests
):
    """Not even an administrator does it for them, or the player who was suspended meanwhile."""
    for act, do in OWN.items():
        user = add_player()
        grants = {game.id: Grant("a grant", ["userinfo"], 1)}
        set_fields(storage, user.id, grants=grants, last_heartbeat=0)
        user = storage.users.read(user.id)
        suspension = Suspension("command")
        suspend = functools.partial(set_fields, storage, user.id, suspension=suspension)
        with subtests.test(act):
            with pytest.raises(NotAllowed):
                do(acts_of(admin), user)
            refused = contextlib.nullcontext() if act == "password" else pytest.raises(NotAllowed)
            with before_lock(suspend), refused:
                assert do(acts_of(user), user) is False
            assert storage.users.read(user.id) == dataclasses.replace(user, suspension=suspension)
            set_fields(storage, user.id, suspension=None)
            do(acts_of(user), user)
            assert find_user(storage, user.id) != user
    assert audit_lines(storage) == []


def test_profile_change_keeps_what_is_not_named(storage, ada, acts_of):
    acts_of(ada).change_profile(ada.id, bio="Go.")
    acts_of(ada).change_profile(ada.id, equipped_flair="Never had")
    assert storage.users.read(ada.id) == dataclasses.replace(ada, bio="Go.")


def test_profile_is_saved_as_a_whole_or_not_at_all(storage, ada, admin, acts_of):
    for name, bio, error in (("alan", "Go.", NameTaken), ("Grace", "\0", InvalidField)):
        with pytest.raises(error):
            acts_of(ada).change_profile(ada.id, name, bio, "none")
        assert storage.users.read(ada.id) == ada
    acts_of(ada).change_profile(ada.id, "Grace", "Go.", "none")
    new = dataclasses.replace(ada, name="Grace", bio="Go.", equipped_flair="none")
    assert storage.users.read(ada.id) == new
    assert [storage.users.find_by_login(each) for each in ("Grace", "Ada")] == [new, None]


def test_bio_that_breaks_a_newer_rule_locks_nobody_out(storage, ada, acts_of, monkeypatch):
    monkeypatch.setattr(accounts, "check_bio", lambda bio: "Use another word.")
    acts_of(ada).change_profile(ada.id, bio=ada.bio, equipped_flair="none")
    assert storage.users.read(ada.id).equipped_flair == "none"
    with pytest.raises(InvalidField):
        acts_of(ada).change_profile(ada.id, bio="Go.")


def test_refused_renames_count(storage, ada, admin, acts_of, command):
    for _ in range(RENAMES_AN_HOUR):
        with pytest.raises(NameTaken):
            acts_of(ada).change_profile(ada.id, name=admin.name)
    with pytest.raises(TooManyAttempts):
        acts_of(ada).change_profile(ada.id, name="Grace")
    command.change_profile(ada.id, name="Grace")


def test_only_the_command_issues_invitations_and_rotates_keys(storage, admin, acts_of, command):
    keys = storage.keys.current()
    for act in (lambda acts: acts.issue_invites(7, 2), lambda acts: acts.rotate_keys(False)):
        with pytest.raises(NotAllowed):
            act(acts_of(admin))
    assert all(map(storage.invites.find_unused, command.issue_invites(7, 2)))
    command.rotate_keys(drop_old=False)
    assert storage.keys.current()[0] == keys[-1]
    command.rotate_keys(drop_old=True)
    lines = [*[{"act": "invite", "days": 7}] * 2, {"act": "key rotate"}, {"act": "key drop-old"}]
    assert audit_lines(storage) == [line | {"by": "command"} for line in lines]


# -- apps ---------------------------------------------------------------------------------------


def test_owner_and_administrators_manage_an_app(
    storage, add_player, ada, moderator, admin, game, acts_of, subtests, app_acts_of
):
    for act, do in CLIENT_ACTS.items():
        for actor, allowed in ((moderator, False), (ada, True), (admin, True)):
            client, _ = storage.clients.register("Chess", [], ada.id)
            with subtests.test(act, actor=actor.name):
                if allowed:
                    do(app_acts_of(actor), client.id)
                    line = {"act": act, "by": actor.id, "client": client.id}
                    assert audit_lines(storage)[-1] == line | {"address": "192.0.2.7"}
                else:
                    with pytest.raises(NotAllowed):
                        do(app_acts_of(actor), client.id)
                    assert storage.clients.read(client.id) == client
    with pytest.raises(NotAllowed):
        app_acts_of(moderator).change_client(game.id, name="Mine")


def test_app_transferred_before_the_lock_is_unchanged(
    storage, ada, admin, game, app_acts_of, before_lock, subtests
):
    def give_away() -> None:
        with storage.clients.edit(game.id) as client:
            client.owner_id = admin.id

    for act, do in CLIENT_ACTS.items():
        with subtests.test(act):
            with before_lock(give_away), pytest.raises(NotAllowed):
                do(app_acts_of(ada), game.id)
            assert not storage.clients.read(game.id).disabled
            with storage.clients.edit(game.id) as client:
                client.owner_id = ada.id
    assert audit_lines(storage) == []


def test_member_registration_needs_the_setting_and_has_a_limit(
    storage, ada, admin, app_acts_of, app_command
):
    def register(acts: AppActs, owner: User, is_open: bool) -> Client:
        return acts.register_client(owner.id, is_open, name="Chess", redirect_uris=[])[0]

    with pytest.raises(NotAllowed):
        register(app_acts_of(ada), ada, False)
    with pytest.raises(NotAllowed):
        register(app_acts_of(admin), ada, True)
    assert audit_lines(storage) == []
    for _ in range(CLIENTS_EACH):
        assert not register(app_acts_of(ada), ada, True).listed
    with pytest.raises(TooManyClients):
        register(app_acts_of(ada), ada, True)
    assert not register(app_command, ada, False).listed
    for _ in range(CLIENTS_EACH + 1):
        assert register(app_acts_of(admin), admin, False).listed
    assert len(audit_lines(storage)) == len(all_clients(storage)) == 2 * CLIENTS_EACH + 2


def test_administrator_demoted_before_the_lock_registers_nothing(
    storage, admin, app_acts_of, before_lock
):
    demote = functools.partial(set_fields, storage, admin.id, mod_level=MODERATOR)
    with before_lock(demote), pytest.raises(NotAllowed):
        app_acts_of(admin).register_client(admin.id, True, name="Chess", redirect_uris=[])
    assert (all_clients(storage), audit_lines(storage)) == ([], [])


def test_refused_registration_is_not_logged(storage, game, app_command):
    for fields in ({"name": "x", "game_url": f"{GAME}mine"}, {"name": ""}):
        with pytest.raises(InvalidField):
            app_command.register_client(None, redirect_uris=[], **fields)
    assert audit_lines(storage) == []


@pytest.mark.parametrize(
    ("level", "changes", "listed"),
    [
        (PLAYER, {"game_url": f"{GAME}new"}, False),
        (PLAYER, {"game_url": GAME, "name": "Chess"}, True),
        (PLAYER, {"name": "Chess"}, True),
        (MODERATOR, {"game_url": f"{GAME}new"}, True),
    ],
)
def test_game_moved_by_its_owner_is_unlisted(
    storage, ada, game, app_acts_of, level, changes, listed
):
    set_fields(storage, ada.id, mod_level=level)
    app_acts_of(ada).change_client(game.id, **changes)
    client = storage.clients.read(game.id)
    assert client.listed == listed
    assert {name: getattr(client, name) for name in changes} == changes


def test_owner_cannot_enable_an_app_disabled_by_an_administrator(
    storage, ada, admin, game, app_acts_of
):
    assert app_acts_of(ada).set_disabled(game.id, True).disabled_by == ada.id
    assert not app_acts_of(ada).set_disabled(game.id, False).disabled
    app_acts_of(ada).set_disabled(game.id, True)
    for _ in range(2):
        assert app_acts_of(admin).set_disabled(game.id, True).disabled_by == admin.id
    assert app_acts_of(ada).set_disabled(game.id, True).disabled_by == admin.id  # a no-op
    with pytest.raises(NotAllowed, match="administrator disabled"):
        app_acts_of(ada).set_disabled(game.id, False)
    assert app_acts_of(admin).set_disabled(game.id, False).disabled_by is None
    acts = [(line["act"].removeprefix("client "), line["by"]) for line in audit_lines(storage)]
    assert acts == [
        *(("disable", ada.id), ("enable", ada.id), ("disable", ada.id)),
        *(("disable", admin.id), ("enable", admin.id)),
    ]


def test_listing_a_game_requires_its_current_address(
    storage, ada, moderator, game, app_acts_of, app_command
):
    with pytest.raises(NotAllowed):
        app_acts_of(ada).set_listed(game.id, False)
    app_acts_of(moderator).set_listed(
        game.id, True, "https://old.example/"
    )  # already listed: a no-op
    assert not app_acts_of(moderator).set_listed(game.id, False, "https://old.example/").listed
    with pytest.raises(InvalidField, match="game_url"):
        app_acts_of(moderator).set_listed(game.id, True, "https://old.example/")
    assert not storage.clients.read(game.id).listed
    assert app_acts_of(moderator).set_listed(game.id, True, GAME).listed
    assert not app_command.set_listed(game.id, False).listed
    acts = [line["act"] for line in audit_lines(storage)]
    assert acts == ["client unlisted", "client listed", "client unlisted"]
