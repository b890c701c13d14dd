"""`storage.flat_files.check` and the command `check`: each kind of damage is found and repaired."""

import contextlib
import copy
import json
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from archives import A_HASH, Site
from cached_pictures import cache_pictures, generate_picture, make_picture
from click.testing import CliRunner

from commands.upkeep import in_one_line
from identity_admin import identity_server_command
from storage.archive import backup
from storage.errors import BadInstallation, NoSuchPicture, StorageError
from storage.flat_files.backend import FlatFiles
from storage.flat_files.check import check
from storage.maintenance import Problem
from storage.records import ADMINISTRATOR, PICTURE_SIZES, AuthorizationCode, User, sha256

ROOT = Path(__file__).parent.parent.parent
HOUR = 3600  # seconds
DAY = 24 * HOUR
GAME = "https://chess.example"

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
        # An imported account has no timestamp, and its pictures are optional.
        self.edit("users/4.json", pfp_timestamp=None)
        for path in self.store.layout.pictures(old.id, old.pfp_timestamp).values():
            os.unlink(path)

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
        known |= {"OTHER": self.other.id}
        known["ORIGIN"] = sha256(GAME)
        known["EMAIL"] = sha256("ada@example.org")
        name = name.format(**known)
        return self.data.parent / name if name.startswith("pfp") else self.data / name

    def edit(self, file: str, **values: object) -> None:
        """Change fields of a record's file."""
        path = self.path(file)
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    def check(self, repair: bool = False) -> list[Problem]:
        return list(check(str(self.data), str(self.pictures), repair))

    def state(self) -> dict[str, object]:
        """Return each file and folder except lock files: mode, link target and content by path."""
        found = {}
        for path in (self.data, *self.data.rglob("*"), self.pictures, *self.pictures.rglob("*")):
            if path.parent.name != "locks":
                content = path.is_file() and not path.is_symlink() and path.read_bytes()
                found[str(path)] = (
                    path.lstat().st_mode,
                    path.is_symlink() and path.readlink(),
                    content,
                )
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


def test_file_in_place_of_a_folder_is_reported(site):
    path = site.path("index/clients/owner/none")
    shutil.rmtree(path)
    path.touch(0o700)
    (missing, problem) = site.check()
    assert missing.problem == "is missing"
    assert problem == Problem(str(path), "is not a folder")


# ---------------------------------------------------------------------------------------------
# Every kind of damage
# ---------------------------------------------------------------------------------------------


@dataclass
class Damage:
    """A kind of damage to `file`, and whether `--repair` can repair it."""

    file: str
    act: Callable[[Path, SampleSite], object]
    repaired: bool = True
    part: str = ""  # of the reported problem


def put(content: bytes):
    def act(path: Path, site: SampleSite) -> None:
        path.write_bytes(content)
        path.chmod(0o644 if "pfp" in path.parts else 0o600)

    return act


def cut(path: Path, site: SampleSite) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def hand_edit(**values):
    return lambda path, site: site.edit(str(path.relative_to(site.data)), **values)


def chmod(mode: int):
    return lambda path, site: path.chmod(mode)


def remove(path: Path, site: SampleSite) -> None:
    path.unlink()


def link(target: str):
    """Create or replace a link."""

    def act(path: Path, site: SampleSite) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return act


def copy_record(path: Path, site: SampleSite) -> None:
    """Replace a link by a copy of its target, like `cp -L`."""
    path.unlink()
    shutil.copy(site.data / "users/1.json", path)


def write_picture(path: Path, content: bytes) -> None:
    """Write a picture with the mode that nginx needs, with any umask."""
    path.write_bytes(content)
    path.chmod(0o644)


def picture(user_id: int, size: str):
    return lambda path, site: write_picture(path, generate_picture(user_id)[size])


def own_picture() -> dict[str, bytes]:
    """Return an uploaded picture in all sizes."""
    return make_picture(generate_picture(77)["large"])


def new_folder(path: Path, site: SampleSite) -> None:
    path.mkdir(0o700)


def folder_in_place(path: Path, site: SampleSite) -> None:
    path.unlink()
    path.mkdir(0o600)  # the mode of a record, which is not reported


def full_folder_in_place(path: Path, site: SampleSite) -> None:
    path.unlink()
    path.mkdir(0o700)
    path.joinpath("x").touch()


