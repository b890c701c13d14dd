"""Backup, restore and copy with a kill or a failing system call at each step, and `check`."""

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from archive_operations import BACKUP, COPY, RESTORE, archive_path, do_backup, do_copy, do_restore
from archives import read_all, read_archive
from child import DONE, KILLED, UNCONFIRMED, Child
from disks import MOUNTS, STRACE
from injection import (
    ERRORS,
    KILL,
    LASTING_IO_ERRORS,
    SAMPLE,
    FaultResult,
    Injector,
    disk,
    repeatable_calls,
    run_traced,
)
from live.running import COMMAND
from power import power
from saves import Installation, describe_player, prepare
from waiting import wait_until

from identity.site.settings import ROOT
from model.errors import BadInstallation
from model.records import PICTURE_SIZES
from storage import Storage
from storage.flat_files.disk import locked
from storage.flat_files.layout import Layout

EMMY = 4  # the id of a deleted user
pytestmark = [pytest.mark.faults, STRACE]
__all__ = ["disk", "power", "repeatable_calls"]  # fixtures
each_fault = pytest.mark.parametrize("fault", [KILL, *ERRORS[:3]], ids=lambda fault: fault.name)


@pytest.fixture(scope="module")
def prepared(repeatable_calls, tmp_path_factory) -> Installation:
    """An installation with players, Emmy deleted, and an archive of it."""
    installation = Installation(tmp_path_factory.mktemp("prepared"))
    storage = installation.open()
    prepare(storage)
    storage.users.delete(storage.users.register("Emmy", "emmy@example.org", "").id)
    do_backup(storage)
    return installation


@pytest.fixture(scope="module")
def players(prepared) -> dict[int, dict]:
    return describe_players(prepared.open())


@pytest.fixture(scope="module")
def child(prepared) -> Iterator[Child]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ARCHIVE", str(archive_path(prepared.open())))
        environment.setenv("SOURCE", str(prepared.data.parent))
        with Child() as child:
            yield child


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Installation:
    installation = Installation(tmp_path_factory.mktemp("nothing"))
    installation.open()
    return installation


@pytest.fixture
def injector(child, prepared, empty, disk, pytestconfig, subtests) -> Injector:
    templates = {RESTORE: empty, COPY: empty, BACKUP: prepared}
    return Injector(child, templates, disk, pytestconfig, subtests)


def describe_players(storage: Storage) -> dict[int, dict]:
    """Return the fields and the pictures of all players by id; check that each can sign in."""
    users = [*map(storage.users.read, storage.users.ids())]
    for user in users:
        by_login = map(storage.users.find_by_login, (user.name, user.email))
        assert [*by_login] == [user, user]
        user.forget_sign_ins()  # as a backup does
    return {user.id: describe_player(storage, user) for user in users}


def problems(storage: Storage) -> list[str]:
    """Return the problems that `check` finds, except index entries of users that were not added."""
    found = [f"{each.place} {each.problem}" for each in storage.verify()]
    return [each for each in found if not each.endswith("leads to no user")]


def leftover_files(installation: Installation) -> list[Path]:
    folders = (path for top in installation.folders for path in Path(top).glob(".*"))
    return [*folders, *installation.temporary_files()]


def check_restored(installation: Installation, players: dict[int, dict], folder: Path) -> bool:
    """Check that a restore is done, or can be repeated, or blocks nobody; return if it was done."""
    storage = installation.open()
    was_done = bool(storage.users.ids())
    if was_done:
        with pytest.raises(BadInstallation, match="has players"):
            do_restore(storage)
    else:
        copied_storage = installation.copy(folder / "copy").open()
        copied_storage.users.register("Ada", "ada@example.org", "")
        was_started = (installation.data / ".restore/users").exists()
        reported = []
        assert do_restore(storage, reported.append) == len(players)
        assert bool(reported) == was_started
    assert describe_players(storage) == players
    assert len(storage.clients.ids()) == 3
    assert storage.users.register("Zed", "zed@example.org", "").id == EMMY + 10_001
    assert problems(storage) == []
    assert [line["act"] for line in storage.audit.read()].count("backup") == 1
    return was_done


@each_fault
def test_interrupted_restore_is_atomic_and_repeatable(injector, players, fault):
    def check(result: FaultResult) -> None:
        clients = result.installation.open().clients.ids()
        was_done = check_restored(result.installation, players, result.folder)
        assert result.code in (fault.code, DONE, UNCONFIRMED)
        assert result.code in (DONE, KILLED, UNCONFIRMED) if was_done else result.code != DONE
        assert was_done or not clients or result.code == KILLED or result.step.kind == "open"

    injector.check(RESTORE, fault, check, one_of=3 if fault is KILL else SAMPLE)


@MOUNTS
def test_restore_survives_a_power_cut(child, empty, players, power, tmp_path, pytestconfig):
    """It is complete or repeatable. The first cut is after its end, the others at random before."""
    seed, duration, codes = pytestconfig.option.faults_seed, 0, []
    rng = random.Random(seed)
    for number in range(12 if pytestconfig.option.all_faults else 3):
        installation = empty.copy(power.folder / str(number))
        os.sync()
        child.fork(RESTORE, installation)
        cut = threading.Timer(rng.uniform(0, duration), power.cut_power)
        started = time.monotonic()
        if number:
            cut.start()
        codes.append(int(child.go_on()))
        if number:
            cut.join()
        else:
            duration = time.monotonic() - started
            power.cut_power()
        power.restart()
        print(f"cut {number}, --faults-seed={seed}: {codes}")
        assert check_restored(installation, players, tmp_path / str(number)) or codes[-1] != DONE
    assert codes[0] == DONE


