"""Concurrent uploads, against two workers."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from test_uploads import flat_png

from images.pictures import MAX_BYTES

from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer, running_server
from .test_races import race

pytestmark = [pytest.mark.live, pytest.mark.load, pytest.mark.xdist_group("account_races")]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with open sign-up."""
    with running_server(SIGN_UP="open") as server:
        yield server


def post(form_browser: FormBrowser, path: str, **sent) -> requests.Response:
    return form_browser.session.post(
        f"{form_browser.server_address}{path}",
        allow_redirects=False,
        timeout=ANSWER_TIMEOUT,
        **sent,
    )


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