def link_to_itself(path: Path, site: SampleSite) -> None:
    """Replace a file by a link to itself, which root cannot open either."""
    if path.is_dir():
        shutil.rmtree(path)
    link(path.name)(path, site)


def put_in_new_folder(path: Path, site: SampleSite) -> None:
    path.parent.mkdir(0o700)
    put(b"")(path, site)


UNREPAIRED = {"repaired": False}
PICTURE = "pfp/{}/1-{{ADA}}.webp".format
DAMAGE = {
    "a truncated record": Damage("users/1.json", cut, **UNREPAIRED, part="is damaged: "),
    "an empty record": Damage("users/1.json", put(b""), **UNREPAIRED, part="is damaged: "),
    "another id in a record": Damage(
        "users/1.json", hand_edit(id=2), **UNREPAIRED, part="its id is 2"
    ),
    "a wrong field type": Damage(
        "users/1.json", hand_edit(bio=7), **UNREPAIRED, part="bio: This has the"
    ),
    "an unknown field": Damage("users/1.json", hand_edit(nick="A"), **UNREPAIRED, part="nick"),
    "an invalid mod level": Damage(
        "users/1.json", hand_edit(mod_level=3), **UNREPAIRED, part="0, 1 or 2"
    ),
    "an invalid play time": Damage(
        "users/1.json", hand_edit(play_ms=-1), **UNREPAIRED, part="play_ms is not a time"
    ),
    "an invalid session time": Damage(
        "users/1.json",
        hand_edit(sessions=[{"id": "a session", "since": 10**20, "browser": "Firefox"}]),
        **UNREPAIRED,
        part="sessions[0].since is not a time",
    ),
    "an invalid grant time": Damage(
        "users/1.json",
        hand_edit(grants={"x": {"id": "a grant", "scope": [], "since": -1}}),
        **UNREPAIRED,
        part="grants.x.since is not a time",
    ),
    "an invalid password hash": Damage(
        "users/1.json", hand_edit(password_hash="scrypt:a:b:c$aa$bb"), **UNREPAIRED, part="Werkzeug"
    ),
    "an escape in a bio": Damage(
        "users/1.json", hand_edit(bio="a\x1b[2Jb"), **UNREPAIRED, part="bio: This has control"
    ),
    "a change of direction in a flair": Damage(
        "users/1.json",
        hand_edit(flairs=["none", "a\u202eb"]),
        **UNREPAIRED,
        part="flairs: This has",
    ),
    "an escape in a client name": Damage(
        "clients/{CLIENT}.json", hand_edit(name="a\x9bb"), **UNREPAIRED, part="name: This has"
    ),
    "a hidden character in a bio": Damage(
        "users/1.json", hand_edit(bio="a\u202eb\u200b"), **UNREPAIRED, part="bio: This has control"
    ),
    "a too expensive password hash": Damage(
        "users/1.json",
        hand_edit(password_hash="scrypt:33:8:1$aa$" + "0" * 128),
        **UNREPAIRED,
        part="password_hash: This is not",
    ),
    "a negative picture timestamp": Damage(
        "users/1.json", hand_edit(pfp_timestamp=-1), part="pfp_timestamp is not a time"
    ),
    "a too large picture timestamp": Damage(
        "users/1.json", hand_edit(pfp_timestamp=10**15), part="pfp_timestamp is not a time"
    ),
    "a lone surrogate": Damage(
        "users/1.json", hand_edit(name="\ud800"), **UNREPAIRED, part="damaged"
    ),
    "a path as a name": Damage("users/1.json", hand_edit(name="../x"), **UNREPAIRED, part="name"),
    "an email without @": Damage(
        "users/1.json", hand_edit(email="a.b"), **UNREPAIRED, part="email"
    ),
    "a duplicate name": Damage(
        "users/2.json", hand_edit(name="ADA"), **UNREPAIRED, part="users/1.json"
    ),
    "a duplicate email": Damage(
        "users/2.json",
        hand_edit(email="ADA@example.org"),
        **UNREPAIRED,
        part="users/1.json: change",
    ),
    "a record readable by others": Damage("users/1.json", chmod(0o644), part="0644 and not 0600"),
    "an editor's backup of a record": Damage(
        "users/1.json~", put(b"{}"), **UNREPAIRED, part="is nothing"
    ),
    "no index entry of a name": Damage("names/ada", remove, part="does not lead to users/1.json"),
    "no index entry of an email": Damage("emails/{EMAIL}", remove, part="does not lead to users/1"),
    "an index entry of another user": Damage(
        "names/ada", link("../users/2.json"), part="does not lead"
    ),
    "a name entry of a deleted user": Damage("names/ada", link("../users/3.json"), part="does not"),
    "an index entry replaced by a copy": Damage("names/ada", copy_record, part="does not lead"),
    "an index entry of an unused name": Damage(
        "names/zed", link("../users/1.json"), part="does not match users/1.json"
    ),
    "a name entry of no user": Damage(
        "names/zed", link("../users/9.json"), part="leads to no user"
    ),
    "a name entry without an id": Damage("names/zed", link("nowhere"), part="leads to no user"),
    "an email entry of no user": Damage(
        f"emails/{'0' * 64}", link("../users/9.json"), part="no user"
    ),
    "a file in place of an index entry": Damage(
        "names/zed", put(b"zed"), **UNREPAIRED, part="is not a link"
    ),
    "one picture missing": Damage(PICTURE("small"), remove, part="is missing"),
    "the large picture missing": Damage(PICTURE("large"), remove, part="is missing"),
    "a picture of another size": Damage(PICTURE("small"), picture(1, "large"), part="256 x 256"),
    "a truncated picture": Damage(PICTURE("medium"), cut, part="not a whole webp file"),
    "an empty picture": Damage(PICTURE("large"), put(b""), part="not a whole webp file"),
    "a picture nginx cannot read": Damage(PICTURE("large"), chmod(0o600), part="not 0644"),
    "a folder in place of a picture": Damage(
        PICTURE("small"), full_folder_in_place, part="Is a directory"
    ),
    "a picture that cannot be opened": Damage(
        PICTURE("large"), link_to_itself, part="Too many levels"
    ),
    "an older picture": Damage("pfp/small/1-1.webp", picture(1, "small"), part="does not match"),
    "a picture without a timestamp": Damage(
        "pfp/small/1.webp", picture(1, "small"), part="does not match"
    ),
    "a picture of another installation": Damage(
        "pfp/large/5-1.webp", picture(5, "large"), **UNREPAIRED, part="an id that was never given"
    ),
    "a picture of a deleted user": Damage("pfp/large/3.webp", put(b"x"), part="to no record"),
    "an imported picture": Damage("pfp/medium/4.webp", put(b"x"), part="not a whole webp file"),
    "an unknown file among the pictures": Damage(
        "pfp/large/me.png", put(b"x"), **UNREPAIRED, part="is nothing"
    ),
    "a deletion mark of an existing user": Damage(
        "deleted/1", put(b""), part="says that users/1.json"
    ),
    "a low next_user_id": Damage("next_user_id", put(b"4\n"), part="not above 4"),
    "no next_user_id": Damage("next_user_id", remove, part="not above 4"),
    "a next_user_id that is not a number": Damage(
        "next_user_id", put(b"five\n"), part="not above 4"
    ),
    "no format": Damage("format", remove, part="is missing"),
    "no key file": Damage("secret_key", remove, part="is missing"),
    "an empty key file": Damage("secret_key", put(b"\n"), **UNREPAIRED, part="has no key in it"),
    "a key file readable by others": Damage("secret_key", chmod(0o640), part="0640 and not 0600"),
    "a folder readable by others": Damage("users", chmod(0o755), part="0755 and not 0700"),
    "a data folder readable by others": Damage("", chmod(0o755), part="0755 and not 0700"),
    "a picture folder nginx cannot read": Damage("pfp/small", chmod(0o700), part="not 0755"),
    "a lock file writable by others": Damage("locks/users", chmod(0o666), part="0666 and not 0600"),
    "a user's lock file writable by others": Damage(
        "locks/users-1", chmod(0o666), part="0666 and not 0600"
    ),
    "an audit log readable by others": Damage("audit.log", chmod(0o644), part="0644 and not 0600"),
    "a truncated audit line": Damage("audit.log", cut, **UNREPAIRED, part="line, number 3"),
    "a list as an audit line": Damage(
        "audit.log", put(b'["time", "act", "by"]\n'), **UNREPAIRED, part="line, number 1"
    ),
    "an audit act that is not text": Damage(
        "audit.log", put(b'{"time": 1, "act": {}, "by": 1}\n'), **UNREPAIRED, part="line, number 1"
    ),
    "an escape in an audit line": Damage(
        "audit.log",
        put(b'{"time": 1, "act": "\\u001b[2J", "by": 1}\n'),
        **UNREPAIRED,
        part="line, number 1",
    ),
    "a truncated client": Damage("clients/{CLIENT}.json", cut, **UNREPAIRED, part="is damaged"),
    "a client without a secret": Damage(
        "clients/{CLIENT}.json", hand_edit(secret_sha256=""), **UNREPAIRED, part="secret_sha256"
    ),
    "an invalid client time": Damage(
        "clients/{CLIENT}.json",
        hand_edit(created=10**20),
        **UNREPAIRED,
        part="created is not a time",
    ),
    "an invalid redirect URI": Damage(
        "clients/{OTHER}.json", hand_edit(redirect_uris=["javascript:1"]), **UNREPAIRED, part="http"
    ),
    "an invalid game URL": Damage(
        "clients/{CLIENT}.json",
        hand_edit(game_url="//x"),
        **UNREPAIRED,
        part="game_url: Start with",
    ),
    "a client readable by others": Damage("clients/{CLIENT}.json", chmod(0o644), part="0644"),
    "no index entry of an administrator": Damage(
        "index/users/role/administrator/1", remove, part="is missing"
    ),
    "no index entry of an owner": Damage(
        "index/clients/owner/1/{CLIENT}", remove, part="is missing"
    ),
    "no index entry of a game": Damage(
        "index/clients/games/unlisted/{CLIENT}", remove, part="is missing"
    ),
    "no entry of an origin": Damage("origins/{ORIGIN}", remove, part="does not lead to clients/"),
    "an entry of an origin of no client": Damage(
        f"origins/{'0' * 64}", link(f"../clients/{'c' * 24}.json"), part="leads to no client"
    ),
    "an index entry of a player": Damage(
        "index/users/role/administrator/2", put(b""), part="does not match"
    ),
    "an index entry of a deleted user": Damage(
        "index/users/role/administrator/3", put(b""), part="belongs to no record"
    ),
    "an index entry of another owner": Damage(
        "index/clients/owner/none/{CLIENT}", put(b""), part="does not match"
    ),
    "an index entry of no client": Damage(
        f"index/clients/owner/none/{'c' * 24}", put(b""), part="belongs to no record"
    ),
    "an index entry without an id": Damage(
        "index/clients/owner/none/x", put(b""), **UNREPAIRED, part="is nothing"
    ),
    "an unknown index": Damage(
        "index/users/shoe-sizes", new_folder, **UNREPAIRED, part="is nothing"
    ),
    "an unknown value of an index": Damage(
        "index/users/role/a.b", new_folder, **UNREPAIRED, part="is nothing"
    ),
    "an entry of a used invitation of nobody": Damage(
        f"used_invites/{'0' * 64}", link("../users/9.json"), part="leads to no user"
    ),
    "an index entry of an invitation that is gone": Damage(
        f"index/invites/day/020000/{'0' * 64}", put_in_new_folder, part="belongs to no record"
    ),
    "a truncated invitation": Damage(
        "invites/{INVITE}.json", put(b"{"), **UNREPAIRED, part="is damaged"
    ),
}
TEMPORARY = (
    *("users/.1.json.0123abcd", "names/.0123456789abcdef"),
    *("clients/.x.json.0123abcd", "deleted/.1.01234567"),
    *("invites/.x.json.0123abcd", ".secret_key.0123abcd", "..secret_key.0123abcd.0123abcd"),
    *(".next_user_id.0123abcd", "pfp/small/.1-1.webp.0123abcd"),
)
DAMAGE |= {f"a temporary {name}": Damage(name, put(b"half"), part="left beh") for name in TEMPORARY}


