"""Backup, restore, copy and import with a kill or a failing system call at each step."""

import os
import subprocess
import sys
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
    COPY,
    DORA,
    IMPORT,
    RESTORE,
    archive_path,
    do_backup,
    do_copy,
    do_import,
    do_restore,
)
from archives import read_archive
from copying import read_all
from injection import (
    ERRORS,
    IO_ERROR,
    KILL,
    LASTING_IO_ERRORS,
    Fault,
    FaultResult,
    Injector,
    Step,
    TracedProgram,
    failed_sync_and_later_ones,
)
from needs import STRACE
from operations import ADA, BOB, DONE, FAILED, KILLED, UNCONFIRMED, Installation, prepare
from test_kills_and_failing_disks import check_bystander
from waiting import PATIENCE, wait_until

from identity.settings import ROOT
from storage import Storage
from storage.archive import backup
from storage.errors import BadInstallation, NoSuchUser
from storage.flat_files.disk import locked
from storage.transfer import ImportResult

pytestmark = [pytest.mark.faults, STRACE]
disk, repeatable_calls = injection.disk, injection.repeatable_calls
each_fault = pytest.mark.parametrize("fault", [KILL, *ERRORS], ids=lambda fault: fault.name)


@pytest.fixture(scope="module")
def prepared(repeatable_calls, tmp_path_factory) -> Installation:
    """An installation with Ada and Bob, and Emmy deleted."""
    installation = Installation(tmp_path_factory.mktemp("prepared"))
    storage = installation.open()
    prepare(storage)
    storage.users.delete(storage.users.register("Emmy", "emmy@example.org", "").id)
    return installation


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Installation:
    """An installation without users."""
    installation = Installation(tmp_path_factory.mktemp("nothing"))
    installation.open()
    return installation


@pytest.fixture(scope="module")
def program(prepared) -> Iterator[TracedProgram]:
    storage = prepared.open()
    do_backup(storage)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ARCHIVE", str(archive_path(storage)))
        environment.setenv("SOURCE", str(prepared.data.parent))
        with TracedProgram("archive_operations.py") as program:
            yield program


@pytest.fixture
def injector(program, prepared, empty, disk, pytestconfig, subtests) -> Injector:
    templates = {RESTORE: empty, COPY: empty, IMPORT: prepared, BACKUP: prepared}
    return Injector(program, templates, disk, pytestconfig, subtests)


def choose_steps(injector: Injector, name: str, fault: Fault) -> list[Step]:
    """Return every step for a kill and an I/O error: these operations write many records."""
    return injector.chosen_steps(name, fault, is_whole=fault in (KILL, IO_ERROR))


def problems(storage: Storage) -> list[str]:
    """Return the problems that `check` finds, except index entries of users that were not added."""
    found = [f"{each.place} {each.problem}" for each in storage.verify()]
    return [each for each in found if not each.endswith("leads to no user")]


def leftover_files(installation: Installation) -> list[Path]:
    folders = (
        path for top in (installation.data, installation.pictures) for path in top.glob(".*")
    )
    return [*folders, *installation.temporary_files()]


@each_fault
def test_restore_with_a_fault_is_all_or_nothing_and_repeatable(injector, fault):
    for step in choose_steps(injector, RESTORE, fault):
        with injector.subtest(step):
            check_restore(injector.inject(RESTORE, fault, step))


def check_restore(result: FaultResult) -> None:
    installation, storage = result.installation, result.installation.open()
    assert result.code in (result.fault.code, DONE, UNCONFIRMED)
    if storage.users.ids():
        assert result.code in (DONE, KILLED, UNCONFIRMED)
        with pytest.raises(BadInstallation, match="has players"):
            do_restore(storage)
    else:
        assert result.code != DONE
        assert storage.clients.ids() == [] or result.code == KILLED or result.step.kind == "open"
        copied_storage = installation.copy(result.folder / "copy").open()
        copied_storage.users.register("Ada", "ada@example.org", "")
        was_started = (installation.data / ".restore/users").exists()
        reported = []
        assert do_restore(storage, reported.append) == 2
        assert bool(reported) == was_started
    assert storage.users.ids() == [ADA, BOB]
    check_bystander(storage)
    assert len(storage.clients.ids()) == 1
    assert storage.users.register("Zed", "zed@example.org", "").id == 10_004
    assert problems(storage) == []
    assert [line["act"] for line in storage.audit.read()].count("backup") == 1


@each_fault
def test_copy_with_a_fault_is_all_or_nothing_and_repeatable(injector, prepared, fault):
    source = read_all(prepared.open())
    for step in choose_steps(injector, COPY, fault):
        with injector.subtest(step):
            check_copy(injector.inject(COPY, fault, step), source)
            assert read_all(prepared.open()) == source


def check_copy(result: FaultResult, source: tuple) -> None:
    storage = result.installation.open()
    assert result.code in (result.fault.code, DONE, UNCONFIRMED)
    if storage.users.ids():
        assert result.code in (DONE, KILLED, UNCONFIRMED)
    else:
        assert result.code != DONE
        assert do_copy(storage) == 2
    assert read_all(storage) == source
    assert problems(storage) == []


@each_fault
def test_import_with_a_fault_leaves_whole_players_and_is_repeatable(injector, fault):
    for step in choose_steps(injector, IMPORT, fault):
        with injector.subtest(step):
            check_import(injector.inject(IMPORT, fault, step))


