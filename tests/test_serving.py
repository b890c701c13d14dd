"""serving/ and the installed gunicorn and granian; tests/live/test_servers.py runs both."""

import io
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable
from types import ModuleType

import granian
import pytest
from gunicorn.config import Config
from werkzeug.wsgi import ClosingIterator

from identity.settings import ROOT
from serving import granian_server, gunicorn_config
from serving.granian_requests import MOST_OF_A_BODY, MOST_OF_A_LINE, Requests
from serving.internals import require_internals

# -- the installed servers ----------------------------------------------------------------------


@pytest.mark.parametrize("server", [granian_server, gunicorn_config])
def test_missing_internal_is_named_in_one_line(subtests, server: ModuleType):
    require_internals(granian, server.INTERNALS, "")
    for module, path in server.INTERNALS:
        with subtests.test(path), pytest.raises(SystemExit) as refused:
            require_internals(granian, ((module, f"{path}_renamed"),), "fix it")
        missing = f"granian {granian.__version__} has no {module.__name__}.{path}_renamed"
        assert refused.value.code == f"Error: {missing}: fix it"


@pytest.mark.parametrize("version", ["2.7.3", "1.99.0", "2.7"])
def test_granian_that_can_be_aborted_is_refused(monkeypatch, version):
    monkeypatch.setattr(granian, "__version__", version)
    with pytest.raises(SystemExit) as refused:
        granian_server.check_granian()
    assert refused.value.code.startswith(f"Error: granian {version} is too old: pip install ")


@pytest.mark.live
def test_serve_without_granian_exits_with_one_line(tmp_path):
    program = "import sys; sys.modules['granian'] = None; from identity_admin import main; main()"
    command = [sys.executable, "-c", program, "serve", "--server=granian"]
    folder = {"IDENTITY_DATA_DIR": str(tmp_path / "data")}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: granian cannot be used") and "identity-server[fast]" in line
    assert not (tmp_path / "data").exists()


def test_gunicorn_knows_every_setting():
    """gunicorn ignores unknown names."""
    settings = {name for name, value in vars(gunicorn_config).items() if type(value) in (str, int)}
    assert {name for name in settings if not name.startswith("__")} <= Config().settings.keys()


@pytest.mark.live
def test_gunicorn_without_a_patched_attribute_does_not_start():
    """Start it as `serve` does, with a gunicorn whose log cannot be redacted."""
    program = (
        "import sys; from gunicorn.glogging import Logger; del Logger.access; "
        "from gunicorn.app.wsgiapp import run; sys.exit(run())"
    )
    config = f"--config={gunicorn_config.__file__}"
    command = [sys.executable, "-c", program, config, "--bind=127.0.0.1:0", "wsgi:application"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: gunicorn ") and "gunicorn.glogging.Logger.access" in line


# -- around a request of granian ---------------------------------------------------------------


class Exchange:
    """What `Requests` makes of a request to an application: status, headers, body, access lines."""

    def __init__(self, application: Callable, environ: dict) -> None:
        self.lines: list[str] = []
        requests = Requests(lambda line: self.lines.append(line.decode()))
        requests.application = application
        body = requests(environ, self._start)
        self.lines_before_the_body = [*self.lines]
        self.body = b"".join(body)
        if not isinstance(body, list):
            body.close()  # as granian does

    def _start(self, status: str, headers: list[tuple[str, str]]) -> None:
        self.status, self.headers = status, headers


def environ_of(body: bytes = b"", **values: str) -> dict:
    """Return the environ of a request as granian makes it, with headers after `wsgi.input`."""
    request = {"REMOTE_ADDR": "192.0.2.1", "REQUEST_METHOD": "GET", "PATH_INFO": "/"}
    request |= {"SERVER_PROTOCOL": "HTTP/1.1", "QUERY_STRING": "", "wsgi.input": io.BytesIO(body)}
    return {"PATH": "x" * 9000} | request | values  # granian's own environment is in it


def respond(environ: dict, start_response: Callable) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"o", b"k"]


def test_head_over_a_limit_is_refused(subtests):
    for values, status in (
        ({}, "200 OK"),
        ({"QUERY_STRING": "a" * (MOST_OF_A_LINE - 1)}, "200 OK"),
        ({"QUERY_STRING": "a" * MOST_OF_A_LINE}, "414 URI Too Long"),
        ({"PATH_INFO": "/" * (MOST_OF_A_LINE + 1)}, "414 URI Too Long"),
        ({"HTTP_COOKIE": "a" * MOST_OF_A_LINE, "HTTP_X": ""}, "200 OK"),
        ({"HTTP_COOKIE": "a" * (MOST_OF_A_LINE + 1)}, "431 Request Header Fields Too Large"),
        ({"HTTP_X": "a" * 9000, "HTTP_Y": ""}, "431 Request Header Fields Too Large"),
        ({"CONTENT_TYPE": "a" * 9000, "HTTP_Y": ""}, "431 Request Header Fields Too Large"),
        ({"CONTENT_LENGTH": "0" * 4400}, "400 Bad Request"),
        ({"HTTP_TRANSFER_ENCODING": "chunked"}, "411 Length Required"),
    ):
        with subtests.test([*values], status=status):
            done = Exchange(respond, environ_of(**values))
            assert done.status == status
            assert (("Connection", "close") in done.headers) == (status != "200 OK")
            assert dict(done.headers)["Content-Length"] == str(len(done.body))
            assert [line.split()[8] for line in done.lines] == [status[:3]]


@pytest.mark.parametrize("length", [0, 1, MOST_OF_A_BODY, 2 * MOST_OF_A_BODY])
def test_body_that_the_application_left_is_read_up_to_a_limit(length):
    environ = environ_of(bytes(length), CONTENT_LENGTH=str(length))
    assert Exchange(respond, environ).status == "200 OK"
    assert environ["wsgi.input"].tell() == min(length, MOST_OF_A_BODY)


def test_streamed_response_is_logged_when_it_is_closed():
    closed = []

    def stream(environ: dict, start_response: Callable) -> Iterable[bytes]:
        start_response("200 OK", [])
        return ClosingIterator([b"a" * 10, b"b" * 5], lambda: closed.append(True))

    done = Exchange(stream, environ_of())
    assert done.lines_before_the_body == []
    assert done.body == b"a" * 10 + b"b" * 5
    assert [line.split()[8:10] for line in done.lines] == [["200", "15"]]
    assert closed == [True]


def test_exception_is_500_and_logged_without_secrets(capfd):
    def fail(environ: dict, start_response: Callable) -> list[bytes]:
        raise RuntimeError("broken")

    secret = secrets.token_urlsafe(32)
    done = Exchange(
        fail, environ_of(PATH_INFO=f"/callback/{secret}", QUERY_STRING=f"code={secret}")
    )
    assert (done.status, done.body) == ("500 Internal Server Error", b"Internal Server Error")
    said = capfd.readouterr().err
    assert said.startswith("Error handling request GET /callback/...\n")
    assert "RuntimeError: broken" in said
    assert secret not in said + "".join(done.lines)
    assert done.lines[0].split()[8] == "500"
