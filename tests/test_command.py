"""The `identity-server` command, called in this process, but for tests with the marker `live`."""

import base64
import contextlib
import functools
import hashlib
import io
import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from unittest import mock

import click
import pytest
from backends import FLAT_FILES, Backend
from click.testing import CliRunner, Result
from conftest import CHEAP_PASSWORD_METHOD
from PIL import Image
from test_readme import all_commands
from waiting import PATIENCE, wait_until
from werkzeug.security import check_password_hash

from commands.address import kept_address
from commands.running import usable_cores
from identity.access import passwords
from identity.site.advice import explain_loopback
from identity.site.networks import note_unreadable
from identity.site.settings import SETTINGS
from identity_admin import identity_server_command
from model.kinds import COVERS
from storage.flat_files import disk

ROOT = Path(__file__).parent.parent
COMMAND = Path(sys.executable).with_name("identity-server")
PASSWORD = "correct horse battery"
CALLBACK = "https://chess.example.org/callback"
USER_FIELDS = {"name", "id", "bio", "flairs", "equippedFlair", "playMinutes", "lastHeartbeat"}
USER_FIELDS |= {"modLevel", "pfpTimestamp", "email", "suspended"}
CLIENT_FIELDS = {
    *("client_id", "name", "redirect_uris", "owner", "disabled", "created"),
    *("game_url", "description", "listed", "disabled_by", "public", "require_pkce", "no_email"),
    *("device", "post_logout_redirect_uris", "only_groups", "cover", "used", "declined", "tags"),
    "backchannel_logout_uri",
}


class Installation:
    """A folder in which the command runs, with its data in `data` and `pictures`."""

    def __init__(self, folder: Path, backend: Backend = FLAT_FILES) -> None:
        self.folder = folder
        self.data, self.pictures = folder / "data", folder / "pictures"
        folders = str(self.data), str(self.pictures)
        self.open = functools.partial(backend.open, *folders)  # returns its storage
        self.faults = backend.faults(*folders)
        self.environment = {
            **{name: value for name, value in os.environ.items() if "IDENTITY_" not in name},
            # The command runs the code of this checkout, even if it was installed from another one.
            "PYTHONPATH": str(ROOT),
            "IDENTITY_DATA_DIR": "data",
            "IDENTITY_PICTURE_DIR": "pictures",
        }

    def run(
        self, *arguments: str | bytes, status: int = 0, stdin: str | bytes = "", **variables: str
    ) -> Result:
        """Run the command in this process; it must exit with this status.

        Passwords get a cheap hash, and nothing is synced. `serve` ends before it starts gunicorn:
        `self.served` is the command line.
        """
        self.served: list[str] | None = None
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, self.environment | variables, clear=True),
            mock.patch.object(os, "execve", self._keep_arguments),
            mock.patch.object(os, "fsync"),
            mock.patch.object(disk, "sync_file_system"),
            mock.patch.object(passwords, "PASSWORD_METHOD", CHEAP_PASSWORD_METHOD),
        ):
            done = CliRunner().invoke(
                identity_server_command,
                [os.fsdecode(each) for each in arguments],
                input=stdin,
                prog_name="identity-server",
                catch_exceptions=False,
            )
        assert done.exit_code == status, (arguments, done.output)
        return done

    def _keep_arguments(self, program: str, arguments: list[str], variables: dict) -> None:
        self.served = arguments

    def run_process(
        self, *arguments: str, status: int = 0, stdin: str = "", **options
    ) -> subprocess.CompletedProcess[str]:
        """Run the installed command; it must exit with this status."""
        assert COMMAND.exists(), "the command is not installed: pip install -e ."
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        done = subprocess.run(
            [COMMAND, *arguments],
            input=stdin,
            text=True,
            cwd=self.folder,
            timeout=PATIENCE,
            **{"env": self.environment} | options,
        )
        assert done.returncode == status, (arguments, done)
        return done

    def output(self, *arguments: str, **options) -> str:
        return self.run(*arguments, **options).stdout

    def record(self, *arguments: str, **options):
        return json.loads(self.output(*arguments, "--json", **options))

    def refusal(self, *arguments: str, **options) -> str:
        """Run the command, which must refuse; return its one-line message without "Error: "."""
        done = self.run(*arguments, status=1, **options)
        assert done.stdout == ""
        assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1, done.stderr
        return done.stderr.removeprefix("Error: ").strip()

    def add_user(self, name: str, *options: str) -> dict:
        """Add a player with the email address NAME@example.org."""
        email = f"{name}@example.org"
        arguments = ("user", "add", name, "--email", email, "--password-stdin", *options)
        return self.record(*arguments, stdin=f"{PASSWORD}\n")

    def add_client(self, name: str) -> dict:
        return self.record("client", "add", name, "--redirect-uri", CALLBACK)


