"""Edits of users, and checks that a change makes while it holds its lock."""

import copy
import json
from collections.abc import Callable

import pytest

from model import kinds, records
from model.errors import InvalidField, TooManyAttempts
from model.records import MODERATOR, Grant, Notice, Session, Suspension, now_ms
from storage.audit_lines import decode_line, time_of

from .base import PICTURE, edit, free_name


class TestEdits:
    def test_edit_saves_every_field(self, storage, ada, client):
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

    def test_edit_that_raises_saves_nothing_and_blocks_nothing(self, storage, ada):
        with pytest.raises(LookupError), storage.users.edit(ada.id) as user:
            user.bio = "half done"
            raise LookupError
        assert storage.users.read(ada.id) == ada
        edit(storage, ada.id, bio="again")
        assert storage.users.read(ada.id).bio == "again"

    def test_invalid_field_saves_nothing(self, storage, ada, subtests):
        for field, value, error in (
            *(("bio", each, InvalidField) for each in ("b" * 1001, "\x00")),
            *(("mod_level", each, InvalidField) for each in (7, -1)),
            # These do not change with an edit.
            *(("id", 2, ValueError), ("email", "grace@example.org", ValueError)),
            *(("name", each, ValueError) for each in ("Grace", "ADA")),
            # These could not be read again.
            *(("play_ms", 1.5, ValueError), ("suspension", True, ValueError)),
            ("suspension", Suspension("command", until=1.5), ValueError),
            ("mod_level", True, ValueError),  # equal to 1, but stored as something else
            *(("flairs", [], ValueError), ("equipped_flair", "not owned", ValueError)),
            ("sessions", [None], (ValueError, TypeError)),
            ("grants", {"c" * 24: Grant("g", "userinfo", 1)}, ValueError),
        ):
            with subtests.test(field=field, value=value):
                with pytest.raises(error) as refusal:
                    edit(storage, ada.id, last_heartbeat=1, **{field: value})
                if error is InvalidField:
                    assert refusal.value.field == field
                assert storage.users.read(ada.id) == ada

    def test_newer_rule_does_not_block_other_changes(self, storage, ada, monkeypatch):
        monkeypatch.setitem(kinds.USER_RULES, "bio", lambda bio: "must rhyme")
        edit(storage, ada.id, play_ms=1)
        with pytest.raises(InvalidField, match="must rhyme"):
            edit(storage, ada.id, bio="new")

    def test_edits_never_nest(self, storage, ada, bob, client, subtests):
        for act in (
            lambda: storage.users.edit(ada.id).__enter__(),
            lambda: storage.users.edit(bob.id).__enter__(),
            lambda: storage.users.register("Grace", "grace@example.org", ""),
            lambda: storage.users.rename(bob.id, "Grace"),
            lambda: storage.users.change_email(bob.id, "grace@example.org"),
            lambda: storage.pictures.save(bob.id, PICTURE),
            lambda: storage.users.delete(ada.id),
            lambda: storage.users.delete(bob.id),
            lambda: storage.clients.edit(client.id).__enter__(),
            lambda: storage.clients.issue_secret(client.id),
            lambda: storage.clients.delete(client.id),
        ):
            with subtests.test():
                with (
                    pytest.raises(RuntimeError, match="never nest"),
                    storage.users.edit(ada.id) as user,
                ):
                    user.bio = "half done"
                    act()
                assert [storage.users.read(each.id) for each in (ada, bob)] == [ada, bob]
                assert storage.clients.read(client.id) == client

    def test_reads_during_an_edit_return_the_old_record(self, storage, ada, bob):
        with storage.users.edit(ada.id) as user:
            user.bio = "half done"
            assert storage.users.read(ada.id) == ada
            assert storage.users.find_by_login("bob") == bob

    def test_notice_is_later_than_one_of_a_clock_that_is_ahead(self, storage, ada):
        with storage.users.edit(ada.id) as user:
            user.notices = [Notice("First", now_ms() + 30_000)]
            user.notify("Second")
        first, second = storage.users.read(ada.id).notices
        assert (second.text, second.since) == ("Second", first.since + 1)


class TestGrants:
    def test_each_save_drops_grants_of_deleted_clients(self, storage, client):
        users = storage.users
        for number, save in enumerate(
            (
                lambda user_id: edit(storage, user_id, play_ms=1),
                lambda user_id: users.rename(user_id, "Grace"),
                lambda user_id: users.change_email(user_id, "grace@example.org"),
                users.reset_name,
            )
        ):
            ada = storage.users.register(f"Ada {number}", f"a{number}@example.org", "")
            gone, _ = storage.clients.register("Gone", [], None)
            grants = {each.id: Grant("g", ["userinfo"], 1) for each in (gone, client)}
            edit(storage, ada.id, grants=grants)
            storage.clients.delete(gone.id)
            with storage.users.edit(ada.id):
                pass  # nothing changes, so nothing is saved
            assert gone.id in storage.users.read(ada.id).grants
            save(ada.id)
            assert storage.users.read(ada.id).grants == {client.id: Grant("g", ["userinfo"], 1)}
            storage.users.delete(ada.id)

    def test_newest_grants_are_kept(self, storage, ada, monkeypatch):
        monkeypatch.setattr(records, "GRANTS_KEPT", 3)
        ids = [storage.clients.register(f"Client {n}", [], None)[0].id for n in range(5)]
        for since, each in zip((50, 10, 40, 30, 20), ids, strict=True):
            with storage.users.edit(ada.id) as user:
                user.grants[each] = Grant("g", ["userinfo"], since)
        # Client 1 went when client 3 came; client 4 is older than the others that are there.
        assert list(storage.users.read(ada.id).grants) == [ids[0], ids[2], ids[3]]

    def test_grant_of_an_old_test_is_dropped(self, storage, ada, client):
        for age, is_kept in ((600_000, True), (900_000, False)):  # milliseconds
            edit(storage, ada.id, grants={client.id: Grant("g", [], now_ms() - age)})
            assert (client.id in storage.users.read(ada.id).grants) == is_kept


