"""Names: the lists of players, and names that were given up."""

import dataclasses
from collections.abc import Callable

import pytest

from model.errors import DamagedRecord, EmailTaken, NameKept, NameTaken
from model.kind import DAY_MS, day_of
from model.names import unique_key
from model.records import User, sha256

from .base import find_all, ids_of, together

DAY = 86_400  # seconds


class TestLists:
    @staticmethod
    def names(storage, part: str = "", after: str = "", at_most: int = 50) -> list[str]:
        return [user.name for user in storage.users.by_name(part, after, at_most)]

    def test_players_are_listed_in_the_order_of_keys(self, storage, open_installation, subtests):
        for number, name in enumerate(("Zoe", "ada", "Adam", "ADA b", "Éva", "Ｋim", "アダ")):
            storage.users.register(name, f"{number}@example.org", "")
        every = ["ada", "ADA b", "Adam", "Kim", "Zoe", "Éva", "アダ"]
        assert storage.users.number() == len(every)
        for store in (storage, open_installation()):
            for (part, after, at_most), expected in {
                **{("", "", 50): every, ("", "", 2): every[:2], ("", "ada b", 2): every[2:4]},
                **{("ada", "", 50): every[:3], ("ada", "ada", 1): ["ADA b"], ("", "", 0): []},
                **{("é", "", 50): ["Éva"], ("k", "a", 50): ["Kim"], ("k", "z", 50): []},
                **{("a", "ada b", 50): ["Adam", "Éva"], ("m", "", 1): ["Adam"]},
                **{("da", "adam", 50): [], ("ダ", "", 50): ["アダ"], ("%", "", 50): []},
                **{("", "アダ", 50): [], ("", "adaa", 2): every[2:4]},  # nobody's
            }.items():
                with subtests.test(part=part, after=after, at_most=at_most):
                    assert self.names(store, part, after, at_most) == expected
            for (part, before, at_most), expected in {
                **{("", "アダ", 50): every[:-1], ("", "ン", 2): every[-2:], ("", "", 50): []},
                **{("", "adam", 1): ["ADA b"], ("", "ada", 50): [], ("", "アダ", 0): []},
                **{("ada", "zoe", 2): every[1:3], ("ada", "adam", 50): every[:2]},
                **{("é", "アダ", 50): ["Éva"], ("k", "a", 50): [], ("m", "zoe", 1): ["Kim"]},
                ("", "adaa", 50): every[:2],  # nobody's
            }.items():
                with subtests.test(part=part, before=before, at_most=at_most):
                    found = store.users.by_name(part, before, at_most, backwards=True)
                    assert [user.name for user in found] == expected[::-1]

    def test_name_is_found_and_taken_in_each_spelling_of_its_key(self, storage, subtests):
        """With a joiner or without, in letters of its script or in those that NFKC gives."""
        for number, (name, spelled) in enumerate(
            [("علی\u200cرضا", "علیرضا"), ("ශ්\u200dරී", "ශ්රී"), ("ทองคำ", "ทองคํา"), ("Սևակ", "Սեւակ")]
        ):
            with subtests.test(name):
                user = storage.users.register(name, f"{number}@example.org", "")
                assert storage.users.read(user.id).name == name
                for each in (name, spelled):
                    assert storage.users.find_by_login(each).id == user.id
                    assert self.names(storage, unique_key(each)) == [name]
                    with pytest.raises(NameTaken):
                        storage.users.register(each, "", "")
                storage.users.rename(user.id, spelled)
                assert storage.users.find_by_login(name).name == spelled

    def test_strange_text_is_in_nobodys_name(self, storage, ada, subtests):
        for text in (*"%_*\\\x00\ud800\u202e", "a%", "../users", "a" * 10_000):
            with subtests.test(ascii(text)[:20]):
                assert self.names(storage, text) == []
                assert self.names(storage, after=text) in ([], ["Ada"])

    def test_lists_follow_the_changes_of_other_processes(self, storage, open_installation, ada):
        other = open_installation()
        assert self.names(other) == ["Ada"]
        bob = storage.users.register("Bob", "bob@example.org", "")
        assert self.names(other) == self.names(storage) == ["Ada", "Bob"]
        storage.users.rename(ada.id, "Charles")
        assert self.names(other) == self.names(storage) == ["Bob", "Charles"]
        assert ids_of(other.users.newest(5)) == [bob.id, ada.id]
        storage.users.rename(ada.id, "CHARLES")
        storage.users.delete(bob.id)
        assert self.names(other) == self.names(storage) == ["CHARLES"]
        storage.users.insert(dataclasses.replace(ada, id=77, name="Dora", email="d@example.org"))
        storage.users.reserve_ids(77)
        assert self.names(other) == self.names(storage) == ["CHARLES", "Dora"]
        assert ids_of(other.users.newest(5)) == [77, ada.id]

    def test_newest_players_come_first(self, storage):
        users = [storage.users.register(f"Ada {n}", f"{n}@example.org", "") for n in "abcd"]
        assert ids_of(storage.users.newest(2)) == [users[3].id, users[2].id]
        place = day_of(users[2].created), users[2].id
        assert ids_of(storage.users.newest(9, place)) == [users[1].id, users[0].id]
        storage.users.delete(users[3].id)
        assert ids_of(storage.users.newest(9)) == ids_of(reversed(users[:3]))
        old = dataclasses.replace(users[0], id=99, name="Imported", email="", created=5 * DAY_MS)
        storage.users.reserve_ids(100)
        storage.users.insert(old)
        assert ids_of(storage.users.newest(9)) == [*ids_of(reversed(users[:3])), 99]

    def test_damaged_players_do_not_shorten_a_page(self, storage, stored):
        users = [storage.users.register(f"Ada {n}", f"{n}@example.org", "") for n in "abcdef"]
        for user in users[1:4]:
            stored.damage("users", user.id)
        assert self.names(storage, at_most=2) == ["Ada a", "Ada e"]
        assert self.names(storage, after="ada a", at_most=2) == ["Ada e", "Ada f"]
        assert ids_of(storage.users.newest(3)) == [users[5].id, users[4].id, users[0].id]


