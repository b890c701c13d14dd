"""Users: registration, look-ups, imports, administrators and pictures."""

import dataclasses
import time

import pytest

from images.pictures import generate_picture
from model import errors
from model.records import (
    ADMINISTRATOR,
    MODERATOR,
    PICTURE_SIZES,
    PLAYER,
    FormerEmail,
    Suspension,
    User,
    now_ms,
    sha256,
)

from .base import PICTURE, edit, find_all, free_name, ids_of, together

TICK = 0.1  # seconds: kernels round a file's time down to when their clock last ticked


class TestUsers:
    def test_new_user_is_a_player_with_a_current_heartbeat(self, storage):
        before = now_ms()
        ada = storage.users.register(" Ａｄａ\u00a0ｂ ", " ada@example.org\n", "a hash")
        assert (ada.name, ada.email, ada.password_hash) == ("Ada b", "ada@example.org", "a hash")
        assert (ada.mod_level, ada.suspended, ada.bio, ada.play_ms) == (PLAYER, False, "", 0)
        assert (ada.flairs, ada.equipped_flair) == (["none"], "none")
        assert (ada.grants, ada.sessions) == ({}, [])
        assert before <= ada.created == ada.last_heartbeat <= now_ms()
        assert storage.users.read(ada.id) == ada
        grace = storage.users.register("Grace", "grace@example.org", "a hash", ADMINISTRATOR)
        assert storage.users.read(grace.id).mod_level == ADMINISTRATOR

    def test_another_process_reads_all(self, storage, open_installation, ada, client, code_record):
        storage.codes.add("a code", code_record)
        again = open_installation()
        assert again.users.read(ada.id) == again.users.find_by_login("ada") == ada
        assert again.clients.read(client.id) == client
        assert again.codes.read("a code") == code_record
        assert again.keys.current() == storage.keys.current()

    def test_every_spelling_of_a_login_is_found_and_taken(self, storage, subtests):
        spellings = {
            "Ada": ("Ada", "aDA", "Ａｄａ", " Ada "),  # phones add a space to a completed name
            **{"Ada L. King": ("ada\u00a0l. king",), "José": ("Jose\u0301",), "アダ": ("ｱﾀﾞ",)},
            **{"ΟΔΥΣΣΕΥΣ": ("οδυσσευς",), "ﬁne": ("FINE",), "İpek": ("i\u0307pek",)},
            "Straße": ("STRASSE",),
        }
        for number, (name, others) in enumerate(spellings.items()):
            user = storage.users.register(name, f"{number}@example.org", "a hash")
            for other in others:
                with subtests.test(ascii(other)):
                    assert storage.users.find_by_login(other) == user
                    with pytest.raises(errors.NameTaken) as refusal:
                        storage.users.register(other, "other@example.org", "a hash")
                    assert refusal.value.field == "name"
        ada = storage.users.find_by_login("Ada")
        assert storage.users.find_by_login("0＠example.org") == ada
        for other in ("0@example.org", "0@Example.Org", "０@example.org", "0@example.org "):
            with subtests.test(ascii(other)):
                assert storage.users.find_by_login(other) == ada
                with pytest.raises(errors.EmailTaken) as refusal:
                    storage.users.register("Other", other, "a hash")
                assert refusal.value.field == "email"
        assert len(storage.users.ids()) == len(spellings)

    def test_address_has_one_stored_form(self, storage, subtests):
        """It is in ASCII by IDNA 2008. The stored address of an earlier version stays as it is."""
        for name, stored, spellings in (
            ("Ada", "x@xn--bcher-kva.example", ("x@BÜCHER.example", "x@bücher\u3002example")),
            ("Bob", "x@xn--strae-oqa.example", ("x@straße.example", "x@XN--STRAE-OQA.example")),
            ("Cleo", "x@strasse.example", ("X@Strasse.example", "x@strasse\uff0eexample")),
        ):
            user = storage.users.register(name, spellings[0], "a hash")
            assert user.email.lower() == stored
            for each in (stored, *spellings):
                with subtests.test(ascii(each)), pytest.raises(errors.EmailTaken):
                    assert storage.users.find_by_login(each) == user
                    storage.users.register("Other", each, "a hash")
        for user_id, old, spellings in (
            (70, "y@Bücher.example", ("y@bücher.example", "y@xn--bcher-kva.example")),
            (71, "y@bu\u0308ch.example", ("y@büch\u3002example", "y@XN--bch-hoa.example")),
            (72, "y@büch\u3002test", ("y@büch\u3002test",)),
            (73, "y@[", ("y@[", "Y@[")),
        ):
            user = User(user_id, f"Player {user_id}", old, "a hash", email_verified=True)
            storage.users.insert(user)
            for each in spellings:
                with subtests.test(ascii(each)):
                    assert storage.users.find_by_login(each) == storage.users.read(user_id) == user
        for taken in ("y@bücher.example", "y@xn--bcher-kva.example", "y@BÜCH.example"):
            with subtests.test(taken=taken), pytest.raises(errors.EmailTaken):
                storage.users.register("Other", taken, "a hash")
            with subtests.test(changed=taken), pytest.raises(errors.EmailTaken):
                storage.users.change_email(73, taken)
        changed = storage.users.change_email(70, "y@bücher.example", verified=True)
        assert changed.email == "y@xn--bcher-kva.example"
        assert find_all(storage, "y@bücher.example", changed.email) == [changed] * 2
        storage.users.change_email(70, "z@bücher.example")
        kept = FormerEmail(sha256("w@bücher.example"), 70, now_ms() + 9999, now_ms())
        storage.users.former_emails.put(kept)  # as an earlier version did
        for taken in ("y@bücher.example", "w@BÜCHER.example"):
            with subtests.test(kept=taken), pytest.raises(errors.EmailTaken):
                storage.users.register("Other", taken, "a hash")

    def test_unknown_login_is_not_found(self, storage, ada):
        unknown = (
            *("", " ", "Bob", "1", "@", "ada@", "Ada@example.net", ".", "..", "../users/1.json"),
            *("a/b", "/", "/etc/passwd", "names/ada", "ada/", "ada/.", "\x00", "ada\x00", "\ud800"),
            *("\ud800@example.org", "a" * 121, "é" * 61, "a" * 100_000),
            "．．／ｕｓｅｒｓ",  # dots and slashes once it is folded
        )
        assert find_all(storage, *unknown) == [None] * len(unknown)

    def test_refused_user_takes_neither_name_nor_email(self, storage, ada):
        with pytest.raises(errors.EmailTaken):
            storage.users.register("Bob", "ada@example.org", "a hash")
        with pytest.raises(errors.NameTaken):
            storage.users.register("Ada", "bob@example.org", "a hash")
        for name, email, mod_level, field in (
            ("A", "bob@example.org", PLAYER, "name"),
            ("Bob", "bob", PLAYER, "email"),
            ("Bob", "bob@example.org", 3, "mod_level"),
        ):
            with pytest.raises(errors.InvalidField) as refusal:
                storage.users.register(name, email, "a hash", mod_level)
            assert refusal.value.field == field
        assert storage.users.ids() == [ada.id]
        bob = storage.users.register("Bob", "bob@example.org", "a hash")
        assert find_all(storage, "bob", "bob@example.org") == [bob] * 2

    def test_user_ids_grow_and_are_never_reused(self, storage, open_installation):
        first, second = (
            storage.users.register(f"Ada {n}", f"{n}@example.org", "").id for n in "ab"
        )
        storage.users.delete(second)
        third = storage.users.register("Ada c", "b@example.org", "").id
        storage.users.delete(third)
        fourth = open_installation().users.register("Ada d", "b@example.org", "").id
        assert 0 < first < second < third < fourth
        for n in range(9):
            storage.users.register(f"Bob {n}", f"bob{n}@example.org", "")
        assert storage.users.ids() == [first, *range(fourth, fourth + 10)]  # ordered as numbers

    def test_racing_registrations_give_a_name_once(self, storage):
        names = ["Ada", "ADA", "ada", "Ａda", "aDa", "adA", "ａｄａ", "ADa"]
        results = together(
            lambda n: storage.users.register(names[n], f"{n}@example.org", ""), range(8)
        )
        [winner] = [result for result in results if isinstance(result, User)]
        assert find_all(storage, "ada") == [winner]
        assert storage.users.ids() == [winner.id]
        assert all(isinstance(result, errors.NameTaken | User) for result in results)

    def test_unknown_user_id_raises_and_changes_nothing(self, storage, ada):
        for act in (
            lambda: storage.users.read(404),
            lambda: storage.users.edit(404).__enter__(),
            lambda: storage.users.rename(404, "Grace"),
            lambda: storage.users.change_email(404, "grace@example.org"),
            lambda: storage.pictures.save(404, PICTURE),
            lambda: storage.users.delete(404),
        ):
            with pytest.raises(errors.NoSuchUser):
                act()
        assert storage.users.ids() == [ada.id]
        storage.users.register("Grace", "grace@example.org", "")  # neither of the two is taken

    def test_value_made_from_a_user_is_that_of_the_last_save(self, storage, ada, bob):
        """A backend may cache it once the record is a moment old."""
        for bio in ("", "one", "two"):
            edit(storage, ada.id, bio=bio)
            for pause in (0, 0.06, 0):
                time.sleep(pause)
                assert storage.users.read_from(ada.id, _name_and_bio) == (ada.name, bio)
                assert storage.users.read_from(bob.id, _name_and_bio) == (bob.name, "")
                assert storage.users.read_from(ada.id, _id) == ada.id
        storage.users.delete(ada.id)
        for user_id in (ada.id, 10**9):
            with pytest.raises(errors.NoSuchUser):
                storage.users.read_from(user_id, _name_and_bio)

    def test_values_of_several_users_are_in_the_requested_order(self, storage, ada, bob):
        requested = [bob.id, 99, ada.id, bob.id]
        assert storage.users.read_from_many(requested, _id) == [bob.id, ada.id, bob.id]
        assert storage.users.read_from_many([], _id) == []


