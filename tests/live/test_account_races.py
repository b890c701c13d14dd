"""Many at once change accounts, against two workers."""

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

import storage
from storage.pictures import MAX_BYTES

from .conftest import CALLBACK
from .person import Person
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer, running_server
from .test_races import RACERS, Background, attempts_counted, race, until_not_busy

pytestmark = [pytest.mark.live, pytest.mark.load, pytest.mark.xdist_group("account_races")]
UPLOADERS = 8
UPLOADS = 24
MINUTE = 60_000  # milliseconds
CHIEFS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """Where anybody may make an account."""
    with running_server(SIGN_UP="open") as server:
        yield server


@pytest.fixture
def sign_in(server: RunningServer, ada: dict) -> Iterator[Callable[[], Person]]:
    """A new browser of ada, who is signed in."""
    people = []

    def sign_in() -> Person:
        person = Person(server.address)
        people.append(person)
        assert "Hello, " in person.sign_in(ada["name"]).text
        return person

    yield sign_in
    for each in people:
        each.close()


def post(person: Person, path: str, **sent) -> requests.Response:
    return person.browser.post(
        f"{person.server_address}{path}", allow_redirects=False, timeout=ANSWER_TIMEOUT, **sent
    )


def test_one_name_in_sixteen_spellings_is_signed_up_once(
    server: RunningServer, store: storage.Storage, ada: dict
):
    """Who lost is told so, and neither name, email nor the day's count of an address is kept."""
    name = "Racing-2"
    wide = name.translate({code: code + 0xFEE0 for code in range(ord("0"), ord("z") + 1)})
    spellings = [name, name.upper(), name.lower(), wide, wide.upper(), wide.lower(), f" {name} "]
    people = [Person(server.address) for _ in range(RACERS)]
    counted = attempts_counted(server)

    def sign_up(number: int) -> requests.Response:
        form = {
            "name": spellings[number % len(spellings)],
            "email": f"racer-{number}@example.org",
            "password": PASSWORD,
        }
        # Until a loser's try is given back it counts: at more than ten the next one has to wait.
        return until_not_busy(lambda: post(people[number], "/sign-up", data=form), (503, 429))

    answers = race(sign_up)
    assert Counter(each.status_code for each in answers) == {303: 1, 409: RACERS - 1}
    assert (
        sum(
            "Another player has this name. Choose a different one." in each.text for each in answers
        )
        == RACERS - 1
    )
    made = [user for user in server.command("user", "list") if "racer-" in user["email"]]
    assert made == [server.command("user", "show", name)]
    assert attempts_counted(server) == counted + 1
    winner = [answer.status_code for answer in answers].index(303)
    assert made[0]["email"] == f"racer-{winner}@example.org"
    signed_in = [each for each in people if "Hello, " in each.open("/").text]
    assert signed_in == [people[winner]]
    for each in people:
        each.close()


def test_workers_whose_every_thread_is_uploading_stay_under_200_mib(
    server: RunningServer, sign_in: Callable[[], Person]
):
    """25 megapixels in 8 MiB from each of 40 at once, and passwords to check beside them."""
    picture = flat_png(5000, 5000, 8, 6).ljust(MAX_BYTES, b"\0")
    people = [sign_in() for _ in range(4)] * 12

    def act(number: int) -> requests.Response:
        if number % 6 == 0:
            form = {"current_password": PASSWORD, "email": "ada@example.org"}
            return post(people[number], "/account/email", data=form)
        files = {"picture": picture}
        return post(people[number], "/account/picture", files=files)

    told = Counter(each.status_code for each in race(act, len(people)))
    assert told.keys() == {303, 503}, told
    for worker in server.workers():
        status = Path(f"/proc/{worker}/status").read_text()
        most = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1024
        assert most < 170, most  # it would be 200 if uploads were held in memory


def test_of_administrators_who_all_step_down_at_once_one_is_left(
    server: RunningServer, store: storage.Storage, ada: dict
):
    """Twenty rounds; then they delete their accounts, and one of them cannot."""
    password_hash = store.read_user(ada["id"]).password_hash
    chiefs = [
        store.add_user(f"chief {n}", f"{n}@example.org", password_hash) for n in range(CHIEFS)
    ]
    people = [Person(server.address) for _ in chiefs]
    for chief, person in zip(chiefs, people, strict=True):
        assert "Hello, " in person.sign_in(chief.name).text

    def step_down(n: int) -> int:
        path = f"/users/{chiefs[n].id}/mod-level"
        return post(people[n], path, data={"mod_level": "0"}).status_code

    def leave(n: int) -> int:
        form = {"password": PASSWORD}
        return until_not_busy(lambda: post(people[n], "/account/delete", data=form)).status_code

    for act in [*[step_down] * 20, leave]:
        for chief in chiefs:
            with store.edit_user(chief.id) as user:
                user.mod_level = storage.ADMINISTRATOR
        assert Counter(race(act, CHIEFS)) == {303: CHIEFS - 1, 409: 1}
        [left] = [each for each in map(store.read_user, store.user_ids()) if each.administers]
        assert left.id in [chief.id for chief in chiefs]
    for person in people:
        person.close()


