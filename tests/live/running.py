"""Runs `identity-server` in processes and folders of its own."""

import contextlib
import functools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import requests
from flask import Flask
from programs import free_port
from waiting import wait_until
from werkzeug.security import generate_password_hash

from commands.players import user_record
from identity.acts.sessions import SESSIONS_KEPT
from identity.http import signing
from identity.site.settings import ROOT
from model import rules
from model.records import Session, now_ms
from storage import Storage, open_storage

COMMAND = [sys.executable, "-c", "from identity_admin import main; main()"]
QUICK = Path(__file__).parent / "quick"
CHEAP_METHOD = "pbkdf2:sha256:1"
PASSWORD = "correct horse battery staple"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # fsync is free there
STOP_TIMEOUT = 25  # seconds from SIGTERM to SIGKILL: less than gunicorn's graceful timeout
ANSWER_TIMEOUT = 60  # seconds for one request


class RunningServer:
    """`identity-server serve` on a free loopback port, with two workers and an empty installation.

    Takes settings without their prefix, `RunningServer(folder, SIGN_UP="open")`, and ignores the
    IDENTITY_ variables of the caller. `kind` is the value of --server. `address` is the base URL; a
    restart keeps the port.
    """

    # A quick server counts presses at once and hashes cheaply: tests/live/quick/sitecustomize.py.
    is_quick = True

    def __init__(self, folder: Path, kind: str = "gunicorn", **settings: str) -> None:
        self.kind = kind
        self.settings = settings
        self.data_dir = folder / "data"
        self.picture_dir = folder / "pictures"
        self.access_log = folder / "access.log"  # standard output
        self.error_log = folder / "error.log"
        self._port = free_port()
        self.address = ""
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        """Start the server, and return when it responds and has both workers."""
        self.launch()
        try:
            wait_until(self._answers, self.process, self.error_log.read_text)
            wait_until(lambda: len(self.workers()) == 2, self.process, self.error_log.read_text)
        except AssertionError:
            self.kill()
            raise

    def launch(self) -> None:
        """Start the server without waiting for it."""
        bind = f"127.0.0.1:{self._port}"
        wait_until(lambda: is_free(bind))  # killed workers may outlive their master for a moment
        with self.access_log.open("w") as access_log, self.error_log.open("w") as error_log:
            self.process = subprocess.Popen(
                [*COMMAND, "serve", "--bind", bind, "--workers", "2", "--server", self.kind],
                stdin=subprocess.DEVNULL,
                stdout=access_log,
                stderr=error_log,
                env=self._environment(),
                cwd=ROOT,
                # A process group of its own, so that `kill` reaches the master and its workers.
                start_new_session=True,
            )

    def _answers(self) -> bool:
        told = self.access_log.read_text()
        if "\n" in told:  # "Identity Server is at http://127.0.0.1:40001/"
            self.address = told.partition("\n")[0].split()[-1].rstrip("/")
            with contextlib.suppress(requests.ConnectionError):
                requests.get(f"{self.address}/api/users/info?id=1", timeout=ANSWER_TIMEOUT)
                # The log line follows the response; a test that counts lines must not see it.
                logged = '"GET /api/users/info '
                wait_until(lambda: logged in self.access_log.read_text(), self.process)
                return True
        return False

    def stop(self) -> None:
        """Stop the server with SIGTERM."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the master and its workers with SIGKILL."""
        kill_group(self.process)

    def end(self) -> None:
        """End the server at once; granian's stop waits five seconds for idle connections."""
        # A killed server leaves the folder of its metrics, and loses the measured coverage.
        if "METRICS" in self.settings or "COVERAGE_PROCESS_CONFIG" in os.environ:
            self.stop()
        else:
            self.kill()

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        master = self.process.pid
        return [int(each) for each in _read(f"/proc/{master}/task/{master}/children").split()]

    def start_command(self, *arguments: str) -> subprocess.Popen:
        """Start `identity-server` with these arguments and this server's settings."""
        return subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(),
            cwd=ROOT,
            text=True,
        )

    def command(self, *arguments: str, typed: str = "") -> dict | list:
        """Run `identity-server` with these arguments and --json; return its parsed output."""
        process = self.start_command(*arguments, "--json")
        printed, problem = process.communicate(typed, timeout=ANSWER_TIMEOUT)
        assert process.returncode == 0, problem + printed
        return json.loads(printed)

    def command_output(self, *arguments: str) -> str:
        """Run `identity-server` with these arguments; return what it prints."""
        printed, problem = self.start_command(*arguments).communicate(timeout=ANSWER_TIMEOUT)
        assert problem == ""
        return printed.strip()

    # These methods set up a test's data in this process, because a command takes half a second to
    # start. The commands have their own tests: tests/test_command*.py.

    def add_user(self, name: str, email: str = "") -> dict:
        """Add a user with the password PASSWORD; return it as `user add --json` prints it."""
        email = email or f"{name}@example.org"
        return user_record(
            self.open_storage().users.register(name, email, password_hash(self.is_quick))
        )

    def add_client(
        self, name: str, *redirect_uris: str, owner: str | None = None, **fields: bool
    ) -> dict:
        """Register a client; return its `client_id` and, unless public, `client_secret`."""
        store = self.open_storage()
        owner_id = store.users.find_by_login(owner).id if owner else None
        client, secret = store.clients.register(name, list(redirect_uris), owner_id, **fields)
        return {"client_id": client.id} | ({"client_secret": secret} if secret else {})

    def start_session(self, name: str) -> str:
        """Start a session of this user; return the value of its cookie."""
        store = self.open_storage()
        entry = Session(secrets.token_urlsafe(16), now_ms(), "Chrome on Linux")
        with store.users.edit(store.users.find_by_login(name).id) as user:
            user.sessions = [*user.sessions, entry][-SESSIONS_KEPT:]
        app = Flask(__name__)
        app.extensions["storage"] = store
        with app.app_context():
            signer = signing.serializer("session")
            return signer.dumps({"_permanent": True, "user": user.id, "id": entry.id})

    def exchange_code(
        self, code: str, client_id: str, client_secret: str, **more: str
    ) -> requests.Response:
        """Send a token request for this code, with `more` form fields."""
        form = {"grant_type": "authorization_code", "code": code, "client_id": client_id}
        form |= {"client_secret": client_secret, **more}
        return requests.post(f"{self.address}/api/oauth/token", form, timeout=ANSWER_TIMEOUT)

    def refresh(
        self, token: str, client_id: str, client_secret: str, **changes: str
    ) -> requests.Response:
        """Use a refresh token, or with `changes` a code that gives the first one."""
        form = {"grant_type": "refresh_token", "refresh_token": token}
        form |= {"client_id": client_id, "client_secret": client_secret, **changes}
        return requests.post(f"{self.address}/oauth/token", form, timeout=ANSWER_TIMEOUT)

    def whois(self, token: str) -> requests.Response:
        """Request whois with this access token."""
        headers = {"Authorization": f"Bearer {token}"}
        address = f"{self.address}/api/oauth/whois"
        return requests.get(address, headers=headers, timeout=ANSWER_TIMEOUT)

    def empty(self) -> None:
        """Delete every user, client, kept name and attempt count."""
        store = self.open_storage()
        for client_id in store.clients.ids():
            store.clients.delete(client_id)
        for user_id in store.users.ids():
            store.users.delete(user_id)
        for name_id in store.users.former_names.ids():
            store.users.former_names.delete(name_id)
        self.forget_attempts()

    def forget_attempts(self) -> None:
        """Delete every attempt count."""
        for counted in self.data_dir.glob("attempts/**/*"):
            if counted.is_file():
                counted.unlink(missing_ok=True)

    def open_storage(self) -> Storage:
        """Open the server's storage in this process."""
        url = self.settings.get("STORAGE", "files")
        return open_storage(str(self.data_dir), str(self.picture_dir), url)

    def _environment(self) -> dict[str, str]:
        """Return the caller's environment with this server's settings instead of the caller's."""
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("IDENTITY_", "GUNICORN_"))
        }
        folders = {"DATA_DIR": str(self.data_dir), "PICTURE_DIR": str(self.picture_dir)}
        # Known after the first start; commands print links with it.
        base_url = {"BASE_URL": self.address} if self.address else {}
        settings = folders | base_url | self.settings
        if self.is_quick:
            caller = ours.get("PYTHONPATH")
            ours["PYTHONPATH"] = os.pathsep.join([*([caller] if caller else []), str(QUICK), ROOT])
        return ours | {f"IDENTITY_{name}": value for name, value in settings.items()}


