"""Backup, restore and import are killed, and their system calls fail, at every step in turn."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import injection
import pytest
from archive_operations import (
    BACKUP,
    CLEO,
    DORA,
    IMPORT,
    RESTORE,
    archive_of,
    do_backup,
    do_import,
    do_restore,
)
from archives import read_archive
from injection import (
    DYING_DISK,
    ERRORS,
    FAILING_DISK,
    FULL_DISK,
    KILL,
    USED_QUOTA,
    Fault,
    Injector,
    Met,
    Program,
    Step,
)
from needs import STRACE
from operations import ADA, BOB, DONE, FULL, KILLED, Installation, prepare
from test_kills_and_failing_disks import check_bystander
from waiting import PATIENCE, wait_until

from identity.settings import ROOT
from storage import BadInstallation, NoSuchUser, Storage
from storage.archive import backup
from storage.flat_files.disk import locked
from storage.transfer import ImportResult

pytestmark = [pytest.mark.faults, STRACE]
disk, same_calls_each_time = injection.disk, injection.same_calls_each_time
each_fault = pytest.mark.parametrize("fault", [KILL, *ERRORS], ids=lambda fault: fault.name)

NOBODY = 65534  # a user id


@pytest.fixture(scope="module")
def prepared(same_calls_each_time, tmp_path_factory) -> Installation:
    """An installation with Ada and Bob, and without Emmy, who was deleted."""
    installation = Installation(tmp_path_factory.mktemp("prepared"))
    storage = installation.open()
    prepare(storage)
    storage.delete_user(storage.add_user("Emmy", "emmy@example.org", "").id)
    return installation


@pytest.fixture(scope="module")
def nothing(tmp_path_factory) -> Installation:
    """An installation in which nobody is yet."""
    installation = Installation(tmp_path_factory.mktemp("nothing"))
    installation.open()
    return installation


@pytest.fixture(scope="module")
def program(prepared) -> Iterator[Program]:
    storage = prepared.open()
    do_backup(storage)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ARCHIVE", str(archive_of(storage)))
        with Program("archive_operations.py") as program:
            yield program


@pytest.fixture
def injector(program, prepared, nothing, disk, pytestconfig, subtests) -> Injector:
    templates = {RESTORE: nothing, IMPORT: prepared, BACKUP: prepared}
    return Injector(program, templates, disk, pytestconfig, subtests)


def chosen(injector: Injector, name: str, fault: Fault) -> list[Step]:
    """Every step for a kill and for a failing disk: all of these write many records."""
    return injector.chosen_steps(name, fault, is_whole=fault in (KILL, FAILING_DISK))


def problems(storage: Storage) -> list[str]:
    """What `check` finds, without the index entries of users who were not added."""
    found = [f"{each.place} {each.problem}" for each in storage.verify()]
    return [each for each in found if not each.endswith("leads to no user")]


def left_behind(there: Installation) -> list[Path]:
    folders = (path for top in (there.data, there.pictures) for path in top.glob(".*"))
    return [*folders, *there.temporary_files()]


@each_fault
def test_a_restore_that_meets_a_fault_leaves_nobody_or_everybody_and_can_be_repeated(
    injector, fault
):
    for step in chosen(injector, RESTORE, fault):
        with injector.told(step):
            check_restore(injector.meet(RESTORE, fault, step))


def check_restore(met: Met) -> None:
    there, storage = met.there, met.there.open()
    assert met.code in (met.fault.code, DONE)
    if storage.user_ids():
        assert met.code in (DONE, KILLED)
        with pytest.raises(BadInstallation, match="has players"):
            do_restore(storage)
    else:
        assert met.code != DONE
        assert storage.client_ids() == [] or met.code == KILLED or met.step.kind == "open"
        somebody_elses = there.copy(met.folder / "copy").open()
        somebody_elses.add_user("Ada", "ada@example.org", "")
        begun = (there.data / ".restore/users").exists()
        told = []
        assert do_restore(storage, told.append) == 2
        assert bool(told) == begun
    assert storage.user_ids() == [ADA, BOB]
    check_bystander(storage)
    assert len(storage.client_ids()) == 1
    assert storage.add_user("Zed", "zed@example.org", "").id == 10_004
    assert problems(storage) == []
    assert [line["act"] for line in storage.read_audit()].count("backup") == 1


@each_fault
def test_an_import_that_meets_a_fault_leaves_whole_players_and_can_be_repeated(injector, fault):
    for step in chosen(injector, IMPORT, fault):
        with injector.told(step):
            check_import(injector.meet(IMPORT, fault, step))


def check_import(met: Met) -> None:
    storage = met.there.open()
    assert met.code in (met.fault.code, DONE)
    came = [user_id for user_id in (CLEO, DORA) if is_there(storage, user_id)]
    assert met.code != DONE or came == [CLEO, DORA]
    assert problems(storage) == []
    if met.code not in (KILLED, DONE) and met.step.kind != "unlink":
        assert left_behind(met.there) == []
    assert do_import(storage) == ImportResult(added=2 - len(came), there=len(came))
    assert is_there(storage, CLEO) and is_there(storage, DORA)
    assert storage.add_user("Zed", "zed@example.org", "").id == DORA + 1
    check_bystander(storage)


def is_there(storage: Storage, user_id: int) -> bool:
    try:
        user = storage.read_user(user_id)
    except NoSuchUser:
        return False
    assert storage.find_user(user.name) == storage.find_user(user.email) == user
    return True


@each_fault
def test_a_backup_that_meets_a_fault_leaves_no_archive_or_a_whole_one(
    injector, nothing, fault, monkeypatch
):
    for step in chosen(injector, BACKUP, fault):
        with injector.told(step):
            check_backup(injector.meet(BACKUP, fault, step), nothing, monkeypatch)


def check_backup(met: Met, nothing: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    there, storage = met.there, met.there.open()
    archive = archive_of(storage)
    assert met.code in (met.fault.code, DONE)
    assert archive.exists() or met.code != DONE
    if met.code not in (KILLED, DONE) and met.step.kind != "unlink":
        assert not archive.exists()
        if (met.step.kind, met.fault) != ("open", DYING_DISK):  # one that cannot be opened stays
            assert left_behind(there) == []
        assert [*archive.parent.glob(".*")] == []
    if archive.exists():
        assert read_archive(archive)
        archive.unlink()
    assert do_backup(storage) == 2
    assert left_behind(there) == []
    assert problems(storage) == []
    check_bystander(storage)
    monkeypatch.setenv("ARCHIVE", str(archive))
    assert do_restore(nothing.copy(met.folder / "restored").open()) == 2


@pytest.mark.parametrize("name", [RESTORE, IMPORT, BACKUP])
def test_a_used_up_quota_is_told_as_a_full_disk(injector, name):
    """At one step of each kind: no other test takes EDQUOT."""
    steps = {step.kind: step for step in injector.all_steps(name)}
    assert len(steps) > 5
    codes = [
        [injector.meet(name, fault, step).code for step in steps.values()]
        for fault in (USED_QUOTA, FULL_DISK)
    ]
    assert codes[0] == codes[1]
    assert FULL in codes[0] and {*codes[0]} <= {FULL, DONE}


@pytest.mark.parametrize("name", [RESTORE, IMPORT, BACKUP])
def test_each_of_them_has_steps_to_be_killed_at(injector, name):
    assert len(injector.all_steps(name, "open")) > 10


def command_under(there: Installation, strace: list[str], *arguments: str, status: int = 1):
    """Call the command while strace makes its system calls fail; it must exit with this status."""
    program = "from identity_admin import main; main()"
    done = subprocess.run(
        ["strace", "-f", "-o", "/dev/null", *strace, sys.executable, "-c", program, *arguments],
        env=os.environ
        | {"IDENTITY_DATA_DIR": str(there.data), "IDENTITY_PICTURE_DIR": str(there.pictures)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == status, done
    return done


def test_what_is_done_while_a_backup_is_put_in_place_is_in_the_log(prepared, disk):
    archive, there = disk / "a.tar.gz", Installation(disk)
    backup(prepared.open(), str(archive), by="command")
    storage = there.open()
    staged = there.data / ".restore" / "audit.log"
    slow = ["-e", "trace=fsync", "-e", "inject=fsync:delay_enter=1000000", "-P", str(staged)]
    with ThreadPoolExecutor(1) as beside, ExitStack() as held:
        # It cannot end before this is let go: it takes the lock once the log is in place.
        held.enter_context(locked(str(there.data / "locks" / "keys")))
        restored = beside.submit(command_under, there, slow, "restore", str(archive), status=0)
        wait_until(lambda: restored.done() or staged.parent.exists())
        lines = 0
        while not restored.done():
            storage.write_audit("meanwhile", by=lines)
            lines += 1
            if lines > 1:
                held.close()
            time.sleep(0.001)
    assert restored.result() and lines > 1
    written = [line["by"] for line in storage.read_audit() if line["act"] == "meanwhile"]
    assert written == [*range(lines)]


def test_a_file_system_without_hard_links_is_told_of(prepared, disk):
    there = prepared.copy(disk)
    no_links = ["-e", "inject=/^link:error=EPERM"]
    done = command_under(there, no_links, "backup", str(disk / "a.tar.gz"))
    assert f"the file system of {there.data} refuses hard links" in done.stderr
    assert not (disk / "a.tar.gz").exists()
    assert left_behind(there) == []


@pytest.mark.parametrize("command", ["backup", "export"])
def test_a_record_that_the_disk_does_not_give_spoils_nobody_elses(prepared, disk, command):
    there = prepared.copy(disk)
    records = [there.data / folder / f"{ADA}.json" for folder in ("users", ".backup/users")]
    unreadable = ["-e", "inject=read:error=EIO", *(f"-P{path}" for path in records)]
    done = command_under(there, unreadable, command, str(disk / "file"))
    first, second = done.stdout.splitlines()
    assert f"users/{ADA}.json: Input/output error: " in first
    assert second == f"1 player in {disk / 'file'}"


def test_a_picture_that_the_disk_does_not_give_is_left_out_and_named(prepared, disk):
    there = prepared.copy(disk)
    picture = there.pictures / "large" / there.open().read_user(ADA).picture_file
    unreadable = ["-e", "inject=read:error=EIO", f"-P{picture}"]
    done = command_under(there, unreadable, "backup", str(disk / "file"))
    first, second = done.stdout.splitlines()
    assert f"{picture}: Input/output error: left out, player {ADA} gets" in first
    assert second == f"2 players in {disk / 'file'}"


@pytest.mark.skipif(
    Path("/proc/sys/fs/protected_hardlinks").read_text() != "1\n", reason="hard links are free"
)
def test_files_that_root_put_back_are_left_out_and_named(prepared):
    """Only whoever may write a file may link it (proc(5)), and the server runs as another user."""
    with tempfile.TemporaryDirectory() as folder:
        there = prepared.copy(Path(folder))
        (client,) = (there.data / "clients").iterdir()
        records = [there.data / f"users/{ADA}.json", client, there.data / "next_user_id"]
        shutil.chown(folder, NOBODY)
        for path in Path(folder).rglob("*"):
            if path not in [*records, *(there.data / "deleted").iterdir()]:
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        child = os.fork()
        if child == 0:
            backup_as_nobody(there, Path(folder))
        assert os.waitpid(child, 0)[1] == 0
        told = Path(folder, "told").read_text().splitlines()
        assert len(told) == len(records)
        assert all(any(str(path) in line for line in told) for path in records)
        names = [header.name for header, _ in read_archive(Path(folder, "a.tar.gz"))]
    assert f"users/{BOB}.json" in names and f"users/{ADA}.json" not in names
    assert [name for name in names if "deleted" in name] == ["deleted/3"]


def backup_as_nobody(there: Installation, folder: Path) -> None:
    """In a process of its own, which ends here."""
    status = 1
    try:
        os.setuid(NOBODY)
        with (folder / "told").open("w") as told:
            report = lambda line: print(line, file=told)  # noqa: E731
            assert backup(there.open(), str(folder / "a.tar.gz"), "command", report=report) == 1
        status = 0
    finally:
        os._exit(status)
