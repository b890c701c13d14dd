"""serving/ and the installed gunicorn and granian; tests/live/test_servers.py runs both."""

import io
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import granian
import pytest
from gunicorn.config import Config

from identity.site.settings import ROOT
from serving import granian_server, gunicorn_config
from serving.granian_requests import MOST_OF_A_BODY, read_rest
from serving.internals import require_internals


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
        granian_server.require_granian()
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


def test_gunicorn_knows_every_setting_and_a_worker_ends_without_an_application():
    """gunicorn ignores unknown names.

    It failed to boot; or the master calls this, for a worker that has just gone.
    """
    settings = {name for name, value in vars(gunicorn_config).items() if type(value) in (str, int)}
    assert {name for name in settings if not name.startswith("__")} <= Config().settings.keys()
    gunicorn_config.worker_exit(None, SimpleNamespace())
    gunicorn_config.post_worker_init(SimpleNamespace(wsgi=lambda *_: None))


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


@pytest.mark.parametrize(
    ("method", "parts", "calls"), [("GET", ["ok"], 1), ("GET", ["o", "k"], 3), ("HEAD", ["ok"], 1)]
)
def test_response_with_one_part_takes_one_system_call(method: str, parts: list[str], calls: int):
    sent, request = [], SimpleNamespace(method=method, version=(1, 1), should_close=lambda: False)
    connection = SimpleNamespace(sendall=sent.append)
    response = gunicorn_config.Response(request, connection, Config())
    response.start_response("200 OK", [("Content-Length", "2"), ("X-Name", "é")])
    for part in parts:
        response.write(part.encode())
    response.close()
    assert len(sent) == calls
    body = b"ok" if method == "GET" else b""
    assert b"".join(sent).endswith(b"\r\nContent-Length: 2\r\nX-Name: \xe9\r\n\r\n%b" % body)
    assert response.sent == len(body)


@pytest.mark.parametrize("length", [0, 1, MOST_OF_A_BODY, 2 * MOST_OF_A_BODY])
def test_body_that_the_application_left_is_read_up_to_a_limit(length: int):
    body = io.BytesIO(bytes(length))
    read_rest(body)
    assert body.tell() == min(length, MOST_OF_A_BODY)
