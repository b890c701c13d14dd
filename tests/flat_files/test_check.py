"""`storage.flat_files.check` and the command `check`: each kind of damage is found and repaired."""

import contextlib
import copy
import itertools
import json
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from archives import A_HASH, Site
from cached_pictures import cache_pictures, generate_picture, make_picture
from click.testing import CliRunner
from waiting import PATIENCE

from commands.upkeep import in_one_line
from identity_admin import identity_server_command
from model.errors import BadInstallation, NoSuchPicture, StorageError
from model.grant_records import AuthorizationCode
from model.records import ADMINISTRATOR, PICTURE_SIZES, User, sha256
from model.site_records import OpenIdKey
from storage.flat_files import disk
from storage.flat_files.backend import FlatFiles
from storage.flat_files.check import check
from storage.maintenance import Problem
from storage.whole.archive import backup

ROOT = Path(__file__).parent.parent.parent
HOUR = 3600  # seconds
GAME = "https://chess.example"
EMAIL = "ada@example.org"

KEY_ID = "k" * 43
ADA, BOB, CLEO, OLD = 1, 2, 3, 4  # ids; Cleo is deleted, and Old was imported


class SampleSite:
    """An installation with every kind of record and file."""

    def __init__(self, folder: Path) -> None:
        self.data, self.pictures = folder / "instance", folder / "pfp"
        self.store = FlatFiles(str(self.data), str(self.pictures))
        self.ada, self.bob, cleo, old = (
            self.store.users.register(name, f"{name}@example.org", A_HASH)
            for name in ("ada", "bob", "cleo", "old")
        )
        self.store.users.delete(cleo.id)
        with self.store.users.edit(self.ada.id) as self.ada:
            self.ada.bio = "Chess, mostly."
            self.ada.mod_level = ADMINISTRATOR
        self.client, _ = self.store.clients.register("Chess", [], 1, game_url=GAME)
        self.other, _ = self.store.clients.register("Checkers", [f"{GAME}/cb"], None)
        self.store.audit.write("user mod-level", "command", user=self.ada.id, mod_level=2)
        for each in (self.client, self.other):
            self.store.audit.write("client add", self.ada.id, client=each.id)
        self.invite = sha256(self.store.invites.issue(1))
        self.store.handles.of(self.ada)
        self.store.openid_keys.add(OpenIdKey(KEY_ID, "a modulus", "a private half", 0, 10**14))
        for user in (self.ada, self.bob):
            self.store.pictures.save(user.id, generate_picture(user.id))
        self.ada, self.bob = map(self.store.users.read, (ADA, BOB))
        # As an earlier version imported it: without a timestamp a picture is optional.
        self.edit(f"users/{old.id}.json", pfp_timestamp=None, pfp_generated=False)

    def copy_to(self, folder: Path) -> "SampleSite":
        """Return a copy of the installation in another folder."""
        copied = copy.copy(self)
        copied.data, copied.pictures = folder / "instance", folder / "pfp"
        shutil.copytree(self.data, copied.data, symlinks=True)
        shutil.copytree(self.pictures, copied.pictures, symlinks=True)
        copied.store = FlatFiles(str(copied.data), str(copied.pictures))
        return copied

    def path(self, name: str) -> Path:
        """Return the path of a file in the data folder, or in the picture folder for `pfp/...`."""
        known = {"ADA": self.ada.pfp_timestamp, "CLIENT": self.client.id, "INVITE": self.invite}
        known |= {"OTHER": self.other.id, "ORIGIN": sha256(GAME), "EMAIL": sha256(EMAIL)}
        name = name.format(**known)
        return self.data.parent / name if name.startswith("pfp") else self.data / name

    def edit(self, file: str, **values: object) -> None:
        hand_edit(**values)(self.path(file))

    def check(self, repair: bool = False) -> list[Problem]:
        return list(check(str(self.data), str(self.pictures), repair))

    def state(self) -> dict[str, object]:
        """Return each file and folder except lock files: mode, link target and content by path."""
        found = {}
        for path in (self.data, *self.data.rglob("*"), self.pictures, *self.pictures.rglob("*")):
            if path.parent.name != "locks":
                link = path.is_symlink() and path.readlink()
                content = path.is_file() and not link and path.read_bytes()
                found[str(path)] = path.lstat().st_mode, link, content
        return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> SampleSite:
    """The installation that each test copies."""
    return SampleSite(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def site(tmp_path, prepared, unsynced, monkeypatch) -> SampleSite:
    cache_pictures(monkeypatch)
    return prepared.copy_to(tmp_path)


def test_check_of_a_sound_installation_finds_nothing(site):
    assert site.check() == []
    assert site.check(repair=True) == []


def test_progress_tells_how_many_files_were_looked_at(site, monkeypatch):
    monkeypatch.setattr("storage.maintenance.STEP", 10)
    reported = []
    list(site.store.verify(progress=lambda *numbers: reported.append(numbers)))
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)
    assert len(reported) > 2
    assert {total for _, total in reported} == {reported[-1][1]}
    assert 0 <= reported[-1][1] - reported[-1][0] < 10