@pytest.fixture(scope="module")
def installation(tmp_path_factory) -> Installation:
    """An installation with the player `ada`, id 1, shared by the tests of this module."""
    installation = Installation(tmp_path_factory.mktemp("installation"))
    installation.add_user("ada")
    return installation


@pytest.fixture
def empty(tmp_path) -> Installation:
    return Installation(tmp_path)


# -- the whole command --------------------------------------------------------------------------


def test_every_command_and_option_has_help(subtests):
    for words, command in all_commands(identity_server_command):
        with subtests.test(command=words):
            assert command.help
            assert all(each.help for each in command.params if isinstance(each, click.Option))
            # click cuts a longer first sentence in a list of commands.
            assert not command.get_short_help_str(66).endswith("...")


def test_wrong_usage_exits_with_2_and_prints_the_reason(installation, subtests):
    for line in (
        *("fly", "user add bob", "user set ada", "client add Chess", "client set 0123456789abcdef"),
        "user add bob --email b@example.org",  # without a terminal for the prompt
        *("serve --bind 8000", "serve --bind 127.0.0.1:65536", "serve --bind a..b:80"),
        "serve --workers 0",
        # A public client always needs PKCE.
        "client add Go --redirect-uri org.example.go:/callback --public --require-pkce",
    ):
        with subtests.test(line):
            done = installation.run(*line.split(), status=2)
            assert done.stdout == ""
            assert "Error: " in done.stderr
    assert "A --public client always needs PKCE: leave --require-pkce out." in done.stderr


@pytest.mark.live
def test_installed_command_exit_status_and_streams(installation):
    done = installation.run_process("user", "show", "nobody", status=1)
    assert (done.stdout, done.stderr) == ("", "Error: there is no player 'nobody'\n")
    done = installation.run_process("serve", "--workers", "0", status=2)
    assert done.stdout == ""
    assert "Error: " in done.stderr and "Traceback" not in done.stderr


@pytest.mark.live
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device /dev/full")
def test_unwritable_output_is_reported_in_one_line(installation, subtests):
    """Buffered output fails when it is flushed, and again at interpreter shutdown."""
    environment = installation.environment | {"PYTHONUNBUFFERED": ""}
    # One command ends in the option parser, one with sys.exit, and one returns.
    for command in ("--help", "user list --json", "settings"):
        with subtests.test(command), open("/dev/full", "wb") as full:
            options = {"stdout": full, "env": environment, "status": 1}
            done = installation.run_process(*command.split(), **options)
            assert done.stderr == "Error: the disk refused: No space left on device\n"


def test_invalid_setting_or_port_in_use_is_refused_in_one_line(installation):
    for command in ("settings", "user list", "client list", "serve"):
        for name, value in (
            ("IDENTITY_SITENAME", "Games"),
            ("IDENTITY_BASE_URL", "id.example.org"),
        ):
            assert name in installation.refusal(*command.split(), **{name: value})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refusal = installation.refusal("serve", "--bind", address)
    assert refusal == (
        f"cannot listen at {address} (Address already in use): choose another with --bind"
    )


