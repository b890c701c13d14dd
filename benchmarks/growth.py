"""Measure what must not grow with the number of players, clients and audit lines.

Compares, in one run and in turn, what each act costs in a small and in a large installation of flat
files. Then checks, backs up, restores and copies a large one, on both backends, and counts the
accounts that can be added a second.
"""

import argparse
import json
import logging
import multiprocessing
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.synchronize import Barrier

from benchmarks.database import create_database, running_database
from benchmarks.population import populate, show_progress
from benchmarks.profile import as_environ, run
from benchmarks.report import Target, at_most, save, targets_table
from benchmarks.workload import Call, Installation
from identity.acts import accounts
from identity.acts.actors import Actor, Authority
from model.encoding import encode_values, record_as_dict
from model.kinds import CLIENTS
from model.records import Client, now_ms, sha256
from pages.account.export import export_account
from storage import Storage, open_storage
from storage.flat_files.disk import write_file
from storage.flat_files.entries import Entries
from storage.flat_files.layout import Layout

FEW = 100  # players, clients, audit lines
MOST_GROWTH = 2  # times the cost with few
MOST_SECONDS = {"check": 30, "backup": 60, "restore": 60, "copy": 60}
MOST_MEMORY = 2  # of each of these, times that with a tenth of the players
MOST_EXPORT_SECONDS, MOST_EXPORT_MEMORY = 5, 5  # s and MiB, whatever the number of audit lines
SIGN_UPS = 100  # a second
PROCESSES = (4, 8)  # that add accounts, as workers do; one alone waits for the disk
# Works on an installation in a process without other modules; prints seconds and MiB.
WORK = """
import json, re, sys, time
from storage import check_installation, open_storage
from storage.whole import archive, copying
work, place, other = json.loads(sys.argv[1])
start = time.perf_counter()
if work == "check":
    for problem in check_installation(*place):
        sys.exit(f"{problem.place} {problem.problem}")
elif work == "backup":
    archive.backup(open_storage(*place), other, "command")
elif work == "restore":
    archive.restore(open_storage(*other), place, "command")
elif work == "copy":
    copying.copy(open_storage(*place), open_storage(*other))
seconds, status = time.perf_counter() - start, open("/proc/self/status").read()
print([seconds, int(re.search("VmHWM:\\\\s*([0-9]+) kB", status)[1]) / 1024])
"""
ADMIN = 1  # the user id of the administrator in each population

Act = Callable[[], object]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    sizes = {"players": 100_000, "clients": 10_000, "lines": 1_000_000, "sign-ups": 400}
    for name, number in (sizes | {"rounds": 15}).items():
        help_text = f"default: {number:,}"
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N", help=help_text)
    parser.add_argument("--save", metavar="FILE", help="as of `python -m benchmarks`")
    options = parser.parse_args()
    with (
        running_database(os.sched_getaffinity(0)) as url,
        tempfile.TemporaryDirectory(prefix="growth-") as folder,
    ):
        # First: the kernel takes longer to make a file the more of them it has cached.
        work = work_on_players(folder, url, options.players)
        targets = [
            *compare_players(folder, options.players, options.rounds),
            *compare_clients(folder, options.clients, options.rounds),
            *measure_export(folder, options.lines, options.rounds),
            *work,
            *count_sign_ups(folder, options.sign_ups),
        ]
    show_progress("")
    print(targets_table(targets))
    if options.save:
        save(options.save, "growth", targets=targets)


# -- few and many -------------------------------------------------------------------------------


def compare_players(folder: str, players: int, rounds: int) -> list[Target]:
    """Compare acts on players."""
    acts: dict[str, list[Act]] = {"suspension": [], "deletion": []}
    for count in (FEW, players):
        fill = partial(populate, pictures=False, progress=show_progress)
        store = fill(f"{folder}/players-{count}", count)[0]
        ids = iter(range(2, count))
        acts["suspension"].append(partial(suspend, store, ids))
        acts["deletion"].append(partial(delete, store, ids))
    return compare(acts, rounds, f"{players:,} players")