# A child process decodes the large picture to recreate a lost size.
DECODED = {
    "one picture missing",
    "a picture of another size",
    "a truncated picture",
    "a folder in place of a picture",
}
assert DAMAGE.keys() >= DECODED


@pytest.fixture(
    params=[
        pytest.param(each, id=name, marks=pytest.mark.live if name in DECODED else ())
        for name, each in DAMAGE.items()
    ]
)
def damage(request, site, clock) -> Damage:
    """One kind of damage, done so long ago that it is no write in progress."""
    request.param.act(site.path(request.param.file), site)
    clock.shift(2 * HOUR)
    return request.param


def problems_of(problems: list[Problem], file: Path) -> list[Problem]:
    return [each for each in problems if each.place == str(file)]


def test_damage_is_reported_and_repaired_without_side_effects(site, damage):
    file = site.path(damage.file)
    state = site.state()
    (problem,) = problems_of(site.check(), file)
    assert damage.part in problem.problem
    assert problem.repaired is None
    assert site.state() == state, "a check changed something"

    before = content_of(file)
    (problem,) = problems_of(site.check(repair=True), file)
    assert bool(problem.repaired) == damage.repaired
    remaining = site.check(repair=True)
    if damage.repaired:
        assert remaining == []
        assert site.check() == []
    else:
        assert {each.place for each in remaining} == {str(file)}
        assert content_of(file) == before
    check_bystanders(site, damage)


