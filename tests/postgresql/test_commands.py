"""The commands on a database: what they print of its URL, and what they do while it is away."""

import os
import signal
from pathlib import Path

import pytest
from archives import fill, read_all
from databases import query
from postgresql_cluster import running_cluster
from test_command import Installation, Server
from waiting import wait_until

from storage import open_storage

pytestmark = pytest.mark.postgresql
PASSWORD = "s3cret"
AWAY = f"postgresql://identity:{PASSWORD}@127.0.0.1:1/identity"  # nothing listens at port 1


@pytest.fixture
def url(database_url) -> str:
    """The URL of an empty database, with a password that its server does not ask for."""
    return database_url.replace("@", f":{PASSWORD}@", 1)


@pytest.fixture
def installation(tmp_path, url) -> Installation:
    installation = Installation(tmp_path)
    installation.environment["IDENTITY_STORAGE"] = url
    return installation


def test_serve_keeps_only_the_address_in_the_data_folder(installation, url):
    done = installation.run("serve", "--bind", "127.0.0.1:0")
    assert installation.served
    assert "in another terminal, with the same IDENTITY_STORAGE:" in done.stdout
    assert PASSWORD not in done.output + " ".join(installation.served)
    assert installation.data.stat().st_mode & 0o777 == 0o700
    assert list(installation.folder.rglob("*")) == [
        installation.data,
        installation.data / "address",
    ]


def test_commands_name_a_database_without_its_password(installation):
    away, problem = {"IDENTITY_STORAGE": AWAY}, "the database does not answer: Connection refused"
    for folder in (installation.data, installation.pictures):  # for the copy
        folder.mkdir()
    for arguments in (["serve"], ["user", "list"], ["copy", "--to", "files"], ["upgrade-check"]):
        refusal = installation.refusal(*arguments, **away)
        assert problem in refusal and PASSWORD not in refusal
        assert not installation.served
    checked = installation.run("check", status=1, **away)
    assert problem in checked.stderr and PASSWORD not in checked.output
    printed = installation.output("settings", **away)
    assert f"Warning: {problem}" in printed and PASSWORD not in printed


def test_upgrade_check_reads_a_database_that_cannot_be_written(installation, url):
    installation.add_user("ada")
    name = url.rpartition("/")[2]
    query(url, "ALTER TABLE users DROP COLUMN joined")
    query(url, "UPDATE installation SET kinds = array_remove(kinds, 'users.joined')")
    query(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    url += "?target_session_attrs=any"  # else nothing connects to it, as to a standby
    command = "upgrade-check", "--nginx", "none", "--unit", "none"
    told = installation.record(*command, IDENTITY_STORAGE=url)
    assert told["keys"] == {"users.joined": 1} and told["keeps_way_back"]
    assert PASSWORD not in told["installation"]


@pytest.mark.live
@pytest.mark.slow
def test_worker_booted_without_its_database_recovers(tmp_path):
    with running_cluster(None) as cluster:
        installation = Installation(tmp_path)
        installation.environment["IDENTITY_STORAGE"] = cluster.url()
        server = Server(installation)
        try:
            assert server.get("/healthz") == 200
            cluster.stop()
            os.kill(worker_of(server), signal.SIGKILL)
            wait_until(lambda: server.errors.read_text().count("Booting worker") == 2)
            assert [server.get(path) for path in ("/", "/healthz")] == [503, 503]
            cluster.start()
            wait_until(lambda: server.get("/healthz") == server.get("/") == 200, server.process)
        finally:
            server.stop()
        assert "Traceback" not in server.errors.read_text()


def worker_of(server: Server) -> int:
    pid = server.process.pid
    [worker] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(worker)


def test_copy_to_a_database_and_back(installation, url, tmp_path):
    files = {"IDENTITY_STORAGE": "files"}
    here = open_storage(str(installation.data), str(installation.pictures))
    fill(here)
    printed = installation.output("copy", "--to", url, **files)
    assert printed.startswith("3 players copied to postgresql://")
    assert PASSWORD not in printed
    assert "has players or clients" in installation.refusal("copy", "--to", url, **files)
    back = {"IDENTITY_DATA_DIR": "back", "IDENTITY_PICTURE_DIR": "back/pfp"}
    if os.geteuid() == 0:
        assert "does not exist" in installation.refusal("copy", "--to", "files", **back)
    (tmp_path / "back/pfp").mkdir(parents=True)
    assert installation.output("copy", "--to", "files", **back).startswith("3 players copied to f")
    copied = open_storage(f"{tmp_path}/back", f"{tmp_path}/back/pfp")
    assert read_all(copied) == read_all(here)
    for name in ("secret_key", "next_user_id", "audit.log"):
        assert Path(tmp_path, "back", name).read_bytes() == (installation.data / name).read_bytes()
