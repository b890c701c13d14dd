"""The power fails while a restore or an import is at work, on real file systems (power.py)."""

import contextlib
import json
import math
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
from power import FILE_SYSTEMS, Disk, disk_in_memory
from waiting import PATIENCE

from identity_settings import ROOT
from storage import User
from storage.archive import ignore
from storage.transfer import import_users

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk needs root"),
]

CUTS = 12  # on each file system
PLAYERS = 1000
LINES = "".join(
    json.dumps({"id": n, "name": f"Player {n} P", "email": f"{n}@example.org"}) + "\n"
    for n in range(1, PLAYERS + 1)
)
# Each tells what is sure by now, a line at a time.
IMPORT = """
from archives import Site
from storage import transfer
transfer.SYNC_EVERY = 100
tell = lambda done, total: print(done, flush=True)
print("started", time.monotonic(), flush=True)
with open(sys.argv[2], "rb") as lines:
    transfer.import_users(Site(Path(sys.argv[1])).open(), lines, None, "command", tell, print)
"""
RESTORE = """
from archives import Site
print("started", time.monotonic(), flush=True)
print(Site(Path(sys.argv[1])).restore(sys.argv[2]), flush=True)
"""


@pytest.fixture(params=FILE_SYSTEMS)
def power(request, tmp_path) -> Iterator[Disk]:
    """A disk."""
    with disk_in_memory(tmp_path, request.param) as disk:
        yield disk


def told_until_cut(
    program: str, site: Site, file: Path, power: Disk, seconds: float
) -> tuple[int, float]:
    """Cut the power so long after it started, or at its end.

    The number that it told last, or 0; and how long it took, infinite where it did not end.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys, time\nfrom pathlib import Path\n{program}"]
        + [str(site.folder), str(file)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/tests"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    word, start = process.stdout.readline().split()  # its own: this process may be held up
    start, took = float(start), math.inf
    assert word == "started"
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0, start + seconds - time.monotonic()))
        took = time.monotonic() - start
    power.cut_power()
    told, _ = process.communicate()
    power.restart()
    return int(told.split()[-1]) if told else 0, took


def cuts(program: str, file: Path, power: Disk) -> Iterator[tuple[Site, int]]:
    """An installation after each cut, and what was told by then; the first comes at the end."""
    shortest, dice = math.inf, random.Random(CUTS)
    for number in range(CUTS):
        site = Site(power.folder / str(number))
        site.folder.mkdir()
        seconds = dice.uniform(0, shortest) if number else PATIENCE
        told, took = told_until_cut(program, site, file, power, seconds)
        shortest = min(shortest, took)
        yield site, told
        shutil.rmtree(site.folder)


def problems(site: Site) -> list[str]:
    """What `check` finds, but for claims that nobody came for: they count no more."""
    return [each for each in site.problems() if not each.endswith("leads to nobody")]


def test_after_a_power_cut_an_import_goes_on_with_all_that_was_told(power, tmp_path):
    lines = tmp_path / "users.jsonl"
    lines.write_text(LINES)
    seen = []
    for site, told in cuts(IMPORT, lines, power):
        seen.append(told)
        store = site.open()
        assert store.user_ids()[:told] == [*range(1, told + 1)]
        assert problems(site) == []
        with lines.open("rb") as file:
            tally = import_users(store, file, None, "command", ignore, print)
        assert (tally.added + tally.there, tally.refused) == (PLAYERS, 0)
        assert site.problems() == []
    assert seen[0] == PLAYERS and len(set(seen)) > 2, seen


def test_after_a_power_cut_a_restore_is_done_or_can_be_repeated(power, tmp_path):
    made, archive = Site(tmp_path / "made"), tmp_path / "archive.tar.gz"
    store = made.open()
    users = [User(n, f"Player {n}", f"{n}@example.org", "") for n in range(2, PLAYERS)]
    store.add_user("Player 1 P", "1@example.org", "")
    store.reserve_user_ids(PLAYERS)
    store.add_users(users, {})
    made.backup(archive)
    seen = []
    for site, told in cuts(RESTORE, archive, power):
        seen.append(len(site.open().user_ids()))
        assert seen[-1] in ((PLAYERS - 1,) if told else (0, PLAYERS - 1))
        if not seen[-1]:
            site.restore(archive)
        assert site.problems() == []
        assert len(site.open().user_ids()) == PLAYERS - 1
    assert seen[0] and seen.count(0) > 2, seen