@pytest.mark.usefixtures("within_seconds")
@pytest.mark.parametrize(
    "name", ["users/1.json", "clients/{CLIENT}.json", "audit.log", PICTURE("small")]
)
def test_named_pipe_in_place_of_a_file_makes_nobody_wait(site, tmp_path, name):
    fifo_in_place(site.path(name), site)
    store = site.store
    with contextlib.suppress(StorageError):
        store.users.read(ADA)
    with contextlib.suppress(StorageError):
        store.clients.read(site.client.id)
    with contextlib.suppress(StorageError):
        store.pictures.read("small", site.ada.picture_file)
    for lines in (store.audit.read, lambda: store.audit.about({ADA})):
        with contextlib.suppress(StorageError):
            list(lines())
    with contextlib.suppress(StorageError):
        store.audit.write("user suspend", ADA, user=ADA)
    with contextlib.suppress(StorageError):
        backup(store, str(tmp_path / "backup.tar.gz"), "command")
    assert problems_of(site.check(), site.path(name))
    assert [
        each.name
        for each in (store.users.find_by_login("bob"), store.users.register("Zo", "z@x.y", ""))
    ]


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def check_bystanders(site: SampleSite, damage: Damage) -> None:
    """Check that a repair changed no other user and no other client."""
    if damage.file != "users/2.json":
        assert (
            site.store.users.find_by_login("bob")
            == site.store.users.find_by_login("bob@example.org")
            == site.bob
        )
    assert pictures_of(site, site.bob) == generate_picture(BOB)
    assert site.store.clients.read(site.other.id).name == "Checkers"
    if damage.file != "secret_key":
        site.store.users.register("Zoe", "zoe@example.org", "")


