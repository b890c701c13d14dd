"""Covers of apps: generated ones, and those that their developers upload."""

import base64
import contextlib
import fcntl
import hashlib
import random
import re
from collections.abc import Callable, Iterable, Iterator

import fixtures
import pytest
from backends import FLAT_FILES
from conftest import begin_window, on_each_backend
from contract.base import together
from forms import RED, edit, parse, problems_of
from forms import upload as upload_picture
from PIL import Image
from test_pictures import decode

from identity.acts import apps as app_acts
from identity.acts.actors import COMMAND, Actor, Authority, NotAllowed
from identity.http.limits import PICTURES
from images.covers import (
    SCENES,
    TAG_SCENES,
    View,
    draw_castle,
    draw_men,
    draw_road,
    draw_space,
    generate_cover,
)
from model.client_rules import TAGS
from model.errors import NoSuchClient, SaveUnconfirmed, StorageFailed
from model.kind import Kind
from model.kinds import CLIENTS, COVERS
from model.records import ADMINISTRATOR, COVER_SIZES, MODERATOR, Client, Cover
from storage import Storage
from storage.flat_files.layout import Layout
from storage.whole.archive import backup, restore

APP_ID = "5ea1ab1e" * 3
OLD, NEW, OTHER = (dict.fromkeys(COVER_SIZES, text) for text in (b"old", b"new", b"other"))
LASTING = "public, max-age=86400, immutable"
app = fixtures.members_app


def draw(client_id: str, name: str, tags: Iterable[str] = ()) -> View:
    view = View(client_id, name, tags)
    view.draw()
    return view


# -- generated covers ------------------------------------------------------------------------------


def test_generated_covers_differ_by_id_and_are_the_same_on_each_machine():
    """A cover that changed would be another one for the players who know the game by it."""
    pixels = {draw(f"{number:024x}", "A game").cells.tobytes() for number in range(3000)}
    assert len(pixels) == 3000
    seen = hashlib.sha256(draw(APP_ID, "Castle Siege").cells.tobytes()).hexdigest()
    assert seen == "ba6b20ba986f4c2f4cfb3419c146b37e7f01520a28e44abde2766b84a2083d2e"


def test_generated_cover_is_one_small_scene_in_each_size():
    assert COVER_SIZES == {"small": (320, 200), "large": (640, 400)}
    for number, scene in enumerate(SCENES):
        client_id, name = f"{number:024x}", re.match("[a-z]+", SCENES[scene])[0]
        images, cells = generate_cover(client_id, name), draw(client_id, name).cells
        assert images == generate_cover(client_id, name)
        assert sum(map(len, images.values())) < 1200
        for size, content in images.items():
            enlarged = cells.resize(COVER_SIZES[size], Image.Resampling.NEAREST)
            assert decode(content).convert("RGB").tobytes() == enlarged.tobytes()
            assert decode(content).info.keys() <= {"loop", "background", "timestamp"}


def test_word_of_the_name_chooses_the_scene(subtests):
    scenes = list(SCENES)
    for words in ((name, each.split("|")) for name, each in SCENES.items()):
        for word in (re.sub(r"\\b|\?", "", each) for each in words[1]):
            for name in (f"My {word.title()}", f"{word}-2", word.upper()):
                with subtests.test(name):
                    assert View(APP_ID, name).scene is words[0]
    by_id = {View(f"{number:024x}", "数独").scene for number in range(100)}
    assert by_id == set(scenes)
    for name in ("Lonestar", "Astar", "Снег", "2048", "", "a" * 60):  # no word begins so
        assert View(APP_ID, name).scene is View(APP_ID, "Pong").scene


def test_every_scene_is_drawn_by_day_or_by_night():
    """No scene uses up the numbers that follow from an id, after which all would be the same."""
    seen = set()
    for scene, words in SCENES.items():
        for number in range(60):
            view = draw(f"{number:024x}", re.match("[a-z]+", words)[0])
            seen.add((scene.__name__.removeprefix("draw_"), view.night))
            assert view.roll(2**100) > 2**60
    nights = {(name, night) for name, night in seen if night}
    assert {name for name, _ in seen} == {each.__name__[5:] for each in SCENES}
    assert {name for name, _ in nights} == {name for name, _ in seen} - {"desert"}
    assert {name for name, _ in seen - nights} == {name for name, _ in seen} - {"space", "cave"}


