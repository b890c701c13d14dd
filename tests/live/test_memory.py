"""The memory that workers need for exports and concurrent uploads."""

import json
from collections import Counter
from pathlib import Path

import pytest
import requests
from test_uploads import flat_png

from images.pictures import MAX_BYTES
from storage import Storage

from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer
from .test_races import post, race

pytestmark = [pytest.mark.live, pytest.mark.load]
LOG_BYTES = 60 * 2**20
# Bytes that a worker may need for an export, and for uploads: 140 MiB if those were kept in memory.
MOST_FOR_EXPORT, MOST_FOR_UPLOADS = 10 * 2**20, 110 * 2**20


def peak_memory(process_id: int) -> int:
    """Return the largest resident set of a process, in bytes."""
    status = Path(f"/proc/{process_id}/status").read_text()
    [peak] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024


def reset_peak(process_id: int) -> int:
    """Begin the measurement anew; return the resident set of now, in bytes."""
    Path(f"/proc/{process_id}/clear_refs").write_text("5")
    return peak_memory(process_id)


def test_export_of_a_long_audit_log_uses_little_memory(
    server: RunningServer, store: Storage, ada: dict, adas_form_browser: FormBrowser
):
    client = server.add_client("Much changed", "https://a.example/", owner="ada")["client_id"]
    ids = {"by": ada["id"], "client": client, "address": "192.0.2.7"}
    line = json.dumps({"time": 1, "act": "client new-secret", **ids}).encode() + b"\n"
    lines = LOG_BYTES // len(line)
    (server.data_dir / "audit.log").touch(0o600)
    with (server.data_dir / "audit.log").open("ab") as log:
        for _ in range(lines):
            log.write(line)
    session = adas_form_browser.session
    for _ in range(3):  # one worker, at least, imports what it needs
        session.get(f"{server.address}/account", timeout=ANSWER_TIMEOUT)
    before = max(map(reset_peak, server.workers()))
    read, end = 0, b""
    url = f"{server.address}/account/export"
    with session.get(url, stream=True, timeout=ANSWER_TIMEOUT) as answer:
        for part in answer.iter_content(2**16):
            read, end = read + part.count(b"client new-secret"), (end + part)[-40:]
    assert (answer.status_code, read) == (200, lines)
    assert end.endswith(b'"auditComplete": true\n}\n')
    with session.get(url, stream=True, timeout=ANSWER_TIMEOUT) as answer:
        next(answer.iter_content(2**16))  # a client that leaves
    assert max(map(peak_memory, server.workers())) < before + MOST_FOR_EXPORT
    assert requests.get(f"{server.address}/healthz", timeout=ANSWER_TIMEOUT).status_code == 200
    assert "Traceback" not in server.error_log.read_text()


def test_parallel_uploads_keep_workers_under_200_mib(server: RunningServer):
    """40 uploads at once of 8 MiB with 25 megapixels each, and password checks beside them."""
    before = {worker: reset_peak(worker) for worker in server.workers()}
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
            return post(browsers[number], "/account/email", data=form, allow_redirects=False)
        files = {"picture": picture}
        return post(browsers[number], "/account/picture", files=files, allow_redirects=False)

    counts = Counter(each.status_code for each in race(act, len(browsers)))
    assert counts.keys() == {303, 503}, counts
    for worker, memory in before.items():
        assert peak_memory(worker) < memory + MOST_FOR_UPLOADS
