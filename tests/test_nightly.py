"""`backup --nightly`, and `stats`."""

import datetime
import os
import tarfile

import pytest
from test_command import Installation

from commands.nightly import days_kept
from model.kinds import STATES
from model.records import now_ms

DAY = datetime.timedelta(days=1)


@pytest.fixture
def installation(tmp_path, backend, unsynced) -> Installation:
    """An installation with a player, and the folder `archives`."""
    made = Installation(tmp_path, backend)
    made.open().users.register("Ada", "ada@example.org", "")
    (tmp_path / "archives").mkdir()
    return made


def archives(installation) -> list[str]:
    return sorted(each.name for each in (installation.folder / "archives").iterdir())


def state(installation):
    return installation.open().records(STATES).find("backup")


def backup(installation, *options: str, **more):
    return installation.run("backup", "--nightly", "archives", *options, **more)


def test_seven_daily_and_four_weekly_archives_stay():
    today = datetime.date(2026, 11, 25)  # a Wednesday
    days, kept = set(), set()
    for number in range(100):
        days.add(today + number * DAY)
        days = kept = days_kept(days)
    last = max(days)
    assert {last - number * DAY for number in range(7)} <= kept
    weeks = {day.isocalendar()[:2] for day in kept}
    assert len(weeks) == 4 and len(kept) <= 7 + 3
    assert all(day.isoweekday() == 7 for day in kept if day < last - 7 * DAY)  # of whole weeks


@pytest.mark.live
def test_nightly_backup_is_made_pruned_and_copied_away(installation):
    folder, today = installation.folder / "archives", datetime.datetime.now(datetime.UTC).date()
    for number in range(1, 60):
        (folder / f"identity-{today - number * DAY}.tar.gz").touch()
    others = ["identity-2026-13-99.tar.gz", "identity-2020-01-01.tar.gz.part", "mine.tar.gz"]
    for name in others:
        (folder / name).touch()
    killed = [f"identity-{today}.tar.gz.new", f".identity-{today - DAY}.tar.gz.new.0123abcd"]
    for name in killed:
        (folder / name).write_bytes(b"of one that was killed")
        os.utime(folder / name, (1, 1))
    before = now_ms()
    backup(installation, "--then", 'cp "$1" copied')
    newest = f"identity-{today}.tar.gz"
    assert set(others) <= set(archives(installation)) and not {*killed} & {*archives(installation)}
    # Some of the weeks are among the seven days.
    assert len(archives(installation)) - len(others) in (9, 10)
    with tarfile.open(folder / newest) as archive:
        assert "users/1.json" in archive.getnames()
    assert (installation.folder / "copied").read_bytes() == (folder / newest).read_bytes()
    assert state(installation).time >= before and state(installation).problem == ""
    backup(installation)  # again on the same day
    assert newest in archives(installation)


@pytest.mark.live
def test_copy_that_fails_is_told_and_keeps_the_last_good_time(installation):
    backup(installation)
    good = state(installation).time
    done = backup(installation, "--then", "exit 7", status=1)
    assert "its copy failed with status 7" in done.stderr and "exit 7" not in done.stderr
    kept = state(installation)
    assert (kept.time, "failed with status 7" in kept.problem) == (good, True)
    backup(installation)
    assert state(installation).problem == ""


def test_backup_that_fails_removes_nothing(installation, monkeypatch):
    folder = installation.folder / "archives"
    for number in range(30):
        (folder / f"identity-2020-01-{number + 1:02}.tar.gz").touch()
    before = archives(installation)
    (installation.data / "users/1.json").write_text("{")  # nobody else is there
    assert "left out" in backup(installation, status=1).stderr
    assert state(installation).time == 0 and "left out" in state(installation).problem
    today = datetime.datetime.now(datetime.UTC).date()
    assert archives(installation) == [*before, f"incomplete-{today}.tar.gz"]

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("storage.whole.archive.tarfile.open", fail)
    before = archives(installation)
    assert "No space left" in backup(installation, status=1).stderr
    assert archives(installation) == before
    assert "No space left" in state(installation).problem


def test_file_or_folder_is_needed(installation):
    for options in ((), ("x.tar.gz", "--nightly", "archives"), ("x.tar.gz", "--then", "true")):
        installation.run("backup", *options, status=2)
    installation.run("backup", "x.tar.gz")
    assert state(installation).time > 0


def test_stats_print_the_numbers(installation):
    store = installation.open()
    with store.users.edit(1) as user:
        user.last_heartbeat = now_ms() - 1000
        user.created -= 5000
    store.clients.register("Kart", [], 1, game_url="https://kart.example/")
    numbers = installation.record("stats")
    assert numbers.pop("freeSpace") > 0
    assert numbers == {
        "players": 1,
        "activeToday": 1,
        "activeThisWeek": 1,
        "newThisWeek": 1,
        "gamesListed": 0,
        "gamesWaiting": 1,
        "reportsWaiting": 0,
        "lastBackup": None,
    }
    installation.run("backup", "x.tar.gz")
    assert abs(installation.record("stats")["lastBackup"] - now_ms()) < 60_000
    assert "lastBackup      20" in installation.output("stats")
