"""The pages' error messages on a full disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import begin_window
from forms import ANOTHER, PASSWORD, is_signed_in, problems_of, save, sign_up, value_of
from needs import MOUNTS
from operations import small_disk
from test_full_disk import PAGE, fill_bytes, fill_files, make_room

pytestmark = [pytest.mark.faults, MOUNTS]
FULL = "The disk is full, so nothing was saved. Tell the people who run this site."


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    folder = tmp_path / "instance"
    folder.mkdir()
    with small_disk(folder, files=200):
        yield folder


@pytest.fixture
def app(disk, make_app):
    """The app on a small disk, with open sign-up."""
    return make_app(SIGN_UP="open")


@pytest.fixture
def fill(disk):
    """A function that fills the disk."""
    return lambda: fill_bytes(disk)


def test_profile_on_a_full_disk_is_507_and_keeps_the_input(store, adas_browser, ada, fill, disk):
    before = store.users.read(ada.id)
    fill()
    page = save(adas_browser, name="Ada", bio="typed")
    assert (page.status_code, problems_of(page)) == (507, {"profile-form": FULL})
    assert "\ntyped</textarea>" in page.text
    assert store.users.read(ada.id) == before
    make_room(disk)
    assert save(adas_browser, name="Ada", bio="typed").status_code == 303


def test_new_name_is_not_saved_if_the_rest_does_not_fit(store, adas_browser, ada, disk):
    with store.users.edit(ada.id) as user:
        user.flairs.append("x" * 2000)
    before = store.users.read(ada.id)
    fill_bytes(disk, but=PAGE)
    page = save(adas_browser, name="Lovelace", bio="\N{SNOWMAN}" * 1000)
    assert (page.status_code, problems_of(page)) == (507, {"profile-form": FULL})
    assert store.users.read(ada.id) == before
    assert "\N{SNOWMAN}" * 1000 in page.text
    make_room(disk)
    assert save(adas_browser, name="Lovelace", bio="\N{SNOWMAN}" * 1000).status_code == 303


def test_sign_up_on_a_full_disk_is_507_and_keeps_the_input(store, browser, ada, fill, disk):
    fill()
    page = sign_up(browser)
    assert (page.status_code, problems_of(page)) == (507, {"form": FULL})
    assert value_of(page, "email") == "grace@example.org"
    assert store.users.ids() == [ada.id]
    make_room(disk)
    assert sign_up(browser).status_code == 303


def test_sign_up_response_is_correct_with_any_number_of_free_inodes(
    clock, store, open_browser, ada, disk
):
    """With too few files for a session the account is created, and the page says so."""
    begin_window(clock)  # else a new time window could start, which needs a folder
    locations = []
    while "/players" not in locations:
        browser, name = open_browser(), f"Grace {len(locations)}"
        browser.sign_in()  # the session of another player is replaced
        fill_files(disk)
        for n in range(len(locations)):
            (disk / f"filler {n}").unlink()
        page = sign_up(browser, name=name, email=f"{len(locations)}@example.org", next="/players")
        assert (page.status_code == 303) == (store.users.find_by_login(name) is not None)
        make_room(disk)
        locations.append(page.location)
        if page.location == "/sign-in?next=/players":
            assert "Account created. Sign in to continue." in browser.get(page.location).text
            assert browser.sign_in(name).status_code == 303
    assert set(locations) == {None, "/sign-in?next=/players", "/players"}


def test_new_password_is_saved_together_with_its_session(
    store, browser, ada, adas_link, fill, disk
):
    record = disk / "users" / f"{ada.id}.json"
    for flair in ("x", "x" * (PAGE - record.stat().st_size - 40)):
        with store.users.edit(ada.id) as user:
            user.flairs = ["none", flair]
    assert PAGE - 60 < record.stat().st_size < PAGE  # with a session it is larger than a page
    before = store.users.read(ada.id)
    form = {"link": adas_link.partition("link=")[2], "new_password": ANOTHER}
    fill_bytes(disk, but=PAGE)
    page = browser.post("/new-password", data=form)
    assert (page.status_code, problems_of(page)) == (507, {"form": FULL})
    assert store.users.read(ada.id) == before
    make_room(disk)
    assert browser.post("/new-password", data=form).status_code == 303
    assert is_signed_in(browser)


def test_sign_in_on_a_full_disk_is_507(open_browser, ada, fill):
    fill()
    page = open_browser().sign_in("Ada", PASSWORD)
    assert (page.status_code, FULL in page.text) == (507, True)
    assert value_of(page, "name") == "Ada"