def pictures_of(site: SampleSite, user: User) -> dict[str, bytes]:
    paths = site.store.layout.pictures(user.id, user.pfp_timestamp)
    return {size: Path(path).read_bytes() for size, path in paths.items()}


def fifo_in_place(path: Path, site: SampleSite) -> None:
    """Replace a file by a named pipe, which keeps its reader waiting for a writer."""
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.fixture
def within_seconds() -> Iterator[None]:
    """Ends a test that hangs."""

    def give_up(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("within_seconds")
@pytest.mark.parametrize("act", [link_to_itself, folder_in_place, fifo_in_place])
@pytest.mark.parametrize(
    "file",
    [*("users/1.json", "clients/{CLIENT}.json"), *("next_user_id", "audit.log", "secret_key")],
)
def test_unreadable_file_is_reported_once_and_the_check_continues(site, file, act):
    act(site.path(file), site)
    site.path("names/bob").unlink()
    problems = site.check()
    assert [each.place for each in problems if each.place != str(site.data / "names/bob")] == [
        str(site.path(file))
    ]
    assert problems_of(problems, site.data / "names/bob")
    assert problems_of(site.check(repair=True), site.path(file))[0].repaired is None


@pytest.mark.parametrize("file", ["locks/users", "locks/users-2", "deleted/3"])
def test_file_that_cannot_be_opened_hides_no_other_problem(site, file):
    link_to_itself(site.path(file), site)
    site.path("names/bob").unlink()
    site.path("names/old").unlink()
    problems = site.check()
    assert len(problems_of(problems, site.path(file))) == 1
    assert len(problems) == 3


@pytest.mark.parametrize("file", ["users/3.json", f"clients/{'a' * 24}.json"])
def test_dangling_record_link_is_reported(site, file):
    link("nowhere")(site.path(file), site)
    (problem,) = site.check(repair=True)
    assert (problem.place, problem.repaired) == (str(site.path(file)), None)
    assert "leads nowhere" in problem.problem


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
@pytest.mark.parametrize(
    "file",
    ["users", "users/1.json", "deleted/3", "locks/users-1", "next_user_id", PICTURE("small")],
)
def test_file_of_another_system_user_is_reported(site, file):
    os.chown(site.path(file), 4242, -1)
    (problem,) = site.check(repair=True)
    assert problem == Problem(str(site.path(file)), "belongs to 4242: chown root")


def test_too_large_next_user_id_is_reported(site):
    site.path("next_user_id").write_text("999999999999990000\n")
    (problem,) = site.check(repair=True)
    assert (problem.place, problem.repaired) == (str(site.data / "next_user_id"), None)
    assert "is too large" in problem.problem


@pytest.mark.parametrize(
    "folder", ["names", "emails", "index", "origins", "locks", "codes", "attempts"]
)
def test_missing_folder_and_its_index_are_recreated(site, folder):
    shutil.rmtree(site.data / folder)
    problem, *others = site.check()
    assert (problem.place, problem.repaired) == (str(site.data / folder), None)
    assert all(each.place.startswith(f"{site.data}/index/") for each in others)
    assert bool(others) == (folder == "index")
    site.check(repair=True)
    assert site.check() == []
    assert (
        site.store.users.find_by_login("ada")
        == site.store.users.find_by_login("ADA@example.org")
        == site.ada
    )


def test_repair_removes_nothing_if_all_records_are_missing(site):
    shutil.rmtree(site.data / "users")
    before = site.state()
    (problem,) = site.check(repair=True)
    assert (problem.place, problem.repaired) == (str(site.data / "users"), None)
    assert site.state() == before


def test_pictures_of_another_installation_are_not_changed(site, tmp_path):
    """One of the two folder settings may be wrong."""
    FlatFiles(str(tmp_path / "new"), str(tmp_path / "other"))
    before = site.state()
    assert not any(each.repaired for each in check(str(tmp_path / "new"), str(site.pictures), True))
    assert site.state() == before


def test_missing_picture_folder_is_reported_and_repaired(site):
    shutil.rmtree(site.pictures)
    assert site.check()
    site.check(repair=True)
    assert site.check() == []
    assert pictures_of(site, site.store.users.read(ADA)) == generate_picture(ADA)


# ---------------------------------------------------------------------------------------------
# What a repair must not change
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [cut, put(b""), put(b"{}"), hand_edit(name=1), hand_edit(id=9)])
def test_repair_changes_nothing_of_a_damaged_record(site, act):
    path = site.path("users/1.json")
    act(path, site)
    before = site.state()
    (problem,) = site.check(repair=True)
    assert (problem.place, problem.repaired) == (str(path), None)
    assert site.state() == before


