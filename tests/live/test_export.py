"""The export of an account with a long audit log, from a running server."""

import json
from pathlib import Path

import pytest
import requests

from storage import Storage

from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, RunningServer

pytestmark = [pytest.mark.live, pytest.mark.load]
LOG_BYTES = 60 * 2**20
MOST_MEMORY = 10 * 2**20  # bytes that a worker may need for an export


def peak_memory(process_id: int) -> int:
    """Return the largest resident set of a process, in bytes."""
    status = Path(f"/proc/{process_id}/status").read_text()
    [peak] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024


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
    before = {}
    for _ in range(3):  # each worker imports what it needs
        session.get(f"{server.address}/account", timeout=ANSWER_TIMEOUT)
    for worker in server.workers():
        Path(f"/proc/{worker}/clear_refs").write_text("5")  # resets the peak
        before[worker] = peak_memory(worker)
    read, end = 0, b""
    url = f"{server.address}/account/export"
    with session.get(url, stream=True, timeout=ANSWER_TIMEOUT) as answer:
        for part in answer.iter_content(2**16):
            read, end = read + part.count(b"client new-secret"), (end + part)[-40:]
    assert (answer.status_code, read) == (200, lines)
    assert end.endswith(b'"auditComplete": true\n}\n')
    with session.get(url, stream=True, timeout=ANSWER_TIMEOUT) as answer:
        next(answer.iter_content(2**16))  # a client that leaves
    for worker, memory in before.items():
        assert peak_memory(worker) < memory + MOST_MEMORY
    assert requests.get(f"{server.address}/healthz", timeout=ANSWER_TIMEOUT).status_code == 200
    assert "Traceback" not in server.error_log.read_text()