@functools.cache
def password_hash(is_quick: bool) -> str:
    """Return the hash of PASSWORD by a cheap method, or by the real one, a third of a second."""
    return generate_password_hash(PASSWORD, CHEAP_METHOD if is_quick else rules.PASSWORD_METHOD)


@contextlib.contextmanager
def running_server(
    make: Callable[..., RunningServer] = RunningServer, **settings: str
) -> Iterator[RunningServer]:
    """Run a server until the block ends, with its installation in memory."""
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="identity-server-") as folder:
        server = make(Path(folder), **settings)
        server.start()
        try:
            yield server
        finally:
            server.end()


def is_free(bind: str) -> bool:
    """Return whether no process listens at this HOST:PORT."""
    host, _, port = bind.partition(":")
    with contextlib.suppress(OSError), socket.create_server((host, int(port))):
        return True
    return False


@contextlib.contextmanager
def paused(process_id: int) -> Iterator[None]:
    """Pause the process with SIGSTOP until the block ends."""
    os.kill(process_id, signal.SIGSTOP)
    try:
        wait_until(lambda: "\nState:\tT" in _read(f"/proc/{process_id}/status"))
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)


def ask_each_worker(server: RunningServer, ask: Callable[[], object]) -> list:
    """Return what `ask` gets from each worker, while the other one is paused."""
    answers = []
    for worker in server.workers():
        with paused(worker):
            answers.append(ask())
    assert len(answers) == 2
    return answers


def kill_group(process: subprocess.Popen) -> None:
    """Kill a process and its process group with SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_TIMEOUT)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
