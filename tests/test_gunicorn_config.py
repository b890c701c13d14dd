"""`serving.gunicorn_config` matches the installed gunicorn. tests/live/ tests its effects."""

import subprocess
import sys

import pytest
from gunicorn.config import Config
from gunicorn.http import message, parser

from serving import gunicorn_config


def test_gunicorn_knows_every_setting():
    known = Config().settings
    # gunicorn ignores unknown names.
    settings = {name for name, value in vars(gunicorn_config).items() if type(value) in (str, int)}
    assert {name for name in settings if not name.startswith("__")} <= known.keys()
    for name in (
        "worker_class",
        "timeout",
        "keepalive",
        "accesslog",
        "logger_class",
        "on_starting",
    ):
        assert name in vars(gunicorn_config) and name in known


def test_import_patches_nothing():
    assert message.ChunkedReader is not gunicorn_config.ChunkedBody
    assert parser.RequestParser.mesg_class is message.Request


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
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: gunicorn ") and "gunicorn.glogging.Logger.access" in line
