"""The access log: whole lines, also of several processes, and without secrets."""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from serving.access_log import MOST, LineWriter, access_line

LINE = re.compile(
    rb'\S+ - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "[^" ]+ [^" ]+ [^" ]+" '
    rb"\d{3} \d+ \d+\.\d{6}\n"
)
PROCESSES, LINES = 4, 5000
# Each process writes lines of its own, of up to MOST bytes, to the standard output of all.
WRITER = f"""
import random, sys
from serving.access_log import MOST, LineWriter
writer, name = LineWriter(), sys.argv[1]
for number in range({LINES}):
    start = f"{{name}} {{number}} "
    padding = random.choice((20, 100, MOST - len(start) - 1))
    writer.write((start + name * padding + "\\n").encode())
"""


def environ_of(**values: str) -> dict:
    request = {"REMOTE_ADDR": "192.0.2.1", "REQUEST_METHOD": "GET", "PATH_INFO": "/"}
    return request | {"SERVER_PROTOCOL": "HTTP/1.1", "QUERY_STRING": "code=c"} | values


def test_line_has_the_documented_fields_and_no_secret_of_a_path():
    line = access_line(environ_of(PATH_INFO="/api/users/info"), "200 OK", 180, 0.25)
    assert LINE.fullmatch(line)
    assert line.startswith(b"192.0.2.1 - - [")
    assert line.endswith(b'] "GET /api/users/info HTTP/1.1" 200 180 0.250000\n')
    secret = secrets.token_urlsafe(32)
    line = access_line(environ_of(PATH_INFO=f"/callback/{secret}"), "404", 0, 0.0).decode()
    assert secret[:12] not in line and " /callback/... " in line


def test_hostile_request_gets_one_line_of_limited_length(subtests):
    hostile = ['"\n1.2.3.4 - - "', "\r\x1b[2J", "é\xff", "%" * 9000, "a b", "/" * 9000, ""]
    requests = [{name: text} for text in hostile for name in environ_of()]
    for values in [*requests, dict.fromkeys(environ_of(), "\xff" * 9000)]:
        with subtests.test(**{name: text[:20] for name, text in values.items()}):
            line = access_line(environ_of(**values), "404 NOT FOUND", 10**12, 10.0**6)
            assert LINE.fullmatch(line)
            assert len(line) <= MOST


def write_from_processes(**options) -> list[subprocess.Popen]:
    return [subprocess.Popen([sys.executable, "-c", WRITER, name], **options) for name in "abcd"]


def check_lines(content: bytes) -> None:
    """Assert that the lines of every process are there, each once, in order and whole."""
    lines = content.decode().splitlines()
    assert len(lines) == PROCESSES * LINES
    counts = dict.fromkeys("abcd", 0)
    for line in lines:
        name, number, padding = line.split(" ")
        assert int(number) == counts[name]
        assert set(padding) == {name}
        assert len(padding) in (20, 100) or len(line) == MOST - 1
        counts[name] += 1


@pytest.mark.live
@pytest.mark.parametrize("blocking", [True, False])
def test_pipe_gets_each_line_of_four_processes_whole(blocking):
    """A full pipe delays the writers; in the kernel, or with O_NONBLOCK in LineWriter."""
    reading, writing = os.pipe()
    os.set_blocking(writing, blocking)
    running = write_from_processes(stdout=writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        content = pipe.read()
    assert [each.wait() for each in running] == [0] * PROCESSES
    check_lines(content)


@pytest.mark.live
@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_file_gets_each_line_of_four_processes_whole(tmp_path: Path, mode):
    with (tmp_path / "access.log").open(mode) as file:
        running = write_from_processes(stdout=file)
        assert [each.wait() for each in running] == [0] * PROCESSES
    check_lines((tmp_path / "access.log").read_bytes())


@pytest.mark.live
def test_full_disk_stops_no_request_and_joins_no_lines(tmp_path: Path):
    """RLIMIT_FSIZE refuses the end of a line as a full disk does, in a process of its own."""
    program = """
import resource, signal
from serving.access_log import LineWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = LineWriter()
resource.setrlimit(resource.RLIMIT_FSIZE, (25, resource.RLIM_INFINITY))
for number in range(4):
    writer.write(b"line %d-----\\n" % number)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.write(b"after\\n")
writer.write(b"the end\\n")
"""
    with (tmp_path / "log").open("wb") as file:
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)
    lines = (tmp_path / "log").read_bytes().split(b"\n")
    assert lines == [b"line 0-----", b"line 1-----", b"l", b"after", b"the end", b""]


def test_closed_standard_output_stops_no_request():
    reading, writing = os.pipe()
    os.close(reading)
    LineWriter(writing).write(b"a line\n")
    os.close(writing)
    LineWriter(writing).write(b"a line\n")