def test_records_are_read_once_unless_there_is_a_file_too_many(site, monkeypatch):
    read, original = Counter(), disk.read_record

    def read_record(path: str, *args: object, **expected: object) -> object:
        read[path] += 1
        return original(path, *args, **expected)

    monkeypatch.setattr(disk, "read_record", read_record)
    assert site.check() == []
    assert set(read.values()) == {1}
    site.path("names/nobody").symlink_to("../users/1.json")
    assert [each.problem for each in site.check()] == ["does not match users/1.json"]
    assert read[str(site.path("users/2.json"))] == 3


def test_deletion_meanwhile_hides_no_file_too_many(site, monkeypatch):
    """As many entries are left as were found sound, and not the same ones."""
    monkeypatch.setattr("storage.maintenance.STEP", 1)
    site.path("names/nobody").symlink_to("../users/1.json")
    users = len(site.store.users.ids())

    def delete_bob(done: int, total: int) -> None:
        if done == users:  # all records of users were looked at
            site.store.users.delete(BOB)

    problems = [each.problem for each in site.store.verify(progress=delete_bob)]
    assert problems == ["does not match users/1.json"]


def test_file_in_place_of_a_folder_is_reported(site):
    path = site.path("index/clients/owner/none")
    shutil.rmtree(path)
    path.touch(0o700)
    (missing, problem) = site.check()
    assert missing.problem == "is missing"
    assert problem == Problem(str(path), "is not a folder")


# -- Every kind of damage ------------------------------------------------------------------------


@dataclass
class Damage:
    """A kind of damage to a file, and a part of the reported problem."""

    file: str
    act: Callable[[Path], object]
    problem: str


def put(content: bytes):
    def act(path: Path) -> None:
        path.write_bytes(content)
        path.chmod(0o644 if "pfp" in path.parts else 0o600)

    return act


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def hand_edit(**values):
    """Change fields of a record; a value of `...` removes the field."""

    def act(path: Path) -> None:
        record = json.loads(path.read_text()) | values
        kept = {name: each for name, each in record.items() if each is not ...}
        path.write_text(json.dumps(kept))

    return act


def chmod(mode: int):
    return lambda path: path.chmod(mode)