def test_tags_choose_the_scene_before_the_name_does(subtests):
    for tags, name, scenes in (
        (["board"], "Star Chess", {draw_men}),
        (["strategy", "board", "action"], "Space", {draw_men}),  # the tag with the fewest scenes
        (["racing"], "Castle", {draw_road}),
        (["action"], "Space Castle", {draw_space}),  # a word chooses between several
        (["strategy"], "Space", set(TAG_SCENES["strategy"])),
        (["multiplayer", "gone"], "Castle", {draw_castle}),
        (["multiplayer"], "", set(SCENES)),
    ):
        with subtests.test(name, tags=tags):
            assert {View(f"{n:024x}", name, tags).scene for n in range(200)} == scenes
    assert set(TAG_SCENES) <= set(TAGS)
    assert (
        len({draw(f"{number:024x}", "", ["board"]).cells.tobytes() for number in range(500)}) == 500
    )


def test_cover_of_other_tags_has_another_address(store, browser, adas_game):
    addresses, pictures = set(), set()
    for tags in ([], ["board"], ["racing"], ["cards", "role-playing"]):
        edit(store.clients, adas_game.id, tags=tags)
        found = parse(browser.get(f"/games/{adas_game.id}")).select_one("main img")["src"]
        addresses.add(found)
        pictures.add(browser.get(found).data)
    assert len(addresses) == len(pictures) == 4


# -- acts: on each backend -------------------------------------------------------------------------


@pytest.fixture
def game(storage) -> Client:
    """A game of the player with the id 1, without a cover."""
    ada = storage.users.register("Ada", "ada@example.org", "")
    fields = {"game_url": "https://game.example/", "listed": True}
    return storage.clients.register("Game", [], ada.id, **fields)[0]


@pytest.fixture
def owner(storage, game) -> Authority:
    return Authority(storage, Actor(game.owner_id))


def cover_of(storage: Storage, client_id: str) -> bytes | None:
    """Return the small cover that an app has, which must be the only one; None if generated."""
    covers, client = storage.records(COVERS), storage.clients.read(client_id)
    kept = covers.page("client", client_id)
    assert [each.id for each in kept] == ([client.cover_id] if client.cover_id else [])
    return base64.b64decode(kept[0].small) if kept else None


@on_each_backend
def test_cover_is_saved_replaced_and_removed(storage, game, owner, clock):
    app_acts.save_cover(owner, game.id, OLD)
    first = storage.clients.read(game.id).cover
    assert cover_of(storage, game.id) == b"old"
    clock.shift(-3600)  # the clock of another machine
    app_acts.save_cover(owner, game.id, NEW)
    assert storage.clients.read(game.id).cover == first + 1
    assert cover_of(storage, game.id) == b"new"
    app_acts.remove_cover(owner, game.id)
    app_acts.remove_cover(owner, game.id)
    assert cover_of(storage, game.id) is None
    assert storage.clients.read(game.id) == game  # still listed, and nothing else has changed
    assert list(storage.audit.read()) == []
    clock.shift(3600)
    assert list(storage.verify()) == []


@on_each_backend
def test_owner_and_administrators_change_a_cover(storage, game, owner):
    app_acts.save_cover(owner, game.id, OLD)
    for number, (level, allowed) in enumerate(((0, 0), (MODERATOR, 0), (ADMINISTRATOR, 1))):
        user = storage.users.register(f"user{number}", f"{number}@example.org", "", level)
        others = Authority(storage, Actor(user.id))
        for change, more in ((app_acts.save_cover, [NEW]), (app_acts.remove_cover, [])):
            with contextlib.nullcontext() if allowed else pytest.raises(NotAllowed):
                change(others, game.id, *more)
        assert cover_of(storage, game.id) == (None if allowed else b"old")