def _name_and_bio(user: User) -> tuple[str, str]:
    return user.name, user.bio


def _id(user: User) -> int:
    return user.id


class TestAdministrators:
    @pytest.fixture
    def administrators(self, storage, ada, bob) -> list[User]:
        return [edit(storage, each.id, mod_level=ADMINISTRATOR) for each in (ada, bob)]

    def test_only_the_last_administrator_cannot_be_lost(self, storage, administrators):
        first, second = ids_of(administrators)
        for user_id in (first, second):
            with storage.users.administered_without(user_id):
                pass
        with storage.users.administered_without(first):
            storage.users.delete(first)
        with pytest.raises(errors.LastAdministrator), storage.users.administered_without(second):
            pytest.fail("the block was entered")

    def test_suspended_users_and_moderators_do_not_count(self, storage, administrators):
        first, second = ids_of(administrators)
        for change, undone in (
            ({"suspension": Suspension("command")}, {"suspension": None}),
            ({"mod_level": MODERATOR}, {"mod_level": ADMINISTRATOR}),
        ):
            edit(storage, second, **change)
            assert ids_of(storage.users.administrators()) == [first]
            with storage.users.administered_without(second):
                pass
            with pytest.raises(errors.LastAdministrator), storage.users.administered_without(first):
                pytest.fail("the block was entered")
            edit(storage, second, **undone)
            assert ids_of(storage.users.administrators()) == [first, second]

    def test_site_without_administrators_blocks_nothing(self, storage, ada):
        assert storage.users.administrators() == []
        with storage.users.administered_without(ada.id):
            storage.users.delete(ada.id)
        with pytest.raises(errors.NoSuchUser), storage.users.administered_without(ada.id):
            pytest.fail("the block was entered")

    def test_racing_demotions_leave_one_administrator(self, storage, administrators):
        for n in range(2):
            administrators.append(storage.users.register(f"C{n}", f"c{n}@example.org", ""))

        def step_down(user_id: int) -> None:
            with storage.users.administered_without(user_id):
                edit(storage, user_id, mod_level=PLAYER)

        for _ in range(20):
            for user_id in ids_of(administrators):
                edit(storage, user_id, mod_level=ADMINISTRATOR)
            results = together(step_down, ids_of(administrators))
            assert [type(each) for each in results if each] == [errors.LastAdministrator]
            assert len(storage.users.administrators()) == 1

    def test_end_of_a_suspension_restores_an_administrator(self, storage, administrators, clock):
        first, second = ids_of(administrators)
        edit(storage, first, suspension=Suspension("command", until=now_ms() + 1000))
        assert ids_of(storage.users.administrators()) == [second]
        with pytest.raises(errors.LastAdministrator), storage.users.administered_without(second):
            pytest.fail("the block was entered")
        clock.shift(1)
        assert ids_of(storage.users.administrators()) == [first, second]
        with storage.users.administered_without(second):
            pass

    def test_new_and_imported_administrators_are_found(self, storage):
        first = storage.users.register("First", "first@example.org", "", mod_level=ADMINISTRATOR)
        storage.users.insert(User(7, "Seven", "7@example.org", "", mod_level=ADMINISTRATOR))
        assert ids_of(storage.users.administrators()) == [first.id, 7]