def test_settings_prints_each_value_and_its_source_and_what_is_no_address(installation):
    lines = installation.output("settings", IDENTITY_SITE_NAME="Ada's games").splitlines()
    assert "IDENTITY_SITE_NAME=Ada's games  (environment)" in lines
    assert "IDENTITY_SIGN_UP=invite  (default)" in lines
    assert f"IDENTITY_DATA_DIR={installation.data}  (environment)" in lines
    for name, setting in SETTINGS.items():
        at = next(n for n, line in enumerate(lines) if line.startswith(f"IDENTITY_{name}="))
        assert lines[at + 1].strip() == setting.help
    note_unreadable(installation.open(), "'unknown'")
    words = "X-Forwarded-For had no address but 'unknown' ("
    assert words in installation.output("settings", IDENTITY_PROXIES="1")
    assert words not in installation.output("settings")


# -- user ---------------------------------------------------------------------------------------


def test_user_add_show_and_list_print_the_same_record(empty):
    """And the password from stdin is stored as a hash."""
    added = empty.add_user("ada", "--mod-level", "2")
    assert set(added) == USER_FIELDS
    assert (added["id"], added["name"], added["modLevel"]) == (1, "ada", 2)
    assert (added["email"], added["suspended"]) == ("ada@example.org", False)
    more = {"handle": None, "emailVerified": False, "lastSignIn": None, "invitedBy": None}
    more |= {"reports": 0, "notes": []}
    assert empty.record("user", "show", "ADA") == added | more
    assert empty.record("user", "show", "Ada@Example.org") == added | more
    handle = empty.open().handles.of(empty.open().users.read(1))
    assert empty.record("user", "show", "ada")["handle"] == handle
    assert empty.record("user", "list") == [added]
    assert check_password_hash(empty.open().users.read(1).password_hash, PASSWORD)
    assert PASSWORD not in empty.faults.stored_text()


@pytest.mark.live
def test_prompted_password_is_hidden(empty):
    controller, terminal = pty.openpty()
    line = [COMMAND, "user", "add", "ada", "--email", "ada@example.org", "--json"]
    options = {"stdin": terminal, "stderr": terminal, "stdout": subprocess.PIPE}
    options |= {"cwd": empty.folder, "env": empty.environment}
    # In a session of its own, else the prompt would go to the terminal of the test run.
    with subprocess.Popen(line, start_new_session=True, **options) as process:
        terminal_output = ""
        for prompts in (1, 2):  # the password and its repetition
            while terminal_output.count(": ") < prompts:
                terminal_output += os.read(controller, 1000).decode()
            os.write(controller, f"{PASSWORD}\n".encode())
        record = json.loads(process.stdout.read())
        assert process.wait(timeout=PATIENCE) == 0
    os.close(terminal)
    os.close(controller)
    assert record["name"] == "ada"
    assert PASSWORD not in terminal_output
    assert check_password_hash(empty.open().users.read(1).password_hash, PASSWORD)


def test_invalid_user_field_is_refused_in_one_line(installation, subtests):
    b = "b@example.org"
    for name, email, password, refusal in (
        ("ADA", b, PASSWORD, "name: Another player has this name. Choose a different one."),
        ("bob", "ADA@example.org", PASSWORD, "email: Another account has this email. Use a"),
        ("bob", b, "", "password: Use 12 or more characters"),
        ("robert", b, "robert is my name", "password: Leave your name"),
        ("bob", b, "identity server 1", "password: Leave your name"),  # of the site
        ("bob", b, b"\xff" * 12, "password: The password is not UTF-8."),
    ):
        with subtests.test(refusal, password=password):
            arguments = ("user", "add", name, "--email", email, "--password-stdin")
            assert installation.refusal(*arguments, stdin=password).startswith(refusal)
            assert name == "ADA" or installation.refusal("user", "show", name)


def test_user_set_changes_only_the_given_fields(installation):
    before = installation.add_user("carla")
    changes = ("--name", "Carla B", "--email", "cb@example.org", "--bio", "One\nTwo")
    after = installation.record("user", "set", "carla", *changes, "--mod-level", "1")
    changed = {"name": "Carla B", "email": "cb@example.org", "bio": "One\nTwo", "modLevel": 1}
    assert after == before | changed
    assert after.items() <= installation.record("user", "show", "cb@example.org").items()
    installation.refusal("user", "show", "carla")


