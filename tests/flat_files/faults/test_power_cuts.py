"""Power cuts during saves, on real file systems: every confirmed save must survive.

Each cut comes after a random number of confirmed saves and a random delay of up to a millisecond,
with the cut's number as the seed. The default run draws the numbers by --faults-seed; a run with
--all-faults always takes the same 250. The disk is created by the test (power.py).
"""

import json
import os
import random
import shutil
import time

import pytest
from child import FAILED, UNCONFIRMED, Child
from disks import MOUNTS
from injection import repeatable_calls
from power import Disk, power
from saves import CODE, CODE_RECORD, Installation, count_done, generate_picture, read_facts

from model.errors import CodeSpent, NoSuchCode, StorageError
from storage.flat_files import disk, problems
from storage.flat_files.check import check

pytestmark = [pytest.mark.faults, MOUNTS]
__all__ = ["power", "repeatable_calls"]  # fixtures

THIS_BOOT = disk.BOOT_ID_FILE
ALL_CUTS, CUTS = 250, 15  # on each file system: with --all-faults, and in the default run
MOST_SAVES = 40  # before a cut
LONGEST_DELAY = 0.001  # seconds


class Cut:
    """One power cut: the confirmed facts, those of the save in progress, and the installation."""

    def __init__(self, number: int, child: Child, disk: Disk) -> None:
        rng = random.Random(number)
        saves_before, delay = rng.randrange(-1, MOST_SAVES), rng.uniform(0, LONGEST_DELAY)
        self.installation = Installation(disk.folder / str(number))
        self.installation.data.parent.mkdir()
        self.saves = -1  # the first save creates the empty installation
        self.confirmed: dict[str, object] = {}
        child.fork(number, self.installation)
        event, has_power = json.loads(child.go_on()), True
        while isinstance(event, list):
            is_done, facts = event
            self.saves += is_done
            # The fact of a code has no meaning after a power cut.
            facts = {each: facts[each] for each in facts if not each.startswith("code ")}
            self.confirmed |= facts if is_done else {}
            self.under_way = {} if is_done else facts
            if self.saves == saves_before and has_power:
                time.sleep(delay)
                disk.cut_power()
                has_power = False
            event = json.loads(child.read_line())
        assert event in (FAILED, UNCONFIRMED)
        disk.restart()

    def check(self) -> None:
        """Raise an error unless all confirmed saves are there, and that in progress in order."""
        current = read_facts(self.installation.open())
        count_done(current, self.confirmed, self.under_way)


@pytest.fixture(autouse=True)
def next_boot(tmp_path, monkeypatch) -> None:
    """Give this process another boot id than the one before a power cut."""
    (tmp_path / "next boot").write_text("the next boot")
    monkeypatch.setattr(disk, "BOOT_ID_FILE", str(tmp_path / "next boot"))


def test_confirmed_changes_survive_a_power_cut(power, pytestconfig, monkeypatch):
    monkeypatch.setattr(problems, "ORPHAN_AGE", -1)  # seconds: leftover files count as old at once
    seed = pytestconfig.option.faults_seed
    # Four digits, because the number is in names, and a hundred times in a bio.
    numbers = random.Random(seed).sample(range(1000, 10_000), CUTS)
    if pytestconfig.option.all_faults:
        numbers = range(ALL_CUTS)
    saves = 0
    with Child() as child:
        for number in numbers:
            print(f"cut {number}, --faults-seed={seed}")
            cut = Cut(number, child, power)
            cut.check()
            folders = cut.installation.folders
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
        storage.codes.add(CODE, CODE_RECORD)
        os.sync()
        storage.codes.spend(CODE)
        power.cut_power()
        power.restart()
        assert installation.open().codes.read(CODE) == CODE_RECORD
    with pytest.raises(NoSuchCode):
        installation.open().codes.read(CODE)


def test_used_code_after_a_power_cut_without_boot_id(power, monkeypatch):
    monkeypatch.setattr(disk, "BOOT_ID_FILE", "/missing")
    installation = Installation(power.folder)
    storage = installation.open()
    storage.codes.add(CODE, CODE_RECORD)
    storage.codes.spend(CODE)
    power.cut_power()
    power.restart()
    with pytest.raises(CodeSpent):
        installation.open().codes.read(CODE)


def test_deleted_user_stays_deleted_after_a_power_cut(power):
    installation = Installation(power.folder)
    storage = installation.open()
    storage.audit.write("a line that makes the log", by="command")
    before = installation.files()
    user = storage.users.register("Ada", "ada@example.org", "")
    os.sync()
    storage.pictures.save(user.id, generate_picture(10**6))
    storage.users.delete(user.id)
    power.cut_power()
    power.restart()
    kept = {installation.data / "next_user_id", installation.data / "deleted" / str(user.id)}
    name = {
        *installation.data.glob("former_names/*"),
        *installation.data.glob("index/former_names/*/*/*"),
    }
    assert len(name) == 3
    assert installation.files() == before | kept | name


@pytest.mark.parametrize("unsynced", ["files", "folders"])
def test_missing_sync_is_detected(power, unsynced):
    """The control of power.py."""
    with Child(f"{unsynced} not synced") as faulty, pytest.raises((StorageError, AssertionError)):
        for number in range(50):
            Cut(number, faulty, power).check()