def even_picture(number: int) -> bytes:
    """A small picture of one colour, by its number."""
    output = io.BytesIO()
    Image.new("RGB", (80, 60), colour(number)).save(output, "PNG")
    return output.getvalue()


def colour(number: int) -> tuple[int, int, int]:
    """Far enough from those of other numbers to be told apart after compression."""
    return (number % 5 * 50, number // 5 % 5 * 50, number // 25 % 5 * 50)


def seen_colour(content: bytes) -> tuple[int, int, int]:
    """The nearest colour that a number has."""
    image = Image.open(io.BytesIO(content)).convert("RGB").resize((1, 1))
    return tuple(round(each / 50) * 50 for each in image.getpixel((0, 0)))


def upload(person: Person, number: int) -> None:
    files = {"picture": ("me.png", even_picture(number), "image/png")}
    answer = until_not_busy(lambda: post(person, "/account/picture", files=files))
    assert answer.status_code == 303


def pictures_of(server: RunningServer, user_id: int) -> list[str]:
    """Every file of a player's pictures, those being written too."""
    pattern = re.compile(rf"\.?{user_id}\b.*")
    return sorted(
        os.path.relpath(os.path.join(folder, name), server.picture_dir)
        for folder, _, names in os.walk(server.picture_dir)
        for name in names
        if pattern.fullmatch(name)
    )


def test_eight_clients_that_change_one_picture_leave_one_generation_of_files(
    server: RunningServer, store: storage.Storage, ada: dict, sign_in
):
    people = [sign_in() for _ in range(UPLOADERS)]

    def change_picture(uploader: int) -> None:
        for number in range(uploader, UPLOADS, UPLOADERS):
            upload(people[uploader], number)

    race(change_picture, UPLOADERS)
    timestamp = store.read_user(ada["id"]).pfp_timestamp
    sizes = storage.PICTURE_SIZES
    name = f"{ada['id']}-{timestamp}.webp"
    assert pictures_of(server, ada["id"]) == sorted(f"{size}/{name}" for size in sizes)
    shown = {seen_colour((server.picture_dir / size / name).read_bytes()) for size in sizes}
    assert len(shown) == 1
    assert shown <= {colour(number) for number in range(UPLOADS - UPLOADERS, UPLOADS)}


def test_profile_picture_consents_and_heartbeats_change_at_once_and_nothing_is_lost(
    server: RunningServer, store: storage.Storage, ada: dict, sign_in
):
    """Each writer finds what it wrote last, until it writes again."""
    clients = [server.add_client(f"Game {number}", CALLBACK) for number in range(3)]
    with store.edit_user(ada["id"]) as user:
        user.flairs += ["first", "second"]
    bio_writer, flair_writer, uploader, allower, gamer = (sign_in() for _ in range(5))

    def save_profile(person: Person, **fields: str) -> None:
        assert post(person, "/account", data=fields).status_code == 303

    def write_bio(number: int) -> None:
        save_profile(bio_writer, bio=f"bio {number}")
        assert store.read_user(ada["id"]).bio == f"bio {number}"

    def equip(number: int) -> None:
        flair = ("first", "second")[number % 2]
        save_profile(flair_writer, equippedFlair=flair)
        assert store.read_user(ada["id"]).equipped_flair == flair

    def change_picture(number: int) -> None:
        upload(uploader, number)
        timestamp = store.read_user(ada["id"]).pfp_timestamp
        small = server.picture_dir / "small" / f"{ada['id']}-{timestamp}.webp"
        assert seen_colour(small.read_bytes()) == colour(number)

    def allow_and_withdraw(number: int) -> None:
        allowed = clients[number % len(clients)]["client_id"]
        asked = {"response_type": "code", "client_id": allowed, "redirect_uri": CALLBACK}
        code = allower.allow(f"/oauth/authorize?{urlencode(asked)}", "ada").answer["code"]
        assert code
        assert allowed in store.read_user(ada["id"]).grants
        if number >= len(clients):
            page = allower.open("/account/apps")
            assert allowed in page.text
            post(allower, "/account/apps/withdraw", data={"client_id": allowed})
            assert allowed not in store.read_user(ada["id"]).grants

    def play_a_minute(number: int) -> None:
        with store.edit_user(ada["id"]) as user:
            before = user.play_ms
            user.last_heartbeat = storage.now_ms() - MINUTE
        assert post(gamer, "/api/users/heartbeat").status_code == 200
        assert store.read_user(ada["id"]).play_ms >= before + MINUTE

    played_before, started = store.read_user(ada["id"]).play_ms, storage.now_ms()
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
    user = store.read_user(ada["id"])
    played = user.play_ms - played_before - minutes.count * MINUTE
    assert 0 <= played <= storage.now_ms() - started  # each was a minute, and the time it took
    assert user.bio == f"bio {bios.count - 1}"
    assert user.equipped_flair == ("first", "second")[(flairs.count - 1) % 2]
    assert user.grants == {}
    assert len(pictures_of(server, ada["id"])) == len(storage.PICTURE_SIZES)
    assert len(user.sessions) >= 5