# -- client -------------------------------------------------------------------------------------


def test_client_secret_is_printed_once_and_stored_as_a_hash(installation):
    added = installation.add_client("Chess")
    assert set(added) == CLIENT_FIELDS | {"client_secret"}
    assert (added["name"], added["redirect_uris"], added["owner"]) == ("Chess", [CALLBACK], None)
    secret, client_id = added.pop("client_secret"), added["client_id"]
    shown = installation.record("client", "show", client_id)
    assert shown == added
    assert shown in installation.record("client", "list")
    renewed = installation.record("client", "new-secret", client_id)
    new = renewed.pop("client_secret")
    assert renewed == added
    stored = installation.faults.stored_text()
    hashes = [hashlib.sha256(each.encode()).hexdigest() for each in (secret, new)]
    assert [each in stored for each in (secret, new, *hashes)] == [False, False, False, True]


def test_pasted_ids(installation):
    client_id = installation.add_client("Pasted")["client_id"]
    for around in (" {}\n", "<{}>", "{}.", "“{}”", "\u200b{}"):
        assert installation.record("client", "show", around.format(client_id))["name"] == "Pasted"
    installation.output("invite")
    invite, *_ = installation.record("invite", "list")  # the newest first
    installation.output("invite", "revoke", f"({invite['id']}),")
    assert "revoked" in str(installation.record("invite", "list"))


def test_public_client_has_no_secret_and_stays_public(installation):
    options = ("--redirect-uri", "org.example.go:/callback", "--public")
    added = installation.record("client", "add", "Go", *options)
    assert set(added) == CLIENT_FIELDS and added["public"] is True
    refusal = installation.refusal("client", "new-secret", added["client_id"])
    assert refusal == "client_secret: A public app has no secret."
    assert installation.record("client", "show", added["client_id"]) == added
    done = installation.run("client", "add", "Go", *options, "--require-pkce", status=2)
    assert "A --public client always needs PKCE: leave --require-pkce out." in done.stderr


def test_public_client_for_devices_needs_no_redirect_uri(installation):
    added = installation.record("client", "add", "TV", "--public", "--device")
    assert (added["device"], added["redirect_uris"]) == (True, [])
    for option, device in (("--no-device", False), ("--device", True)):
        changed = installation.record("client", "set", added["client_id"], option)
        assert changed["device"] is device
    client_id = installation.add_client("Forum")["client_id"]
    refusal = installation.refusal("client", "set", client_id, "--device")
    assert refusal == "device: Only a public app can do this."


def test_client_at_plain_http_gets_a_warning(installation):
    options = ("--redirect-uri", "http://space.example/", "--json")
    added = installation.run("client", "add", "Space Game", *options)
    client_id = json.loads(added.stdout)["client_id"]
    changed = installation.run("client", "set", client_id, "--name", "Chess", "--json")
    for done in (added, changed):
        assert done.exit_code == 0
        assert done.stderr.startswith("Warning: http://space.example/ is not encrypted: anyone")
    options = ("--redirect-uri", CALLBACK, "--no-email")
    assert installation.run("client", "set", client_id, *options).stderr == ""


def test_client_owner_can_be_set_and_removed(installation):
    uris = [f"--redirect-uri={each}" for each in (CALLBACK, "http://[::1]/", CALLBACK)]
    added = installation.record("client", "add", "Checkers", *uris, "--owner", "ADA")
    assert added["owner"] == "ada"
    assert added["redirect_uris"] == [CALLBACK, "http://[::1]/"]
    client_id = added["client_id"]
    changes = ("--owner", "", "--name", "Draughts", "--redirect-uri", "http://127.0.0.1/back")
    changed = installation.record("client", "set", client_id, *changes)
    assert (changed["owner"], changed["name"]) == (None, "Draughts")
    assert changed["redirect_uris"] == ["http://127.0.0.1/back"]
    again = installation.record("client", "set", client_id, "--owner", "ada@example.org")
    assert again == changed | {"owner": "ada"}


