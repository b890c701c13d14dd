"""Power cuts during a restore or an import, on real file systems (power.py)."""

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
from injection import is_full_run, sample_seed
from needs import MOUNTS
from power import FILE_SYSTEMS, Disk, disk_in_memory

from identity.settings import ROOT
from storage.maintenance import ignore
from storage.records import User
from storage.transfer import import_users

pytestmark = [pytest.mark.faults, MOUNTS]

ALL_CUTS, CUTS = 12, 4  # on each file system: with --all-faults, and in the default run
PLAYERS = 400
STEP = 50  # lines
LINES = "".join(
    json.dumps({"id": n, "name": f"Player {n} P", "email": f"{n}@example.org"}) + "\n"
    for n in range(1, PLAYERS + 1)
)
# Each program prints "step" repeatedly, and the number of players that are durable.
IMPORT = f"""
from archives import Site
from storage import transfer
transfer.STEP = {STEP}
step = lambda done, total: print("step", done, flush=True)
with open(sys.argv[2], "rb") as lines:
    transfer.import_users(Site(Path(sys.argv[1])).open(), lines, None, "command", step, print, str)
"""
RESTORE = """
from archives import Site
step = lambda done, total: print("step", flush=True)
print(Site(Path(sys.argv[1])).restore(sys.argv[2], progress=step), flush=True)
"""


@pytest.fixture(params=FILE_SYSTEMS)
def power(request, tmp_path) -> Iterator[Disk]:
    """A disk whose power a test can cut."""
    with disk_in_memory(tmp_path, request.param) as disk:
        yield disk


def output_until_cut(
    program: str, site: Site, file: Path, power: Disk, step: int | None, delay: float
) -> tuple[list[str], float]:
    """Cut the power `delay` seconds after a step of the program, or at its end.

    Return the printed lines, and the seconds from the first line to the step.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys\nfrom pathlib import Path\n{program}"]
        + [str(site.folder), str(file)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/tests"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    output, started = [], None
    while step != len(output) and (line := process.stdout.readline()):
        output.append(line)
        started = started or time.monotonic()
    elapsed = time.monotonic() - started if started else 0
    time.sleep(delay)
    power.cut_power()
    output += process.communicate()[0].splitlines()
    power.restart()
    return output, elapsed


def installations_after_cuts(
    program: str, file: Path, power: Disk, config: pytest.Config
) -> Iterator[tuple[Site, int]]:
    """Yield the installation after each cut, and the last number printed before it, or 0.

    The first cut is at the end, the second before the first step, and the others at random steps.
    """
    seed, number_of_cuts = (0, ALL_CUTS) if is_full_run(config) else (sample_seed(config), CUTS)
    rng, steps, longest = random.Random(seed), 0, 0
    for number in range(number_of_cuts):
        site = Site(power.folder / str(number))
        site.folder.mkdir()
        step = (None, 0)[number] if number < 2 else rng.randrange(1, steps)
        delay = rng.uniform(0, longest) if step else 0
        output, elapsed = output_until_cut(program, site, file, power, step, delay)
        steps = steps or sum(line.startswith("step") for line in output)
        longest = longest or elapsed / steps
        print(
            f"cut {number} at step {step} of {steps}, --faults-seed={seed}: printed {output[-1:]}"
        )
        numbers = [line.split()[-1] for line in output if line.split()[-1].isdecimal()]
        yield site, int(numbers[-1]) if numbers else 0
        shutil.rmtree(site.folder)


def problems(site: Site) -> list[str]:
    """Return the problems that `check` finds, except index entries of users that were not added."""
    return [each for each in site.problems() if not each.endswith("leads to no user")]


def test_import_after_a_power_cut_has_all_confirmed_players(power, tmp_path, pytestconfig):
    lines = tmp_path / "users.jsonl"
    lines.write_text(LINES)
    counts = []
    for site, confirmed in installations_after_cuts(IMPORT, lines, power, pytestconfig):
        counts.append(confirmed)
        store = site.open()
        assert store.users.ids()[:confirmed] == [*range(1, confirmed + 1)]
        assert problems(site) == []
        with lines.open("rb") as file:
            tally = import_users(store, file, None, "command", ignore, print, str)
        assert (tally.added + tally.there, tally.refused) == (PLAYERS, 0)
        assert site.problems() == []
    # A cut at a step comes after its players were confirmed, and before all are.
    assert counts[:2] == [PLAYERS, 0] and min(counts[2:]) >= STEP, counts


def hardly_compressible_text(seed: int) -> str:
    """Return text that makes the archive long: a restore reports each buffer that it reads.

    A buffer has 8 KiB before Python 3.12, and 128 KiB since.
    """
    return "".join(map(chr, random.Random(seed).choices(range(0x4E00, 0x9FFF), k=1000)))


def test_restore_after_a_power_cut_is_complete_or_repeatable(power, tmp_path, pytestconfig):
    source, archive = Site(tmp_path / "made"), tmp_path / "archive.tar.gz"
    store = source.open()
    users = [
        User(n, f"Player {n}", f"{n}@example.org", "", bio=hardly_compressible_text(n))
        for n in range(2, PLAYERS)
    ]
    store.users.register("Player 1 P", "1@example.org", "")
    store.users.reserve_ids(PLAYERS)
    for each in users:
        store.users.insert(each)
    source.backup(archive)
    counts = []
    for site, confirmed in installations_after_cuts(RESTORE, archive, power, pytestconfig):
        counts.append(len(site.open().users.ids()))
        assert counts[-1] in ((PLAYERS - 1,) if confirmed else (0, PLAYERS - 1))
        if not counts[-1]:
            site.restore(archive)
        assert site.problems() == []
        assert len(site.open().users.ids()) == PLAYERS - 1
    assert counts[0] and not counts[1], counts
