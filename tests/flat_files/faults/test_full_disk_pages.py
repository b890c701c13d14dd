"""Pages and the API on a full or a read-only disk: look-ups go on, and changes are refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import MOUNTS, PAGE, disk_in_memory, fill_bytes, make_read_only, make_usable
from forms import problems_of, save, sign_up, value_of

from identity.http.limits import ATTEMPTS_PER_NAME
from model.kinds import FAMILIES

pytestmark = [pytest.mark.faults, MOUNTS]
FULL = "The disk is full, so nothing was saved. Tell the people who run this site."


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    with disk_in_memory(tmp_path / "instance") as disk:
        yield disk


@pytest.fixture
def app(disk, make_app):
    """The app on a small disk, with open sign-up."""
    return make_app(SIGN_UP="open")


def test_profile_that_does_not_fit_is_507_and_keeps_the_input(store, adas_browser, ada, disk):
    with store.users.edit(ada.id) as user:
        user.flairs.append("x" * 2000)
    before = store.users.read(ada.id)
    fill_bytes(disk, but=PAGE)
    page = save(adas_browser, name="Lovelace", bio="\N{SNOWMAN}" * 1000)
    assert (page.status_code, problems_of(page)) == (507, {"profile-form": FULL})
    assert store.users.read(ada.id) == before
    assert "\N{SNOWMAN}" * 1000 in page.text
    make_usable(disk)
    assert save(adas_browser, name="Lovelace", bio="\N{SNOWMAN}" * 1000).status_code == 303


def test_sign_up_on_a_full_disk_is_507_and_keeps_the_input(store, browser, ada, disk):
    fill_bytes(disk)
    page = sign_up(browser)
    assert (page.status_code, problems_of(page)) == (507, {"form": FULL})
    assert value_of(page, "email") == "grace@example.org"
    assert store.users.ids() == [ada.id]
    make_usable(disk)
    assert sign_up(browser).status_code == 303


def test_sign_in_on_a_full_disk_is_507_and_not_rate_limited(open_browser, browser, ada, disk):
    browser.sign_in()  # the folder of this window is there
    fill_bytes(disk)
    for _ in range(ATTEMPTS_PER_NAME + 1):
        page = open_browser().sign_in()
        assert (page.status_code, FULL in page.text) == (507, True)
        assert value_of(page, "name") == "Ada"
        assert "Set-Cookie" not in page.headers
    assert open_browser().sign_in(password="wrong").status_code == 403


def test_full_disk_refuses_writes_only(disk, browser, ada, program, open_browser, register):
    browser.sign_in()
    other_browser = open_browser()
    other_browser.sign_in()
    code = browser.allow(program)
    page = browser.get(register("https://space.example/callback").link(state="x"))
    fill_bytes(disk)
    # Reads, tokens and signed-in pages still work, and so does the password rate limit.
    token = program.token_for(code)
    assert program.whois(token).json["id"] == ada.id
    assert program.http.get("/api/users/info?id=1").status_code == 200
    assert "Hello" in browser.get("/").text
    wrong = [open_browser().sign_in(password="wrong") for _ in range(ATTEMPTS_PER_NAME)]
    assert {page.status_code for page in wrong} == {403}
    # A used code is still refused.
    assert program.exchange(code).status_code == 400
    # A failed write is reported to the client or to the player.
    for answer in (browser.decide(page), browser.get(program.link(state="x"))):
        parameters = program.read_callback(answer)
        assert (parameters["error"], parameters["state"]) == ("server_error", "x")
    assert program.read_callback(browser.decide(page, "deny"))["error"] == "access_denied"
    assert open_browser().sign_in().status_code == 429
    signed_out = other_browser.post("/sign-out")
    assert (signed_out.status_code, "Set-Cookie" in signed_out.headers) == (303, True)
    assert "Hello" not in other_browser.get("/").text


def test_read_only_disk_allows_reading_and_tokens(adas_browser, anyone, ada, program, disk):
    token = program.token_for(adas_browser.allow(program))
    make_read_only(disk)
    assert anyone.get(f"/api/users/info?id={ada.id}").json["user"]["name"] == "Ada"
    assert program.whois(token).json["name"] == "Ada"
    assert anyone.get(f"/pfp/large/{ada.picture_file}").data[:4] == b"RIFF"
    assert "Hello, " in adas_browser.get("/").text
    assert "Your account" in adas_browser.get("/account").text
    assert anyone.get("/healthz").status_code == 503


def test_save_on_a_read_only_disk_is_503_and_saves_nothing(
    store, adas_browser, open_browser, ada, program, disk
):
    consent = adas_browser.get(program.link())
    before = store.users.read(ada.id)
    make_read_only(disk)
    profile = save(adas_browser, name="Ada", bio="new")
    heartbeat = adas_browser.post("/api/users/heartbeat")
    sign_in = open_browser().sign_in()
    for answer in (profile, heartbeat, sign_in):
        assert (answer.status_code, int(answer.headers["Retry-After"]) > 0) == (503, True)
    assert "Nothing was saved." in profile.text
    assert heartbeat.json.keys() == {"message"}
    assert "check passwords right now." in sign_in.text
    assert program.read_callback(adas_browser.decide(consent))["error"] == "server_error"
    assert store.users.read(ada.id) == before
    assert adas_browser.post("/sign-out").status_code == 303
    assert "Hello, " not in adas_browser.get("/").text


def test_code_is_503_on_a_read_only_disk_and_valid_afterwards(adas_browser, program, disk):
    used, good = adas_browser.allow(program), adas_browser.allow(program)
    assert program.exchange(used).status_code == 200
    make_read_only(disk)
    refused = program.exchange(good)
    assert (refused.status_code, int(refused.headers["Retry-After"]) > 0) == (503, True)
    assert program.exchange(used).status_code == 400
    make_usable(disk)
    assert program.exchange(good).status_code == 200


@pytest.mark.parametrize("refuse", [fill_bytes, make_read_only])
def test_refresh_token_and_code_are_503_and_good_afterwards(
    store, adas_browser, program, disk, refuse
):
    scope = "userinfo offline_access"
    codes = [adas_browser.allow(program, scope=scope) for _ in range(2)]
    token = program.exchange_standard(codes[0]).json["refresh_token"]
    form = {"grant_type": "refresh_token", "refresh_token": token}
    before = store.records(FAMILIES).ids()
    refuse(disk)
    for answer in (
        program.exchange_standard("", code=None, **form),
        program.exchange_standard(codes[1]),
    ):
        assert (answer.status_code, int(answer.headers["Retry-After"]) > 0) == (503, True)
    assert store.records(FAMILIES).ids() == before
    make_usable(disk)
    assert program.exchange_standard(codes[1]).json["refresh_token"] != token
    assert program.exchange_standard("", code=None, **form).json["refresh_token"] != token