class TestKeptNames:
    @pytest.fixture
    def refused(self, storage, bob) -> Callable[[str], set[str]]:
        """A function that returns why others do not get a name: nothing where they would."""

        def try_all(name: str) -> set[str]:
            users, seen = storage.users, []
            imported = User(10**6, name, "zoe@example.org", "")
            for act in (
                lambda: users.require_name(name),
                lambda: users.require_name(name, bob.id),
                lambda: users.register(name, "eve@example.org", ""),
                lambda: users.require_new(imported),
                lambda: users.insert(imported),
                lambda: users.rename(bob.id, name, seen.append),
            ):
                with pytest.raises(NameTaken) as refusal:
                    act()
                assert refusal.value.field == "name"
                seen.append(type(refusal.value).__name__)
            assert users.read(bob.id) == bob
            assert [user.name for user in users.by_name("bo")] == ["Bob"]
            return set(seen)

        return try_all

    def test_name_given_up_is_kept_90_days(self, storage, refused, clock, ada, bob, subtests):
        for name, give_up in {
            "Ada": lambda: storage.users.rename(ada.id, "Grace"),
            "Grace": lambda: storage.users.reset_name(ada.id),
            "Zed": lambda: storage.users.delete(storage.users.rename(ada.id, "Zed").id),
        }.items():
            with subtests.test(name):
                give_up()
                for spelling in (name, name.upper(), f" {name} "):
                    assert refused(spelling) == {"NameKept"}
        clock.shift(90 * DAY - 1)
        assert refused("Ada") == {"NameKept"}
        clock.shift(1)
        assert storage.users.rename(bob.id, "ADA").name == "ADA"
        assert storage.users.register("Grace", "g@example.org", "").name == "Grace"
        assert storage.users.former_names.of(ada.id) == []

    def test_names_of_a_reset_and_other_spellings_are_not_kept(self, storage, ada, bob):
        storage.users.rename(ada.id, "ADA")
        storage.users.rename(ada.id, "Ａｄａ")
        assert storage.users.former_names.ids() == []
        storage.users.reset_name(ada.id)
        storage.users.reset_name(ada.id)
        storage.users.rename(ada.id, "Ada")
        assert ids_of(storage.users.former_names.of(ada.id)) == [sha256("ada")]

    def test_former_owner_takes_the_name_back_and_keeps_it_anew(self, storage, refused, clock, ada):
        storage.users.rename(ada.id, "Grace")
        assert find_all(storage, "Ada") == [None]
        assert storage.users.find_by_former_name("ADA ").id == ada.id
        clock.shift(60 * DAY)
        assert storage.users.rename(ada.id, "ada").name == "ada"
        assert refused("Ada") == {"NameTaken"}
        assert refused("Grace") == {"NameKept"}
        storage.users.rename(ada.id, "Grace")
        clock.shift(90 * DAY - 1)
        assert refused("Ada") == {"NameKept"}
        clock.shift(1)
        storage.users.require_name("Ada")

    def test_former_name_finds_its_owner_only(self, storage, ada, bob, subtests):
        storage.users.rename(ada.id, "Grace")
        for name in ("", "Bob", "Grace", "nobody", "\x00", "\ud800", "a" * 9999, "../users/1"):
            with subtests.test(ascii(name)[:20]):
                assert storage.users.find_by_former_name(name) is None
        assert storage.users.find_by_former_name("ada") == storage.users.read(ada.id)
        storage.users.delete(ada.id)
        assert storage.users.find_by_former_name("ada") is None

    def test_change_that_fails_keeps_no_name(self, storage, ada, bob):
        def refuse(user: User) -> None:
            raise LookupError

        for act in (
            lambda: storage.users.rename(ada.id, "Grace", refuse),
            lambda: storage.users.reset_name(ada.id, refuse),
            lambda: storage.users.delete(ada.id, refuse),
        ):
            with pytest.raises(LookupError):
                act()
        with pytest.raises(NameTaken):
            storage.users.rename(ada.id, "bob")
        assert storage.users.former_names.ids() == []

    def test_racing_renames_give_a_name_once(self, storage, ada, bob):
        """One gives the name up while others ask for it."""
        users = [storage.users.register(f"Eve {n}", f"e{n}@example.org", "") for n in "abcd"]
        results = together(
            lambda act: act(),
            [
                lambda: storage.users.rename(ada.id, "Grace"),
                *(lambda user=user: storage.users.rename(user.id, "Ada") for user in users),
                *(lambda n=n: storage.users.register("ada", f"n{n}@example.org", "") for n in "12"),
            ],
        )
        assert [each for each in results if isinstance(each, User)] == [storage.users.read(ada.id)]
        assert all(isinstance(each, NameTaken | User) for each in results)
        assert find_all(storage, "Ada") == [None]

    def test_damaged_former_name_is_nobodys(self, storage, stored, ada, bob):
        storage.users.rename(ada.id, "Grace")
        stored.damage("former_names", sha256("ada"))
        for user_id in (ada.id, bob.id, None):
            with pytest.raises(NameKept):
                storage.users.require_name("Ada", user_id)
        with pytest.raises(DamagedRecord):
            storage.users.find_by_former_name("Ada")
        storage.users.rename(ada.id, "Zoe")
        assert storage.users.rename(ada.id, "Grace").name == "Grace"


