"""The storage and a server on a read-only disk.

Linux remounts a disk read-only after an error on it, and administrators do so by mistake.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from customized import CHEAP_HASH, CHEAP_PASSWORDS, customize
from live.form_browser import FormBrowser
from live.running import ANSWER_TIMEOUT, PASSWORD, RunningServer
from live.test_kill import link
from needs import MOUNTS
from operations import (
    ADA,
    FIRST_START,
    OLD_PICTURE,
    OPERATIONS,
    Installation,
    find_names,
    picture_of,
    prepare,
    small_disk,
)

from identity.stamps import MINIMUM_AGE
from storage.errors import StorageFailed
from storage.flat_files.advice import check_folders

pytestmark = [pytest.mark.faults, MOUNTS]

CALLBACK = "https://client.example/callback"


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, files=1000):
        yield folder


# ---------------------------------------------------------------------------------------------
# Records
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def installation(disk) -> Installation:
    installation = Installation(disk)
    prepare(installation.open())
    return installation


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {FIRST_START}))
def test_change_on_a_read_only_disk_raises_and_keeps_the_old_record(disk, installation, name):
    operation = OPERATIONS[name]
    storage = installation.open()
    before = installation.files()
    remount(disk, "ro")
    with pytest.raises(StorageFailed, match="Read-only file system"):
        operation.act(storage)
    assert operation.state(storage) == operation.old
    remount(disk, "rw")
    assert installation.files() == before
    operation.act(storage)
    assert operation.state(storage) == operation.new


def test_read_only_disk_allows_opening_and_reading(disk, installation):
    remount(disk, "ro")
    storage = installation.open()
    assert find_names("Ada", "bob@example.org")(storage) == ["Ada", "Bob"]
    assert picture_of(storage) == OLD_PICTURE
    assert [client.name for client in storage.clients.of_owner(None)] == ["Chess"]
    assert storage.codes.read("an old code").user_id == ADA
    assert storage.keys.current()
    with pytest.raises(StorageFailed):
        storage.attempts.count("password", "ada", limit=6)


def test_start_reports_a_read_only_disk_and_how_to_fix_it(disk, installation):
    remount(disk, "ro")
    folders = str(installation.data), str(installation.pictures)
    found = list(check_folders(*folders))
    places = [each.problem.partition(" cannot write in ")[2] for each in found]
    assert places == list(folders)
    assert all(each.fix.startswith("mount its disk for writing") for each in found)


def test_installation_can_be_created_after_a_failed_attempt(disk):
    remount(disk, "ro")
    with pytest.raises(StorageFailed):
        Installation(disk).open()
    remount(disk, "rw")
    prepare(Installation(disk).open())


# ---------------------------------------------------------------------------------------------
# The server
# ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(folder: Path) -> Iterator["Site"]:
    """Run a server on a new disk."""
    (folder / "disk").mkdir()
    with small_disk(folder / "disk", files=1000) as disk, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        customize(patch, folder, CHEAP_PASSWORDS)
        server = RunningServer(folder)
        server.data_dir, server.picture_dir = disk / "data", disk / "pictures"
        server.start()
        yield Site(server, disk)
        server.stop()


@pytest.fixture(scope="module")
def module_site(tmp_path_factory) -> Iterator["Site"]:
    with served(tmp_path_factory.mktemp("served")) as site:
        yield site


@pytest.fixture
def site(module_site) -> Iterator["Site"]:
    """The shared server with ada signed in; its disk is writable again after the test."""
    with module_site.ada_signed_in():
        yield module_site


class Site:
    """A server, a signed-in player and two clients, of which the player allows the first."""

    def __init__(self, server: RunningServer, disk: Path) -> None:
        self.server, self.disk = server, disk
        store = server.open_storage()
        store.users.register("ada", "ada@example.org", CHEAP_HASH)
        self.game, self.secret = store.clients.register("Chess", [CALLBACK], None)
        self.other, _ = store.clients.register("Go", [CALLBACK], None)

    @contextlib.contextmanager
    def ada_signed_in(self) -> Iterator[None]:
        self.ada = FormBrowser(self.server.address)
        self.ada.sign_in("ada")
        try:
            yield
        finally:
            self.ada.close()
            remount(self.disk, "rw")

    def new_code(self) -> str:
        return self.ada.allow(link(self.game), "ada").answer["code"]

    def exchange(self, code: str) -> requests.Response:
        return self.server.exchange_code(code, self.game.id, self.secret)

    def ask(self, path: str, **headers: str) -> requests.Response:
        address = f"{self.server.address}{path}"
        return requests.get(address, headers=headers, timeout=ANSWER_TIMEOUT)

    def send(self, path: str, **form: str) -> requests.Response:
        """Post as ada."""
        address = f"{self.server.address}{path}"
        return self.ada.session.post(address, form, allow_redirects=False, timeout=ANSWER_TIMEOUT)


def test_read_only_disk_allows_lookups_tokens_and_signed_in_pages(site):
    token = site.exchange(site.new_code()).json()["access_token"]
    remount(site.disk, "ro")
    assert site.ask("/api/users/info?id=1").json()["user"]["name"] == "ada"
    assert site.ask("/api/oauth/whois", Authorization=f"Bearer {token}").json()["name"] == "ada"
    picture = site.server.picture_dir.glob("large/1-*.webp")
    assert site.ask(f"/pfp/large/{next(picture).name}").content[:4] == b"RIFF"
    assert "Hello, " in site.ada.open("/").text
    assert "Your account" in site.ada.open("/account").text
    assert site.ask("/healthz").status_code == 503


def test_save_on_a_read_only_disk_is_503_and_saves_nothing(site):
    consent = site.ada.open(link(site.other)).form_with("Allow")
    time.sleep(MINIMUM_AGE / 1000)
    before = site.server.open_storage().users.read(1)
    remount(site.disk, "ro")
    answers = {
        "profile": site.send("/account", bio="new"),
        "heartbeat": site.send("/api/users/heartbeat"),
        "sign-in": site.send("/sign-in", name="ada", password=PASSWORD),
    }
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(
        answers, 503
    )
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers.values())
    assert "Nothing was saved." in answers["profile"].text
    assert answers["heartbeat"].json().keys() == {"message"}
    assert "check passwords right now." in answers["sign-in"].text
    sent = site.send("/oauth/authorize", **consent.fields, **consent.buttons["Allow"])
    assert "error=server_error" in sent.headers["Location"]
    assert site.server.open_storage().users.read(1) == before


def test_sign_out_on_a_read_only_disk_removes_the_cookie(site):
    remount(site.disk, "ro")
    assert site.send("/sign-out").status_code == 303
    assert "Hello, " not in site.ada.open("/").text


def test_code_is_503_on_a_read_only_disk_and_valid_afterwards(site):
    used, good = site.new_code(), site.new_code()
    assert site.exchange(used).status_code == 200
    remount(site.disk, "ro")
    refused = site.exchange(good)
    assert (refused.status_code, int(refused.headers["Retry-After"]) > 0) == (503, True)
    assert site.exchange(used).status_code == 400
    remount(site.disk, "rw")
    assert site.exchange(good).status_code == 200
