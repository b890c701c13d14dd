"""Power cuts during saves, on real file systems: every confirmed save must survive.

Each cut comes after a random number of confirmed saves and a random delay of up to a millisecond,
with the cut's number as the seed. The default run draws the numbers by --faults-seed; a run with
--all-faults always takes the same 250. The disk is created by the test (power.py).
"""

import fcntl
import json
import os
import random
import shlex
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from customized import CHEAP_HASH, CHEAP_PASSWORDS, customize
from driven import DrivenProgram
from injection import is_full_run, sample_seed
from live import running
from live.running import RunningServer
from live.test_kill import Load, check_records
from needs import MOUNTS
from operations import CODE, Installation
from power import FILE_SYSTEMS, Disk, disk_in_memory
from saves import ANYTHING, DISK_FAILED, cached_picture, read_facts

from storage.errors import CodeSpent, NoSuchCode, StorageError, StorageFailed
from storage.flat_files import disk, problems
from storage.flat_files.check import check

pytestmark = [pytest.mark.faults, MOUNTS]

THIS_BOOT = disk.BOOT_ID_FILE
ALL_CUTS, CUTS = 250, 30  # on each file system: with --all-faults, and in the default run
ALL_SERVER_CUTS, SERVER_CUTS = 5, 2
MOST_SAVES = 40  # before a cut
LONGEST_DELAY = 0.001  # seconds


class SavingProgram(DrivenProgram):
    """A running saves.py, without syncs of "files" or "folders"."""

    def __init__(self, *unsynced: str) -> None:
        super().__init__("saves.py", *unsynced)

    def save(self, seed: int, installation: Installation) -> Iterator[tuple[bool, dict]]:
        """Yield the reported events until the disk fails."""
        self.send_line(json.dumps([seed, str(installation.data), str(installation.pictures)]))
        while isinstance(event := json.loads(self.read_line()), list):
            yield event
        assert event == DISK_FAILED


class Cut:
    """One power cut: the confirmed facts, those of the save in progress, and the installation."""

    def __init__(self, number: int, program: SavingProgram, disk: Disk) -> None:
        rng = random.Random(number)
        saves_before, delay = rng.randrange(-1, MOST_SAVES), rng.uniform(0, LONGEST_DELAY)
        self.installation = Installation(disk.folder / str(number))
        self.installation.data.parent.mkdir()
        self.saves = -1  # the first save creates the empty installation
        self.confirmed: dict[str, object] = {}
        has_power = True
        for is_done, facts in program.save(number, self.installation):
            self.saves += is_done
            self.confirmed |= facts if is_done else {}
            self.under_way = {} if is_done else facts
            if self.saves == saves_before and has_power:
                time.sleep(delay)
                disk.cut_power()
                has_power = False
        disk.restart()

    def problems(self) -> list[str]:
        """Return the facts that differ from the confirmed ones, and partial saves."""
        try:
            current = read_facts(self.installation.open())
        except (StorageError, AssertionError) as error:
            return [repr(error)]
        known = {name: each for name, each in self.confirmed.items() if each is not None}
        problems = [
            f"{name}: {current.get(name)}, confirmed was {known.get(name)}"
            for name in (current.keys() | known.keys()) - self.under_way.keys()
            if current.get(name) != known.get(name)
        ]
        known_changes = {name: each for name, each in self.under_way.items() if each != ANYTHING}
        new, old = list(known_changes.values()), [known.get(name) for name in known_changes]
        steps = [new[:done] + old[done:] for done in range(len(known_changes) + 1)]
        if [current.get(name) for name in known_changes] not in steps:
            problems.append(f"half done: {[(name, current.get(name)) for name in known_changes]}")
        return problems


@pytest.fixture(params=FILE_SYSTEMS)
def power(request, tmp_path, monkeypatch) -> Iterator[Disk]:
    """A disk; this process has another boot id than the one before a power cut."""
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("the next boot")
    monkeypatch.setattr(disk, "BOOT_ID_FILE", str(boot_id))
    with disk_in_memory(tmp_path, request.param) as ours:
        yield ours


def test_confirmed_changes_survive_a_power_cut(power, pytestconfig, monkeypatch):
    monkeypatch.setattr(problems, "ORPHAN_AGE", -1)  # seconds: leftover files count as old at once
    seed = sample_seed(pytestconfig)
    # Four digits, because the number is in names, and a hundred times in a bio.
    numbers = random.Random(seed).sample(range(1000, 10_000), CUTS)
    if is_full_run(pytestconfig):
        numbers = range(ALL_CUTS)
    saves = 0
    with SavingProgram() as program:
        for number in numbers:
            cut = Cut(number, program, power)
            assert cut.problems() == [], f"cut {number}, --faults-seed={seed}"
            folders = str(cut.installation.data), str(cut.installation.pictures)
            assert [each for each in check(*folders, repair=True) if not each.repaired] == []
            assert list(check(*folders)) == []
            assert not cut.installation.lasting_temporary_files()
            cut.installation.open().users.register("Zed", "zed@example.org", "")
            saves += cut.saves
            shutil.rmtree(cut.installation.data.parent)
    print(f"{power.file_system}: {len(numbers)} power cuts, {saves} confirmed saves")
    assert saves > len(numbers) * MOST_SAVES / 6