def compare_clients(folder: str, clients: int, rounds: int) -> list[Target]:
    """Compare pages and registrations."""
    acts: dict[str, list[Act]] = {"home page": [], "developer page": [], "add_client": []}
    for count in (FEW, clients):
        place = f"{folder}/clients-{count}"
        fill = partial(populate, pictures=False)
        installation = Installation(place, FEW, fill, show_progress)
        add_clients(f"{place}/data", count)
        cookie = installation.sign_in(ADMIN)
        for name, path in (("home page", "/"), ("developer page", "/developer")):
            acts[name].append(partial(request, installation.app, Call(path, cookie=cookie)))
        add = partial(installation.storage.clients.register, "Chess", [], ADMIN)
        acts["add_client"].append(lambda add=add: add(game_url=f"https://{new_name()}.example/"))
    return compare(acts, rounds, f"{clients:,} clients")


def measure_export(folder: str, lines: int, rounds: int) -> list[Target]:
    """Measure the export of a player who is in none of the audit lines, and its memory."""
    store = populate(f"{folder}/lines", 3, pictures=False)[0]
    add_audit_lines(store.layout.data_dir, lines, subject=3)
    act = partial(export, store, 2)
    tracemalloc.start()
    act()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    seconds = statistics.median(seconds_of(act) for _ in range(rounds))
    what = f"{lines:,} audit lines"
    return [
        at_most(f"export, {what}", seconds, MOST_EXPORT_SECONDS, "s"),
        at_most(f"memory of an export, {what}", peak, MOST_EXPORT_MEMORY, "MiB"),
    ]


def compare(acts: dict[str, list[Act]], rounds: int, many: str) -> list[Target]:
    """Return for each act how many times as long it takes with many."""
    targets = []
    for name, (with_few, with_many) in acts.items():
        times = []
        for number in range(rounds):
            show_progress(f"{name}, round {number + 1} of {rounds}")
            times.append([seconds_of(with_few), seconds_of(with_many)])
        few, ratio = statistics.median(each[0] for each in times), growth_of(times)
        value = f"{ratio:.2f} times {few * 1000:.1f} ms"
        targets.append(Target(f"{name}, {many}", value, str(MOST_GROWTH), ratio < MOST_GROWTH))
    return targets


def growth_of(times: list[list[float]]) -> float:
    """Return the ratio of the medians: single times differ by what the disk does."""
    few, many = (statistics.median(column) for column in zip(*times, strict=True))
    return many / few


def seconds_of(act: Act) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def suspend(store: Storage, ids: Iterator[int]) -> None:
    """Suspend the next player, as the administrator."""
    accounts.suspend(Authority(store, Actor(ADMIN)), next(ids))


def delete(store: Storage, ids: Iterator[int]) -> None:
    """Delete the next player, as that player."""
    user_id = next(ids)
    accounts.delete_user(Authority(store, Actor(user_id)), user_id)


def request(application: Callable, call: Call) -> None:
    """Make a request in this process."""
    run(application, [as_environ(call) | {"HTTP_COOKIE": call.cookie}])


def export(store: Storage, player: int) -> None:
    """Read a whole export."""
    for _ in export_account(store, store.users.read(player), logging.getLogger()):
        pass


def new_name() -> str:
    """Return a name that no other client has."""
    return f"c{secrets.token_hex(8)}"


def add_clients(data: str, count: int) -> None:
    """Write clients of players, each with a game, as the storage does but unsynced."""
    entries = Entries(Layout(data, f"{data}/pictures"), CLIENTS)
    for number in range(count):
        game = f"https://{new_name()}.example/"
        owner = 2 + number % (FEW - 1)
        client = Client(secrets.token_hex(12), "Chess", sha256("x"), [], owner, game_url=game)
        write_file(
            f"{data}/clients/{client.id}.json", encode_values(record_as_dict(client)), durable=False
        )
        entries.put_new(client)