@pytest.fixture
def before_edit(storage, monkeypatch) -> Iterator[Callable]:
    """A function that lets something happen between a new cover and the edit of its app."""
    real_edit = storage.clients.edit

    def before_edit(change: Callable[[], None]) -> None:
        def change_first(client_id: str):
            monkeypatch.setattr(storage.clients, "edit", real_edit)
            change()
            return real_edit(client_id)

        monkeypatch.setattr(storage.clients, "edit", change_first)

    return before_edit


@on_each_backend
def test_cover_of_a_racing_upload_is_whole(storage, game, owner, before_edit):
    for racing in (
        lambda: app_acts.save_cover(owner, game.id, OTHER),
        lambda: app_acts.remove_cover(owner, game.id),
        lambda: app_acts.change_client(Authority(storage, COMMAND), game.id, name="Renamed"),
    ):
        app_acts.save_cover(owner, game.id, OLD)
        before_edit(racing)
        app_acts.save_cover(owner, game.id, NEW)
        assert cover_of(storage, game.id) == b"new"  # the last one


@on_each_backend
def test_racing_changes_leave_one_cover_or_none(storage, game, owner, unsynced):
    def change(number: int) -> None:
        if number % 4:
            app_acts.save_cover(owner, game.id, dict.fromkeys(COVER_SIZES, b"%d" % number))
        else:
            app_acts.remove_cover(owner, game.id)

    for _ in range(5):
        assert together(change, range(8)) == [None] * 8
        cover_of(storage, game.id)


@on_each_backend
def test_cover_of_an_app_that_changes_hands_or_goes_is_removed(storage, game, owner, before_edit):
    for change, error in (
        (lambda: edit(storage.clients, game.id, owner_id=None), NotAllowed),
        (lambda: storage.clients.delete(game.id), NoSuchClient),
    ):
        edit(storage.clients, game.id, owner_id=game.owner_id)
        before_edit(change)
        with pytest.raises(error):
            app_acts.save_cover(owner, game.id, NEW)
        assert storage.records(COVERS).ids() == []


def test_cover_that_an_app_cannot_get_is_removed(storage, game, owner, before_edit, faults):
    app_acts.save_cover(owner, game.id, OLD)
    before_edit(lambda: faults.refuse_saves("clients"))
    with pytest.raises(StorageFailed):
        app_acts.save_cover(owner, game.id, NEW)
    assert cover_of(storage, game.id) == b"old"


@on_each_backend
def test_cover_of_an_unconfirmed_save_stays(storage, game, owner, monkeypatch):
    """The app may have it."""
    real_edit = storage.clients.edit

    @contextlib.contextmanager
    def edit_and_lose_the_connection(client_id: str) -> Iterator[Client]:
        with real_edit(client_id) as client:
            yield client
        raise SaveUnconfirmed("the connection was lost")

    monkeypatch.setattr(storage.clients, "edit", edit_and_lose_the_connection)
    with pytest.raises(SaveUnconfirmed):
        app_acts.save_cover(owner, game.id, NEW)
    assert cover_of(storage, game.id) == b"new"


@on_each_backend
def test_cover_goes_with_its_app_and_comes_with_a_backup(storage, game, owner, tmp_path):
    """As long as a record in a backup may be, which is 1 MiB."""
    longest = {"small": random.randbytes(100_000), "large": random.randbytes(500_000)}
    app_acts.save_cover(owner, game.id, longest)
    path = str(tmp_path / "backup.tar.gz")
    backup(storage, path, "command")
    restored = FLAT_FILES.open(str(tmp_path / "restored"), str(tmp_path / "restored pictures"))
    restore(restored, path, "command")
    assert restored.clients.read(game.id) == storage.clients.read(game.id)
    assert cover_of(restored, game.id) == longest["small"]
    assert list(restored.verify()) == []
    storage.clients.delete(game.id)
    assert storage.records(COVERS).ids() == []