def test_code_that_reappears_after_a_power_cut_is_refused(power, monkeypatch):
    """A used code is valid again on the disk, and refused because its boot id has changed."""
    installation = Installation(power.folder)
    with monkeypatch.context() as before:
        before.setattr(disk, "BOOT_ID_FILE", THIS_BOOT)
        storage = installation.open()
        storage.codes.add("a code", CODE)
        os.sync()
        storage.codes.spend("a code")
        power.cut_power()
        power.restart()
        assert installation.open().codes.read("a code").user_id == CODE.user_id
    with pytest.raises(NoSuchCode):
        installation.open().codes.read("a code")


def test_used_code_stays_used_after_a_power_cut_without_a_boot_id(power, monkeypatch):
    monkeypatch.setattr(disk, "BOOT_ID_FILE", "/missing")
    installation = Installation(power.folder)
    storage = installation.open()
    storage.codes.add("a code", CODE)
    storage.codes.spend("a code")
    power.cut_power()
    power.restart()
    with pytest.raises(CodeSpent):
        installation.open().codes.read("a code")


def test_deleted_user_stays_deleted_after_a_power_cut(power):
    installation = Installation(power.folder)
    storage = installation.open()
    storage.audit.write("a line that makes the log", by="command")
    before = installation.files()
    user = storage.users.register("Ada", "ada@example.org", "")
    os.sync()
    storage.pictures.save(user.id, cached_picture(1))
    storage.users.delete(user.id)
    power.cut_power()
    power.restart()
    kept = {installation.data / "next_user_id", installation.data / "deleted" / str(user.id)}
    assert installation.files() == before | kept


# ---------------------------------------------------------------------------------------------
# Power cuts of a machine that runs the whole server
# ---------------------------------------------------------------------------------------------


class Machine(RunningServer):
    """A server on a disk; `kill` cuts the power, and the next start mounts the disk again."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        super().__init__(folder)
        self.data_dir = disk.folder / "data"
        self.picture_dir = disk.folder / "pictures"
        self.disk = disk
        self.boot_id = folder / "boot_id"
        self.boots = 0

    def launch(self) -> None:
        if self.boots:
            self.disk.restart()
        self.boots += 1
        self.boot_id.write_text(f"boot {self.boots}\n")
        super().launch()

    def kill(self) -> None:
        # The disk first: a change that is confirmed after this point must survive too.
        self.disk.cut_power()
        super().kill()


class LoadOnDisk(Load):
    """Load on a server, with errors allowed once its disk has stopped."""

    def until_killed(self, task: Callable[[], object]) -> None:
        try:
            super().until_killed(task)
        except (AssertionError, KeyError, StorageFailed):
            if not self._over.is_set():
                raise


@pytest.fixture
def machine(power, tmp_path, monkeypatch) -> Iterator[Machine]:
    machine = Machine(tmp_path, power)
    # In a new mount namespace the server reads our boot id instead of the kernel's.
    mount = f"mount --bind {shlex.quote(str(machine.boot_id))} {THIS_BOOT}"
    own_namespace = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    monkeypatch.setattr(running, "COMMAND", [*own_namespace, *running.COMMAND])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    customize(monkeypatch, tmp_path, CHEAP_PASSWORDS)
    machine.start()
    yield machine
    machine.stop()


def test_changes_confirmed_by_http_survive_a_power_cut(machine, pytestconfig):
    """Sign-ins, consents, exchanges and look-ups survive; codes are invalid."""
    cuts = ALL_SERVER_CUTS if is_full_run(pytestconfig) else SERVER_CUTS
    totals: Counter[str] = Counter()
    for number in range(cuts):
        load = LoadOnDisk(machine, machine.open_storage(), CHEAP_HASH)
        load.run(0.3 + number / 10)
        machine.start()
        codes = [*load.good_codes, *load.used_codes]
        load.good_codes, load.used_codes = [], []
        load.check_confirmed_changes()
        for code, client, secret in codes:
            assert machine.exchange_code(code, client.id, secret).status_code == 400
        check_records(machine.open_storage())
        machine.command("check", "--repair")
        assert machine.command("check") == []
        totals.update(sign_ins=len(load.signed_in()), consents=len(load.consents), codes=len(codes))
    print(f"{machine.disk.file_system}: {cuts} power cuts of a server, {dict(totals)}")
    assert min(totals.values()) >= cuts, totals


# ---------------------------------------------------------------------------------------------
# Controls: the tests above detect faulty code, and harm no other disk
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unsynced", ["files", "folders"])
def test_missing_sync_is_detected(power, unsynced):
    with SavingProgram(unsynced) as faulty:
        assert any(Cut(number, faulty, power).problems() for number in range(50))


def test_power_cut_of_another_disk_is_refused(power, tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: pytest.fail("another disk would be stopped"))
    for folder in ("/", "/proc", "/dev", tmp_path, power.image.parent):
        with pytest.raises(AssertionError):
            Disk(power.image, Path(folder), power.file_system).cut_power()
    with pytest.raises(AssertionError):
        Disk(power.image.with_name("another"), power.folder, power.file_system).cut_power()
    twice = tmp_path / "twice"
    twice.mkdir()
    subprocess.run(["mount", "--bind", power.folder, twice], check=True)
    try:
        with pytest.raises(AssertionError):
            power.cut_power()
    finally:
        subprocess.run(["umount", twice], check=True)