def check_import(result: FaultResult) -> None:
    storage = result.installation.open()
    assert result.code in (result.fault.code, DONE, UNCONFIRMED)
    imported = [user_id for user_id in (CLEO, DORA) if is_imported(storage, user_id)]
    assert result.code != DONE or imported == [CLEO, DORA]
    assert problems(storage) == []
    if result.code not in (KILLED, DONE) and result.step.kind != "unlink":
        assert leftover_files(result.installation) == []
    assert do_import(storage) == ImportResult(added=2 - len(imported), there=len(imported))
    assert is_imported(storage, CLEO) and is_imported(storage, DORA)
    assert storage.users.register("Zed", "zed@example.org", "").id == DORA + 1
    check_bystander(storage)


def is_imported(storage: Storage, user_id: int) -> bool:
    try:
        user = storage.users.read(user_id)
    except NoSuchUser:
        return False
    assert storage.users.find_by_login(user.name) == storage.users.find_by_login(user.email) == user
    return True


@each_fault
def test_backup_with_a_fault_leaves_no_archive_or_a_whole_one(injector, empty, fault, monkeypatch):
    for step in choose_steps(injector, BACKUP, fault):
        with injector.subtest(step):
            check_backup(injector.inject(BACKUP, fault, step), empty, monkeypatch)


def check_backup(result: FaultResult, empty: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    installation, storage = result.installation, result.installation.open()
    archive = archive_path(storage)
    assert result.code in (result.fault.code, DONE)
    assert archive.exists() or result.code != DONE
    if result.code not in (KILLED, DONE) and result.step.kind != "unlink":
        assert not archive.exists()
        # A folder that cannot be opened keeps its files.
        if (result.step.kind, result.fault) != ("open", LASTING_IO_ERRORS):
            assert leftover_files(installation) == []
        assert [*archive.parent.glob(".*")] == []
    if archive.exists():
        assert read_archive(archive)
        archive.unlink()
    assert do_backup(storage) == 2
    assert leftover_files(installation) == []
    assert problems(storage) == []
    check_bystander(storage)
    monkeypatch.setenv("ARCHIVE", str(archive))
    assert do_restore(empty.copy(result.folder / "restored").open()) == 2


SYNCS = [(name, "fsync") for name in (RESTORE, IMPORT, BACKUP)]
SYNCS += [(RESTORE, "syncfs")]


@pytest.mark.parametrize(("name", "call"), SYNCS)
def test_failed_sync_is_reported_and_not_retried(injector, name, call):
    """The kernel may have dropped the unwritten data, so that a second sync would succeed."""
    steps = injector.all_steps(name, call)
    assert len(steps) >= 2
    for step in steps:
        with injector.subtest(step):
            result = injector.inject(name, IO_ERROR, step)
            path, later = failed_sync_and_later_ones(result.log, step.call)
            assert path.startswith(str(result.folder)) and later == []
            assert result.code in (FAILED, UNCONFIRMED)


def command_under(installation: Installation, strace: list[str], *arguments: str, status: int = 1):
    """Run the command while strace injects faults; it must exit with this status."""
    program = "from identity_admin import main; main()"
    done = subprocess.run(
        ["strace", "-f", "-o", "/dev/null", *strace, sys.executable, "-c", program, *arguments],
        env=os.environ
        | {
            "IDENTITY_DATA_DIR": str(installation.data),
            "IDENTITY_PICTURE_DIR": str(installation.pictures),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == status, done
    return done


def test_acts_during_a_restore_are_in_the_audit_log(prepared, disk):
    archive, installation = disk / "a.tar.gz", Installation(disk)
    source = prepared.copy(disk / "source").open()  # its log gets a line
    backup(source, str(archive), by="command")
    storage = installation.open()
    staged_log = installation.data / ".restore" / "audit.log"
    slow = ["-e", "trace=fsync", "-e", "inject=fsync:delay_enter=1000000", "-P", str(staged_log)]
    with ThreadPoolExecutor(1) as beside, ExitStack() as held_lock:
        # The restore takes this lock after it has put the log in place, and so waits here.
        held_lock.enter_context(locked(str(installation.data / "locks" / "keys")))
        restored = beside.submit(
            command_under, installation, slow, "restore", str(archive), status=0
        )
        wait_until(lambda: restored.done() or staged_log.parent.exists())
        lines = 0
        while not restored.done():
            storage.audit.write("meanwhile", by=lines)
            lines += 1
            if lines > 1:
                held_lock.close()
            time.sleep(0.001)
    assert restored.result() and lines > 1
    written = [line["by"] for line in storage.audit.read() if line["act"] == "meanwhile"]
    assert written == [*range(lines)]


@pytest.mark.parametrize("command", ["backup", "export"])
def test_unreadable_record_is_reported_and_affects_no_other(prepared, disk, command):
    installation = prepared.copy(disk)
    unreadable = ["-e", "inject=read:error=EIO", f"-P{installation.data}/users/{ADA}.json"]
    done = command_under(installation, unreadable, command, str(disk / "file"))
    first, second = done.stdout.splitlines()
    assert f"users/{ADA}.json: Input/output error: " in first
    assert second == f"1 player in {disk / 'file'}"


def test_unreadable_picture_is_reported_and_left_out(prepared, disk):
    installation = prepared.copy(disk)
    picture = installation.pictures / "large" / installation.open().users.read(ADA).picture_file
    unreadable = ["-e", "inject=read:error=EIO", f"-P{picture}"]
    done = command_under(installation, unreadable, "backup", str(disk / "file"))
    first, second = done.stdout.splitlines()
    assert f"{picture}: Input/output error: left out, player {ADA} gets" in first
    assert second == f"2 players in {disk / 'file'}"