class TestPictures:
    @pytest.fixture
    def grace(self, storage) -> User:
        """An imported player without a picture."""
        user = imported(70, "Grace")
        storage.users.insert(user)
        return user

    def test_saved_picture_replaces_the_old_one(self, storage, ada):
        before = time.time()
        timestamp = storage.pictures.save(ada.id, PICTURE)
        assert storage.users.read(ada.id).pfp_timestamp == timestamp
        for size, content in PICTURE.items():
            read, written = storage.pictures.read(size, f"{ada.id}-{timestamp}.webp")
            assert read == content
            assert before - TICK < written <= time.time()
        require_no_picture(storage, ada.picture_file)

    def test_picture_timestamp_grows_if_the_clock_does_not(self, storage, ada):
        saved = [ada.pfp_timestamp, *(storage.pictures.save(ada.id, PICTURE) for _ in range(5))]
        assert saved == sorted(set(saved))
        in_an_hour = now_ms() + 3_600_000
        edit(storage, ada.id, pfp_timestamp=in_an_hour)
        assert storage.pictures.save(ada.id, PICTURE) == in_an_hour + 1

    def test_racing_saves_leave_one_whole_picture(self, storage, ada):
        pictures = [dict.fromkeys(PICTURE_SIZES, b"%d" % n) for n in range(6)]
        timestamps = together(lambda picture: storage.pictures.save(ada.id, picture), pictures)
        newest = max(timestamps)
        assert len(set(timestamps)) == 6
        assert storage.users.read(ada.id).pfp_timestamp == newest
        for size in PICTURE_SIZES:
            read, _ = storage.pictures.read(size, f"{ada.id}-{newest}.webp")
            assert read == b"%d" % timestamps.index(newest)
        for old in {ada.pfp_timestamp, *timestamps} - {newest}:
            require_no_picture(storage, f"{ada.id}-{old}.webp")

    def test_missing_picture_is_generated(self, storage, grace):
        for size in PICTURE_SIZES:
            first, written = storage.pictures.read(size, "70.webp")
            assert first == generate_picture(70)[size]
            assert grace.created / 1000 - TICK < written <= time.time()
            second, third = (storage.pictures.read(size, "70.webp") for _ in range(2))
            assert second == third and second[0] == first  # also when it was drawn
        assert storage.users.read(grace.id) == grace

    def test_saved_picture_replaces_the_generated_one(self, storage, grace):
        storage.pictures.read("small", "70.webp")
        timestamp = storage.pictures.save(grace.id, PICTURE)
        assert storage.pictures.read("small", f"70-{timestamp}.webp")[0] == PICTURE["small"]
        require_no_picture(storage, "70.webp")

    def test_picture_of_a_new_account_is_drawn_and_not_stored(self, storage, ada):
        before = storage.pictures.save(ada.id, PICTURE)
        after = storage.pictures.save(ada.id, None)
        assert ada.pfp_timestamp < before < after == storage.users.read(ada.id).pfp_timestamp
        for size in PICTURE_SIZES:
            drawn = storage.pictures.read(size, f"{ada.id}-{after}.webp")[0]
            assert drawn == generate_picture(ada.id)[size]
        for old in (ada.pfp_timestamp, before):
            require_no_picture(storage, f"{ada.id}-{old}.webp")
        bob = storage.users.register("Bob", "bob@example.org", "")
        assert storage.pictures.read("small", bob.picture_file)
        with storage.snapshot() as snapshot:
            assert [images for user, images in snapshot.users() if user.id == bob.id] == [{}]

    def test_no_picture_is_generated_for_others(self, storage, ada, grace):
        storage.pictures.read("small", "70.webp")
        storage.users.delete(grace.id)
        for name in (f"{ada.id}.webp", "70.webp", "71.webp", f"{ada.id}-5.webp"):
            require_no_picture(storage, name)