@pytest.mark.live
def test_lost_picture_size_is_recreated_from_the_large_one(site):
    own = own_picture()
    site.store.pictures.save(ADA, own)
    before = site.store.users.read(ADA)
    site.path(f"pfp/small/1-{before.pfp_timestamp}.webp").unlink()
    assert [each.repaired for each in site.check(repair=True)] == [
        "made again from the large picture"
    ]
    after = site.store.users.read(ADA)
    assert pictures_of(site, after)["large"] == own["large"]
    assert pictures_of(site, after).keys() == PICTURE_SIZES.keys()


@pytest.mark.parametrize("missing", [["large"], ["large", "medium", "small"]])
def test_lost_large_picture_is_replaced_by_the_generated_one(site, missing):
    for size in missing:
        site.path(PICTURE(size)).unlink()
    assert len(site.check(repair=True)) == len(missing)
    assert pictures_of(site, site.store.users.read(ADA)) == generate_picture(ADA)


@pytest.mark.live
def test_repaired_picture_has_a_new_address(site):
    site.path(PICTURE("medium")).unlink()
    site.check(repair=True)
    assert site.store.users.read(ADA).pfp_timestamp > site.ada.pfp_timestamp
    for size in PICTURE_SIZES:
        with pytest.raises(NoSuchPicture):
            site.store.pictures.read(size, f"1-{site.ada.pfp_timestamp}.webp")