class TestKeptEmails:
    def test_confirmed_address_is_kept_three_days(self, storage, clock, ada, bob, subtests):
        storage.users.change_email(ada.id, ada.email, verified=True)
        storage.users.change_email(ada.id, "new@example.org")
        assert not storage.users.read(ada.id).email_verified
        for taken in ("ada@example.org", "ADA@Example.org"):
            with subtests.test(taken), pytest.raises(EmailTaken):
                storage.users.change_email(bob.id, taken)
            with subtests.test(sign_up=taken), pytest.raises(EmailTaken):
                storage.users.register("Eve", taken, "")
        clock.shift(3 * DAY - 1)
        with pytest.raises(EmailTaken):
            storage.users.change_email(bob.id, "ada@example.org")
        clock.shift(2)
        storage.users.change_email(bob.id, "ada@example.org")

    def test_address_that_was_not_confirmed_is_free_at_once(self, storage, ada):
        storage.users.change_email(ada.id, "")
        storage.users.register("Bob", "ada@example.org", "")

    def test_first_replaced_address_frees_those_after_it(self, storage, clock, ada):
        """Whoever took the account cannot keep its player from going back."""
        for number in range(1, 4):
            clock.shift(1)
            storage.users.change_email(ada.id, f"{number}@example.org", verified=True)
        kept = storage.users.former_emails
        second, first = (kept.find_kept(f"{number}@example.org") for number in (2, 1))
        kept.end(second)
        assert kept.find_kept("2@example.org") is None and kept.find_kept("1@example.org")
        kept.end(first)
        assert kept.ids() == []

    def test_address_is_kept_for_its_own_player_alone_and_goes_with_them(self, storage, ada):
        storage.users.change_email(ada.id, ada.email, verified=True)
        storage.users.change_email(ada.id, "")
        storage.users.change_email(ada.id, "ada@example.org")
        storage.users.delete(ada.id)
        storage.users.register("Bob", "ada@example.org", "")
