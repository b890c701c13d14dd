"""Runs programs for tests, such as those in `examples/`, each in a process of its own."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from waiting import PATIENCE, wait_until

from commands.running import kept_port

ROOT = Path(__file__).parent.parent
WEB_APP, GAME = "examples/web_app.py", "examples/space_game/backend.py"
GAME_CHAT = "examples/space_game/chat.py"
CHAT = "127.0.0.1:1"  # the chat's address, where none runs
CLIENT_ID, CLIENT_SECRET = "c1ient" * 4, "Our-Client-Secret"

kept_ports = contextlib.ExitStack()  # never closed: the ports stay reserved until the tests end


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free port on this address, reserved for the caller."""
    return kept_ports.enter_context(kept_port(host, 0))


@contextlib.contextmanager
def running(program: str, server_address: str, score_file: Path) -> Iterator[int]:
    """Run a program as the client CLIENT_ID of this server; yield its port on 127.0.0.1."""
    with kept_port("127.0.0.1", 0) as port:
        environment = {"SERVER": server_address, "PORT": str(port), "SCORES": str(score_file)}
        environment |= {"CLIENT_ID": CLIENT_ID, "CLIENT_SECRET": CLIENT_SECRET, "CHAT": CHAT}
        process = subprocess.Popen(
            [sys.executable, ROOT / program],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: is_open(port), process)
            yield port
            process.send_signal(signal.SIGINT)
            _, problem = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            process.wait()
    assert problem == "", problem  # no traceback
    assert process.returncode == 0


@contextlib.contextmanager
def logging_program(
    command: list[str], folder: Path, stdin: int = subprocess.DEVNULL, **environment: str
) -> Iterator[tuple[subprocess.Popen, Callable[[], str]]]:
    """Run a program in a folder until the block ends; yield it and a function that reads its log.

    The log is its standard error; its standard output is in the file `shown`.
    """
    with (folder / "shown").open("w") as shown, (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=os.environ | environment, stdin=stdin, stdout=shown, stderr=log
        )
    try:
        yield process, (folder / "log").read_text
    finally:
        process.terminate()
        process.wait(PATIENCE)


def is_open(port: int) -> bool:
    """Return whether a process listens at this port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return False
    return True