def test_pictures_of_an_imported_account_are_optional(site):
    assert site.store.users.read(OLD).pfp_timestamp is None
    assert site.check() == []


@pytest.mark.live
@pytest.mark.parametrize("missing", PICTURE_SIZES)
def test_lost_picture_size_of_an_imported_account_is_repaired(site, missing):
    own = {size: content for size, content in own_picture().items() if size != missing}
    for size in own:
        write_picture(site.path(f"pfp/{size}/4.webp"), own[size])
    (problem,) = site.check()
    assert problem == Problem(str(site.path(f"pfp/{missing}/4.webp")), "is missing")
    site.check(repair=True)
    assert site.check() == []
    repaired = pictures_of(site, site.store.users.read(OLD))
    assert repaired == (
        make_picture(own["large"]) | own if "large" in own else generate_picture(OLD)
    )


def test_record_that_breaks_a_newer_rule_is_valid(site):
    site.edit("users/1.json", bio="x" * 5000, flairs=["none", "x" * 100])
    site.edit(f"clients/{site.client.id}.json", name=" x" * 100)
    site.edit("users/2.json", name="bob", email="bob@example.org", password_hash="")
    assert site.check() == []


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
    (problem,) = [each for each in site.check() if each.place == str(second)]
    assert "same origin as" in problem.problem


def test_group_permissions_on_the_folders_are_allowed(site):
    site.data.chmod(0o750)
    site.pictures.chmod(0o711)
    assert site.check() == []


def test_recent_temporary_files_are_ignored(site):
    for name in TEMPORARY:
        site.path(name).touch()
    assert site.check(repair=True) == []


def test_recent_hard_link_to_an_old_file_is_ignored(site):
    record = site.path("users/1.json")
    os.utime(record, (1, 1))
    os.link(record, site.path("users/.1.json.0123abcd"))
    assert site.check(repair=True) == []


def test_unrelated_files_are_ignored(site, clock):
    (site.data / "lost+found").mkdir()
    (site.data / ".bash_history").touch()
    (site.pictures / ".gitignore").touch()
    clock.shift(2 * HOUR)
    assert site.check(repair=True) == []


def test_failed_repair_is_reported_and_the_others_continue(site):
    (site.data / "names/ada").unlink()
    (site.data / "names/ada").mkdir()  # rename cannot replace a folder by a link
    (site.data / "names/bob").unlink()
    first, second = site.check(repair=True)
    assert first.place == str(site.data / "names/ada")
    assert first.repaired is None and "not repaired: the disk refused" in first.problem
    assert (second.place, second.repaired) == (str(site.data / "names/bob"), "added")


def test_picture_without_a_record_may_be_of_a_new_account_for_an_hour(site, monkeypatch):
    site.path("next_user_id").write_text("9\n")
    path = site.path("pfp/large/8-5.webp")
    picture(9, "large")(path, site)
    assert site.check(repair=True) == []
    monkeypatch.setattr("storage.flat_files.problems.ORPHAN_AGE", -1)
    (problem,) = site.check(repair=True)
    assert (problem.place, problem.repaired) == (str(path), "removed")


def test_new_picture_of_a_deleted_player_is_removed_at_once(site):
    """An upload is under way for an account that exists: what a kill left of this one is not."""
    path = site.path("pfp/large/3-5.webp")
    picture(3, "large")(path, site)
    (problem,) = site.check(repair=True)
    assert (problem.place, problem.repaired) == (str(path), "removed")


@pytest.mark.parametrize("content", ["2\n", "two\n", "0\n"])
def test_unknown_layout_is_refused(site, content):
    (site.data / "format").write_text(content)
    before = site.state()
    with pytest.raises(BadInstallation, match="layout 2|no version number"):
        site.check(repair=True)
    assert site.state() == before