def require_no_picture(storage, name: str) -> None:
    for size in PICTURE_SIZES:
        with pytest.raises(errors.NoSuchPicture):
            storage.pictures.read(size, name)


def imported(user_id: int, name: str, pfp_timestamp: int | None = None) -> User:
    return User(user_id, name, f"{name}@example.org", "", pfp_timestamp=pfp_timestamp)


class TestImports:
    def test_imported_users_keep_their_ids_and_are_found(self, storage, ada):
        users = [imported(70, "Grace"), imported(9, "Linus"), imported(10**14 - 1, "Edsger")]
        for user in users:
            storage.users.insert(user)
            assert storage.users.read(user.id) == user
            assert find_all(storage, user.name.upper(), user.email) == [user] * 2
        assert storage.users.ids() == sorted([ada.id, *ids_of(users)])

    def test_import_of_a_taken_id_name_or_email_is_refused(self, storage):
        storage.users.insert(imported(70, "Grace"))
        grace = edit(storage, 70, bio="new")
        for user, refusal in (
            (User(70, "Linus", "grace@example.org", ""), errors.IdTaken),
            (User(70, "Grace", "linus@example.org", ""), errors.IdTaken),
            (User(71, "GRACE", "linus@example.org", ""), errors.NameTaken),
            (User(71, "Linus", "Grace@Example.org", ""), errors.EmailTaken),
            (User(70, "GRACE", "grace@example.org", ""), errors.AlreadyThere),
        ):
            with pytest.raises(refusal):
                storage.users.insert(user)
        assert storage.users.ids() == [70]
        assert find_all(storage, "grace", "grace@example.org") == [grace] * 2
        assert find_all(storage, "linus", "linus@example.org") == [None] * 2

    def test_import_of_a_deleted_users_id_is_refused(self, storage, ada):
        storage.users.delete(ada.id)
        with pytest.raises(errors.IdTaken):
            storage.users.insert(imported(ada.id, "Ada"))
        assert storage.users.ids() == []

    def test_reserved_ids_are_not_given(self, storage):
        storage.users.reserve_ids(0)
        assert storage.users.is_new()
        assert storage.users.register("Ada", "ada@example.org", "").id == 1
        storage.users.reserve_ids(5000)
        assert not storage.users.is_new()
        assert storage.users.register("Bob", "bob@example.org", "").id == 5001
        storage.users.reserve_ids(70)
        assert storage.users.register("Cleo", "cleo@example.org", "").id == 5002

    def test_racing_sign_ups_and_imports_give_a_name_once(self, storage):
        def arrive(number: int) -> errors.StorageError | None:
            if number % 2:
                storage.users.insert(imported(100 + number, "Grace"))
            else:
                storage.users.register("Grace", "grace@example.org", "")

        storage.users.reserve_ids(200)
        types = [type(each) for each in together(arrive, range(6))]
        assert types.count(type(None)) == 1
        # All have one email address as well; another may be added between the two checks.
        assert set(types) <= {type(None), errors.NameTaken, errors.EmailTaken}
        [user_id] = storage.users.ids()
        assert storage.users.find_by_login("Grace").id == user_id

    def test_imported_user_may_have_a_picture(self, storage):
        for user in (imported(70, "Grace"), imported(71, "Linus", 1_700_000_000_000)):
            storage.users.insert(user, PICTURE)
            for size, content in PICTURE.items():
                assert storage.pictures.read(size, user.picture_file)[0] == content


