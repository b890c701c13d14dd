"""The power fails while a restore or an import is at work, on real file systems (power.py)."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from archives import Site
from injection import is_full_run, seed_of
from needs import MOUNTS
from power import FILE_SYSTEMS, Disk, disk_in_memory

from identity.settings import ROOT
from storage import User
from storage.maintenance import ignore
from storage.transfer import import_users

pytestmark = [pytest.mark.faults, MOUNTS]

ALL_CUTS, CUTS = 12, 4  # on each file system: with --all-faults, and every day
PLAYERS = 400
SYNC_EVERY = 50  # lines
LINES = "".join(
    json.dumps({"id": n, "name": f"Player {n} P", "email": f"{n}@example.org"}) + "\n"
    for n in range(1, PLAYERS + 1)
)
# Each prints "step" on its way, and a number once so many players are sure.
IMPORT = f"""
from archives import Site
from storage import (transfer)
transfer.SYNC_EVERY = {SYNC_EVERY}
tell = lambda done, total: print("step", done, flush=True)
with open(sys.argv[2], "rb") as lines:
    transfer.import_users(Site(Path(sys.argv[1])).open(), lines, None, "command", tell, print, str)
"""
RESTORE = """
from archives import Site
tell = lambda done, total: print("step", flush=True)
print(Site(Path(sys.argv[1])).restore(sys.argv[2], progress=tell), flush=True)
"""


@pytest.fixture(params=FILE_SYSTEMS)
def power(request, tmp_path) -> Iterator[Disk]:
    """A disk."""
    with disk_in_memory(tmp_path, request.param) as disk:
        yield disk


def told_until_cut(
    program: str, site: Site, file: Path, power: Disk, step: int | None, delay: float
) -> tuple[list[str], float]:
    """Cut the power so long after a step of the program, or at its end.

    The lines that it told, and the seconds from the first of them to the cut.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys\nfrom pathlib import Path\n{program}"]
        + [str(site.folder), str(file)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/tests"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    told, started = [], None
    while step != len(told) and (line := process.stdout.readline()):
        told.append(line)
        started = started or time.monotonic()
    took = time.monotonic() - started if started else 0
    time.sleep(delay)
    power.cut_power()
    told += process.communicate()[0].splitlines()
    power.restart()
    return told, took


def cuts(
    program: str, file: Path, power: Disk, config: pytest.Config
) -> Iterator[tuple[Site, int]]:
    """An installation after each cut, and the number that was told by then, or 0.

    The first cut comes at the end, the second before the first step, and the others at any step.
    """
    seed, number_of_cuts = (0, ALL_CUTS) if is_full_run(config) else (seed_of(config), CUTS)
    dice, steps, longest = random.Random(seed), 0, 0
    for number in range(number_of_cuts):
        site = Site(power.folder / str(number))
        site.folder.mkdir()
        step = (None, 0)[number] if number < 2 else dice.randrange(1, steps)
        delay = dice.uniform(0, longest) if step else 0
        told, took = told_until_cut(program, site, file, power, step, delay)
        steps = steps or sum(line.startswith("step") for line in told)
        longest = longest or took / steps
        print(f"cut {number} at step {step} of {steps}, --faults-seed={seed}: told {told[-1:]}")
        numbers = [line.split()[-1] for line in told if line.split()[-1].isdecimal()]
        yield site, int(numbers[-1]) if numbers else 0
        shutil.rmtree(site.folder)


def problems(site: Site) -> list[str]:
    """What `check` finds, without the index entries of users who were not added."""
    return [each for each in site.problems() if not each.endswith("leads to no user")]


def test_after_a_power_cut_an_import_goes_on_with_all_that_was_told(power, tmp_path, pytestconfig):
    lines = tmp_path / "users.jsonl"
    lines.write_text(LINES)
    seen = []
    for site, told in cuts(IMPORT, lines, power, pytestconfig):
        seen.append(told)
        store = site.open()
        assert store.user_ids()[:told] == [*range(1, told + 1)]
        assert problems(site) == []
        with lines.open("rb") as file:
            tally = import_users(store, file, None, "command", ignore, print, str)
        assert (tally.added + tally.there, tally.refused) == (PLAYERS, 0)
        assert site.problems() == []
    # A cut at a step comes when its players were told to be sure, and the last one not.
    assert seen[:2] == [PLAYERS, 0] and min(seen[2:]) >= SYNC_EVERY, seen


def hardly_compressible_text(seed: int) -> str:
    """A restore tells each buffer that it read: 8 KiB before Python 3.12, and 128 since."""
    return "".join(map(chr, random.Random(seed).choices(range(0x4E00, 0x9FFF), k=1000)))


def test_after_a_power_cut_a_restore_is_done_or_can_be_repeated(power, tmp_path, pytestconfig):
    made, archive = Site(tmp_path / "made"), tmp_path / "archive.tar.gz"
    store = made.open()
    users = [
        User(n, f"Player {n}", f"{n}@example.org", "", bio=hardly_compressible_text(n))
        for n in range(2, PLAYERS)
    ]
    store.add_user("Player 1 P", "1@example.org", "")
    store.reserve_user_ids(PLAYERS)
    store.add_users(users, {})
    made.backup(archive)
    seen = []
    for site, told in cuts(RESTORE, archive, power, pytestconfig):
        seen.append(len(site.open().user_ids()))
        assert seen[-1] in ((PLAYERS - 1,) if told else (0, PLAYERS - 1))
        if not seen[-1]:
            site.restore(archive)
        assert site.problems() == []
        assert len(site.open().user_ids()) == PLAYERS - 1
    assert seen[0] and not seen[1], seen
