"""The storage on a disk that is full of bytes or of files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import begin_window
from needs import MOUNTS
from operations import (
    ADA,
    FIRST_START,
    OLD_PICTURE,
    OPERATIONS,
    Installation,
    find_names,
    picture_of,
    prepare,
    small_disk,
)

from storage.errors import StorageFull, TooManyAttempts

pytestmark = [pytest.mark.faults, MOUNTS]

PAGE = 4096  # bytes: the allocation unit of tmpfs
ON_EXISTING = OPERATIONS.keys() - {FIRST_START}
# Operations that a full disk allows: it can rename, and create empty files if files are free.
# (Deleting a client writes an audit line, which fits into the last page of the log.)
NEEDS_NOTHING = {
    "bytes": {"using a code", "deleting an account", "deleting a client"},
    "files": {"using a code", "deleting a client"},
}


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    with small_disk(tmp_path, files=200) as folder:
        yield folder


@pytest.fixture
def installation(disk, clock) -> Installation:
    begin_window(clock)  # else a new time window could start, which needs a folder
    installation = Installation(disk)
    prepare(installation.open())
    return installation


def fill_bytes(disk: Path, but: int = 0) -> None:
    """Fill the disk except for `but` bytes, a number of whole pages."""
    with open(disk / "filler", "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(PAGE))
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - but)


def fill_files(disk: Path) -> None:
    """Use up the files of the disk, but not its bytes."""
    with pytest.raises(OSError):
        for n in range(1000):
            (disk / f"filler {n}").touch(exist_ok=False)


def make_room(disk: Path) -> None:
    for path in disk.glob("filler*"):
        path.unlink()


FILL = {"bytes": fill_bytes, "files": fill_files}


@pytest.mark.parametrize("full", FILL)
@pytest.mark.parametrize("name", sorted(ON_EXISTING))
def test_change_on_a_full_disk_raises_and_keeps_the_old_record(disk, installation, name, full):
    operation = OPERATIONS[name]
    storage = installation.open()
    FILL[full](disk)
    before = installation.files()
    if name in NEEDS_NOTHING[full]:
        operation.act(storage)
    else:
        with pytest.raises(StorageFull):
            operation.act(storage)
        assert operation.state(storage) == operation.old
        assert installation.files() == before
        make_room(disk)
        operation.act(storage)
    assert operation.state(storage) == operation.new


@pytest.mark.parametrize("full", FILL)
def test_full_disk_allows_opening_and_reading(disk, installation, full):
    FILL[full](disk)
    storage = installation.open()
    assert find_names("Ada", "bob@example.org")(storage) == ["Ada", "Bob"]
    assert picture_of(storage) == OLD_PICTURE
    assert [client.name for client in map(storage.clients.read, storage.clients.ids())] == ["Chess"]
    assert storage.codes.read("an old code").user_id == ADA
    assert storage.keys.current()


@pytest.mark.parametrize("full", FILL)
def test_installation_can_be_created_after_a_failed_attempt(disk, full):
    FILL[full](disk)
    if full == "bytes":
        with pytest.raises(StorageFull):
            Installation(disk).open()
    else:
        os.unlink(disk / "filler 0")  # one file is free, for the folder only
        with pytest.raises(StorageFull):
            Installation(disk).open()
    make_room(disk)
    prepare(Installation(disk).open())


@pytest.mark.parametrize("full", FILL)
def test_attempts_are_counted_and_returned_on_a_full_disk(disk, installation, full):
    storage = installation.open()
    FILL[full](disk)
    attempts = [storage.attempts.count("password", "ada", limit=6) for _ in range(5)]
    with pytest.raises(TooManyAttempts):
        storage.attempts.count("password", "ada", limit=6)
    storage.attempts.refund(attempts[0])
    storage.attempts.count("password", "ada", limit=6)


def test_first_attempt_is_counted_if_an_inode_is_free(disk, installation):
    storage = installation.open()
    fill_bytes(disk)
    storage.attempts.count("password", "bob", limit=1)
    with pytest.raises(TooManyAttempts):
        storage.attempts.count("password", "bob", limit=1)


def test_uncounted_attempt_raises_storage_full(disk, installation):
    storage = installation.open()
    fill_files(disk)
    with pytest.raises(StorageFull):
        storage.attempts.count("password", "bob", limit=1)


def test_record_that_fits_only_in_part_is_refused(disk, installation):
    storage = installation.open()
    fill_bytes(disk, but=PAGE)
    before = installation.files()
    with pytest.raises(StorageFull), storage.users.edit(ADA) as user:
        user.bio = "☃" * 1000
        user.flairs += ["a long list of flairs"] * 100
    assert storage.users.read(ADA).bio == ""
    assert installation.files() == before


def test_audit_line_that_fits_only_in_part_is_rolled_back(disk, installation):
    log = installation.data / "audit.log"
    line = log.read_bytes()
    log.write_bytes((line * PAGE)[len(line) * PAGE - PAGE + 20 :])  # 20 bytes less than a page
    storage = installation.open()
    fill_bytes(disk)
    before = log.read_bytes()
    with pytest.raises(StorageFull):
        storage.audit.write("act", "command")
    assert log.read_bytes() == before