# ---------------------------------------------------------------------------------------------
# While a server runs
# ---------------------------------------------------------------------------------------------


def keep_writing(data: str, pictures: str, number: int, rounds) -> None:
    """Make every kind of change repeatedly, like a worker of a server."""
    store = FlatFiles(data, pictures)
    own_user = store.users.register(f"ours {number}", f"ours{number}@example.org", "")
    images = generate_picture(number)
    while True:
        other_user = store.users.register(f"made {number}", f"made{number}@example.org", "")
        store.pictures.save(other_user.id, images)
        store.users.rename(own_user.id, f"theirs {number}")
        store.users.rename(other_user.id, f"ours {number}")
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


@pytest.mark.live
def test_check_and_backup_during_continuous_writes_find_nothing(site, tmp_path):
    """Each backup restores into a sound installation."""
    context = multiprocessing.get_context("fork")
    rounds = context.Value("i", 0)
    writers = [
        context.Process(
            target=keep_writing, args=(str(site.data), str(site.pictures), number, rounds)
        )
        for number in range(3)
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


# ---------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def run(site, environment):
    """A function that runs `identity-server check`; returns its exit status, stdout and stderr."""
    environment.setenv("IDENTITY_DATA_DIR", str(site.data))
    environment.setenv("IDENTITY_PICTURE_DIR", str(site.pictures))

    def run(*arguments: str):
        done = CliRunner().invoke(identity_server_command, ["check", *arguments])
        return done.exit_code, done.stdout, done.stderr

    return run


def test_check_command_without_problems(run):
    assert run() == (0, "Nothing is wrong.\n", "")
    assert run("--json") == (0, "[]\n", "")
    assert run("--repair", "--json") == (0, "[]\n", "")


def test_check_command_prints_one_line_per_problem(site, run):
    site.path("names/ada").unlink()
    site.path("users/2.json").write_text("{")
    entry, record = site.path("names/ada"), site.path("users/2.json")
    damage = (
        "is damaged: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    )
    assert run() == (
        1,
        f"{entry}: does not lead to users/1.json\n{record}: {damage}\n",
        "Error: 2 problems found: --repair repairs what can be repaired\n",
    )
    assert run("--repair") == (
        1,
        f"{entry}: does not lead to users/1.json (repaired: added)\n{record}: {damage}\n",
        "Error: 1 problem left to you\n",
    )


def test_complete_repair_exits_with_0(site, run):
    site.path("names/ada").unlink()
    assert run("--repair")[0] == 0
    assert run() == (0, "Nothing is wrong.\n", "")


def test_check_json_is_an_array_of_problems(site, run):
    site.path("names/ada").unlink()
    status, printed, errors = run("--json")
    problem = {"file": str(site.path("names/ada")), "problem": "does not lead to users/1.json"}
    assert (status, json.loads(printed)) == (1, [problem | {"repaired": None}])
    assert errors == "Error: 1 problem found: --repair repairs what can be repaired\n"
    status, printed, errors = run("--json", "--repair")
    assert (status, json.loads(printed)) == (0, [problem | {"repaired": "added"}])
    assert errors == ""


def test_check_command_creates_no_installation(site, run):
    shutil.rmtree(site.data)
    status, printed, errors = run()
    assert (status, printed, errors) == (1, "", f"Error: there is no installation in {site.data}\n")
    assert not site.data.exists()


@pytest.mark.live
@pytest.mark.parametrize(
    ("closed", "errors"), [(">&-", "Error: standard output or error is closed"), ("2>&-", "")]
)
def test_closed_output_is_refused_before_the_command_runs(closed, errors):
    program = [sys.executable, "-c", "from identity_admin import main; main()", "settings"]
    command = f"{shlex.join(program)} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", bool(errors))
    assert done.stderr.startswith(errors)


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[2Jada", os.fsdecode(b"\xff")])
def test_problem_is_one_printable_line_for_any_file_name(site, clock, run, name):
    (site.data / "names" / name).touch()
    clock.shift(2 * HOUR)
    (problem,) = site.check()
    assert problem.place == str(site.data / "names" / name)
    assert in_one_line(problem).isprintable()
    assert json.loads(run("--json")[1])[0]["file"] == problem.place
