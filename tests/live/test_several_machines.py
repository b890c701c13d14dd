"""docs/several-machines-failures.md: the section "Try it on one machine" runs as it stands."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import BLOCK, PAGES
from postgresql_cluster import find_program

from identity.site.settings import ROOT

from .running import COMMAND

pytestmark = [pytest.mark.live, pytest.mark.postgresql]
PAGE = PAGES["docs/several-machines-failures.md"]
BLOCKS = [each["code"] for each in BLOCK.finditer(PAGE) if each["mark"] == "try"]
FOLDER = Path("/tmp/two-servers")
TIMEOUT = 300  # seconds for all blocks; they take twenty
PROGRAMS = ("initdb", "pg_ctl", "pg_basebackup")  # the server's refuse to run as root
AS_POSTGRES = """#!/bin/sh
for word; do
    [ "$before" = -D ] && [ ! -e "$word" ] && install -d -o postgres -m 700 "$word"
    before=$word
done
exec setpriv --reuid=postgres --regid=postgres --clear-groups {program} "$@"
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with `identity-server`, and with PostgreSQL's programs if this is root."""
    folder = tmp_path / "bin"
    folder.mkdir()
    words = " ".join(f"'{word}'" for word in COMMAND)
    scripts = {"identity-server": f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec {words} \"$@\"\n"}
    if os.geteuid() == 0:
        for name in PROGRAMS:
            scripts[name] = AS_POSTGRES.format(program=find_program(name))
    for name, script in scripts.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def ports() -> Iterator[None]:
    """Other tests of the page wait: its ports and its folder are fixed."""
    name = f"identity-server-two-servers-{os.getuid()}"
    with open(Path(tempfile.gettempdir(), name), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        stop_what_is_left()
        yield
        stop_what_is_left()


def stop_what_is_left() -> None:
    """Stop the databases of a run that failed, and delete its folder."""
    for pid_file in FOLDER.glob("db*/postmaster.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid_file.read_text().split()[0]), signal.SIGQUIT)
    shutil.rmtree(FOLDER, ignore_errors=True)


def run_blocks(programs: Path, folder: Path) -> list[str]:
    """Run the blocks one after the other in one shell; return what each prints."""
    mark = "---- next ----"
    script = f"\necho '{mark}'\n".join(["set -euo pipefail", *BLOCKS])
    path = f"{programs}:{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env={"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed, _ = shell.communicate(timeout=TIMEOUT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    logs = [each.read_text() for each in FOLDER.glob("*.log")]
    assert shell.returncode == 0, "".join([printed, *logs])
    return printed.split(mark)[1:]


def users_in(printed: str) -> list[dict]:
    """Return the users in the responses of `/api/users/info`."""
    return [json.loads(line)["user"] for line in printed.splitlines() if '"user"' in line]


def test_two_servers_on_one_machine(programs: Path, ports: None, tmp_path: Path):
    _, served, added, lost, promoted, copied, _ = run_blocks(programs, tmp_path)
    assert served.count('"ok"') >= 2
    both = users_in(added)
    assert [user["name"] for user in both] == ["ada", "ada"] and both[0] == both[1]
    assert "HTTP/1.1 503" in lost
    assert users_in(promoted) == both[:1]
    assert "Still here." in promoted
    assert "ada@example.org" in copied
    assert not FOLDER.exists()