@each_fault
def test_copy_with_a_fault_is_all_or_nothing_and_repeatable(injector, prepared, players, fault):
    source = read_all(prepared.open())

    def check(result: FaultResult) -> None:
        storage = result.installation.open()
        assert result.code in (fault.code, DONE, UNCONFIRMED)
        if storage.users.ids():
            assert result.code in (DONE, KILLED, UNCONFIRMED)
        else:
            assert result.code != DONE
            assert do_copy(storage) == len(players)
        assert read_all(storage) == read_all(prepared.open()) == source
        assert problems(storage) == []

    injector.check(COPY, fault, check)


@each_fault
def test_backup_with_a_fault_leaves_none_or_a_whole(injector, empty, players, fault, monkeypatch):
    def check(result: FaultResult) -> None:
        installation, storage = result.installation, result.installation.open()
        archive = archive_path(storage)
        assert result.code in (fault.code, DONE)
        assert archive.exists() or result.code != DONE
        if result.code not in (KILLED, DONE) and result.step.kind != "unlink":
            assert not archive.exists()
            # A folder that cannot be opened keeps its files.
            if (result.step.kind, fault) != ("open", LASTING_IO_ERRORS):
                assert leftover_files(installation) == []
            assert [*archive.parent.glob(".*")] == []
        if archive.exists():
            assert read_archive(archive)
            archive.unlink()
        assert do_backup(storage) == len(players)
        assert leftover_files(installation) == []
        assert problems(storage) == []
        monkeypatch.setenv("ARCHIVE", str(archive))
        restored = empty.copy(result.folder / "restored").open()
        assert do_restore(restored) == len(players)
        assert describe_players(storage) == describe_players(restored) == players

    injector.check(BACKUP, fault, check)


def test_acts_during_a_restore_are_in_the_audit_log(prepared, disk):
    archive, installation = archive_path(prepared.open()), Installation(disk)
    storage = installation.open()
    staged_log = installation.data / ".restore" / "audit.log"
    slow = ["trace=fsync", "-e", "inject=fsync:delay_enter=1000000", "-P", staged_log]
    data, pictures = installation.folders
    folders = {"IDENTITY_DATA_DIR": data, "IDENTITY_PICTURE_DIR": pictures}
    command = ["strace", "-f", "-o", "/dev/null", "-e", *slow, *COMMAND, "restore", archive]
    lines = 0
    with ExitStack() as held_lock:
        # The restore takes this lock after it has put the log in place, and so waits here.
        held_lock.enter_context(locked(str(installation.data / "locks" / "keys")))
        restore = subprocess.Popen(command, env=os.environ | folders, cwd=ROOT)
        wait_until(staged_log.parent.exists, restore)
        while restore.poll() is None:
            storage.audit.write("meanwhile", by=lines)
            lines += 1
            if lines > 1:
                held_lock.close()
            time.sleep(0.001)
    assert restore.returncode == 0 and lines > 1
    written = [line["by"] for line in storage.audit.read() if line["act"] == "meanwhile"]
    assert written == [*range(lines)]


# -- `check` with a folder that cannot be listed: it reports the folder and continues -------------

LAYOUT = Layout("/instance", "/pfp")
FOLDERS = ["instance", *(each.lstrip("/") for each in LAYOUT.data_folders()), "pfp"]
FOLDERS += [f"pfp/{size}" for size in PICTURE_SIZES]


@pytest.fixture
def installation(prepared, tmp_path) -> Installation:
    return prepared.copy(tmp_path)


@pytest.fixture
def check_without(child, installation) -> Callable[[str, str], dict[str, str]]:
    """A function that runs `check` with an unlistable folder; returns the problem of each file."""

    def check_without(folder: str, option: str) -> dict[str, str]:
        top = installation.data.parent
        arguments, fault = ["check", "--json", option], "getdents64:error=EIO"
        assert run_traced(child, arguments, installation, top / "log", fault, at=top / folder) == 1
        found = json.loads((top / "instance.printed").read_text())
        return {each["file"].removeprefix(f"{top}/"): each["problem"] for each in found}

    return check_without


def test_unlistable_folder_is_reported_with_the_others(installation, check_without, subtests):
    """And files of users who cannot be listed are not removed."""
    (installation.data / "audit.log").chmod(0o644)
    before = {path: path.lstat().st_ino for path in installation.files()}
    for folder in FOLDERS:
        with subtests.test(folder):
            found = check_without(folder, "--repair")
            assert found.pop("instance/audit.log") == "has the mode 0644 and not 0600"
            assert found == {folder: "the disk refused: Input/output error"}
            assert {path: path.lstat().st_ino for path in installation.files()} == before
            (installation.data / "audit.log").chmod(0o644)


@pytest.mark.parametrize("folder", ["instance/users", "instance/deleted"])
def test_no_id_is_reused_if_the_used_ids_cannot_be_read(installation, check_without, folder):
    (installation.data / "next_user_id").unlink()
    check_without(folder, "--repair")
    assert not (installation.data / "next_user_id").exists()
    check_without("instance/invites", "--repair")
    assert (installation.data / "next_user_id").read_text() == f"{EMMY + 1}\n"
