"""A kind of records that this module alone declares: what storage does with a kind holds for it.

Its players' notes have a title that is unique, an owner with whom they go, and an end.
"""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from backends import FLAT_FILES

from storage import Storage, kinds
from storage.archive import backup, restore
from storage.copying import copy
from storage.errors import AlreadyThere, InvalidField, KeyTaken, NotFound, StorageError
from storage.kinds import DAY_MS, Index, Kind, Unique
from storage.records import now_ms, sha256
from storage.repositories import Records

pytestmark = pytest.mark.contract
NEVER = 10**14  # milliseconds
LOCKS = 4


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
    locks=LOCKS,
)
ADA = 1
IDS = [letter * 16 for letter in "abcdef"]


@pytest.fixture(autouse=True)
def _declared(monkeypatch) -> None:
    monkeypatch.setattr(kinds, "KINDS", [*kinds.KINDS, NOTES])


@pytest.fixture
def notes(storage) -> Records[Note]:
    """The notes of an installation with one player, Ada."""
    storage.users.register("Ada", "ada@example.org", "")
    return storage.records(NOTES)


def write(notes: Records[Note], *titles: str | None, owner: int = ADA) -> list[Note]:
    """Add notes with these titles, and return them."""
    written = [Note(note_id, each, owner) for note_id, each in zip(IDS, titles, strict=False)]
    for each in written:
        notes.add(each)
    return written


def together(*acts) -> list:
    """Return what each act returns, or the StorageError that it raises, in racing threads."""
    barrier = threading.Barrier(len(acts))

    def race(act):
        barrier.wait()
        try:
            return act()
        except StorageError as error:
            return error

    with ThreadPoolExecutor(len(acts)) as threads:
        return list(threads.map(race, acts))


def test_a_record_is_read_as_added(notes):
    [note] = write(notes, "Chess")
    assert notes.read(note.id) == notes.find(note.id) == notes.find_by("title", "Chess") == note
    assert notes.ids() == [note.id]
    assert notes.existing([note.id, "f" * 16, "no id"]) == {note.id}
    assert notes.read_from_many(["f" * 16, note.id], repr) == [repr(note)]


@pytest.mark.parametrize("note_id", ["f" * 16, "no id", "../notes", "a" * 99])
def test_an_unknown_id_has_no_record(notes, note_id):
    write(notes, "Chess")
    for act in (notes.read, notes.delete, lambda each: notes.edit(each).__enter__()):
        with pytest.raises(NoSuchNote):
            act(note_id)
    assert notes.find(note_id) is None


def test_an_id_or_a_key_that_is_taken_is_refused(notes):
    [note] = write(notes, "Chess")
    with pytest.raises(AlreadyThere):
        notes.add(Note(note.id, "Go", ADA))
    with pytest.raises(TitleTaken) as refused:
        notes.add(Note(IDS[1], "Chess", ADA))
    assert refused.value.other == note
    with pytest.raises(InvalidField):
        notes.add(Note(IDS[1], "Go", ADA, text="0123456789"))
    assert notes.ids() == [note.id] and notes.read(note.id) == note


def test_records_without_a_unique_key_are_many(notes):
    written = write(notes, None, None, None)
    assert notes.page("writer", "1") == written


def test_an_edit_moves_both_keys(storage, notes):
    chess, _ = write(notes, "Chess", "Go")
    with notes.edit(chess.id, {"title"}) as note:
        note.title, note.owner, note.text = "Checkers", 7, "Draughts"
    assert notes.find_by("title", "Chess") is None
    assert notes.find_by("title", "Checkers") == notes.read(chess.id) == note
    assert notes.page("writer", "7") == [note]
    assert [each.title for each in notes.page("writer", "1")] == ["Go"]


def test_a_refused_edit_changes_nothing(notes):
    chess, go = write(notes, "Chess", "Go")

    def edit(changes: set[str], **values: object) -> None:
        with notes.edit(chess.id, changes) as note:
            for name, value in values.items():
                setattr(note, name, value)

    with pytest.raises(TitleTaken):
        edit({"title"}, title="Go", text="new")
    for changes, values in (
        (set(), {"title": "Checkers"}),  # not announced
        ({"title"}, {"id": IDS[4]}),
        (set(), {"text": 7}),
    ):
        with pytest.raises(ValueError, match="not changed by|wrong type"):
            edit(changes, **values)
    with pytest.raises(InvalidField):
        edit(set(), text="0123456789")
    assert notes.page("writer", "1") == [chess, go]


