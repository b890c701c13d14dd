"""What the pages say where a real disk is full."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from forms import PASSWORD, problems_of, save, sign_up, value_of
from operations import small_disk
from test_full_disk import fill_bytes, make_room

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk needs root"),
]
FULL = "The disk is full: nothing was saved. Tell the people who run this site."


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    folder = tmp_path / "instance"
    folder.mkdir()
    with small_disk(folder, files=200):
        yield folder


@pytest.fixture
def app(disk, make_app):
    """The app on a small disk, where anyone may make an account."""
    return make_app(SIGN_UP="open")


@pytest.fixture
def fill(disk):
    """Leaves no byte."""
    return lambda: fill_bytes(disk)


def test_a_profile_that_does_not_fit_stays_as_it_was_typed(store, adas_browser, ada, fill, disk):
    before = store.read_user(ada.id)
    fill()
    page = save(adas_browser, name="Ada", bio="typed")
    assert (page.status_code, problems_of(page)) == (507, {"profile-form": FULL})
    assert "\ntyped</textarea>" in page.text
    assert store.read_user(ada.id) == before
    make_room(disk)
    assert save(adas_browser, name="Ada", bio="typed").status_code == 303


def test_a_sign_up_that_does_not_fit_is_none_and_keeps_what_was_typed(
    store, browser, ada, fill, disk
):
    fill()
    page = sign_up(browser)
    assert (page.status_code, problems_of(page)) == (507, {"form": FULL})
    assert value_of(page, "email") == "grace@example.org"
    assert store.user_ids() == [ada.id]
    make_room(disk)
    assert sign_up(browser).status_code == 303


def test_a_right_password_is_told_what_is_in_the_way(open_browser, ada, fill):
    fill()
    page = open_browser().sign_in("Ada", PASSWORD)
    assert (page.status_code, FULL in page.text) == (507, True)
    assert value_of(page, "name") == "Ada"
