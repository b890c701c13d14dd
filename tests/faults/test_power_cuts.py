"""The power fails in the midst of saves, on real file systems: what was confirmed is there again.

Each cut comes after a number of confirmed saves, and up to a millisecond into what follows; both
are drawn with the cut's number as the seed. The everyday run draws the numbers by --faults-seed;
one with --all-faults takes the same 250 each time. The disk is the test's own (power.py).
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
from injection import is_full_run, seed_of
from live import running
from live.running import RunningServer
from live.test_kill import Load, check_records
from needs import MOUNTS, STRACE
from operations import CODE, Installation
from power import FILE_SYSTEMS, Disk, disk_in_memory
from saves import ANYTHING, TOLD, drawn_picture, facts_of

from storage import NoSuchCode, StorageError, StorageFailed
from storage.flat_files import disk, problems
from storage.flat_files.check import check

pytestmark = [pytest.mark.faults, MOUNTS]

THIS_BOOT = disk.BOOT_ID_FILE
ALL_CUTS, CUTS = 250, 30  # on each file system: with --all-faults, and every day
ALL_SERVER_CUTS, SERVER_CUTS = 5, 2
MOST_SAVES = 40  # before a cut
LONGEST_DELAY = 0.001  # seconds
NO_SYNC = ["strace", "-f", "-o", "/dev/null", "-e", "inject=fsync:retval=0"]


class Program(DrivenProgram):
    """saves.py at work, run by a command, or with some kinds ("files", "folders") not synced."""

    def __init__(self, *unsynced: str, command: tuple[str, ...] = ()) -> None:
        super().__init__("saves.py", *unsynced, command=command)

    def save(self, seed: int, there: Installation) -> Iterator[tuple[bool, dict]]:
        """What it tells until the disk fails it."""
        self.tell(json.dumps([seed, str(there.data), str(there.pictures)]))
        while isinstance(told := json.loads(self.hear()), list):
            yield told
        assert told == TOLD


class Cut:
    """One power cut: what had been confirmed by then, what was under way, and what is there now."""

    def __init__(self, number: int, program: Program, disk: Disk) -> None:
        dice = random.Random(number)
        saves_before, delay = dice.randrange(-1, MOST_SAVES), dice.uniform(0, LONGEST_DELAY)
        self.there = Installation(disk.folder / str(number))
        self.there.data.parent.mkdir()
        self.saves = -1  # the first thing that is saved is the empty installation
        self.confirmed: dict[str, object] = {}
        has_power = True
        for is_done, facts in program.save(number, self.there):
            self.saves += is_done
            self.confirmed |= facts if is_done else {}
            self.under_way = {} if is_done else facts
            if self.saves == saves_before and has_power:
                time.sleep(delay)
                disk.cut_power()
                has_power = False
        disk.restart()

    def problems(self) -> list[str]:
        """What is not as it was confirmed, and what is half done."""
        try:
            seen = facts_of(self.there.open())
        except (StorageError, AssertionError) as error:
            return [repr(error)]
        known = {name: each for name, each in self.confirmed.items() if each is not None}
        problems = [
            f"{name}: {seen.get(name)}, confirmed was {known.get(name)}"
            for name in (seen.keys() | known.keys()) - self.under_way.keys()
            if seen.get(name) != known.get(name)
        ]
        sure = {name: each for name, each in self.under_way.items() if each != ANYTHING}
        new, old = list(sure.values()), [known.get(name) for name in sure]
        steps = [new[:done] + old[done:] for done in range(len(sure) + 1)]
        if [seen.get(name) for name in sure] not in steps:
            problems.append(f"half done: {[(name, seen.get(name)) for name in sure]}")
        return problems


@pytest.fixture(params=FILE_SYSTEMS)
def power(request, tmp_path, monkeypatch) -> Iterator[Disk]:
    """A disk; to this process the machine has been started again since its power was cut."""
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("the next boot")
    monkeypatch.setattr(disk, "BOOT_ID_FILE", str(boot_id))
    with disk_in_memory(tmp_path, request.param) as ours:
        yield ours


def test_confirmed_changes_survive_a_power_cut(power, pytestconfig, monkeypatch):
    monkeypatch.setattr(problems, "ORPHAN_AGE", -1)  # seconds: what is left behind is old at once
    seed = seed_of(pytestconfig)
    # Four digits: the number is in names, and a hundred times in a bio.
    numbers = random.Random(seed).sample(range(1000, 10_000), CUTS)
    if is_full_run(pytestconfig):
        numbers = range(ALL_CUTS)
    saves = 0
    with Program() as program:
        for number in numbers:
            cut = Cut(number, program, power)
            assert cut.problems() == [], f"cut {number}, --faults-seed={seed}"
            folders = str(cut.there.data), str(cut.there.pictures)
            assert [each for each in check(*folders, repair=True) if not each.repaired] == []
            assert list(check(*folders)) == []
            assert not cut.there.lasting_temporary_files()
            cut.there.open().add_user("Zed", "zed@example.org", "")
            saves += cut.saves
            shutil.rmtree(cut.there.data.parent)
    print(f"{power.file_system}: {len(numbers)} power cuts, {saves} confirmed saves")
    assert saves > len(numbers) * MOST_SAVES / 6


def test_a_code_brought_back_by_a_power_cut_is_refused(power, monkeypatch):
    """A code that was spent is live again on the disk, and dead since its boot id is of before."""
    there = Installation(power.folder)
    with monkeypatch.context() as before:
        before.setattr(disk, "BOOT_ID_FILE", THIS_BOOT)
        storage = there.open()
        storage.add_code("a code", CODE)
        os.sync()
        storage.spend_code("a code")
        power.cut_power()
        power.restart()
        assert there.open().read_code("a code").user_id == CODE.user_id
    with pytest.raises(NoSuchCode):
        there.open().read_code("a code")


def test_a_deleted_user_stays_deleted_after_a_power_cut(power):
    there = Installation(power.folder)
    storage = there.open()
    storage.write_audit("a line that makes the log", by="command")
    before = there.files()
    user = storage.add_user("Ada", "ada@example.org", "")
    os.sync()
    storage.save_picture(user.id, drawn_picture(1))
    storage.delete_user(user.id)
    power.cut_power()
    power.restart()
    kept = {there.data / "next_user_id", there.data / "deleted" / str(user.id)}
    assert there.files() == before | kept


# ---------------------------------------------------------------------------------------------
# The power of a machine on which the whole server runs
# ---------------------------------------------------------------------------------------------


class Machine(RunningServer):
    """A server on a disk; `kill` cuts the power, and the next start is that of the machine."""

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
        # The disk first: what is answered from here on must hold as well.
        self.disk.cut_power()
        super().kill()


class LoadOnDisk(Load):
    """What a server is used for, and failures once its disk is gone."""

    def until_killed(self, task: Callable[[], object]) -> None:
        try:
            super().until_killed(task)
        except (AssertionError, KeyError, StorageFailed):
            if not self._over.is_set():
                raise


@pytest.fixture
def machine(power, tmp_path, monkeypatch) -> Iterator[Machine]:
    machine = Machine(tmp_path, power)
    # In a mount namespace of its own the server reads our boot id where the kernel's is.
    mount = f"mount --bind {shlex.quote(str(machine.boot_id))} {THIS_BOOT}"
    elsewhere = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    monkeypatch.setattr(running, "COMMAND", [*elsewhere, *running.COMMAND])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    customize(monkeypatch, tmp_path, CHEAP_PASSWORDS)
    machine.start()
    yield machine
    machine.stop()


def test_responses_of_the_server_hold_after_a_power_cut(machine, pytestconfig):
    """Sign-ins, consents, exchanges and look-ups. Only codes are dead."""
    cuts = ALL_SERVER_CUTS if is_full_run(pytestconfig) else SERVER_CUTS
    told: Counter[str] = Counter()
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
        told.update(sign_ins=len(load.signed_in()), consents=len(load.consents), codes=len(codes))
    print(f"{machine.disk.file_system}: {cuts} power cuts of a server, {dict(told)}")
    assert min(told.values()) >= cuts, told


# ---------------------------------------------------------------------------------------------
# The tests above can fail, and harm nobody's disk
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unsynced, command",
    [pytest.param((), NO_SYNC, marks=STRACE), (("files",), ()), (("folders",), ())],
    ids=["all syncs", "the syncs of files", "the syncs of folders"],
)
def test_without_syncs_confirmed_changes_are_lost(power, unsynced, command):
    with Program(*unsynced, command=command) as careless:
        assert any(Cut(number, careless, power).problems() for number in range(50))


def test_the_power_of_another_disk_is_never_cut(power, tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: pytest.fail("this was a disk of others"))
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