@on_each_backend
def test_snapshot_has_an_app_and_its_cover_of_one_moment(storage, game, owner):
    app_acts.save_cover(owner, game.id, OLD)
    with storage.snapshot() as snapshot:
        app_acts.save_cover(owner, game.id, NEW)
        [client], [cover] = (list(snapshot.records(kind)) for kind in (CLIENTS, COVERS))
    assert client.cover_id == cover.id != storage.clients.read(game.id).cover_id


def test_no_cover_is_replaced_while_a_backup_reads_covers(storage, game, owner, monkeypatch):
    """Otherwise the app would have a cover that was added after it was read, or removed before."""
    kind_lock, refused = Layout.kind_lock, []

    def try_the_other_lock(layout: Layout, kind: Kind):
        if kind is COVERS:
            with open(layout.path("locks", "clients")) as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    refused.append(kind)
        return kind_lock(layout, kind)

    app_acts.save_cover(owner, game.id, OLD)
    monkeypatch.setattr(Layout, "kind_lock", try_the_other_lock)
    with storage.snapshot():
        assert refused == [COVERS]
    app_acts.save_cover(owner, game.id, NEW)
    assert refused == [COVERS]  # no lock is held any more


# -- serving ---------------------------------------------------------------------------------------


@pytest.fixture
def adas_game(store, ada) -> Client:
    """A game of Ada, who may register apps, with a generated cover."""
    fields = {"game_url": "https://game.example/"}
    return store.clients.register("Castle Siege", [], ada.id, **fields)[0]


def save_cover(store: Storage, client: Client, content: bytes) -> str:
    """Give an app a cover, and return its address without the size."""
    app_acts.save_cover(Authority(store, COMMAND), client.id, dict.fromkeys(COVER_SIZES, content))
    return f"{store.clients.read(client.id).cover_id}.webp"


def test_cover_has_its_address_and_lifetime(store, anyone, adas_game):
    generated = generate_cover(adas_game.id, "Castle Siege")
    new = dict.fromkeys(COVER_SIZES, b"uploaded")
    for file, contents, caching in (
        (f"{adas_game.id}.webp", generated, "public, max-age=3600"),
        (save_cover(store, adas_game, b"uploaded"), new, LASTING),
        (f"{adas_game.id}.webp", generated, "public, max-age=3600"),  # of pages from before
    ):
        for size in COVER_SIZES:
            address = f"/covers/{size}/{file}"
            answer = anyone.get(address)
            assert (answer.status_code, answer.content_type) == (200, "image/webp")
            assert answer.data == contents[size]
            assert answer.headers["Cache-Control"] == caching
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert not {"Set-Cookie", "Vary", "Last-Modified"} & set(answer.headers.keys())
            head = anyone.head(address)
            assert (head.status_code, head.data) == (200, b"")
            assert head.headers["Content-Length"] == str(len(answer.data))
            etag = {"If-None-Match": answer.headers["ETag"]}
            assert anyone.get(address, headers=etag).status_code == 304
            part = anyone.get(address, headers={"Range": "bytes=2-5"})
            assert (part.status_code, part.data) == (206, answer.data[2:6])
    assert anyone.get(f"/covers/small/{adas_game.id}.webp", headers=etag).status_code == 200


def test_covers_are_of_games_alone_and_follow_their_names(
    store, anyone, adas_game, adas_browser, ada
):
    address = f"/covers/small/{adas_game.id}.webp"
    before = anyone.get(address)
    app_acts.change_client(Authority(store, COMMAND), adas_game.id, name="Kart Club")
    after = anyone.get(address, headers={"If-None-Match": before.headers["ETag"]})
    renamed = generate_cover(adas_game.id, "Kart Club")["small"]
    assert (after.status_code, after.data) == (200, renamed)
    client, _ = store.clients.register("Wiki", ["https://wiki.example/"], ada.id)
    assert "/cover" not in adas_browser.get(f"/developer/{client.id}").text


