"""The benchmarks count what they should, and docs/performance.md shows their saved results."""

import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from benchmarks import plot
from benchmarks.load import measure
from identity.settings import ROOT

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def answering() -> Iterator:
    """A function that starts a server, which sends these pieces for each request."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(pieces: list[bytes]) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while connection.recv(4096):
                for piece in pieces:
                    connection.sendall(piece)

    def start(*pieces: bytes) -> int:
        threading.Thread(target=answer, args=(pieces,), daemon=True).start()
        return listener.getsockname()[1]

    with listener:
        yield start


@pytest.mark.parametrize(
    "pieces, failures",
    [
        ([OK[:10], OK[10:-1], OK[-1:]], {}),
        ([OK.replace(b"200 OK", b"503 Busy")], {"HTTP/1.1 503 Busy": 3}),
    ],
)
def test_load_counts_whole_responses_and_failures(answering, pieces, failures):
    result = measure(answering(*pieces), [b"GET / HTTP/1.1\r\n\r\n"] * 3, seconds=60, connections=1)
    assert (result.responses, result.failures) == (3, Counter(failures))


def test_page_shows_the_saved_results():
    """`python -m benchmarks.plot` writes both files from the results."""
    results = json.loads(plot.RESULTS.read_text(encoding="utf-8"))
    page = plot.PAGE.read_text(encoding="utf-8")
    assert plot.fill_page(page, results) == page
    assert plot.draw_plot(plot.read_rows(results["peers"])) == plot.PLOT.read_text(encoding="utf-8")


@pytest.mark.load
def test_benchmarks_run(tmp_path):
    """One short round of everything; its speeds are not looked at."""
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", "--users=20", "--rounds=1", "--seconds=0.05"]
    done = subprocess.run(
        [*command, f"--save={file}"], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT 200" not in done.stdout
    rows = json.loads(file.read_text(encoding="utf-8"))["servers"]["rows"]
    assert {row["server"] for row in rows} == {"gunicorn", "granian"}


@pytest.mark.load
def test_pages_are_measured(tmp_path):
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.pages", "--few=210", "--players=220", "--games=2"]
    done = subprocess.run(
        [*command, "--rounds=1", f"--save={file}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    labels = {each["label"] for each in json.loads(file.read_text())["pages on files"]["targets"]}
    assert {"home, guest", "players, after a sign-up", "profile, player"} < labels


@pytest.mark.load
@pytest.mark.postgresql
def test_growth_is_measured(tmp_path):
    file = tmp_path / "results.json"
    sizes = ["--players=200", "--clients=120", "--lines=200", "--sign-ups=8", "--rounds=1"]
    command = [sys.executable, "-m", "benchmarks.growth", *sizes, f"--save={file}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    labels = {each["label"] for each in json.loads(file.read_text())["growth"]["targets"]}
    assert {"suspension, 200 players", "sign-ups a second, 8 at once"} < labels
    backends = ("check of PostgreSQL, 200 players", "copy of flat files, 200 players")
    assert set(backends) < labels
