"""A kind of records that these tests alone declare: what storage does with a kind holds for it.

Its players' notes have a title that is unique, an owner with whom they go, and an end.
"""

import contextlib
import threading
from dataclasses import dataclass, replace

import pytest

from model import kinds
from model.errors import AlreadyThere, InvalidField, KeyTaken, NotFound
from model.kind import DAY_MS, Index, Kind, Unique
from model.records import now_ms
from storage import find_upgrade
from storage.repositories import Records
from storage.whole.archive import backup, restore

from .base import ids_of, together

NEVER = 10**14  # milliseconds
ADA = 1
IDS = [letter * 16 for letter in "abcdef"]


@dataclass(slots=True)
class Note:
    """What a player wrote down."""

    id: str
    title: str | None
    owner: int
    text: str = ""
    expires: int = NEVER


class NoSuchNote(NotFound):
    """No note has this id."""


class TitleTaken(KeyTaken):
    """Another note has this title."""

    field, problem = "title", "Another note has this title."


NOTES = Kind(
    "notes",
    "note",
    Note,
    kinds.rules.CLIENT_ID,
    NoSuchNote,
    unique=(Unique("title", "titles", lambda note: note.title, TitleTaken, {"title"}),),
    indexes=(Index("writer", lambda note: str(note.owner), {"owner"}, dies_with="users"),),
    rules=lambda note: {"text": lambda text: "Too long." if len(text) > 9 else None},
    must_hold=lambda note: {"text": lambda text: "Bad." if text == "bad" else None},
    expires=lambda note: note.expires,
    locks=4,
)


def write(notes: Records[Note], *titles: str | None, owner: int = ADA) -> list[Note]:
    written = [Note(note_id, each, owner) for note_id, each in zip(IDS, titles, strict=False)]
    for each in written:
        notes.add(each)
    return written


