"""Acts on players and apps: rights, audit lines, no-ops. On any storage, without a request."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

import pytest
from conftest import all_clients
from forms import edit

from identity.access.links import give_sign_in_link
from identity.acts import accounts, actors, apps, emails, invitations, passkeys
from identity.acts import recovery_codes as codes
from identity.acts import sessions as session_acts
from identity.acts.accounts import DAY_MS, RENAMES_AN_HOUR, RESETS
from identity.acts.actors import ACTS_AN_HOUR, COMMAND, Actor, Authority, NotAllowed
from identity.oauth.openid import rotate_keys
from images.pictures import generate_picture
from model import errors, records
from model.errors import LastAdministrator, NoSuchUser, StorageFailed, TooManyAttempts
from model.kinds import PASSKEYS
from model.records import (
    ADMINISTRATOR,
    MODERATOR,
    NOTICES_KEPT,
    PLAYER,
    Client,
    Suspension,
    User,
    now_ms,
)

ADDRESS = "192.0.2.7"
DAY = DAY_MS // 1000  # seconds
GAME = "https://game.example/"
NEW_SESSION = records.Session("a new session", 2, "Firefox")
# Each act on a player: the call, and the additional fields of its audit line.
MODERATION = {
    "user suspend": (accounts.suspend, {}),
    "user unsuspend": (accounts.unsuspend, {}),
    "user underage": (lambda by, who: accounts.set_underage(by, who, True), {}),
    "user reset bio": (lambda by, who: accounts.reset(by, who, "bio"), {}),
    "user reset name": (lambda by, who: accounts.reset(by, who, "name"), {}),
    "user reset picture": (lambda by, who: accounts.reset(by, who, "picture"), {}),
    "user sign-in-link": (lambda by, who: give_sign_in_link(by, who, ""), {}),
}
ADMINISTRATION = {
    "user mod-level": (lambda by, who: accounts.set_mod_level(by, who, 1), {"mod_level": 1}),
    "flair grant": (lambda by, who: accounts.grant_flair(by, who, "New"), {"flair": "New"}),
    "flair revoke": (lambda by, who: accounts.revoke_flair(by, who, "Old"), {"flair": "Old"}),
}
BY_COMMAND = {
    "user set name": (lambda by, who: accounts.change_profile(by, who, f"Grace {who}"), {}),
    "user set email": (lambda by, who: accounts.change_email(by, who, f"{who}@a.org"), {}),
    "user set bio": (lambda by, who: accounts.change_profile(by, who, bio="Go, mostly."), {}),
    "user sign-out": (session_acts.sign_out, {}),
    "user sign-out-one": (lambda by, who: session_acts.end_sign_in(by, who, "a session"), {}),
    "user delete": (accounts.delete_user, {}),
}
USER_ACTS = MODERATION | ADMINISTRATION | BY_COMMAND
HOST, OLD_EMAIL = "localhost", "old@example.org"
# What players do to their own accounts with an audit line, in an order in which each can be done.
LOGGED = {
    "user add-passkey": lambda by, user: passkeys.add(by, passkey_of(user, "c")),
    "user passkey-counter": lambda by, user: passkeys.note_use(by, "a" * 64, 3, False),
    "user remove-passkey": lambda by, user: passkeys.remove(by, "a" * 64, HOST),
    "user confirm-email": lambda by, user: emails.confirm(by, user.id, user.email),
    "user remove-password": lambda by, user: passkeys.remove_password(by, user.id, HOST),
    "user recovery-codes": lambda by, user: codes.issue(by, user.id),
    "user recovery-code": lambda by, user: codes.use(by, user.id, codes.issue(by, user.id)[0]),
    "user take-email-back": lambda by, user: emails.take_back(
        by, user.id, OLD_EMAIL, by.store.users.former_emails.find_kept(OLD_EMAIL)
    ),
}
# What players do to their own accounts, without an audit line.
OWN = {
    "rename": lambda by, user: accounts.change_profile(by, user.id, name=f"Grace {user.id}"),
    "email": lambda by, user: accounts.change_email(by, user.id, f"grace{user.id}@a.org"),
    "bio": lambda by, user: accounts.change_profile(by, user.id, bio="Go, mostly."),
    "flair": lambda by, user: accounts.change_profile(by, user.id, equipped_flair="none"),
    "language": lambda by, user: accounts.change_profile(by, user.id, language="de"),
    "picture": lambda by, user: accounts.save_picture(by, user.id, generate_picture(78)),
    "no picture": lambda by, user: accounts.remove_picture(by, user.id),
    "password": lambda by, user: session_acts.start_session(
        by, user, NEW_SESSION, "new", end_others=True
    ),
    "sign out": lambda by, user: session_acts.end_sign_in(by, user.id, "a session"),
    "sign out everywhere": lambda by, user: session_acts.sign_out(by, user.id),
    "withdraw": lambda by, user: accounts.withdraw(by, user.id, next(iter(user.grants))),
    "test": lambda by, user: accounts.end_test(
        by, user.id, next(iter(user.grants)), has_token=True
    ),
    "heartbeat": lambda by, user: accounts.add_heartbeat(by, user.id),
    "delete": lambda by, user: accounts.delete_user(by, user.id),
}
# Each act on an app that its owner and administrators are allowed to do.
CLIENT_ACTS = {
    "client disable": lambda by, client_id: apps.set_disabled(by, client_id, True),
    "client new-secret": apps.issue_client_secret,
    "client delete": apps.delete_client,
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
            user.sessions = [records.Session("a session", 1, "Firefox")]
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
    return storage.clients.register("Game", [], ada.id, game_url=GAME, listed=True)[0]


def as_actor(by: User | Actor) -> Actor:
    """Return the actor that a player is at ADDRESS; COMMAND is one already."""
    return by if isinstance(by, Actor) else Actor(by.id, ADDRESS)


@pytest.fixture
def authority_of(storage) -> Callable[[User | Actor], Authority]:
    return lambda by: Authority(storage, as_actor(by))


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


def passkey_of(user: User, letter: str) -> records.Passkey:
    return records.Passkey(letter * 64, user.id, "h", letter, "key", HOST, "Phone", 5, counter=7)


def audit_lines(storage) -> list[dict]:
    """Return the lines of the audit log without their times."""
    return [{k: v for k, v in line.items() if k != "time"} for line in storage.audit.read()]


# -- rights -------------------------------------------------------------------------------------


def is_allowed(level: int | str, act: str, target_level: int) -> bool:
    """Return whether the command, or a player of a level, may act on a player of another one."""
    if level == "command":
        return True
    if act in MODERATION:
        return level >= MODERATOR and target_level < level
    if act == "user delete":
        return level == ADMINISTRATOR and target_level < level
    return act in ADMINISTRATION and level == ADMINISTRATOR


def test_rights_and_audit_lines_by_level(storage, add_player, subtests):
    add_player(ADMINISTRATOR)
    by_level = {level: Actor(add_player(level).id, ADDRESS) for level in range(3)}
    by_level["command"] = COMMAND
    for act, (do, fields) in USER_ACTS.items():
        for (level, actor), target_level in itertools.product(by_level.items(), range(3)):
            user, origin = add_player(target_level, act), {"address": actor.address}
            with subtests.test(f"{act}: {level} to {target_level}"):
                if not is_allowed(level, act, target_level):
                    with pytest.raises(NotAllowed, match="You are not allowed to do this."):
                        do(Authority(storage, actor), user.id)
                    assert storage.users.read(user.id) == user
                    continue
                do(Authority(storage, actor), user.id)
                if target_level == PLAYER:  # a moderator has the level of "user mod-level"
                    line = {"act": act, "by": actor.id, "user": user.id} | fields
                    assert audit_lines(storage)[-1] == line | (origin if actor.address else {})


def test_own_acts_with_an_audit_line(storage, add_player, authority_of, subtests):
    user = add_player()
    storage.users.change_email(user.id, OLD_EMAIL, verified=True)
    user = storage.users.change_email(user.id, "new@example.org")
    for letter in "ab":
        storage.records(PASSKEYS).add(passkey_of(user, letter))
    for act, do in LOGGED.items():
        do(authority_of(user), user)
        with subtests.test(act):
            line = {"act": act, "by": user.id, "user": user.id, "address": ADDRESS}
            assert audit_lines(storage)[-1] == line


def test_right_lost_before_the_lock_is_refused(
    storage, add_player, authority_of, before_lock, subtests
):
    """The actor is demoted, suspended or deleted, or the user becomes as high as a moderator."""
    add_player(ADMINISTRATOR)
    losses = {
        "demoted": lambda actor, _: edit(storage.users, actor.id, mod_level=PLAYER),
        "suspended": lambda actor, _: edit(storage.users, actor.id, suspension=Suspension(None)),
        "deleted": lambda actor, _: storage.users.delete(actor.id),
        "as high": lambda _, user: edit(storage.users, user.id, mod_level=MODERATOR),
    }
    for act, (do, _) in (MODERATION | ADMINISTRATION).items():
        if act == "user sign-in-link":
            continue  # it changes no record; a link made before ends with the level
        user = add_player(PLAYER, act)
        for name, lose in losses.items():
            if name == "as high" and act in ADMINISTRATION:
                continue
            actor = add_player(MODERATOR if act in MODERATION else ADMINISTRATOR)
            change = functools.partial(lose, actor, user)
            with subtests.test(act, name=name), pytest.raises(NotAllowed), before_lock(change):
                do(authority_of(actor), user.id)
            edit(storage.users, user.id, mod_level=PLAYER)
        assert storage.users.read(user.id) == user
    assert audit_lines(storage) == []


def find_user(storage, user_id: int) -> User | None:
    with contextlib.suppress(NoSuchUser):
        return storage.users.read(user_id)


def test_players_change_only_their_own_accounts(
    storage, add_player, admin, game, authority_of, before_lock, subtests
):
    """Not even an administrator does it for them, or the player who was suspended meanwhile."""
    for act, do in OWN.items():
        user = add_player(ADMINISTRATOR if act == "delete" else PLAYER)
        grants = {game.id: records.Grant("a grant", ["userinfo"], 1)}
        edit(storage.users, user.id, grants=grants, last_heartbeat=0)
        user = storage.users.read(user.id)
        suspension = Suspension("command")
        suspend = functools.partial(edit, storage.users, user.id, suspension=suspension)
        with subtests.test(act):
            with pytest.raises(NotAllowed):
                do(authority_of(admin), user)
            refused = contextlib.nullcontext() if act == "password" else pytest.raises(NotAllowed)
            with before_lock(suspend), refused:
                assert do(authority_of(user), user) is False
            assert storage.users.read(user.id) == dataclasses.replace(user, suspension=suspension)
            edit(storage.users, user.id, suspension=None)
            do(authority_of(user), user)
            assert find_user(storage, user.id) != user
    assert audit_lines(storage) == []


def test_last_administrator_stays_one(storage, add_player, admin, moderator, authority_of):
    add_player(ADMINISTRATOR, "user unsuspend")
    for act in (
        lambda: accounts.set_mod_level(authority_of(admin), admin.id, MODERATOR),
        lambda: accounts.delete_user(authority_of(admin), admin.id),
    ):
        with pytest.raises(LastAdministrator):
            act()
    for actor in (moderator, admin):
        with pytest.raises(NotAllowed):  # does not reveal the last administrator
            accounts.suspend(authority_of(actor), admin.id)
    assert (storage.users.read(admin.id), audit_lines(storage)) == (admin, [])
    accounts.set_mod_level(authority_of(admin), admin.id, ADMINISTRATOR)
    accounts.suspend(authority_of(COMMAND), admin.id)
    accounts.unsuspend(authority_of(COMMAND), admin.id)
    accounts.set_mod_level(authority_of(COMMAND), admin.id, PLAYER)
    assert storage.users.administrators() == []


def test_administrators_are_told_who_rises(
    storage, add_player, admin, moderator, ada, authority_of
):
    """Also the one in whose name it happens: a thief has the cookie."""
    chief = add_player(ADMINISTRATOR, name="Chief")
    add_player(ADMINISTRATOR, "user unsuspend")
    by_alan, who = f"Alan, player id {admin.id}, made", f"Ada, player id {ada.id}"
    by_command = "The administrators (with the command) made"
    expected = []
    for actor, level, words in (
        (admin, MODERATOR, f"{by_alan} {who}, a moderator."),
        (admin, MODERATOR, None),  # as before
        (admin, PLAYER, None),
        (COMMAND, ADMINISTRATOR, f"{by_command} {who}, an administrator."),
        (admin, MODERATOR, None),
        (admin, ADMINISTRATOR, f"{by_alan} {who}, an administrator."),
    ):
        assert accounts.set_mod_level(authority_of(actor), ada.id, level) is (words is not None)
        expected += [words] if words else []
        for each in storage.users.ids():
            told = [notice.text for notice in storage.users.read(each).notices]
            assert told == (expected if each in (admin.id, chief.id) else [])


def test_decisions_on_games_push_out_no_other_notice(storage, moderator, ada, game, authority_of):
    with storage.users.edit(ada.id) as user:
        user.notify("Somebody rises.")
    for number in range(NOTICES_KEPT + 1):
        is_listed = number % 2 == 1
        apps.set_listed(authority_of(moderator), game.id, is_listed, reason=f"Number {number}.")
    first, *decisions = storage.users.read(ada.id).notices
    assert first.text == "Somebody rises."
    assert [each.text[-2] for each in decisions] == ["1", "2", "3", "4", "5"]


def test_command_alone_rotates_keys(storage, admin, authority_of):
    keys = storage.keys.current()
    with pytest.raises(NotAllowed):
        rotate_keys(authority_of(admin), False)
    rotate_keys(authority_of(COMMAND), drop_old=False)
    assert storage.keys.current()[0] == keys[-1]
    rotate_keys(authority_of(COMMAND), drop_old=True)
    rotate_keys(authority_of(COMMAND), drop_old=False, openid_now=True)
    acts = ("key rotate", "key drop-old", "key openid-now")
    assert audit_lines(storage) == [{"act": act, "by": "command"} for act in acts]


def test_unlogged_act_changes_nothing(storage, add_player, game, authority_of, faults, subtests):
    command = authority_of(COMMAND)
    users = [(add_player(PLAYER, act), act) for act in USER_ACTS]
    refused = {act: functools.partial(USER_ACTS[act][0], command, user.id) for user, act in users}
    refused |= {act: functools.partial(do, command, game.id) for act, do in CLIENT_ACTS.items()}
    fields = {"name": "Chess", "redirect_uris": []}
    refused["client add"] = functools.partial(apps.register_client, command, None, **fields)
    refused["invite"] = functools.partial(invitations.create, Authority(storage, COMMAND), 7)
    refused["key drop-old"] = functools.partial(rotate_keys, command, drop_old=True)
    faults.refuse_saves("audit")
    before = faults.stored()
    for act, do in refused.items():
        with subtests.test(act):
            with pytest.raises(StorageFailed):
                do()
            assert faults.stored() == before


# -- limits --------------------------------------------------------------------------------------


def test_logged_acts_of_a_player_are_limited(storage, ada, game, authority_of):
    for number in range(ACTS_AN_HOUR):
        if number % 2:
            apps.issue_client_secret(authority_of(ada), game.id)
        else:
            apps.set_disabled(
                authority_of(ada), game.id, not storage.clients.read(game.id).disabled
            )
    before, lines = storage.clients.read(game.id), audit_lines(storage)
    assert len(lines) == ACTS_AN_HOUR
    for act in (
        lambda: apps.issue_client_secret(authority_of(ada), game.id),
        lambda: apps.set_disabled(authority_of(ada), game.id, not before.disabled),
        lambda: apps.delete_client(authority_of(ada), game.id),
        lambda: apps.register_client(authority_of(ada), ada.id, True, name="Go", redirect_uris=[]),
    ):
        with pytest.raises(TooManyAttempts):
            act()
    assert apps.set_disabled(authority_of(ada), game.id, before.disabled) == before  # a no-op
    assert (all_clients(storage), audit_lines(storage)) == ([before], lines)
    apps.issue_client_secret(authority_of(COMMAND), game.id)


def test_acts_of_a_moderator_are_limited(storage, ada, moderator, admin, authority_of, monkeypatch):
    assert actors.MODERATORS_ACTS_AN_HOUR == 600
    monkeypatch.setattr(actors, "MODERATORS_ACTS_AN_HOUR", 4)
    for _ in range(2):
        accounts.suspend(authority_of(moderator), ada.id)
        accounts.unsuspend(authority_of(moderator), ada.id)
    before = storage.users.read(ada.id)
    for act in (
        accounts.suspend,
        *(functools.partial(accounts.reset, what=what) for what in RESETS),
    ):
        with pytest.raises(TooManyAttempts):
            act(authority_of(moderator), ada.id)
    assert storage.users.read(ada.id) == before
    accounts.suspend(authority_of(admin), ada.id)
    for _ in range(3):
        accounts.unsuspend(authority_of(COMMAND), ada.id)
        accounts.suspend(authority_of(COMMAND), ada.id)


def test_no_op_acts_are_not_counted(
    storage, add_player, moderator, authority_of, monkeypatch, subtests
):
    """Nor logged."""
    monkeypatch.setattr(actors, "MODERATORS_ACTS_AN_HOUR", len(MODERATION))
    for act in USER_ACTS.keys() - {"user sign-in-link", "user delete", "flair revoke"}:
        do, _ = USER_ACTS[act]
        user, acts = (
            add_player(PLAYER, act),
            authority_of(moderator if act in MODERATION else COMMAND),
        )
        with subtests.test(act):
            do(acts, user.id)
            before, lines = storage.users.read(user.id), audit_lines(storage)
            do(acts, user.id)
            assert (storage.users.read(user.id), audit_lines(storage)) == (before, lines)
            assert lines[-1]["act"] == act


def test_refused_renames_count(ada, admin, authority_of):
    for _ in range(RENAMES_AN_HOUR):
        with pytest.raises(errors.NameTaken):
            accounts.change_profile(authority_of(ada), ada.id, name=admin.name)
    with pytest.raises(TooManyAttempts):
        accounts.change_profile(authority_of(ada), ada.id, name="Grace")


def test_removing_a_generated_picture_is_a_no_op(storage, ada, authority_of):
    accounts.remove_picture(authority_of(ada), ada.id)
    first = storage.users.read(ada.id).pfp_timestamp
    accounts.remove_picture(authority_of(ada), ada.id)
    assert ada.pfp_timestamp < first == storage.users.read(ada.id).pfp_timestamp


# -- players ------------------------------------------------------------------------------------


def test_suspension_binds_moderators(
    storage, add_player, ada, admin, moderator, authority_of, subtests
):
    """Of an administrator: by one, by the command, or by somebody who is gone or unknown."""
    gone = add_player(MODERATOR)
    accounts.suspend(authority_of(gone), ada.id)
    storage.users.delete(gone.id)
    by_gone = storage.users.read(ada.id).suspension
    promoted = add_player(MODERATOR)
    edit(storage.users, promoted.id, mod_level=ADMINISTRATOR)
    for name, suspension in {
        "administrator": Suspension(admin.id),
        "command": Suspension("command"),
        "temporary": Suspension("command", until=now_ms() + DAY_MS),
        "unknown": Suspension(None, 0),
        "gone": by_gone,
        "promoted": Suspension(promoted.id),
    }.items():
        edit(storage.users, ada.id, suspension=suspension)
        before, lines = storage.users.read(ada.id), audit_lines(storage)
        for act in (
            accounts.unsuspend,
            accounts.suspend,
            lambda *each: accounts.suspend(*each, "x", 1),
        ):
            with subtests.test(name), pytest.raises(NotAllowed, match="administrator suspended"):
                act(authority_of(moderator), ada.id)
        assert (storage.users.read(ada.id), audit_lines(storage)) == (before, lines)
        with subtests.test(f"{name}, lifted by an administrator"):
            accounts.unsuspend(authority_of(admin), ada.id)
            assert storage.users.read(ada.id).suspension is None


def test_moderators_share_suspensions(
    storage, add_player, ada, admin, moderator, authority_of, clock
):
    other = add_player(MODERATOR)
    for actor in (moderator, other):
        accounts.suspend(authority_of(other), ada.id, "First", 1)
        accounts.suspend(authority_of(actor), ada.id, "Second")
        suspension = storage.users.read(ada.id).suspension
        assert (suspension.by, suspension.reason, suspension.until) == (actor.id, "Second", None)
        accounts.unsuspend(authority_of(moderator), ada.id)
        assert not storage.users.read(ada.id).suspended
    accounts.suspend(authority_of(moderator), ada.id)
    accounts.suspend(authority_of(admin), ada.id, days=1)  # now it is the administrator's
    with pytest.raises(NotAllowed):
        accounts.unsuspend(authority_of(moderator), ada.id)
    clock.shift(DAY)  # it has ended
    accounts.suspend(authority_of(moderator), ada.id)
    assert storage.users.read(ada.id).suspension.by == moderator.id


def test_administrators_suspension_wins(storage, ada, admin, moderator, authority_of, before_lock):
    def overrule() -> None:
        accounts.suspend(authority_of(admin), ada.id)

    accounts.suspend(authority_of(moderator), ada.id)
    with before_lock(overrule), pytest.raises(NotAllowed):
        accounts.unsuspend(authority_of(moderator), ada.id)
    assert storage.users.read(ada.id).suspension.by == admin.id


# -- apps ---------------------------------------------------------------------------------------


def test_transferred_app_is_unchanged(
    storage, ada, admin, game, authority_of, before_lock, subtests
):
    def set_owner(owner: User) -> None:
        edit(storage.clients, game.id, owner_id=owner.id)

    change = functools.partial(apps.change_client, name="Mine")
    for act, do in (CLIENT_ACTS | {"change": change}).items():
        transfer = functools.partial(set_owner, admin)
        with subtests.test(act), before_lock(transfer), pytest.raises(NotAllowed):
            do(authority_of(ada), game.id)
        set_owner(ada)
        assert storage.clients.read(game.id) == game
    assert audit_lines(storage) == []


def test_member_registration_has_a_setting_and_a_limit(storage, ada, admin, authority_of):
    def register(by: User | Actor, owner: User, is_open: bool) -> Client:
        return apps.register_client(
            authority_of(by), owner.id, is_open, name="Chess", redirect_uris=[]
        )[0]

    for by, is_open in ((ada, False), (admin, True)):
        with pytest.raises(NotAllowed):
            register(by, ada, is_open)
    assert audit_lines(storage) == []
    for _ in range(10):
        assert not register(ada, ada, True).listed
    with pytest.raises(errors.TooManyClients):
        register(ada, ada, True)
    assert not register(COMMAND, ada, False).listed
    for _ in range(11):
        client = register(admin, admin, False)
        assert client.listed
    line = {"act": "client add", "by": admin.id, "client": client.id, "address": ADDRESS}
    assert audit_lines(storage)[-1] == line
    assert len(audit_lines(storage)) == len(all_clients(storage)) == 22


def test_game_moved_by_its_owner_is_unlisted(storage, ada, authority_of):
    for level, url, listed in (
        (PLAYER, "new", False),
        (PLAYER, "", True),
        (MODERATOR, "new", True),
    ):
        edit(storage.users, ada.id, mod_level=level)
        game, _ = storage.clients.register("Game", [], ada.id, game_url=GAME, listed=True)
        apps.change_client(authority_of(ada), game.id, name="Chess", game_url=f"{GAME}{url}")
        client = storage.clients.read(game.id)
        assert (client.name, client.game_url) == ("Chess", f"{GAME}{url}")
        assert client.listed == listed
        storage.clients.delete(game.id)


def test_owner_cannot_enable_an_app_of_administrators(storage, ada, admin, game, authority_of):
    for actor, disabled, disabled_by in (
        *((ada, True, ada.id), (ada, False, None), (ada, True, ada.id)),
        *((admin, True, admin.id), (admin, True, admin.id), (ada, True, admin.id)),
    ):
        client = apps.set_disabled(authority_of(actor), game.id, disabled)
        assert (client.disabled, client.disabled_by) == (disabled, disabled_by)
    assert len(audit_lines(storage)) == 4  # the last two were no-ops
    with pytest.raises(NotAllowed, match="administrator disabled"):
        apps.set_disabled(authority_of(ada), game.id, False)
    assert not apps.set_disabled(authority_of(admin), game.id, False).disabled
