"""The benchmarks count what they should, and docs/ shows their saved results."""

import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest

from benchmarks import plot
from benchmarks.load import Apart, Load, Result, percentiles
from benchmarks.measuring import Name, Track
from benchmarks.tails import ACCEPTED, REFUSED, Tails, mix
from identity.site.settings import ROOT

GET = b"GET / HTTP/1.1\r\n\r\n"
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
    result = Load(answering(*pieces), [GET] * 3, seconds=60, connections=1).run()
    assert (result.responses, result.failures) == (3, Counter(failures))


def test_percentiles_of_known_latencies_and_one_sign_in_in_a_hundred_requests():
    assert percentiles(range(1000, -1, -1)) == (500, 990, 999)
    assert percentiles([7, 7]) == (7, 7, 7)
    mixed = mix(lambda count: [b"call"] * count, lambda count: [b"sign-in"] * count, 1000)
    assert Counter(mixed) == {b"call": 990, b"sign-in": 10}
    assert all(isinstance(each, Apart) == (each == b"sign-in") for each in mixed)


def test_load_counts_sign_ins_apart(answering):
    """A refused sign-in is expected; a call that gets the same response has failed."""
    refuses = answering(OK.replace(b"200 OK", b"503 Busy"))
    result = Load(refuses, [GET, Apart(GET), GET], seconds=60, connections=1).run()
    assert (result.responses, result.failures) == (2, Counter({"HTTP/1.1 503 Busy": 2}))
    assert [status for status, _ in result.apart] == ["HTTP/1.1 503 Busy"]


def test_tail_pools_the_rounds_and_reports_unexpected_statuses():
    """The median of two percentiles would hide the slow round."""
    track = Track(Name("gunicorn", "users/info", "flat files"), None, None)
    for slower, status in ((1, ACCEPTED), (100, REFUSED)):
        latencies = [slower * each for each in range(1, 51)]
        apart = [(f"{ACCEPTED}SEE OTHER", 2000.0), (f"{status}X", 3000.0)]
        track.results.append(Result(latencies, 10.0 * slower, 0, 0, 0.5, Counter(), apart))
    tails = Tails(None)
    tails.tracks.append(track)
    [row] = tails.rows()
    assert (row.p50, row.p99, row.p999, row.rate) == (75, 4901, 4990.1, 505)
    assert (row.sign_ins, row.refused, row.wait) == (4, 1, 2)
    assert not tails.failures()
    track.results[0].apart.append(("HTTP/1.1 429 TOO MANY REQUESTS", 1.0))
    assert tails.failures() == {"HTTP/1.1 429 TOO MANY REQUESTS": 1}


def test_pages_show_the_saved_results(subtests):
    """`python -m benchmarks.plot` writes these files from the results."""
    for path, text in plot.render(json.loads(plot.RESULTS.read_text(encoding="utf-8"))).items():
        with subtests.test(path.name):
            assert path.read_text(encoding="utf-8") == text


def measure(*arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.load
@pytest.mark.slow
def test_benchmarks_run(tmp_path):
    """One short round of everything; its speeds are not looked at."""
    file = tmp_path / "results.json"
    sizes = ["--users=20", "--first=100", "--rounds=1", "--seconds=0.02"]
    printed = measure("benchmarks", *sizes, f"--save={file}")
    assert "NOT 200" not in printed
    results = json.loads(file.read_text(encoding="utf-8"))["servers"]
    assert {row["server"] for row in results["rows"]} == {"gunicorn", "granian"}
    tails = {(row["server"], row["connections"], row["sign_ins"] > 0) for row in results["tails"]}
    assert tails == set(product(["gunicorn", "granian"], [16, 256], [False, True]))


@pytest.mark.load
@pytest.mark.slow
def test_pages_are_measured(tmp_path):
    file = tmp_path / "results.json"
    sizes = ["--few=210", "--players=220", "--games=2", "--log=100", "--invitations=20"]
    measure("benchmarks.pages", *sizes, "--rounds=1", f"--save={file}")
    labels = {each["label"] for each in json.loads(file.read_text())["pages on files"]["targets"]}
    assert {"home, guest", "players, after a sign-up", "profile, player"} < labels


@pytest.mark.load
@pytest.mark.slow
@pytest.mark.postgresql
def test_growth_is_measured(tmp_path):
    file = tmp_path / "results.json"
    sizes = ["--players=60", "--clients=60", "--lines=60", "--sign-ups=8", "--rounds=1"]
    measure("benchmarks.growth", *sizes, f"--save={file}")
    labels = {each["label"] for each in json.loads(file.read_text())["growth"]["targets"]}
    assert {"suspension, 60 players", "sign-ups a second, 8 at once"} < labels
    backends = ("check of PostgreSQL, 60 players", "copy of flat files, 60 players")
    assert set(backends) < labels