# Changes that call `before` with the record while they hold its lock.
CHANGES: dict[str, Callable] = {
    "rename": lambda store, user, client, before: store.users.rename(user, "Grace", before),
    "reset name": lambda store, user, client, before: store.users.reset_name(user, before),
    "change email": lambda store, user, client, before: store.users.change_email(user, "", before),
    "save picture": lambda store, user, client, before: store.pictures.save(user, PICTURE, before),
    "add client": lambda store, user, _, do: store.clients.register("Go", [], user, before=do),
    "new secret": lambda store, user, client, before: store.clients.issue_secret(client, before),
    "delete client": lambda store, user, client, before: store.clients.delete(client, before),
    "delete user": lambda store, user, client, before: store.users.delete(user, before),
}


class TestAudit:
    def test_audit_lines_about_a_user_are_those_by_and_about_them(self, storage, ada, bob, client):
        storage.audit.write("user suspend", ada.id, user=bob.id)
        storage.audit.write("user mod-level", "command", user=bob.id, mod_level=1)
        storage.audit.write("client disable", bob.id, client=client.id)
        storage.audit.write("backup", "command")
        for subjects, acts in (
            ({ada.id}, ["user suspend"]),
            ({bob.id}, ["client disable", "user mod-level", "user suspend"]),
            ({client.id}, ["client disable"]),
            ({ada.id, client.id}, ["client disable", "user suspend"]),
            ({77}, []),
        ):
            assert [line["act"] for line in storage.audit.about(subjects)] == acts
        assert len(list(storage.audit.read())) == 4

    def test_log_is_read_backwards_from_any_position(self, storage):
        for number in range(250):
            storage.audit.write("backup", number)
        lines = list(storage.audit.before())
        assert [decode_line(line)["by"] for _, line in lines] == [*range(249, -1, -1)]
        positions = [position for position, _ in lines]
        assert positions == sorted(positions, reverse=True)
        low, high = storage.audit.ends()
        assert low <= positions[-1] and positions[0] < high
        assert list(storage.audit.before(positions[120])) == lines[121:]
        assert list(storage.audit.before(low)) == list(storage.audit.before(-(2**70))) == []
        assert list(storage.audit.before(2**70)) == lines

    def test_log_is_sought_by_time(self, storage, subtests):
        """A damaged line has no time."""
        for time in (10, 20, 20, 30, 50):
            storage.audit.add_line(json.dumps({"time": time, "act": "x", "by": 1}).encode())
            storage.audit.add_line(b"{damaged")
        for time, expected in ((5, 0), (10, 1), (20, 3), (29, 3), (30, 4), (60, 5)):
            with subtests.test(time=time):
                found = storage.audit.before(storage.audit.seek(time))
                assert sum(time_of(line) is not None for _, line in found) == expected

    def test_before_can_refuse_every_change(self, storage, ada, client, subtests):
        """Also because of an attempt that it counts."""

        def before(record: object) -> None:
            seen.append(record.id)
            storage.audit.write("seen", "command")
            storage.attempts.count("act", "ada", limit=1)

        storage.attempts.count("act", "ada", limit=1)
        for name, change in CHANGES.items():
            seen = []
            with subtests.test(name):
                with pytest.raises(TooManyAttempts):
                    change(storage, ada.id, client.id, before)
                assert len(seen) == 1
                assert storage.users.read(ada.id) == storage.users.find_by_login("ada") == ada
                assert list(map(storage.clients.read, storage.clients.ids())) == [client]

    def test_before_callback_sees_the_current_record(self, storage, subtests):
        for name, change in CHANGES.items():
            ada = storage.users.register("Ada", "ada@example.org", "")
            client, _ = storage.clients.register("Chess", [], None)
            seen = []

            def before(record: object, name: str = name, seen: list = seen) -> None:
                seen.append(copy.copy(record))
                storage.audit.write(name, "command")

            with subtests.test(name):
                change(storage, ada.id, client.id, before)
                assert len(seen) == 1
                assert name == "add client" or seen[0] in (ada, client)
                assert list(storage.audit.read())[-1]["act"] == name
            if name != "delete user":
                storage.users.delete(ada.id)
            free_name(storage, "Ada")
            if name == "rename":
                free_name(storage, "Grace")