class TestRenames:
    def test_renamed_user_is_found_by_the_new_name_only(self, storage, ada):
        renamed = storage.users.rename(ada.id, "Grace")
        assert renamed == dataclasses.replace(ada, name="Grace") == storage.users.read(ada.id)
        assert find_all(storage, "grace", "Ada") == [renamed, None]
        free_name(storage, "Ada")
        other = storage.users.register("Ada", "other@example.org", "")
        assert find_all(storage, "Grace", "Ada") == [renamed, other]

    def test_own_name_and_email_may_be_spelled_differently(self, storage, ada):
        assert storage.users.rename(ada.id, "Ada") == ada
        assert storage.users.rename(ada.id, " ＡＤＡ ").name == "ADA"
        changed = storage.users.change_email(ada.id, "Ada@Example.org")
        assert (changed.name, changed.email) == ("ADA", "Ada@Example.org")
        assert find_all(storage, "Ada", "ada@example.org") == [changed] * 2
        assert storage.users.read(ada.id) == changed

    def test_changed_email_address_replaces_the_old_one(self, storage, ada):
        changed = storage.users.change_email(ada.id, "Countess@example.org")
        assert changed == dataclasses.replace(ada, email="Countess@example.org")
        assert find_all(storage, "countess@example.org", "Ada") == [changed] * 2
        assert storage.users.find_by_login("ada@example.org") is None
        other = storage.users.register("Other", "ada@example.org", "")
        assert storage.users.find_by_login("ada@example.org") == other

    def test_any_number_of_users_have_no_email(self, storage, ada, bob):
        for user in (ada, bob):
            assert storage.users.change_email(user.id, " ").email == ""
        storage.users.change_email(ada.id, "")  # no email is no change either
        carol = storage.users.register("Carol", "", "")
        dora = dataclasses.replace(carol, id=77, name="Dora")
        storage.users.insert(dora)
        with pytest.raises(errors.AlreadyThere):
            storage.users.require_new(dora)
        assert [each.email for each in find_all(storage, "ada", "bob", "carol", "dora")] == [""] * 4
        assert find_all(storage, "", "@", "ada@example.org", "bob@example.org") == [None] * 4
        assert storage.users.change_email(bob.id, "ada@example.org").id == bob.id
        with pytest.raises(errors.EmailTaken):
            storage.users.change_email(carol.id, "ada@example.org")

    def test_refused_name_or_email_changes_nothing(self, storage, ada, bob):
        for name, error in (
            *(("bob", errors.NameTaken), ("ＢＯＢ", errors.NameTaken)),
            *(("B", errors.InvalidField), ("root", errors.InvalidField)),
        ):
            with pytest.raises(error):
                storage.users.rename(ada.id, name)
        for email, error in (
            *(
                ("BOB@example.org", errors.EmailTaken),
                ("bob", errors.InvalidField),
                ("@", errors.InvalidField),
            ),
        ):
            with pytest.raises(error):
                storage.users.change_email(ada.id, email)
        assert find_all(storage, "Ada", "ada@example.org") == [ada] * 2
        assert find_all(storage, "Bob", "bob@example.org") == [bob] * 2

    def test_deleted_user_is_gone_and_blocks_nothing(self, storage, ada, bob):
        timestamp = storage.pictures.save(ada.id, PICTURE)
        storage.users.delete(ada.id)
        with pytest.raises(errors.NoSuchUser):
            storage.users.read(ada.id)
        assert find_all(storage, "Ada", "ada@example.org") == [None] * 2
        assert storage.users.ids() == [bob.id]
        require_no_picture(storage, f"{ada.id}-{timestamp}.webp")
        again = storage.users.register("Ada Two", "ada@example.org", "")
        assert find_all(storage, "Ada Two", "Bob") == [again, bob]

    def test_racing_deletions_delete_once(self, storage, ada):
        results = together(storage.users.delete, [ada.id] * 4)
        types = sorted(type(result).__name__ for result in results)
        assert types == ["NoSuchUser"] * 3 + ["NoneType"]