def add_audit_lines(data: str, count: int, subject: int) -> None:
    """Write lines about one player."""
    line = json.dumps({"time": now_ms(), "act": "suspend", "by": ADMIN, "user": subject}) + "\n"
    with open(f"{data}/audit.log", "a", encoding="utf-8") as file:
        file.writelines(line for _ in range(count))


# -- a whole installation, and sign-ups -----------------------------------------------------------


def work_on_players(folder: str, url: str, players: int) -> list[Target]:
    """Check, back up, restore and copy a tenth of the players and all of them."""
    few, many = (work_on_all(folder, url, count) for count in (players // 10, players))
    targets = []
    for name, (seconds, memory) in many.items():
        most, growth = MOST_SECONDS[name.split()[0]], memory / few[name][1]
        value = f"{seconds:.0f} s, {growth:.2f} times {few[name][1]:.0f} MiB"
        is_reached = seconds < most and growth < MOST_MEMORY
        limits = f"{most} s, {MOST_MEMORY} times"
        targets.append(Target(f"{name}, {players:,} players", value, limits, is_reached))
    return targets


def work_on_all(folder: str, url: str, count: int) -> dict[str, list[float]]:
    """Return the seconds and the memory in MiB of each kind of work, on both backends.

    No file is removed before the end: ext4 is slow to give its inode again for some minutes.
    """
    found = {}

    def files(name: str) -> list[str]:
        return [f"{folder}/{name}-{count}/data", f"{folder}/{name}-{count}/pictures"]

    def database(name: str) -> list[str]:
        return ["", "", create_database(url, f"{name}_{count}")]

    def work(name: str, place: list[str] | str, other: list[str] | str = "") -> None:
        show_progress(f"{name}, {count:,} players")
        arguments = json.dumps([name.split()[0], place, other])
        command = [sys.executable, "-c", WORK, arguments]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        found[name] = json.loads(done.stdout)

    populate(f"{folder}/all-{count}", count, progress=show_progress)
    copied = database("copied")
    for backend, place, target, copy in (
        ("flat files", files("all"), files("restored"), copied),
        ("PostgreSQL", copied, database("restored"), files("copied")),
    ):
        archive = f"{folder}/{backend}-{count}.tar.gz"
        work(f"check of {backend}", place)
        work(f"backup of {backend}", place, archive)
        work(f"restore into {backend}", archive, target)
        work(f"copy of {backend}", place, copy)
    return found


def count_sign_ups(folder: str, count: int) -> list[Target]:
    """Count the accounts that several processes add a second."""
    place, rates = f"{folder}/sign-ups", {}
    open_storage(f"{place}/data", f"{place}/pictures").users.register(
        "First", "first@example.org", "x"
    )
    for processes in PROCESSES:
        show_progress(f"sign-ups in {processes} processes")
        barrier = multiprocessing.Barrier(processes + 1)
        arguments = place, count // processes, barrier
        running = [
            multiprocessing.Process(target=sign_up, args=arguments) for _ in range(processes)
        ]
        for each in running:
            each.start()
        barrier.wait()
        start = time.perf_counter()
        for each in running:
            each.join()
        rates[processes] = count / (time.perf_counter() - start)
    return [
        Target(f"sign-ups a second, {each} at once", f"{rate:.0f}", str(SIGN_UPS), rate > SIGN_UPS)
        for each, rate in rates.items()
    ]


def sign_up(place: str, count: int, start: Barrier) -> None:
    """Add accounts with an empty hash: hashing takes longer, and no lock."""
    store = open_storage(f"{place}/data", f"{place}/pictures")
    start.wait()
    for _ in range(count):
        store.users.register(new_name(), f"{new_name()}@example.org", "")


if __name__ == "__main__":
    main()
