"""Requests on a full disk: look-ups go on, changes are refused."""

import subprocess

import pytest
from needs import MOUNTS

pytestmark = [pytest.mark.faults, MOUNTS]


@pytest.fixture
def fill_disk(tmp_path):
    """A function that fills the disk; the folders of this test are on their own disk."""
    options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    subprocess.run(["mount", *options], check=True)

    def fill() -> None:
        with pytest.raises(OSError), open(tmp_path / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    yield fill
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_full_disk_refuses_writes_only(fill_disk, browser, ada, program, open_browser, register):
    browser.sign_in()
    other_browser = open_browser()
    other_browser.sign_in()
    code = browser.allow(program)
    page = browser.get(register("https://space.example/callback").link(state="x"))
    fill_disk()
    # Reads, tokens and signed-in pages still work, and so does the password rate limit.
    token = program.token_for(code)
    assert program.whois(token).json["id"] == ada.id
    assert program.http.get("/api/users/info?id=1").status_code == 200
    assert "Hello" in browser.get("/").text
    assert [open_browser().sign_in(password="wrong").status_code for _ in range(10)] == [403] * 10
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


def test_sign_in_on_a_full_disk_is_507_and_not_rate_limited(fill_disk, browser, ada, open_browser):
    browser.sign_in()
    fill_disk()
    for _ in range(11):
        answer = open_browser().sign_in()
        assert (answer.status_code, "disk is full" in answer.text) == (507, True)
        assert "Set-Cookie" not in answer.headers
    assert open_browser().sign_in(password="wrong").status_code == 403