def test_a_deleted_record_frees_its_keys(notes):
    [note] = write(notes, "Chess")
    seen = []
    notes.delete(note.id, seen.append)
    assert (seen, notes.ids(), notes.page("writer", "1")) == ([note], [], [])
    assert write(notes, "Chess") == [note]


def test_pages_go_up_and_down(notes):
    written = write(notes, *"abcdef")
    assert notes.page("writer", "1", after=IDS[1], at_most=2) == written[2:4]
    assert notes.page("writer", "1", IDS[2], 2, newest_first=True) == [written[1], written[0]]
    assert notes.page("writer", "1", newest_first=True, at_most=1) == [written[5]]
    assert notes.page("writer", "1", at_most=0) == notes.page("writer", "1", after=IDS[5]) == []
    assert (notes.ids(after=IDS[3]), notes.ids(IDS[3], 1)) == (IDS[4:], IDS[4:5])
    assert [notes.count("writer", "1", most) for most in (2, 9)] == [2, 6]


def test_a_record_goes_with_its_owner(storage, notes):
    write(notes, "Chess", "Go")
    other = Note(IDS[2], "Shogi", 2)
    notes.add(other)
    storage.users.delete(ADA)
    assert notes.ids() == [other.id]


def test_a_record_of_nobody_is_found_and_removed(storage, notes):
    write(notes, "Chess", owner=77)
    [problem] = storage.verify()
    assert problem.problem.startswith("belongs to users/77") and "is gone" in problem.problem
    [problem] = storage.verify(repair=True)
    assert problem.repaired == "removed"
    assert (notes.ids(), list(storage.verify())) == ([], [])


def test_an_expired_record_does_not_count_and_is_removed_by_an_add(storage, notes):
    for note_id, expires in zip(IDS, (now_ms() - 1, now_ms() - 3 * DAY_MS, NEVER), strict=False):
        notes.add(Note(note_id, None, ADA, expires=expires))
    assert [each.id for each in notes.page("writer", "1")] == [IDS[2]]
    assert notes.find(IDS[0]) is None and notes.find(IDS[1]) is None
    again = storage.records(NOTES)  # one that has not cleaned in the last minute
    again.add(Note(IDS[3], None, ADA))
    assert again.ids() == [IDS[0], IDS[2], IDS[3]]  # the first has expired today
    assert list(storage.verify()) == []


def test_one_of_racing_adds_gets_a_key_and_one_an_id(notes):
    titles = together(*(lambda n=n: notes.add(Note(n * 16, "Chess", ADA)) for n in "01234567"))
    ids = together(*(lambda n=n: notes.add(Note("9" * 16, n, ADA)) for n in "01234567"))
    assert sorted(map(type, titles), key=str).count(TitleTaken) == titles.count(None) + 6 == 7
    assert sorted(map(type, ids), key=str).count(AlreadyThere) == ids.count(None) + 6 == 7


def test_one_of_racing_edits_gets_a_key(notes, monkeypatch):
    """The records have different locks: the lock of the kind has to be held as well."""
    write(notes, *"abcdef")
    inside = threading.Barrier(2)

    def wait_for_another(note: Note) -> None:
        """Between the look at the key and the save."""
        with contextlib.suppress(threading.BrokenBarrierError):
            inside.wait(0.1)

    monkeypatch.setattr(notes, "tidy", wait_for_another)

    def rename(note_id: str) -> None:
        with notes.edit(note_id, {"title"}) as note:
            note.title = "Chess"

    results = together(*(lambda each=each: rename(each) for each in IDS))
    assert (results.count(None), len({str(each) for each in results})) == (1, 2)
    assert [each.title for each in notes.page("writer", "1")].count("Chess") == 1


def test_edits_of_one_record_run_one_after_the_other(notes):
    [note] = write(notes, "Chess")

    def add_one() -> None:
        with notes.edit(note.id) as edited:
            edited.text += "x"

    together(*[add_one] * 8)
    assert notes.read(note.id).text == "x" * 8


def test_a_copy_to_files_has_it(storage, notes, tmp_path):
    write(notes, "Chess", "Go")
    back = FLAT_FILES.open(str(tmp_path / "copy"), str(tmp_path / "copy pictures"))
    copy(storage, back)
    assert back.records(NOTES).page("writer", "1") == notes.page("writer", "1")
    assert back.records(NOTES).find_by("title", "Go") == notes.find_by("title", "Go")
    assert list(back.verify()) == []