@pytest.mark.live  # the decoder is a process of its own
def test_client_cover_is_a_picture_file_or_generated(installation, subtests):
    """A file that is refused changes nothing."""
    client_id, file = installation.add_client("Go")["client_id"], installation.folder / "go.png"
    Image.new("RGB", (80, 60), "red").save(file)
    covers = installation.open().records(COVERS)
    changed = installation.record("client", "set", client_id, "--cover", str(file))
    [cover] = covers.page("client", client_id)
    assert cover.id == f"{client_id}-{changed['cover']}"
    large = Image.open(io.BytesIO(base64.b64decode(cover.large))).convert("RGB")
    assert (large.size, large.getpixel((0, 0))) == ((640, 400), (255, 0, 0))
    for content, words in (
        (b"<svg/>", "This file is not a PNG, JPEG, WebP or GIF picture. Choose another one."),
        (b"\x89PNG\r\n\x1a\n", "This file is damaged. Choose another one."),
        (None, "No such file or directory"),
    ):
        with subtests.test(words):
            file.unlink() if content is None else file.write_bytes(content)
            options = ("--name", "Chess", "--cover", str(file))
            assert installation.refusal("client", "set", client_id, *options) == f"{file}: {words}"
            assert installation.record("client", "show", client_id) == changed
    assert installation.record("client", "set", client_id, "--cover", "")["cover"] is None
    assert covers.page("client", client_id) == []


def test_client_has_up_to_three_tags(installation):
    added = installation.record("client", "add", "Halma", "--redirect-uri", CALLBACK, "--tag=board")
    change, client_id = ("client", "set", added["client_id"]), added["client_id"]
    assert added["tags"] == ["board"]
    for tags in (["quiz", "puzzle"], []):
        options = (f"--tag={each}" for each in tags or [""])
        assert installation.record(*change, *options)["tags"] == tags
    for wrong in (["chess"], ["board", "cards", "quiz", "puzzle"]):
        installation.refusal(*change, *(f"--tag={each}" for each in wrong))
    assert installation.record("client", "show", client_id)["tags"] == []


def test_client_disable_enable_and_delete(installation):
    client_id = installation.add_client("Halma")["client_id"]
    for verb, disabled in (("disable", True), ("enable", False)):
        assert f"is {verb}d" in installation.output("client", verb, client_id)
        assert installation.record("client", "show", client_id)["disabled"] is disabled
    assert installation.run("client", "delete", client_id, stdin="n\n", status=1)
    assert installation.record("client", "show", client_id)
    installation.run("client", "delete", client_id, "--yes")
    assert installation.refusal("client", "show", client_id) == "there is no such client"


def test_invalid_client_and_unknown_names_are_refused(installation):
    uri = f"--redirect-uri={CALLBACK}"
    unknown = "../users/1"
    for arguments, refusal in (
        (("add", "Chess", "--redirect-uri", "ftp://chess.example.org"), "redirect_uris: 'ftp:"),
        (("add", "", uri), "name: Use 1 to 60 characters"),
        (("add", "Chess", uri, "--owner", "nobody"), "there is no player 'nobody'"),
        (("add", "Forum", "--device"), "device: Only a public app can do this."),
        *(((verb, unknown), "there is no such client") for verb in ("show", "new-secret")),
        *(((verb, unknown), "there is no such client") for verb in ("disable", "enable", "delete")),
    ):
        assert installation.refusal("client", *arguments).startswith(refusal)
    for name in ("nobody", "", "../1", b"\xff", "x" * 5000):
        assert installation.refusal("user", "show", name).startswith("there is no player")


# -- serve --------------------------------------------------------------------------------------