def link(target: str):
    """Create or replace a link."""

    def act(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return act


def copy_record(path: Path) -> None:
    """Replace a link by a copy of its target, like `cp -L`."""
    path.unlink()
    shutil.copy(path.parent.parent / "users/1.json", path)


def picture(user_id: int, size: str):
    return put(generate_picture(user_id)[size])


def folder_in_place(path: Path) -> None:
    path.unlink()
    path.mkdir(0o600)  # the mode of a record, which is not reported


def full_folder(path: Path) -> None:
    """Make a folder with a file in it, or replace a file by one."""
    path.unlink(missing_ok=True)
    path.mkdir()
    path.joinpath("x").touch()


def link_to_itself(path: Path) -> None:
    """Replace a file by a link to itself, which root cannot open either."""
    link(path.name)(path)


def fifo_in_place(path: Path) -> None:
    """Replace a file by a named pipe, which keeps its reader waiting for a writer."""
    path.unlink()
    os.mkfifo(path, 0o600)


def put_in_new_folder(path: Path) -> None:
    path.parent.mkdir(0o700)
    put(b"")(path)


USER, CLIENT, OTHER = "users/1.json", "clients/{CLIENT}.json", "clients/{OTHER}.json"
LARGE, MEDIUM, SMALL = (f"pfp/{size}/1-{{ADA}}.webp" for size in ("large", "medium", "small"))
ZEROS = "0" * 64
SESSION = {"id": "a session", "since": 10**20, "browser": "Firefox"}
GRANT = {"id": "a grant", "scope": [], "since": -1}
TEMPORARY = (
    *("users/.1.json.0123abcd", "names/.0123456789abcdef"),
    *("clients/.x.json.0123abcd", "deleted/.1.01234567", "pfp/small/.1-1.webp.0123abcd"),
    *(".secret_key.0123abcd", "..secret_key.0123abcd.0123abcd"),
)

LEFT = [  # to a person
    Damage(USER, cut, "is damaged: "),
    Damage(USER, hand_edit(id=2), "its id is 2"),
    Damage(USER, hand_edit(bio=7), "bio: This has the"),
    Damage(USER, hand_edit(nick="A"), "nick"),
    Damage(USER, hand_edit(mod_level=3), "0, 1 or 2"),
    Damage(USER, hand_edit(play_ms=-1), "play_ms is not a time"),
    Damage(USER, hand_edit(sessions=[SESSION]), "sessions[0].since is not a time"),
    Damage(USER, hand_edit(grants={"x": GRANT}), "grants.x.since is not a time"),
    Damage(USER, hand_edit(password_hash="scrypt:a:b:c$aa$bb"), "Werkzeug"),
    Damage(USER, hand_edit(password_hash=f"scrypt:33:8:1$aa${ZEROS * 2}"), "password_hash: This"),
    Damage(USER, hand_edit(bio="a\u202eb\u200b"), "bio: This has control"),
    Damage(USER, hand_edit(flairs=["none", "a\u202eb"]), "flairs: This has"),
    Damage(USER, hand_edit(name="\ud800"), "damaged"),
    Damage(USER, hand_edit(name="../x"), "name"),
    Damage(USER, hand_edit(email="a.b"), "email"),
    Damage("users/2.json", hand_edit(name="ADA"), "users/1.json"),
    Damage("users/2.json", hand_edit(email="ADA@example.org"), "users/1.json: change"),
    Damage("users/3.json", link("nowhere"), "leads nowhere"),
    Damage("users/1.json~", put(b"{}"), "is nothing"),
    Damage("names/zed", put(b"zed"), "is not a link"),
    Damage("pfp/large/5-1.webp", picture(5, "large"), "an id that was never given"),
    Damage("pfp/large/me.png", put(b"x"), "is nothing"),
    Damage("secret_key", put(b"\n"), "has no key in it"),
    Damage("audit.log", cut, "line, number 3"),
    Damage("audit.log", put(b'{"time": 1, "act": "\\u001b[2J", "by": 1}\n'), "line, number 1"),
    Damage(CLIENT, cut, "is damaged"),
    Damage(CLIENT, hand_edit(secret_sha256=""), "secret_sha256"),
    Damage(CLIENT, hand_edit(created=10**20), "created is not a time"),
    Damage(CLIENT, hand_edit(game_url="//x"), "game_url: Start with"),
    Damage(OTHER, hand_edit(redirect_uris=["javascript:1"]), "http"),
    Damage("index/clients/owner/none/x", put(b""), "is nothing"),
    Damage("index/users/shoe-sizes", Path.mkdir, "is nothing"),
    Damage("index/users/role/a.b", Path.mkdir, "is nothing"),
    Damage("invites/{INVITE}.json", put(b"{"), "is damaged"),
    Damage(f"openid_keys/{KEY_ID}.json", hand_edit(signs_from=-1), "signs_from is not a time"),
]
REPAIRED = [
    Damage(USER, hand_edit(pfp_timestamp=-1), "pfp_timestamp is not a time"),
    Damage(USER, chmod(0o644), "0644 and not 0600"),
    Damage("names/ada", Path.unlink, "does not lead to users/1.json"),
    Damage("names/ada", link("../users/2.json"), "does not lead"),
    Damage("names/ada", copy_record, "does not lead"),
    Damage("names/zed", link("../users/1.json"), "does not match users/1.json"),
    Damage("names/zed", link("../users/9.json"), "leads to no user"),
    Damage("emails/{EMAIL}", Path.unlink, "does not lead to users/1"),
    Damage(f"emails/{ZEROS}", link("../users/9.json"), "no user"),
    Damage(f"secrets/{ZEROS}", link("../invites/none.json"), "leads to no invitation"),
    Damage(LARGE, Path.unlink, "is missing"),
    Damage(LARGE, put(b""), "not a whole webp file"),
    Damage(LARGE, chmod(0o600), "not 0644"),
    Damage(LARGE, link_to_itself, "Too many levels"),
    Damage("pfp/small/1-1.webp", picture(1, "small"), "does not match"),
    Damage("pfp/small/1.webp", picture(1, "small"), "does not match"),
    Damage("pfp/large/3.webp", put(b"x"), "to no record"),
    Damage("pfp/medium/4.webp", put(b"x"), "not a whole webp file"),
    Damage("deleted/1", put(b""), "says that users/1.json"),
    Damage("next_user_id", put(b"4\n"), "not above 4"),
    Damage("next_user_id", Path.unlink, "not above 4"),
    Damage("format", Path.unlink, "is missing"),
    Damage("names.log", Path.unlink, "is missing"),
    Damage("names.log", chmod(0o640), "0640 and not 0600"),
    Damage("secret_key", Path.unlink, "is missing"),
    Damage("secret_key", chmod(0o640), "0640 and not 0600"),
    Damage("users", chmod(0o755), "0755 and not 0700"),
    Damage("", chmod(0o755), "0755 and not 0700"),
    Damage("locks/users-1", chmod(0o666), "0666 and not 0600"),
    Damage("index/users/role/administrator/1", Path.unlink, "is missing"),
    Damage("index/users/role/administrator/2", put(b""), "does not match"),
    Damage("index/users/role/administrator/3", put(b""), "belongs to no record"),
    Damage("index/users/role/administrator/3", full_folder, "belongs to no record"),
    Damage("index/clients/owner/1/{CLIENT}", Path.unlink, "is missing"),
    Damage("index/clients/owner/none/{CLIENT}", put(b""), "does not match"),
    Damage(f"index/clients/owner/none/{'c' * 24}", put(b""), "belongs to no record"),
    Damage("index/clients/games/unlisted/{CLIENT}", Path.unlink, "is missing"),
    Damage(f"index/invites/day/020000/{ZEROS}", put_in_new_folder, "belongs to no record"),
    Damage("origins/{ORIGIN}", Path.unlink, "does not lead to clients/"),
    Damage(f"origins/{ZEROS}", link(f"../clients/{'c' * 24}.json"), "leads to no client"),
    Damage(f"handles_of/{sha256('1')}", Path.unlink, "does not lead to handles/ada.json"),
    Damage(f"handles_of/{sha256('2')}", link("../handles/bob.json"), "leads to no handle"),
    *(Damage(name, put(b"half"), "left behind") for name in TEMPORARY),
]
# A child process decodes the large picture to make a lost size again.
DECODED = [
    Damage(SMALL, Path.unlink, "is missing"),
    Damage(SMALL, picture(1, "large"), "256 x 256"),
    Damage(SMALL, full_folder, "Is a directory"),
    Damage(MEDIUM, cut, "not a whole webp file"),
]


def test_damage_that_a_person_has_to_repair_is_left(copies_of_old_damage, subtests):
    for damage, damaged in copies_of_old_damage(LEFT):
        file, state = damaged.path(damage.file), damaged.state()
        with subtests.test(f"{damage.file}: {damage.problem}"):
            problems = damaged.check()
            [problem] = problems_of(problems, file)
            assert damage.problem in problem.problem
            assert damaged.state() == state
            assert problems_of(damaged.check(repair=True), file) == [problem]
            assert {each.place for each in damaged.check()} == {str(file)}
            assert damaged.state()[str(file)] == state[str(file)]
            if problems == [problem]:  # else the keys of the record are other ones
                assert damaged.state() == state


@pytest.mark.parametrize("damages", [REPAIRED, pytest.param(DECODED, marks=pytest.mark.live)])
def test_damage_is_reported_and_repaired(copies_of_old_damage, damages, subtests):
    for damage, damaged in copies_of_old_damage(damages):
        with subtests.test(f"{damage.file}: {damage.problem}"):
            require_repair(damaged, damage)


@pytest.fixture
def copies_of_old_damage(site, clock, tmp_path) -> Callable[[list[Damage]], Iterator]:
    """A function that yields each damage with a site that has it since two hours."""
    clock.shift(2 * HOUR)

    def copies(damages: list[Damage]) -> Iterator[tuple[Damage, SampleSite]]:
        for number, damage in enumerate(damages):
            damaged = site.copy_to(tmp_path / f"{number}")
            damage.act(damaged.path(damage.file))
            yield damage, damaged

    return copies


def require_repair(site: SampleSite, damage: Damage) -> None:
    """Check that a check changes nothing, and a repair no other user and no other client."""
    file, state = site.path(damage.file), site.state()
    [problem] = problems_of(site.check(), file)
    assert damage.problem in problem.problem
    assert problem.repaired is None
    assert site.state() == state
    [problem] = problems_of(site.check(repair=True), file)
    assert problem.repaired
    assert site.check(repair=True) == site.check() == []
    assert site.store.users.find_by_login("bob") == site.bob
    assert site.store.users.find_by_login("bob@example.org") == site.bob
    assert pictures_of(site, site.bob) == generate_picture(BOB)
    assert site.store.clients.read(site.other.id).name == "Checkers"
    site.store.users.register("Zoe", "zoe@example.org", "")


def problems_of(problems: list[Problem], file: Path) -> list[Problem]:
    return [each for each in problems if each.place == str(file)]


def pictures_of(site: SampleSite, user: User) -> dict[str, bytes]:
    paths = site.store.layout.pictures(user.id, user.pfp_timestamp)
    return {size: Path(path).read_bytes() for size, path in paths.items()}


@pytest.fixture
def within_patience() -> Iterator[None]:
    """Ends a test that hangs."""

    def give_up(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("within_patience")
@pytest.mark.parametrize("name", [USER, CLIENT, "audit.log", SMALL])
def test_named_pipe_in_place_of_a_file_makes_nobody_wait(site, tmp_path, name):
    fifo_in_place(site.path(name))
    store = site.store
    for act in (
        lambda: store.users.read(ADA),
        lambda: store.clients.read(site.client.id),
        lambda: store.pictures.read("small", site.ada.picture_file),
        lambda: list(store.audit.read()),
        lambda: list(store.audit.about({ADA})),
        lambda: store.audit.write("user suspend", ADA, user=ADA),
        lambda: backup(store, str(tmp_path / "backup.tar.gz"), "command"),
    ):
        with contextlib.suppress(StorageError):
            act()
    assert problems_of(site.check(), site.path(name))
    assert store.users.find_by_login("bob") == site.bob
    store.users.register("Zo", "z@x.y", "")


@pytest.mark.usefixtures("within_patience")
@pytest.mark.parametrize("act", [link_to_itself, folder_in_place, fifo_in_place])
def test_unreadable_file_is_reported_once(site, act, tmp_path, subtests):
    for number, name in enumerate((USER, CLIENT, "next_user_id", "audit.log", "secret_key")):
        damaged = site.copy_to(tmp_path / f"{number}")
        file, entry = damaged.path(name), damaged.path("names/bob")
        act(file)
        entry.unlink()
        with subtests.test(name):
            problems = damaged.check()
            assert len(problems_of(problems, file)) == len(problems) - 1 == 1
            assert problems_of(problems, entry)
            assert problems_of(damaged.check(repair=True), file)[0].repaired is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
@pytest.mark.parametrize(
    "file", ["users", USER, "deleted/3", "locks/users-1", "next_user_id", SMALL]
)
def test_file_of_another_system_user_is_reported(site, file):
    os.chown(site.path(file), 4242, -1)
    [problem] = site.check(repair=True)
    assert problem == Problem(str(site.path(file)), "belongs to 4242: chown root")


def test_missing_folder_and_its_index_are_recreated(site, subtests):
    folders = ("names", "emails", "index", "origins", "locks", "codes", "attempts", "playing")
    for name in (*folders, "../pfp"):
        folder = (site.data / name).resolve()
        shutil.rmtree(folder)
        with subtests.test(name):
            problem, *others = site.check()
            assert (problem.place, problem.repaired) == (str(folder), None)
            assert all(each.place.startswith(f"{folder}/") for each in others)
            site.check(repair=True)
            assert site.check() == []
    ada = site.store.users.read(ADA)
    for login in ("ada", "ADA@example.org"):
        assert site.store.users.find_by_login(login) == ada
    assert ada.pfp_generated


# -- What a repair must not change ---------------------------------------------------------------


def test_repair_removes_nothing_if_all_records_are_missing(site):
    shutil.rmtree(site.data / "users")
    before = site.state()
    [problem] = site.check(repair=True)
    assert (problem.place, problem.repaired) == (str(site.data / "users"), None)
    assert site.state() == before


def test_pictures_of_another_installation_are_not_changed(site, tmp_path):
    """One of the two folder settings may be wrong."""
    FlatFiles(str(tmp_path / "new"), str(tmp_path / "other"))
    before = site.state()
    assert not any(each.repaired for each in check(str(tmp_path / "new"), str(site.pictures), True))
    assert site.state() == before


@pytest.mark.live
def test_lost_picture_size_is_recreated_at_a_new_address(site):
    own = make_picture(generate_picture(77)["large"])
    site.store.pictures.save(ADA, own)
    before = site.store.users.read(ADA)
    site.path(f"pfp/small/{before.picture_file}").unlink()
    [problem] = site.check(repair=True)
    assert problem.repaired == "made again from the large picture"
    after = site.store.users.read(ADA)
    assert after.pfp_timestamp > before.pfp_timestamp
    assert pictures_of(site, after)["large"] == own["large"]
    assert pictures_of(site, after).keys() == PICTURE_SIZES.keys()
    for size in PICTURE_SIZES:
        with pytest.raises(NoSuchPicture):
            site.store.pictures.read(size, before.picture_file)


@pytest.mark.parametrize("missing", [[LARGE], [LARGE, MEDIUM, SMALL]])
def test_lost_large_picture_is_replaced_by_the_generated_one(site, missing):
    for name in missing:
        site.path(name).unlink()
    assert len(site.check(repair=True)) == len(missing)
    ada = site.store.users.read(ADA)
    assert ada.pfp_generated and ada.pfp_timestamp > site.ada.pfp_timestamp
    assert site.store.pictures.read("large", ada.picture_file)[0] == generate_picture(ADA)["large"]
    assert site.check() == []


def test_record_that_breaks_a_newer_rule_is_valid(site):
    site.edit("users/1.json", bio="x" * 5000, flairs=["none", "x" * 100])
    site.edit(f"clients/{site.client.id}.json", description=" x" * 1000)
    site.edit("users/2.json", name="bob", email="bob@example.org", password_hash="")
    assert site.check() == []


def test_modes_of_groups_recent_temporary_files_and_unrelated_ones_are_no_problems(site, clock):
    site.data.chmod(0o750)
    site.pictures.chmod(0o711)
    for name in TEMPORARY:
        site.path(name).touch()
    os.utime(site.path(USER), (1, 1))
    os.link(site.path(USER), site.path("users/.1.json.4567cdef"))  # as recent, by its ctime
    assert site.check(repair=True) == []
    for name in (*TEMPORARY, "users/.1.json.4567cdef"):
        site.path(name).unlink()
    (site.data / "lost+found").mkdir()
    for path in (site.data / ".bash_history", site.pictures / ".gitignore"):
        path.touch()
    clock.shift(2 * HOUR)
    assert site.check(repair=True) == []


def test_path_as_a_name_creates_no_file_elsewhere(site):
    site.edit("users/1.json", name="../../x")
    site.edit("users/2.json", name="sub/x")
    site.check(repair=True)
    assert not (site.data.parent / "x").is_symlink()
    assert sorted(os.listdir(site.data / "names")) == ["old"]


def test_second_game_on_an_origin_is_reported(site):
    game = site.store.clients.register("Go", [], None, game_url="https://go.example/")[0]
    site.edit(f"clients/{game.id}.json", game_url=f"{GAME}/go")
    second = site.path(f"clients/{max(game.id, site.client.id)}.json")
    [problem] = problems_of(site.check(), second)
    assert "same origin as" in problem.problem


def test_failed_repair_is_reported_and_the_others_continue(site):
    (site.data / "names/ada").unlink()
    (site.data / "names/ada").mkdir()  # rename cannot replace a folder by a link
    (site.data / "names/bob").unlink()
    first, second = site.check(repair=True)
    assert (first.place, first.repaired) == (str(site.data / "names/ada"), None)
    assert "not repaired: the disk refused" in first.problem
    assert (second.place, second.repaired) == (str(site.data / "names/bob"), "added")


def test_picture_without_a_record_is_kept_for_an_hour(site, clock):
    site.path("next_user_id").write_text("9\n")
    path = site.path("pfp/large/8-5.webp")
    picture(9, "large")(path)
    assert site.check(repair=True) == []
    clock.shift(2 * HOUR)
    [problem] = site.check(repair=True)
    assert (problem.place, problem.repaired) == (str(path), "removed")


def test_unknown_layout_is_refused(site):
    for content in ("2\n", "two\n", "0\n"):
        (site.data / "format").write_text(content)
        before = site.state()
        with pytest.raises(BadInstallation, match="layout 2|no version number"):
            site.check(repair=True)
        assert site.state() == before


# -- While a server runs -------------------------------------------------------------------------


def keep_writing(data: str, pictures: str, number: int, rounds) -> None:
    """Make every kind of change repeatedly, like a worker of a server."""
    store = FlatFiles(data, pictures)
    own_user = store.users.register(f"ours {number}", f"ours{number}@example.org", "")
    images = generate_picture(number)
    for turn in itertools.count():  # the names of those who left are kept
        other_user = store.users.register(f"made {number}.{turn}", f"made{number}@example.org", "")
        store.handles.of(other_user)
        store.pictures.save(other_user.id, images)
        store.users.rename(own_user.id, f"theirs {number}")
        store.users.change_email(other_user.id, f"new{number}@example.org")
        store.users.delete(other_user.id)
        store.users.rename(own_user.id, f"ours {number}")
        store.pictures.save(own_user.id, images)
        with store.users.edit(own_user.id) as user:
            user.play_ms += 1
        client, _ = store.clients.register("Go", [], None, game_url=f"https://go{number}.example")
        store.clients.issue_secret(client.id)
        code = os.urandom(8).hex()
        store.codes.add(code, AuthorizationCode(client.id, own_user.id, "g", [], None, None))
        store.codes.spend(code)
        store.clients.delete(client.id)
        store.keys.rotate(False)
        store.attempts.refund(store.attempts.count("password", code, limit=10))
        with rounds.get_lock():
            rounds.value += 1


@pytest.mark.load
def test_check_and_backup_during_writes_find_nothing(site, tmp_path):
    """Each backup restores into a sound installation."""
    context = multiprocessing.get_context("fork")
    rounds = context.Value("i", 0)
    folders = str(site.data), str(site.pictures)
    writers = [
        context.Process(target=keep_writing, args=(*folders, number, rounds)) for number in range(3)
    ]
    for writer in writers:
        writer.start()
    found, checks, archives = [], 0, []
    while (rounds.value < 20 or checks < 20) and all(writer.is_alive() for writer in writers):
        found += site.check(repair=checks % 2 == 1)
        if checks % 2 == 0:
            archives.append(tmp_path / f"{checks}.tar.gz")
            backup(site.store, str(archives[-1]), "command", report=found.append)
        checks += 1
    are_alive = [writer.is_alive() for writer in writers]
    for writer in writers:
        writer.kill()
        writer.join()
    assert found == []
    assert all(are_alive), "a repair broke a writer"
    for archive in archives:
        restored = Site(archive.with_suffix(".restored"))
        assert restored.restore(archive) >= 3
        assert restored.problems() == []


# -- The command ---------------------------------------------------------------------------------


@pytest.fixture
def run(site, environment):
    """A function that runs `identity-server check`; returns its exit status, stdout and stderr."""
    environment.setenv("IDENTITY_DATA_DIR", str(site.data))
    environment.setenv("IDENTITY_PICTURE_DIR", str(site.pictures))

    def run(*arguments: str):
        done = CliRunner().invoke(identity_server_command, ["check", *arguments])
        return done.exit_code, done.stdout, done.stderr

    return run


def test_check_command_prints_one_line_per_problem(site, run):
    assert run() == (0, "Nothing is wrong.\n", "")
    entry, record = site.path("names/ada"), site.path("users/2.json")
    entry.unlink()
    record.write_text("{")
    link = f"{entry}: does not lead to users/1.json"
    damage = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    left, hint = f"{record}: is damaged: {damage}", "--repair repairs what can be repaired"
    assert run() == (1, f"{link}\n{left}\n", f"Error: 2 problems found: {hint}\n")
    repaired = f"{link} (repaired: added)\n{left}\n"
    assert run("--repair") == (1, repaired, "Error: 1 problem left to you\n")


def test_check_json_is_an_array_of_problems(site, run):
    site.path("names/ada").unlink()
    problem = {"file": str(site.path("names/ada")), "problem": "does not lead to users/1.json"}
    for options, expected, repaired in (((), 1, None), (("--repair",), 0, "added")):
        status, printed, _ = run("--json", *options)
        assert (status, json.loads(printed)) == (expected, [problem | {"repaired": repaired}])
    assert run("--json", "--repair") == (0, "[]\n", "")


def test_check_command_creates_no_installation(site, run):
    shutil.rmtree(site.data)
    assert run() == (1, "", f"Error: there is no installation in {site.data}\n")
    assert not site.data.exists()


@pytest.mark.live
def test_closed_output_is_refused_before_the_command_runs():
    program = [sys.executable, "-c", "from identity_admin import main; main()", "settings"]
    for closed, error in ((">&-", "Error: standard output or error is closed"), ("2>&-", "")):
        command = f"{shlex.join(program)} {closed}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", bool(error))
        assert done.stderr.startswith(error)


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[2Jada", os.fsdecode(b"\xff")])
def test_problem_is_one_printable_line_for_any_file_name(site, clock, run, name):
    (site.data / "names" / name).touch()
    clock.shift(2 * HOUR)
    (problem,) = site.check()
    assert problem.place == str(site.data / "names" / name)
    assert in_one_line(problem).isprintable()
    assert json.loads(run("--json")[1])[0]["file"] == problem.place
