"""Concurrent account changes, against two workers."""

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import requests
from PIL import Image
from test_uploads import flat_png

from identity.formatting import DAY
from storage import Storage
from storage.errors import TooManyAttempts
from storage.pictures import MAX_BYTES
from storage.records import ADMINISTRATOR, PICTURE_SIZES, now_ms

from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer, running_server
from .test_races import RACERS, Background, race, until_not_busy

pytestmark = [pytest.mark.live, pytest.mark.load, pytest.mark.xdist_group("account_races")]
UPLOADERS = 8
UPLOADS = 24
MINUTE = 60_000  # milliseconds
ADMINISTRATORS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with open sign-up."""
    with running_server(SIGN_UP="open") as server:
        yield server


@pytest.fixture
def sign_in(server: RunningServer, ada: dict) -> Iterator[Callable[[], FormBrowser]]:
    """A function that returns one more browser in which Ada is signed in."""
    browsers = []

    def sign_in() -> FormBrowser:
        form_browser = FormBrowser(server.address)
        browsers.append(form_browser)
        assert "Hello, " in form_browser.sign_in(ada["name"]).text
        return form_browser

    yield sign_in
    for each in browsers:
        each.close()


def post(form_browser: FormBrowser, path: str, **sent) -> requests.Response:
    return form_browser.session.post(
        f"{form_browser.server_address}{path}",
        allow_redirects=False,
        timeout=ANSWER_TIMEOUT,
        **sent,
    )


def test_one_name_in_sixteen_spellings_is_signed_up_once(
    server: RunningServer, store: Storage, ada: dict
):
    """Losers get an error; they keep no name, no email and no count in the limit on accounts."""
    name = "Racing-2"
    wide = name.translate({code: code + 0xFEE0 for code in range(ord("0"), ord("z") + 1)})
    spellings = [name, name.upper(), name.lower(), wide, wide.upper(), wide.lower(), f" {name} "]
    browsers = [FormBrowser(server.address) for _ in range(RACERS)]

    def sign_up(number: int) -> requests.Response:
        form = {
            "name": spellings[number % len(spellings)],
            "email": f"racer-{number}@example.org",
            "password": PASSWORD,
        }
        # A loser's attempt counts until it is released: above ten, the next one has to wait.
        return until_not_busy(lambda: post(browsers[number], "/sign-up", data=form), (503, 429))

    answers = race(sign_up)
    assert Counter(each.status_code for each in answers) == {303: 1, 409: RACERS - 1}
    assert (
        sum(
            "Another player has this name. Choose a different one." in each.text for each in answers
        )
        == RACERS - 1
    )
    created = [user for user in server.command("user", "list") if "racer-" in user["email"]]
    assert created == [server.command("user", "show", name)]
    store.attempts.require_left("sign-up", "127.0.0.1", 2, DAY)
    with pytest.raises(TooManyAttempts):
        store.attempts.require_left("sign-up", "127.0.0.1", 1, DAY)
    winner = [answer.status_code for answer in answers].index(303)
    assert created[0]["email"] == f"racer-{winner}@example.org"
    signed_in = [each for each in browsers if "Hello, " in each.open("/").text]
    assert signed_in == [browsers[winner]]
    for each in browsers:
        each.close()


def test_parallel_uploads_keep_workers_under_200_mib(server: RunningServer):
    """40 uploads at once of 8 MiB with 25 megapixels each, and password checks beside them."""
    picture = flat_png(5000, 5000, 8, 6).ljust(MAX_BYTES, b"\0")
    browsers = []
    for number in range(12):  # each holds one place of a worker at a time
        server.add_user(f"uploader {number:02}", f"{number}@example.com")
        browsers.append(FormBrowser(server.address, f"127.0.0.{number + 10}"))
        browsers[-1].set_session_cookie(server.start_session(f"uploader {number:02}"))
    browsers *= 4

    def act(number: int) -> requests.Response:
        if number % 6 == 0:
            form = {"current_password": PASSWORD, "email": f"new-{number}@example.com"}
            return post(browsers[number], "/account/email", data=form)
        files = {"picture": picture}
        return post(browsers[number], "/account/picture", files=files)

    counts = Counter(each.status_code for each in race(act, len(browsers)))
    assert counts.keys() == {303, 503}, counts
    for worker in server.workers():
        status = Path(f"/proc/{worker}/status").read_text()
        peak_mib = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1024
        assert peak_mib < 170, peak_mib  # 200 if uploads were kept in memory


def test_racing_demotions_leave_one_administrator(server: RunningServer, store: Storage, ada: dict):
    """Twenty rounds of demotion, then one of account deletion."""
    password_hash = store.users.read(ada["id"]).password_hash
    administrators = [
        store.users.register(f"chief {n}", f"{n}@example.org", password_hash)
        for n in range(ADMINISTRATORS)
    ]
    browsers = [FormBrowser(server.address) for _ in administrators]
    for administrator, form_browser in zip(administrators, browsers, strict=True):
        assert "Hello, " in form_browser.sign_in(administrator.name).text

    stamps = [form_browser.read_stamp() for form_browser in browsers]

    def step_down(n: int) -> int:
        path = f"/users/{administrators[n].id}/mod-level"
        form = {"mod_level": "0", "stamp": stamps[n]}
        return post(browsers[n], path, data=form).status_code

    def delete_account(n: int) -> int:
        form = {"password": PASSWORD, "stamp": stamps[n]}
        return until_not_busy(lambda: post(browsers[n], "/account/delete", data=form)).status_code

    for act in [*[step_down] * 20, delete_account]:
        for administrator in administrators:
            with store.users.edit(administrator.id) as user:
                user.mod_level = ADMINISTRATOR
        assert Counter(race(act, ADMINISTRATORS)) == {303: ADMINISTRATORS - 1, 409: 1}
        [left] = [each for each in map(store.users.read, store.users.ids()) if each.administers]
        assert left.id in [administrator.id for administrator in administrators]
    for form_browser in browsers:
        form_browser.close()


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


def upload(form_browser: FormBrowser, number: int) -> None:
    files = {"picture": ("me.png", plain_picture(number), "image/png")}
    answer = until_not_busy(lambda: post(form_browser, "/account/picture", files=files))
    assert answer.status_code == 303


def picture_files_of(server: RunningServer, user_id: int) -> list[str]:
    """Return the paths of all picture files of a user, temporary ones included."""
    pattern = re.compile(rf"\.?{user_id}\b.*")
    return sorted(
        os.path.relpath(os.path.join(folder, name), server.picture_dir)
        for folder, _, names in os.walk(server.picture_dir)
        for name in names
        if pattern.fullmatch(name)
    )


def test_racing_picture_uploads_leave_one_set_of_files(
    server: RunningServer, store: Storage, ada: dict, sign_in
):
    browsers = [sign_in() for _ in range(UPLOADERS)]

    def change_picture(uploader: int) -> None:
        for number in range(uploader, UPLOADS, UPLOADERS):
            upload(browsers[uploader], number)

    server.forget_attempts()  # more than a player may upload
    race(change_picture, UPLOADERS)
    timestamp = store.users.read(ada["id"]).pfp_timestamp
    sizes = PICTURE_SIZES
    name = f"{ada['id']}-{timestamp}.webp"
    assert picture_files_of(server, ada["id"]) == sorted(f"{size}/{name}" for size in sizes)
    colours = {nearest_colour((server.picture_dir / size / name).read_bytes()) for size in sizes}
    assert len(colours) == 1
    assert colours <= {colour(number) for number in range(UPLOADS - UPLOADERS, UPLOADS)}


def test_concurrent_account_changes_lose_nothing(
    server: RunningServer, store: Storage, ada: dict, sign_in
):
    """Each writer reads back its last write."""
    clients = [server.add_client(f"Game {number}", CALLBACK) for number in range(3)]
    with store.users.edit(ada["id"]) as user:
        user.flairs += ["first", "second"]
    bio_writer, flair_writer, uploader, allower, gamer = (sign_in() for _ in range(5))

    def save_profile(form_browser: FormBrowser, **fields: str) -> None:
        assert post(form_browser, "/account", data=fields).status_code == 303

    def write_bio(number: int) -> None:
        save_profile(bio_writer, bio=f"bio {number}")
        assert store.users.read(ada["id"]).bio == f"bio {number}"

    def equip(number: int) -> None:
        flair = ("first", "second")[number % 2]
        save_profile(flair_writer, equippedFlair=flair)
        assert store.users.read(ada["id"]).equipped_flair == flair

    def change_picture(number: int) -> None:
        server.forget_attempts()  # more than a player may upload
        upload(uploader, number)
        timestamp = store.users.read(ada["id"]).pfp_timestamp
        small = server.picture_dir / "small" / f"{ada['id']}-{timestamp}.webp"
        assert nearest_colour(small.read_bytes()) == colour(number)

    def allow_and_withdraw(number: int) -> None:
        allowed = clients[number % len(clients)]["client_id"]
        query = {"response_type": "code", "client_id": allowed, "redirect_uri": CALLBACK}
        code = allower.allow(f"/oauth/authorize?{urlencode(query)}", "ada").answer["code"]
        assert code
        assert allowed in store.users.read(ada["id"]).grants
        if number >= len(clients):
            page = allower.open("/account/apps")
            assert allowed in page.text
            post(allower, "/account/apps/withdraw", data={"client_id": allowed})
            assert allowed not in store.users.read(ada["id"]).grants

    def play_a_minute(number: int) -> None:
        with store.users.edit(ada["id"]) as user:
            before = user.play_ms
            user.last_heartbeat = now_ms() - MINUTE
        assert post(gamer, "/api/users/heartbeat").status_code == 200
        assert store.users.read(ada["id"]).play_ms >= before + MINUTE

    played_before, started = store.users.read(ada["id"]).play_ms, now_ms()
    with (
        Background(write_bio) as bios,
        Background(equip) as flairs,
        Background(allow_and_withdraw) as consents,
        Background(play_a_minute) as minutes,
    ):
        beside = (bios, flairs, consents, minutes)
        pictures = 0
        while min(pictures, *(each.count for each in beside)) < 10:
            assert not any(each.has_failed() for each in beside)
            change_picture(pictures)
            pictures += 1
    user = store.users.read(ada["id"])
    played = user.play_ms - played_before - minutes.count * MINUTE
    assert 0 <= played <= now_ms() - started  # a minute each, plus the time it took
    assert user.bio == f"bio {bios.count - 1}"
    assert user.equipped_flair == ("first", "second")[(flairs.count - 1) % 2]
    assert user.grants == {}
    assert len(picture_files_of(server, ada["id"])) == len(PICTURE_SIZES)
    assert len(user.sessions) >= 5