class TestKinds:
    @pytest.fixture(autouse=True)
    def _declared(self, backend, monkeypatch) -> None:  # after the tables of the template
        monkeypatch.setattr(kinds, "KINDS", [*kinds.KINDS, NOTES])

    @pytest.fixture
    def notes(self, storage) -> Records[Note]:
        """The notes of an installation with one player, Ada."""
        storage.users.register("Ada", "ada@example.org", "")
        return storage.records(NOTES)

    def test_record_is_read_as_added(self, notes):
        [note] = write(notes, "Chess")
        assert notes.read(note.id) == notes.find(note.id) == notes.find_by("title", "Chess") == note
        assert notes.ids() == [note.id]
        assert notes.existing([note.id, "f" * 16, "no id"]) == {note.id}
        assert notes.read_from_many(["f" * 16, note.id], repr) == [repr(note)]

    def test_unknown_id_has_no_record(self, notes, subtests):
        write(notes, "Chess")
        for note_id in (
            *("f" * 16, "no id", "../notes", "../users/1", "..", "", "A" * 24, "a" * 65, "a" * 99),
            *("a\n", "\x00" * 24, "é" * 24),
        ):
            for act in (notes.read, notes.delete, lambda each: notes.edit(each).__enter__()):
                with subtests.test(ascii(note_id)), pytest.raises(NoSuchNote):
                    act(note_id)
            assert notes.find(note_id) is None

    def test_taken_id_or_key_is_refused(self, notes):
        [note] = write(notes, "Chess")
        with pytest.raises(AlreadyThere):
            notes.add(Note(note.id, "Go", ADA))
        with pytest.raises(TitleTaken) as refused:
            notes.add(Note(IDS[1], "Chess", ADA))
        assert refused.value.other == note
        with pytest.raises(InvalidField):
            notes.add(Note(IDS[1], "Go", ADA, text="0123456789"))
        assert notes.ids() == [note.id] and notes.read(note.id) == note

    def test_edit_moves_both_keys(self, notes):
        chess, _ = write(notes, "Chess", "Go")
        with notes.edit(chess.id, {"title"}) as note:
            note.title, note.owner, note.text = "Checkers", 7, "Draughts"
        assert notes.find_by("title", "Chess") is None
        assert notes.find_by("title", "Checkers") == notes.read(chess.id) == note
        assert notes.page("writer", "7") == [note]
        assert [each.title for each in notes.page("writer", "1")] == ["Go"]

    def test_refused_edit_changes_nothing(self, notes):
        chess, go = write(notes, "Chess", "Go")
        for changes, values, error in (
            ({"title"}, {"title": "Go", "text": "new"}, TitleTaken),
            (set(), {"title": "Checkers"}, ValueError),  # not announced
            ({"title"}, {"id": IDS[4]}, ValueError),
            (set(), {"text": 7}, ValueError),
            (set(), {"text": "0123456789"}, InvalidField),
        ):
            with pytest.raises(error), notes.edit(chess.id, changes) as note:
                for name, value in values.items():
                    setattr(note, name, value)
        assert notes.page("writer", "1") == [chess, go]

    def test_deleted_record_frees_its_keys(self, notes):
        [note] = write(notes, "Chess")
        seen = []
        notes.delete(note.id, seen.append)
        assert (seen, notes.ids(), notes.page("writer", "1")) == ([note], [], [])
        assert write(notes, "Chess") == [note]

    def test_pages_in_both_directions(self, notes):
        written = write(notes, *"abcdef")
        assert notes.page("writer", "1", after=IDS[1], at_most=2) == written[2:4]
        assert notes.page("writer", "1", IDS[2], 2, newest_first=True) == [written[1], written[0]]
        assert notes.page("writer", "1", newest_first=True, at_most=1) == [written[5]]
        assert notes.page("writer", "1", at_most=0) == notes.page("writer", "1", after=IDS[5]) == []
        assert (notes.ids(after=IDS[3]), notes.ids(IDS[3], 1)) == (IDS[4:], IDS[4:5])
        assert [notes.count("writer", "1", most) for most in (2, 9)] == [2, 6]

    def test_records_between_two_keys(self, notes, subtests):
        """The keys of the index "writer" are ids of players here, of one digit each."""
        owners = dict(zip(IDS, [1, 3, 2, 3, 5, 4], strict=True))
        written = [Note(note_id, None, owner) for note_id, owner in owners.items()]
        for each in written:
            notes.add(each)
        up = [written[each] for each in (0, 2, 1, 3, 5, 4)]
        assert notes.between("writer", "1", "9", newest_first=False) == up
        assert notes.between("writer", "1", "9") == up[::-1]
        assert notes.between("writer", "2", "4", newest_first=False) == up[1:5]
        assert notes.between("writer", "6", "9") == notes.between("writer", "4", "2") == []
        assert notes.count_between("writer", "2", "4") == 4
        for newest_first, order in ((False, up), (True, up[::-1])):
            for start in range(5):
                with subtests.test(newest_first=newest_first, start=start):
                    place = str(order[start].owner), order[start].id
                    found = notes.between("writer", "1", "9", place, 2, newest_first)
                    assert found == order[start + 1 : start + 3]
        notes.delete(written[1].id)
        assert notes.between("writer", "3", "3") == [written[3]]
        assert notes.count_between("writer", "3", "3") == 1

    def test_record_is_deleted_with_its_owner(self, storage, notes):
        write(notes, "Chess", "Go")
        other = Note(IDS[2], "Shogi", 2)
        notes.add(other)
        storage.users.delete(ADA)
        assert notes.ids() == [other.id]

    def test_record_of_an_unknown_owner_is_removed_by_a_repair(self, storage, notes):
        write(notes, "Chess", owner=77)
        [problem] = storage.verify()
        assert problem.problem.startswith("belongs to users/77") and "is gone" in problem.problem
        [problem] = storage.verify(repair=True)
        assert problem.repaired == "removed"
        assert (notes.ids(), list(storage.verify())) == ([], [])

    def test_expired_record_is_ignored_and_removed(self, storage, notes, open_installation):
        ends = now_ms() - 1, now_ms() - 3 * DAY_MS, NEVER
        for note_id, expires in zip(IDS, ends, strict=False):
            notes.add(Note(note_id, None, ADA, expires=expires))
        assert ids_of(notes.page("writer", "1")) == [IDS[2]]
        assert notes.find(IDS[0]) is None and notes.find(IDS[1]) is None
        again = open_installation().records(NOTES)  # has not cleaned in the last minute
        again.add(Note(IDS[3], None, ADA))
        assert again.ids() == [IDS[0], IDS[2], IDS[3]]  # the first has expired today
        assert list(storage.verify()) == []

    def test_racing_adds_give_a_key_and_an_id_once(self, notes):
        titles = together(lambda n: notes.add(Note(n * 16, "Chess", ADA)), "01234567")
        ids = together(lambda n: notes.add(Note("9" * 16, n, ADA)), "01234567")
        for results, error in ((titles, TitleTaken), (ids, AlreadyThere)):
            assert results.count(None) == 1
            assert [type(each) for each in results].count(error) == 7

    def test_racing_edits_give_a_key_once(self, notes, monkeypatch):
        """The records have different locks: the lock of the kind has to be held as well."""
        write(notes, *"abcdef")
        inside = threading.Barrier(2)

        def wait_for_another(note: Note, before: dict) -> None:
            """Between the check of the key and the save."""
            with contextlib.suppress(threading.BrokenBarrierError):
                inside.wait(0.1)

        monkeypatch.setattr(notes, "before_save", wait_for_another)

        def rename(note_id: str) -> None:
            with notes.edit(note_id, {"title"}) as note:
                note.title = "Chess"

        results = together(rename, IDS)
        assert (results.count(None), len({str(each) for each in results})) == (1, 2)
        assert [each.title for each in notes.page("writer", "1")].count("Chess") == 1

    def test_edits_of_one_record_are_serialized(self, notes):
        [note] = write(notes, "Chess")

        def add_one(_: int) -> None:
            with notes.edit(note.id) as edited:
                edited.text += "x"

        together(add_one, range(8))
        assert notes.read(note.id).text == "x" * 8

    def test_backup_has_valid_records(self, storage, notes, empty, tmp_path):
        """A record that breaks a rule that must hold is reported and left out."""
        [chess] = write(notes, "Chess")
        notes.add(Note(IDS[1], "Go", ADA, text="bad"))
        path, reported = str(tmp_path / "backup.tar.gz"), []
        backup(storage, path, "command", report=reported.append)
        [line] = reported
        assert f"notes/{IDS[1]}" in line and "left out" in line
        restore(empty, path, "command")
        assert empty.records(NOTES).page("writer", "1") == [chess]
        assert empty.records(NOTES).find_by("title", "Chess") == chess
        assert list(empty.verify()) == []

    def test_repair_restores_missing_keys(self, storage, notes, stored):
        written = write(notes, "Chess", "Go")
        stored.remove_keys_of_notes()
        assert notes.page("writer", "1") == []
        assert notes.find_by("title", "Chess") is None
        found = list(storage.verify())
        assert found and all(each.repaired is None for each in found)
        assert all(each.repaired for each in storage.verify(repair=True))
        assert list(storage.verify()) == []
        assert notes.page("writer", "1") == written
        assert notes.find_by("title", "Chess") == written[0]

    def test_new_kind_is_added_to_an_installation(self, open_installation, monkeypatch):
        with monkeypatch.context() as earlier:
            earlier.setattr(kinds, "KINDS", kinds.KINDS[:-1])
            open_installation().users.register("Ada", "ada@example.org", "")
        notes = open_installation().records(NOTES)
        assert write(notes, "Chess") == notes.page("writer", "1")

    def test_upgrade_is_foretold_and_changes_nothing_before(
        self, backend, folders, open_installation, monkeypatch
    ):
        place = (*folders, backend.setting(folders[0]))
        with monkeypatch.context() as earlier:
            earlier.setattr(kinds, "KINDS", kinds.KINDS[:-1])
            open_installation().users.register("Ada", "ada@example.org", "")
        for _ in range(2):
            upgrade = find_upgrade(*place)
            assert (upgrade.kinds, upgrade.keys, upgrade.removed) == (["notes"], {}, [])
        older = replace(NOTES, indexes=())
        with monkeypatch.context() as earlier:
            earlier.setattr(kinds, "KINDS", [*kinds.KINDS[:-1], older])
            write(open_installation().records(older), "Chess", "Go")
        for _ in range(2):
            upgrade = find_upgrade(*place)
            [(key, records)] = upgrade.keys.items()
            assert "writer" in key and records == 2 and upgrade.seconds > 0
            assert upgrade.keeps_way_back and upgrade.kinds == []
        assert len(open_installation().records(NOTES).page("writer", "1")) == 2
        assert find_upgrade(*place).keys == {}
