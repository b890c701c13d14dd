"""`identity-server settings` and `serve` warn about an installation; `settings` prints the fix."""

import os
from collections.abc import Callable
from unittest import mock

import pytest
from click.testing import CliRunner
from test_command import Installation

from commands.advice import check_environment
from identity.settings import read_settings
from identity_admin import identity_server_command
from storage import Storage
from storage.maintenance import Advice

LOOPBACK = ("127.0.0.1", 8000)
ALL_INTERFACES = ("0.0.0.0", 8000)
PUBLIC = {"BASE_URL": "https://id.example.org"}


@pytest.fixture
def advise(environment, tmp_path) -> Callable[..., list[Advice]]:
    """A function that returns the advice on these settings, with the folders of `storage`."""
    folders = {"DATA_DIR": str(tmp_path / "instance"), "PICTURE_DIR": str(tmp_path / "pfp")}

    def advise(bind: tuple[str, int] = LOOPBACK, **settings: str) -> list[Advice]:
        return check_environment(read_settings(folders | settings), bind)

    return advise


@pytest.mark.parametrize(
    ("bind", "settings"),
    [
        (LOOPBACK, {}),
        (("localhost", 8000), {"BASE_URL": "http://localhost:8000"}),
        (("[::1]", 8000), {"BASE_URL": "http://[::1]:8000"}),
        (LOOPBACK, PUBLIC),
        (("[::1]", 8000), PUBLIC | {"SIGN_UP": "open"}),
        (("192.168.1.2", 80), {"BASE_URL": "http://192.168.1.2"}),
        (("0.0.0.0", 8000), {"BASE_URL": "http://games.local:8000"}),
        (LOOPBACK, {"SIGN_UP": "open"}),
    ],
)
def test_consistent_settings_get_no_advice(advise, storage: Storage, bind, settings):
    assert advise(bind, **settings) == []


def test_missing_folders_get_no_advice(advise):
    assert advise() == []


@pytest.mark.parametrize(
    ("bind", "settings", "problem", "fix"),
    [
        (
            ("0.0.0.0", 80),
            {"BASE_URL": "http://id.example.org"},
            "http on a public name",
            "IDENTITY_BASE_URL=https://id.example.org",
        ),
        (
            ("0.0.0.0", 80),
            {"BASE_URL": "http://8.8.8.8"},
            "http on a public name",
            "deploy/nginx.conf",
        ),
        (
            ALL_INTERFACES,
            PUBLIC,
            "clients that reach 0.0.0.0:8000 past the proxy can forge the address",
            "--bind 127.0.0.1:8000",
        ),
        (
            LOOPBACK,
            {"BASE_URL": "http://games.local"},
            "only this machine reaches 127.0.0.1:8000",
            "IDENTITY_PROXIES=1",
        ),
        (
            ALL_INTERFACES,
            {"BASE_URL": "http://127.0.0.1:8000"},
            "the server answers to 127.0.0.1 only",
            "--bind 127.0.0.1:8000",
        ),
        (
            LOOPBACK,
            {"BASE_URL": "http://localhost"},
            "links lead to http://localhost, but the server listens at port 8000",
            "--bind 127.0.0.1:80,",
        ),
        (
            ALL_INTERFACES,
            {"BASE_URL": "http://games.local:9000"},
            "links lead to http://games.local:9000",
            "the port 8000",
        ),
        (
            ALL_INTERFACES,
            {"BASE_URL": "http://games.local:8000", "SIGN_UP": "open"},
            "no proxy in front limits the rate of requests",
            "IDENTITY_SIGN_UP=invite",
        ),
    ],
)
def test_inconsistent_addresses(advise, bind, settings, problem, fix):
    [advice] = advise(bind, **settings)
    assert problem in advice.problem
    assert fix in advice.fix


def test_addresses_are_not_checked_in_a_container(advise, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert advise(ALL_INTERFACES) == advise(ALL_INTERFACES, **PUBLIC) == []


# -- the commands ---------------------------------------------------------------------------------


INCONSISTENT = {"IDENTITY_BASE_URL": "http://id.example.org"}


@pytest.fixture
def installation(tmp_path) -> Installation:
    """The command on a new installation."""
    return Installation(tmp_path)


def test_settings_prints_settings_then_warnings_with_fixes(installation):
    done = installation.run("settings", "--bind", "0.0.0.0:80", **INCONSISTENT)
    assert done.stderr == ""
    settings, _, problems = done.stdout.partition("\n\n")
    assert "IDENTITY_BASE_URL=http://id.example.org  (environment)" in settings
    assert "IDENTITY_SIGN_UP=invite  (default)" in settings
    assert problems.startswith("Warning: passwords and tokens travel unencrypted")
    assert "\n    Fix: put nginx " in problems


def test_settings_default_base_url_follows_bind(installation):
    printed = installation.output("settings", "--bind", "[::1]:8042")
    assert "IDENTITY_BASE_URL=http://[::1]:8042  (default)" in printed
    assert "Warning" not in printed


def test_settings_leaves_the_environment_unchanged(installation):
    with mock.patch.dict(os.environ, installation.environment, clear=True):
        done = CliRunner().invoke(identity_server_command, ["settings"], catch_exceptions=False)
        assert done.exit_code == 0
        assert os.environ == installation.environment


def test_serve_prints_warnings_and_starts(installation):
    done = installation.run("serve", "--bind", "127.0.0.1:0", **INCONSISTENT)
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["Warning", "Warning"]
    assert "http on a public name." in "".join(lines[:2])
    assert lines[2:] == ["How to fix it: identity-server settings"]
    assert "gunicorn" in installation.served