class Server:
    """A running `identity-server serve` on a free port."""

    def __init__(self, installation: Installation, *arguments: str, **variables: str) -> None:
        logs = Path(tempfile.mkdtemp(dir=installation.folder))
        self.output, self.errors = logs / "output", logs / "errors"
        with open(self.output, "w") as output, open(self.errors, "w") as errors:
            self.process = subprocess.Popen(
                [COMMAND, "serve", "--bind", "127.0.0.1:0", "--workers", "1", *arguments],
                stdout=output,
                stderr=errors,
                cwd=installation.folder,
                env=installation.environment | variables,
            )
        log = self.errors.read_text
        wait_until(lambda: "Booting worker" in log(), self.process, log)
        self.port = int(re.search(r"Listening at: http://.*:(\d+)", log())[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.get("/")  # a worker that is still starting may not handle SIGTERM yet

    def get(self, path: str, **headers: str) -> int:
        """Return the status of the response after the access log has its line."""
        lines = self.output.read_text().count("\n")
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            answer = urllib.request.urlopen(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            answer = error
        answer.close()
        wait_until(lambda: self.output.read_text().count("\n") > lines, self.process)
        return answer.status

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server without players, in a folder with files named like modules that it imports."""
    installation = Installation(tmp_path_factory.mktemp("with space"))
    (installation.folder / "storage").mkdir()
    for decoy in ("wsgi.py", "gunicorn.conf.py", "storage/__init__.py"):
        (installation.folder / decoy).write_text("raise SystemExit('the wrong file')\n")
    server = Server(installation)
    server.installation = installation
    yield server
    assert server.stop() == 0


@pytest.mark.live
def test_serve_prints_the_address_and_the_next_step_if_empty(server):
    """It ignores the modules in the current folder."""
    address, why, link, _, step, *_ = server.output.read_text().splitlines()
    assert address == f"Identity Server is at {server.url}/"
    assert why.startswith("Nobody has an account yet.")
    assert (server.installation.data / "secret_key").exists()
    assert server.get(link.strip().removeprefix(server.url)) == 200

    def type_in(step: str, environment: dict) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-c", f"{step} --password-stdin"]
        options = {"cwd": server.installation.folder, "capture_output": True, "text": True}
        return subprocess.run(command, input=PASSWORD, env=environment, **options)

    # The printed command is refused unchanged, so that no player is named YOUR_NAME.
    typed = type_in(step, server.installation.environment)
    assert typed.returncode == 1 and typed.stderr.startswith("Error: email: Enter an email")
    bare = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}  # without IDENTITY_ variables
    typed = type_in(step.replace("YOUR_NAME", "ada").replace("YOUR_EMAIL", "ada@example.org"), bare)
    assert typed.returncode == 0, typed
    assert server.installation.record("user", "show", "ada")["modLevel"] == 2
    assert server.get("/api/users/info?id=1") == 200
    second_output = server.installation.output("serve", "--bind", "127.0.0.1:0")
    address, *others = second_output.splitlines()
    assert re.fullmatch(r"Identity Server is at http://127\.0\.0\.1:\d+/", address)
    assert others == explain_loopback(address.split()[-1].rstrip("/")) != []


@pytest.mark.live
def test_proxy_headers_are_trusted_only_by_the_setting(server):
    # Gunicorn itself answers 400 to these headers if it trusts the address.
    assert server.get("/", **{"X-Forwarded-Proto": "https", "X-Forwarded-Ssl": "off"}) == 200


def test_serve_prints_the_base_url_or_an_address_that_can_be_opened(empty):
    variables = {"IDENTITY_BASE_URL": "https://id.example.org", "IDENTITY_SITE_NAME": "Ada's"}
    printed = empty.output("serve", "--bind", "127.0.0.1:0", "--workers", "3", **variables)
    assert printed.startswith("Ada's is at https://id.example.org/\nNobody has an account yet.")
    assert "Nobody else can open" not in printed
    assert {"gunicorn", "--workers=3", "--threads=12"} <= set(empty.served)
    assert "IDENTITY" not in shlex.join(empty.served)
    printed = empty.output("serve", "--bind", "0.0.0.0:0", IDENTITY_SITE_NAME="Site")
    assert printed.startswith("Site is at http://127.0.0.1:")


def test_number_of_workers_is_that_of_the_usable_cores(empty, tmp_path, monkeypatch, subtests):
    """A limit of a control group counts, its own or one above it."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    for arguments in ([], ["--workers", "auto"]):
        empty.output("serve", "--bind", "127.0.0.1:0", *arguments)
        assert "--workers=8" in empty.served
    unit, own = tmp_path / "system.slice/identity-server.service", tmp_path / "cgroup"
    unit.mkdir(parents=True)
    own.write_text("3:cpuset:/\n0::/system.slice/identity-server.service\n")
    for quota, parent, cores in (
        ("max 100000", "max 100000", 8),
        ("150000 100000", "max 100000", 2),
        ("max 100000", "300000 100000", 3),
        ("50000 100000", "300000 100000", 1),
        ("1600000 100000", "max 100000", 8),
    ):
        with subtests.test(quota=quota, parent=parent):
            (unit / "cpu.max").write_text(f"{quota}\n")
            (unit.parent / "cpu.max").write_text(f"{parent}\n")
            assert usable_cores(str(tmp_path), str(own)) == cores
    assert usable_cores(str(tmp_path), str(tmp_path / "missing")) == 8


# -- the address in links -----------------------------------------------------------------------

DEFAULT, SERVER = "http://127.0.0.1:8000", "http://127.0.0.1:9001"
LINK_COMMANDS = (("invite",), ("user", "sign-in-link", "ada"))


def base_urls(installation: Installation, stderr: str = "", **variables: str) -> set[str]:
    """Return the base URLs of the links that commands print, which must print this on stderr."""
    done = [installation.run(*each, **variables) for each in LINK_COMMANDS]
    assert all(re.match(stderr or "$", each.stderr) for each in done), done[0].stderr
    return {re.match(r"https?://[^/]+", each.stdout)[0] for each in done}


def running_at(installation: Installation, base_url: str) -> contextlib.AbstractContextManager:
    return kept_address({"DATA_DIR": str(installation.data), "BASE_URL": base_url})


def test_address_of_the_running_server_is_in_links_and_no_games(installation):
    setting = {"IDENTITY_BASE_URL": "https://id.example.org"}
    with running_at(installation, SERVER):
        assert base_urls(installation) == {SERVER}
        assert base_urls(installation, **setting) == {"https://id.example.org"}
        with running_at(installation, "http://127.0.0.1:9002"):  # the last one started
            assert base_urls(installation) == {"http://127.0.0.1:9002"}
    assert base_urls(installation, "No running server was found") == {DEFAULT}
    assert base_urls(installation, **setting) == {"https://id.example.org"}
    assert installation.run("invite", "--json").stdout.startswith("[")
    game = ("client", "add", "Chess", "--game-url", f"{SERVER}/chess")
    with running_at(installation, SERVER):
        assert "this site's own" in installation.refusal(*game)
    assert installation.record(*game)["game_url"]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.write_text(SERVER)])
def test_address_file_that_no_server_keeps_is_ignored(empty, make):
    empty.add_user("ada")
    make(empty.data / "address")
    assert base_urls(empty, "No running server was found") == {DEFAULT}
    assert empty.run("check").exit_code == 0


@pytest.mark.live
def test_links_have_the_servers_address_until_it_is_killed(empty):
    """Neither new workers nor the file that a killed server leaves change that."""
    empty.add_user("ada")
    server = Server(empty)
    try:
        assert base_urls(empty) == {server.url}
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.errors.read_text().count("Booting worker") == 2, server.process)
        wait_until(lambda: "Worker exiting" in server.errors.read_text(), server.process)
        assert server.get("/") == 200
        assert base_urls(empty) == {server.url}
        assert empty.output("check")
    finally:
        server.process.kill()
        server.process.wait(PATIENCE)
    assert (empty.data / "address").read_text() == server.url
    # The workers end when they notice the end of their master.
    wait_until(lambda: base_urls(empty, "|No running server was found") == {DEFAULT})