def test_other_covers_are_404(store, anyone, adas_game, subtests):
    """Also one that was replaced, and one that its app does not have after a kill."""
    replaced = save_cover(store, adas_game, b"old")
    current = save_cover(store, adas_game, b"new")
    store.records(COVERS).add(Cover(f"{adas_game.id}-5", adas_game.id, "", ""))
    lost, _ = store.clients.register("Lost", [], None)
    edit(store.clients, lost.id, cover=7)
    for path in (
        *("", "small", "small/", f"huge/{current}", f"large/{'a' * 24}.webp"),
        *(f"large/{replaced}", f"large/{adas_game.id}-5.webp", f"large/{lost.id}-7.webp"),
        *(f"large/{adas_game.id}{each}" for each in ("", ".png", "-.webp", "-x.webp", "-01.webp")),
        *(f"large/{current}{each}" for each in (".webp", "%0A", "%00")),
        *("large/..%2f..%2fx.webp", f"large/{adas_game.id.upper()}.webp", "large/.webp"),
    ):
        with subtests.test(path):
            assert anyone.get(f"/covers/{path}").status_code == 404
    assert anyone.get(f"/covers/large/{current}").status_code == 200
    assert anyone.post(f"/covers/large/{current}").status_code == 405
    store.clients.delete(adas_game.id)
    for file in (current, f"{adas_game.id}.webp"):
        assert anyone.get(f"/covers/large/{file}").status_code == 404


# -- the form --------------------------------------------------------------------------------------


def upload(browser, client: Client, content: bytes | None):
    return upload_picture(browser, content, "../x.html", f"/developer/{client.id}/cover")


def cover_shown(browser, client: Client) -> list[str]:
    """Return the addresses of the cover on the page of an app; check its markup."""
    [image] = parse(browser.get(f"/developer/{client.id}")).select("img.cover")
    assert (image["alt"], image["width"], image["height"]) == ("", "320", "200")
    small, large = re.fullmatch("(.*) 320w, (.*) 640w", image["srcset"]).groups()
    assert image["src"] == small
    return [small, large]


@pytest.mark.live
def test_upload_and_removal_change_the_cover(store, adas_browser, adas_game, clock):
    button = f'action="/developer/{adas_game.id}/cover/remove"'
    generated = [f"/covers/{size}/{adas_game.id}.webp" for size in ("small", "large")]
    assert cover_shown(adas_browser, adas_game) == generated
    assert button not in adas_browser.get(f"/developer/{adas_game.id}").text

    answer = upload(adas_browser, adas_game, RED)
    assert (answer.status_code, answer.location) == (303, f"/developer/{adas_game.id}")
    assert "Cover saved." in adas_browser.get(answer.location).text
    uploaded = cover_shown(adas_browser, adas_game)
    assert set(uploaded).isdisjoint(generated)
    for address, size in zip(uploaded, COVER_SIZES.values(), strict=True):
        image = decode(adas_browser.get(address).data)
        assert image.size == size
        assert image.convert("RGB").getpixel((size[0] // 2, size[1] // 2))[0] > 240
    assert button in adas_browser.get(f"/developer/{adas_game.id}").text

    answer = adas_browser.post(f"/developer/{adas_game.id}/cover/remove")
    assert (answer.status_code, answer.location) == (303, f"/developer/{adas_game.id}")
    assert cover_shown(adas_browser, adas_game) == generated
    assert adas_browser.get(uploaded[0]).status_code == 404
    assert store.records(COVERS).ids() == []


def test_covers_and_pictures_have_one_limit(adas_browser, adas_game, monkeypatch, clock):
    images = dict.fromkeys(COVER_SIZES, b"x")
    monkeypatch.setattr("images.pictures.make_picture", lambda content, kind: images)
    begin_window(clock)
    for _ in range(PICTURES):
        assert upload(adas_browser, adas_game, RED).status_code == 303
    adas_browser.get(f"/developer/{adas_game.id}")  # shows the notice
    page = upload(adas_browser, adas_game, RED)
    assert (page.status_code, list(problems_of(page))) == (429, ["cover-form"])
    assert upload_picture(adas_browser, RED).status_code == 429
