"""The contract of applications: one account at most, and names that are taken while they wait."""

import dataclasses

import pytest
from archives import A_HASH

from identity.acts import applications
from identity.acts.actors import COMMAND, Authority
from model.errors import EmailTaken, NameTaken, StorageFailed
from model.kind import DAY_MS
from model.kinds import APPLICATIONS
from model.records import User, now_ms
from storage.whole.archive import backup, restore
from storage.whole.copying import copy

from .base import together


@pytest.fixture
def apply(storage):
    """A function that adds an application that waits."""
    values = {"email": "eve@x.example", "password_hash": A_HASH, "address": "192.0.2.1"}
    values |= {"text": "Hello", "email_verified": True, "agreed": {"terms 2": 5}, "language": "de"}

    def apply(name: str = "Eve", **changes):
        return applications.apply(storage, True, **values | {"name": name} | changes)

    return apply


def approve(storage, application) -> User:
    return applications.approve(Authority(storage, COMMAND), application.id, 2**45)


def decline(storage, application) -> None:
    applications.decline(Authority(storage, COMMAND), application, "Spam", now_ms())


def try_name(storage, name: str) -> None:
    """Take a name as a sign-up, an import and a new name do."""
    ada = storage.users.find_by_login("Ada") or storage.users.register("Ada", "", A_HASH)
    user = User(1000, name, "", A_HASH)
    for take in (
        lambda: storage.users.register(name, "", A_HASH),
        lambda: storage.users.insert(user),
        lambda: storage.users.rename(ada.id, name),
    ):
        with pytest.raises(NameTaken):
            take()


class TestApplications:
    def test_name_and_email_are_taken_while_it_waits(self, storage, apply):
        application = apply()
        try_name(storage, "EVE")
        for changes, error in (({"email": ""}, NameTaken), ({"name": "Bob"}, EmailTaken)):
            with pytest.raises(error):
                apply(**changes)
        applications.rewrite(storage, application.id, "Eva", "eve@x.example", "")
        storage.users.register("Eve", "", A_HASH)  # the old name is free
        with pytest.raises(NameTaken):
            applications.rewrite(storage, application.id, "Eve", "eve@x.example", "")
        storage.records(APPLICATIONS).delete(application.id)
        assert apply("Eva").email == "eve@x.example"

    def test_end_and_decline_free_the_name_and_the_email(self, storage, apply, clock, stored):
        declined, ended = apply(), apply("Old", email="old@x.example")
        decline(storage, declined)
        assert len(stored.texts("applications")) == 2
        [text] = [each for each in stored.texts("applications") if "Spam" in each]
        assert not any(each in text for each in ("eve@x.example", "Hello", "192.0.2", "terms"))
        for change in (
            lambda: decline(storage, declined),
            lambda: approve(storage, declined),
            lambda: applications.rewrite(storage, declined.id, "Eve", "", ""),
        ):
            with pytest.raises(applications.Decided):
                change()
        storage.users.register("Eve", "eve@x.example", A_HASH)
        assert applications.find_by_login(storage, "eve").reason == "Spam"
        clock.shift(8 * 86_400)
        assert applications.find_by_login(storage, "eve") is None
        clock.shift(23 * 86_400)
        assert (applications.count_waiting(storage), applications.find_waiting(storage)) == (0, [])
        with pytest.raises(applications.Decided):
            approve(storage, ended)
        assert apply("Old", email="old@x.example").expires > now_ms() + 30 * DAY_MS
        assert [each for each in storage.verify() if "clock" not in each.problem] == []

    def test_racing_approvals_make_one_account(self, storage, apply):
        application = apply()
        results = together(lambda _: approve(storage, application), range(6))
        assert sorted(type(each).__name__ for each in results) == ["Decided"] * 5 + ["User"]
        [user] = map(storage.users.read, storage.users.ids())
        assert (user.name, user.email, user.email_verified) == ("Eve", "eve@x.example", True)
        assert (user.agreed, user.language, user.application) == (
            {"terms 2": 5},
            "de",
            application.id,
        )
        assert [each["act"] for each in storage.audit.read()] == [
            "application approve",
            "user sign-up",
        ]
        assert storage.records(APPLICATIONS).ids() == []

    def test_next_approval_completes_one_that_was_killed(self, storage, apply, monkeypatch, clock):
        application = apply()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            kept = storage.records(APPLICATIONS)
            patch.setattr(type(kept), "delete", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            approve(storage, application)
        for seconds in (0, 3600):  # while somebody may be at it, and when that is over
            clock.shift(seconds)
            with pytest.raises(applications.Decided):
                decline(storage, application)
            with pytest.raises(applications.Decided):
                applications.rewrite(storage, application.id, "Eva", "", "")
        [user_id] = storage.users.ids()
        storage.users.rename(user_id, "Evelyn")
        assert approve(storage, application).id == user_id
        assert (storage.users.ids(), storage.records(APPLICATIONS).ids()) == ([user_id], [])

    def test_approval_that_could_not_be_saved_can_be_repeated_or_declined(
        self, storage, apply, monkeypatch, clock
    ):
        for act in (approve, decline):
            application = apply(act.__name__, email="")
            with monkeypatch.context() as patch, pytest.raises(StorageFailed):

                def fail(*_: object) -> None:
                    raise StorageFailed("full")

                patch.setattr(type(storage.users), "insert_row", fail, raising=False)
                patch.setattr("storage.flat_files.disk.commit", fail)
                approve(storage, application)
            assert storage.users.find_by_login(application.name) is None
            clock.shift(61)
            act(storage, application)

    def test_what_the_person_does_meanwhile_wins(self, storage, apply, monkeypatch):
        """Between the moderator's look and the account."""
        of_users = type(storage.users)
        real = of_users.require_addable
        for number, (change, error) in enumerate(
            [
                (lambda each: applications.rewrite(storage, each.id, "Eva", "", ""), "Decided"),
                (lambda each: storage.records(APPLICATIONS).delete(each.id), "Decided"),
            ]
        ):
            application = apply(f"Player {number}x", email="")

            def require(users, user, each=application, change=change) -> None:
                with monkeypatch.context() as patch:
                    patch.setattr(of_users, "require_addable", real)
                    # By another thread: the edits of one never nest.
                    together(lambda _: change(each), [0])
                real(users, user)

            with monkeypatch.context() as patch:
                patch.setattr(of_users, "require_addable", require)
                with pytest.raises(getattr(applications, error)):
                    approve(storage, application)
        assert storage.users.ids() == []
        assert [each.name for each in applications.find_waiting(storage)] == ["Eva"]

    @pytest.mark.parametrize("way", ["backup", "copy"])
    def test_backup_and_copy_have_it(self, storage, apply, tmp_path, empty, way):
        storage.users.register("Ada", "", A_HASH)
        decline(storage, apply("Old", email=""))
        apply()
        if way == "copy":
            copy(storage, empty)
        else:
            backup(storage, str(tmp_path / "backup"), "command")
            restore(empty, str(tmp_path / "backup"), "command")
        [before, after] = (
            [dataclasses.asdict(kept.read(each)) for each in kept.ids()]
            for kept in (store.records(APPLICATIONS) for store in (storage, empty))
        )
        assert before == after and len(after) == 2
        try_name(empty, "Eve")
