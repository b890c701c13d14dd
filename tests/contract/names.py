"""Names: the lists of players, and names that were given up."""

import dataclasses

from .base import Contract, ids_of


class ListsContract(Contract):
    """The lists of players: by name, a page at a time, and the newest."""

    @staticmethod
    def names(storage, prefix: str = "", after: str = "", at_most: int = 50) -> list[str]:
        return [user.name for user in storage.users.by_name(prefix, after, at_most)]

    def test_players_are_listed_in_the_order_of_keys(self, storage, open_installation, subtests):
        for number, name in enumerate(("Zoe", "ada", "Adam", "ADA b", "Éva", "Ｋim", "アダ")):
            storage.users.register(name, f"{number}@example.org", "")
        every = ["ada", "ADA b", "Adam", "Kim", "Zoe", "Éva", "アダ"]
        for store in (storage, open_installation()):
            for (prefix, after, at_most), expected in {
                ("", "", 50): every,
                ("", "", 2): every[:2],
                ("", "ada b", 2): every[2:4],
                ("", "adaa", 2): every[2:4],  # nobody's
                ("", "アダ", 50): [],
                ("ada", "", 50): every[:3],
                ("ada", "ada", 1): ["ADA b"],
                ("é", "", 50): ["Éva"],
                ("k", "a", 50): ["Kim"],
                ("k", "z", 50): [],
                ("", "", 0): [],
            }.items():
                with subtests.test(prefix=prefix, after=after, at_most=at_most):
                    assert self.names(store, prefix, after, at_most) == expected

    def test_strange_text_begins_nobodys_name(self, storage, ada, subtests):
        for text in (
            "%",
            "_",
            "a%",
            "\x00",
            "\ud800",
            "\u202e",
            "../users",
            "a" * 10_000,
            "\\",
            "*",
        ):
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
        storage.users.delete(users[3].id)
        assert ids_of(storage.users.newest(9)) == ids_of(reversed(users[:3]))
        storage.users.reserve_ids(users[2].id + 199)
        assert ids_of(storage.users.newest(9)) == [users[2].id]  # 200 ids are tried
        storage.users.reserve_ids(users[2].id + 200)
        assert storage.users.newest(9) == []

    def test_damaged_players_do_not_shorten_a_page(self, storage, damage):
        users = [storage.users.register(f"Ada {n}", f"{n}@example.org", "") for n in "abcdef"]
        for user in users[1:4]:
            damage(user.id)
        assert self.names(storage, at_most=2) == ["Ada a", "Ada e"]
        assert self.names(storage, after="ada a", at_most=2) == ["Ada e", "Ada f"]
        assert ids_of(storage.users.newest(3)) == [users[5].id, users[4].id, users[0].id]