def test_a_copy_from_files_has_it(storage, tmp_path):
    source = FLAT_FILES.open(str(tmp_path / "source"), str(tmp_path / "source pictures"))
    source.users.register("Ada", "ada@example.org", "")
    written = write(source.records(NOTES), "Chess", "Go")
    copy(source, storage)
    assert storage.records(NOTES).page("writer", "1") == written
    assert list(storage.verify()) == []


@pytest.fixture
def empty(backend, tmp_path, unsynced, drawn_once) -> Storage:
    """Another installation on the same backend."""
    return backend.open(str(tmp_path / "empty"), str(tmp_path / "empty pictures"))


def test_a_backup_has_it(storage, notes, empty, tmp_path):
    written = write(notes, "Chess", "Go")
    backup(storage, str(tmp_path / "backup.tar.gz"), "command")
    restore(empty, str(tmp_path / "backup.tar.gz"), "command")
    assert empty.records(NOTES).page("writer", "1") == written
    assert empty.records(NOTES).find_by("title", "Chess") == written[0]
    assert list(empty.verify()) == []


def test_a_backup_leaves_out_what_breaks_a_rule_that_must_hold(storage, notes, empty, tmp_path):
    notes.add(Note(IDS[0], "Chess", ADA, text="bad"))
    reported = []
    backup(storage, str(tmp_path / "backup.tar.gz"), "command", report=reported.append)
    assert [f"notes/{IDS[0]}" in line and "left out" in line for line in reported] == [True]
    restore(empty, str(tmp_path / "backup.tar.gz"), "command")
    assert empty.records(NOTES).ids() == []


@pytest.fixture
def spoil(storage) -> Callable[[], None]:
    """A function that makes the keys of all notes wrong, behind the server's back."""

    def spoil() -> None:
        if hasattr(storage, "layout"):
            data = Path(storage.layout.data_dir)
            for path in [*data.glob("titles/*"), *data.glob("index/notes/*/*/*")]:
                path.unlink()
        else:
            with storage.database.transaction():
                storage.database.save("UPDATE notes SET title = 'x' || id, writer = NULL")

    return spoil


def test_check_finds_wrong_keys_and_a_repair_mends_them(storage, notes, spoil):
    written = write(notes, "Chess", "Go")
    spoil()
    assert notes.page("writer", "1") == []
    assert notes.find_by("title", "Chess") is None
    found = list(storage.verify())
    assert found and all(each.repaired is None for each in found)
    assert all(each.repaired for each in storage.verify(repair=True))
    assert list(storage.verify()) == []
    assert notes.page("writer", "1") == written
    assert notes.find_by("title", "Chess") == written[0]


def test_an_entry_that_its_record_does_not_bear_finds_nothing(folders, unsynced):
    """Of flat files: a database keeps the keys in the row of the record."""
    notes = FLAT_FILES.open(*folders).records(NOTES)
    [note] = write(notes, "Chess")
    data = Path(folders[0])
    (data / "index/notes/writer/2").mkdir()
    (data / f"index/notes/writer/2/{note.id}").touch()
    (data / f"titles/{sha256('Go')}").symlink_to(f"../notes/{note.id}.json")
    assert (notes.page("writer", "2"), notes.find_by("title", "Go")) == ([], None)
    notes.add(Note(IDS[1], "Go", ADA))
    assert notes.find_by("title", "Go").id == IDS[1]


def test_an_installation_gets_what_a_new_kind_needs(backend, folders, unsynced, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(kinds, "KINDS", kinds.KINDS[:-1])
        backend.open(*folders).users.register("Ada", "ada@example.org", "")
    notes = backend.open(*folders).records(NOTES)
    assert write(notes, "Chess") == notes.page("writer", "1")


@pytest.mark.parametrize("kind", [*kinds.KINDS, NOTES], ids=lambda kind: kind.name)
def test_keys_follow_from_the_declared_fields_alone(kind, storage):
    """Else an edit would leave the entries of a key as they were."""
    samples = {
        "users": lambda: storage.users.new("Ada", "ada@example.org", "", 2, "an invitation"),
        "clients": lambda: kinds.Client(
            "c" * 24, "Chess", "", [], 1, game_url="https://chess.example/", listed=True
        ),
        "invites": lambda: kinds.Invite("0" * 64, 5),
        "notes": lambda: Note(IDS[0], "Chess", ADA),
    }
    for key in kind.keys:
        record, value = samples[kind.name](), key.of(samples[kind.name]())
        assert value is not None
        for name in set(type(record).__slots__) - key.fields - {"id"}:
            other = samples[kind.name]()
            setattr(other, name, {str: "x", int: 7, bool: True}.get(type(getattr(other, name))))
            assert key.of(other) == value, (key.name, name)
