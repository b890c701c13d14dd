"""Long races of concurrent requests against two workers, and a control without locks."""

import io
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import requests
from customized import CHEAP_HASH, CHEAP_PASSWORDS, customize
from injection import is_full_run
from live.form_browser import FormBrowser
from live.running import ANSWER_TIMEOUT, RunningServer
from live.test_account_races import post
from live.test_races import RACERS, Background, race
from needs import STRACE
from PIL import Image
from waiting import wait_until

from storage.records import PICTURE_SIZES, User

pytestmark = pytest.mark.faults

ALL_ROUNDS, ROUNDS = 50, 10  # with --all-faults, and in the default run
ALL_SECONDS, SECONDS = 60, 5
READERS = 4
FLAIRS = ("first", "second")


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[RunningServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    customize(monkeypatch, tmp_path, CHEAP_PASSWORDS)
    server = RunningServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def unlocked_server(server) -> Iterator[RunningServer]:
    """A server whose locks always succeed."""
    workers = [argument for worker in server.workers() for argument in ("-p", str(worker))]
    command = ["strace", "-f", *workers, "-o", "/dev/null", "-e", "inject=flock:retval=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert "attached" in tracer.stderr.readline()
        yield server
        tracer.terminate()
        tracer.communicate()


def sign_in(server: RunningServer, names: list[str]) -> list[FormBrowser]:
    """Create players; return a signed-in browser for each."""
    store, browsers = server.open_storage(), []
    for name in names:
        store.users.register(name, f"{name}@example.org", CHEAP_HASH)
        browsers.append(FormBrowser(server.address))
        assert "Hello, " in browsers[-1].sign_in(name).text
    return browsers


# ---------------------------------------------------------------------------------------------
# One name
# ---------------------------------------------------------------------------------------------


def race_for_name(browsers: list[FormBrowser], name: str) -> Counter[int]:
    """Rename all players to this name at once; return the number of responses by status."""
    return Counter(
        race(lambda number: post(browsers[number], "/account", data={"name": name}).status_code)
    )


def test_racing_renames_to_one_name_give_it_once(server, pytestconfig):
    browsers = sign_in(server, [f"ada-{number}" for number in range(RACERS)])
    for number in range(ALL_ROUNDS if is_full_run(pytestconfig) else ROUNDS):
        answers = race_for_name(browsers, f"Racer {number}")
        assert answers == {303: 1, 409: RACERS - 1}
    assert server.command("check") == []


# ---------------------------------------------------------------------------------------------
# One player
# ---------------------------------------------------------------------------------------------


def plain_picture(number: int) -> bytes:
    """Return a small picture in the colour of this number."""
    output = io.BytesIO()
    Image.new("RGB", (80, 60), colour(number)).save(output, "PNG")
    return output.getvalue()


def colour(number: int) -> tuple[int, int, int]:
    """Return a colour that differs enough from the others to be recognized after compression."""
    return (number % 5 * 50, number // 5 % 5 * 50, number // 25 % 5 * 50)


def nearest_colour(content: bytes) -> tuple[int, int, int]:
    """Return the colour of `colour` that is nearest to the picture's."""
    image = Image.open(io.BytesIO(content)).convert("RGB").resize((1, 1))
    return tuple(round(each / 50) * 50 for each in image.getpixel((0, 0)))


def picture_files_of(server: RunningServer, user_id: int) -> list[str]:
    """Return the paths of all picture files of a user, temporary ones included."""
    pattern = re.compile(rf"\.?{user_id}\b.*")
    return sorted(
        os.path.relpath(os.path.join(folder, name), server.picture_dir)
        for folder, _, names in os.walk(server.picture_dir)
        for name in names
        if pattern.fullmatch(name)
    )


class BusyPlayer:
    """A player who sends heartbeats, edits the profile and changes the picture concurrently.

    Each writer must read its last value until it writes again.
    """

    def __init__(self, server: RunningServer) -> None:
        self.server, self.store = server, server.open_storage()
        [writer] = sign_in(server, ["ada"])
        self.browsers = [writer, *(FormBrowser(server.address) for _ in range(3))]
        for each in self.browsers[1:]:
            each.sign_in("ada")
        self.player = self.store.users.find_by_login("ada")
        with self.store.users.edit(self.player.id) as user:
            user.flairs += FLAIRS

    def read(self) -> User:
        return self.store.users.read(self.player.id)

    def send_heartbeat(self, number: int) -> None:
        """Send a heartbeat a minute after the last one, which is moved back."""
        with self.store.users.edit(self.player.id) as before:
            before.last_heartbeat -= 60_000
        answer = post(self.browsers[0], "/api/users/heartbeat")
        assert answer.status_code == 200
        after = self.read()
        passed = after.last_heartbeat - before.last_heartbeat
        assert after.play_ms == before.play_ms + passed > before.play_ms

    def write_bio(self, number: int) -> None:
        bio = long_bio(number)
        save(self.browsers[1], "/account", data={"bio": bio})
        assert self.read().bio == bio

    def equip(self, number: int) -> None:
        flair = FLAIRS[number % 2]
        save(self.browsers[2], "/account", data={"equippedFlair": flair})
        assert self.read().equipped_flair == flair

    def change_picture(self, number: int) -> None:
        self.server.forget_attempts()  # more than a player may upload
        files = {"picture": ("me.png", plain_picture(number), "image/png")}
        save(self.browsers[3], "/account/picture", files=files)
        small = self.server.picture_dir / "small" / self.read().picture_file
        assert small.exists() and nearest_colour(small.read_bytes()) == colour(number)

    def check_public_view(self, number: int) -> None:
        """Check that public data is complete, and a missing picture has a newer version."""
        user = self.fetch("/api/users/info?id=1").json()["user"]
        assert user["bio"] in ("", long_bio(int(user["bio"][:6] or 0)))
        assert user["equippedFlair"] in ("none", *FLAIRS)
        large = self.fetch(f"/pfp/large/1-{user['pfpTimestamp']}.webp")
        if large.status_code == 404:
            assert self.read().pfp_timestamp > user["pfpTimestamp"]
        else:
            assert nearest_colour(large.content)  # Pillow raises if it is truncated

    def fetch(self, path: str) -> requests.Response:
        answer = requests.get(f"{self.server.address}{path}", timeout=ANSWER_TIMEOUT)
        assert answer.status_code in (200, 404)
        return answer

    def run_for(self, seconds: int) -> list[int]:
        """Run all writers and readers for this time; return the number of runs of each.

        Each runs at least once per second of that time. An error ends it early.
        """
        acts = [
            self.send_heartbeat,
            self.write_bio,
            self.equip,
            self.change_picture,
            *[self.check_public_view] * READERS,
        ]
        end = time.monotonic() + seconds
        with ExitStack() as stack:
            running = [stack.enter_context(Background(act)) for act in acts]
            while time.monotonic() < end and not has_failed(running):
                time.sleep(0.1)
            # Wait up to a minute for each run: pictures are decoded with low priority.
            for least in range(seconds + 1):
                wait_until(lambda n=least: has_failed(running) or min(counts(running)) > n)
        return counts(running)


def counts(running: list[Background]) -> list[int]:
    return [each.count for each in running]


def has_failed(running: list[Background]) -> bool:
    return any(each.has_failed() for each in running)


def save(form_browser: FormBrowser, path: str, **sent) -> None:
    """Send a form; check that the page confirms it."""
    address = f"{form_browser.server_address}{path}"
    page = form_browser.session.post(address, timeout=ANSWER_TIMEOUT, **sent)
    assert page.status_code == 200
    assert " saved." in page.text


def long_bio(number: int) -> str:
    """Return a bio that starts with a number, which determines its length."""
    return "-".join([f"{number:06}"] * (1 + number % 100))


def test_concurrent_edits_uploads_and_heartbeats_lose_nothing(server, pytestconfig):
    """It runs for a minute with --all-faults, and for a few seconds by default."""
    busy = BusyPlayer(server)
    done = busy.run_for(ALL_SECONDS if is_full_run(pytestconfig) else SECONDS)
    print(f"beats, bios, flairs, pictures, and looks of {READERS}: {done}")
    assert len(picture_files_of(server, busy.player.id)) == len(PICTURE_SIZES)
    assert server.command("check") == []


@STRACE
def test_lost_update_without_locks_is_detected(unlocked_server):
    with pytest.raises(AssertionError):
        BusyPlayer(unlocked_server).run_for(ALL_SECONDS)
