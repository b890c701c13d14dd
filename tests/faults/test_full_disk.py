"""What goes on and what is refused where a real disk is full, by bytes or by files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import MOUNTS
from operations import (
    ADA,
    FIRST_START,
    OLD_PICTURE,
    OPERATIONS,
    Installation,
    names_of,
    picture_of,
    prepare,
    small_disk,
    write_in_place,
)

from storage import DamagedRecord, StorageFull, TooManyAttempts
from storage.flat_files import disk as disk_files

pytestmark = [pytest.mark.faults, MOUNTS]

PAGE = 4096  # bytes: what a tmpfs gives and takes
ON_EXISTING = OPERATIONS.keys() - {FIRST_START}
# A full disk still renames, and makes empty files where there is a free one. (A client that is
# deleted needs an audit line: there is room for it in the last page of the log.)
NEEDS_NOTHING = {
    "bytes": {"spending a code", "deleting an account", "deleting a client"},
    "files": {"spending a code", "deleting a client"},
}


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    with small_disk(tmp_path, files=200) as folder:
        yield folder


@pytest.fixture
def there(disk, clock) -> Installation:
    clock.begin_window()  # else one may begin in a test, and needs a folder
    installation = Installation(disk)
    prepare(installation.open())
    return installation


def fill_bytes(disk: Path, but: int = 0) -> None:
    """Leave no byte, or some whole pages."""
    with open(disk / "filler", "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(PAGE))
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - but)


def fill_files(disk: Path) -> None:
    """Leave room in every file, and for none more."""
    with pytest.raises(OSError):
        for n in range(1000):
            (disk / f"filler {n}").touch(exist_ok=False)


def make_room(disk: Path) -> None:
    for path in disk.glob("filler*"):
        path.unlink()


FILL = {"bytes": fill_bytes, "files": fill_files}


@pytest.mark.parametrize("full", FILL)
@pytest.mark.parametrize("name", sorted(ON_EXISTING))
def test_a_full_disk_raises_and_keeps_the_old_record(disk, there, name, full):
    operation = OPERATIONS[name]
    storage = there.open()
    FILL[full](disk)
    before = there.files()
    if name in NEEDS_NOTHING[full]:
        operation.act(storage)
    else:
        with pytest.raises(StorageFull):
            operation.act(storage)
        assert operation.state(storage) == operation.old
        assert there.files() == before
        make_room(disk)
        operation.act(storage)
    assert operation.state(storage) == operation.new


@pytest.mark.parametrize("full", FILL)
def test_reading_and_starting_go_on_on_a_full_disk(disk, there, full):
    FILL[full](disk)
    storage = there.open()
    assert names_of("Ada", "bob@example.org")(storage) == ["Ada", "Bob"]
    assert picture_of(storage) == OLD_PICTURE
    assert [client.name for client in map(storage.read_client, storage.client_ids())] == ["Chess"]
    assert storage.read_code("an old code").user_id == ADA
    assert storage.keys()


@pytest.mark.parametrize("full", FILL)
def test_an_installation_that_could_not_be_made_can_be_made_later(disk, full):
    FILL[full](disk)
    if full == "bytes":
        with pytest.raises(StorageFull):
            Installation(disk).open()
    else:
        os.unlink(disk / "filler 0")  # room for the folder, and for nothing in it
        with pytest.raises(StorageFull):
            Installation(disk).open()
    make_room(disk)
    prepare(Installation(disk).open())


@pytest.mark.parametrize("full", FILL)
def test_attempts_are_counted_and_returned_on_a_full_disk(disk, there, full):
    storage = there.open()
    FILL[full](disk)
    attempts = [storage.count_attempt("password", "ada", limit=6) for _ in range(5)]
    with pytest.raises(TooManyAttempts):
        storage.count_attempt("password", "ada", limit=6)
    storage.give_back_attempt(attempts[0])
    storage.count_attempt("password", "ada", limit=6)


def test_a_new_subject_is_counted_while_an_inode_is_free(disk, there):
    storage = there.open()
    fill_bytes(disk)
    storage.count_attempt("password", "bob", limit=1)
    with pytest.raises(TooManyAttempts):
        storage.count_attempt("password", "bob", limit=1)


def test_an_attempt_that_cannot_be_counted_raises(disk, there):
    storage = there.open()
    fill_files(disk)
    with pytest.raises(StorageFull):
        storage.count_attempt("password", "bob", limit=1)


def test_a_record_that_fits_in_part_is_refused(disk, there):
    storage = there.open()
    fill_bytes(disk, but=PAGE)
    before = there.files()
    with pytest.raises(StorageFull), storage.edit_user(ADA) as user:
        user.bio = "☃" * 1000
        user.flairs += ["a long list of flairs"] * 100
    assert storage.read_user(ADA).bio == ""
    assert there.files() == before


def test_an_audit_line_that_fits_in_part_is_rolled_back(disk, there):
    log = there.data / "audit.log"
    line = log.read_bytes()
    log.write_bytes((line * PAGE)[len(line) * PAGE - PAGE + 20 :])  # 20 bytes short of a page
    storage = there.open()
    fill_bytes(disk)
    before = log.read_bytes()
    with pytest.raises(StorageFull):
        storage.write_audit("act", "command")
    assert log.read_bytes() == before


def test_a_record_written_in_place_fails_the_tests(disk, there, monkeypatch):
    """The tests above can fail."""
    storage = there.open()
    fill_bytes(disk)
    monkeypatch.setattr(disk_files, "write_file", write_in_place)
    with pytest.raises(StorageFull), storage.edit_user(ADA) as user:
        user.flairs += ["a long list of flairs"] * 1000
    with pytest.raises(DamagedRecord):
        storage.read_user(ADA)
