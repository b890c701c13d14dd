"""`storage.flat_files.check` and the command `check`: each kind of damage is named and repaired."""

import copy
import json
import multiprocessing
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cached_pictures import cache_pictures, generate_picture, make_picture
from click.testing import CliRunner
from waiting import wait_until
from werkzeug.security import generate_password_hash

from commands.upkeep import in_one_line
from identity_admin import identity_server_command
from storage import (
    ADMINISTRATOR,
    PICTURE_SIZES,
    AuthorizationCode,
    BadInstallation,
    NoSuchPicture,
    Problem,
    User,
    now_ms,
    record_as_dict,
    sha256,
)
from storage.flat_files.backend import FlatFiles
from storage.flat_files.check import check
from storage.flat_files.index import origin_key
from storage.records import encode

ROOT = Path(__file__).parent.parent
HOUR = 3600  # seconds
DAY = 24 * HOUR
GAME = "https://chess.example"
A_HASH = generate_password_hash("correct horse battery staple", "pbkdf2:sha256:1")
ADA, BOB, CLEO, OLD = 1, 2, 3, 4  # ids; Cleo is deleted, and Old was imported


class Here:
    """An installation with something of every kind in it."""

    def __init__(self, folder: Path) -> None:
        self.data, self.pictures = folder / "instance", folder / "pfp"
        self.store = FlatFiles(str(self.data), str(self.pictures))
        self.ada, self.bob, cleo, old = (
            self.store.add_user(name, f"{name}@example.org", A_HASH)
            for name in ("ada", "bob", "cleo", "old")
        )
        self.store.delete_user(cleo.id)
        with self.store.edit_user(self.ada.id) as self.ada:
            self.ada.bio = "Chess, mostly."
            self.ada.mod_level = ADMINISTRATOR
        self.client, _ = self.store.add_client("Chess", [], 1, game_url=GAME)
        self.other, _ = self.store.add_client("Checkers", [f"{GAME}/cb"], None)
        self.store.write_audit("user mod-level", "command", user=self.ada.id, mod_level=2)
        for each in (self.client, self.other):
            self.store.write_audit("client add", self.ada.id, client=each.id)
        self.invite = sha256(self.store.issue_invite(1))
        # An imported account has no timestamp, and need not have pictures.
        self.edit("users/4.json", pfp_timestamp=None)
        for path in self.store.layout.pictures(old.id, old.pfp_timestamp).values():
            os.unlink(path)

    def copied_to(self, folder: Path) -> "Here":
        """The same installation in another folder."""
        copied = copy.copy(self)
        copied.data, copied.pictures = folder / "instance", folder / "pfp"
        shutil.copytree(self.data, copied.data, symlinks=True)
        shutil.copytree(self.pictures, copied.pictures, symlinks=True)
        copied.store = FlatFiles(str(copied.data), str(copied.pictures))
        return copied

    def path(self, name: str) -> Path:
        """`users/1.json` is in the data folder, and `pfp/...` in that of the pictures."""
        known = {"ADA": self.ada.pfp_timestamp, "CLIENT": self.client.id, "INVITE": self.invite}
        known |= {"OTHER": self.other.id}
        known["ORIGIN"] = origin_key(GAME)
        known["EMAIL"] = sha256("ada@example.org")
        name = name.format(**known)
        return self.data.parent / name if name.startswith("pfp") else self.data / name

    def edit(self, file: str, **values: object) -> None:
        """Edit a record by hand."""
        path = self.path(file)
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    def check(self, repair: bool = False) -> list[Problem]:
        return list(check(str(self.data), str(self.pictures), repair))

    def everything(self) -> dict[str, object]:
        """Each file and folder with its mode and content; lock files come and go."""
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
def prepared(tmp_path_factory) -> Here:
    """The installation of which each test gets a copy."""
    return Here(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def here(tmp_path, prepared, unsynced, monkeypatch) -> Here:
    cache_pictures(monkeypatch)
    return prepared.copied_to(tmp_path)


def test_nothing_is_wrong_with_an_installation_that_was_only_used(here):
    assert here.check() == []
    assert here.check(repair=True) == []


def test_a_file_where_a_folder_should_be_is_called_so(here):
    path = here.path("index/owner-none")
    shutil.rmtree(path)
    path.touch(0o700)
    (missing, problem) = here.check()
    assert missing.problem == "is missing"
    assert problem == Problem(str(path), "is not a folder")


# ---------------------------------------------------------------------------------------------
# Every kind of damage
# ---------------------------------------------------------------------------------------------


@dataclass
class Damage:
    """What is done to `file`, and whether `--repair` can mend it."""

    file: str
    act: Callable[[Path, Here], object]
    repaired: bool = True
    words: str = ""  # in what is said about it


def put(content: bytes):
    def act(path: Path, here: Here) -> None:
        path.write_bytes(content)
        path.chmod(0o644 if "pfp" in path.parts else 0o600)

    return act


def cut(path: Path, here: Here) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def hand_edit(**values):
    return lambda path, here: here.edit(str(path.relative_to(here.data)), **values)


def chmod(mode: int):
    return lambda path, here: path.chmod(mode)


def remove(path: Path, here: Here) -> None:
    path.unlink()


def link(target: str):
    """Make or replace a link."""

    def act(path: Path, here: Here) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return act


def copy_of_record(path: Path, here: Here) -> None:
    """What `cp -L` makes of a link."""
    path.unlink()
    shutil.copy(here.data / "users/1.json", path)


def write_picture(path: Path, content: bytes) -> None:
    """Whatever the umask, nginx can read it."""
    path.write_bytes(content)
    path.chmod(0o644)


def picture(user_id: int, size: str):
    return lambda path, here: write_picture(path, generate_picture(user_id)[size])


def own_picture() -> dict[str, bytes]:
    """The sizes of a picture that a player uploaded."""
    return make_picture(generate_picture(77)["large"])


def new_folder(path: Path, here: Here) -> None:
    path.mkdir(0o700)


def folder_in_place(path: Path, here: Here) -> None:
    path.unlink()
    path.mkdir(0o600)  # as a record: its mode is not what is wrong


def full_folder_in_place(path: Path, here: Here) -> None:
    path.unlink()
    path.mkdir(0o700)
    path.joinpath("x").touch()


def loop(path: Path, here: Here) -> None:
    """What nobody can open, not even root."""
    if path.is_dir():
        shutil.rmtree(path)
    link(path.name)(path, here)


def first_line(path: Path, here: Here) -> None:
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


def repeat_lines(path: Path, here: Here) -> None:
    path.write_bytes(path.read_bytes() * 2)


def swap_lines(path: Path, here: Here) -> None:
    path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))


UNREPAIRED = {"repaired": False}
PICTURE = "pfp/{}/1-{{ADA}}.webp".format
DAMAGE = {
    "a record cut short": Damage("users/1.json", cut, **UNREPAIRED, words="is damaged: "),
    "an empty record": Damage("users/1.json", put(b""), **UNREPAIRED, words="is damaged: "),
    "another's record": Damage("users/1.json", hand_edit(id=2), **UNREPAIRED, words="its id is 2"),
    "a field's type": Damage(
        "users/1.json", hand_edit(bio=7), **UNREPAIRED, words="bio: This has the"
    ),
    "an unknown field": Damage("users/1.json", hand_edit(nick="A"), **UNREPAIRED, words="nick"),
    "a level": Damage("users/1.json", hand_edit(mod_level=3), **UNREPAIRED, words="0, 1 or 2"),
    "a time": Damage(
        "users/1.json", hand_edit(play_ms=-1), **UNREPAIRED, words="play_ms is not a time"
    ),
    "the time of a session": Damage(
        "users/1.json",
        hand_edit(sessions=[{"id": "a session", "since": 10**20, "browser": "Firefox"}]),
        **UNREPAIRED,
        words="sessions[0].since is not a time",
    ),
    "the time of a grant": Damage(
        "users/1.json",
        hand_edit(grants={"x": {"id": "a grant", "scope": [], "since": -1}}),
        **UNREPAIRED,
        words="grants.x.since is not a time",
    ),
    "no hash of a password": Damage(
        "users/1.json",
        hand_edit(password_hash="scrypt:a:b:c$aa$bb"),
        **UNREPAIRED,
        words="Werkzeug",
    ),
    "a hash that nobody can compute": Damage(
        "users/1.json",
        hand_edit(password_hash="scrypt:33:8:1$aa$" + "0" * 128),
        **UNREPAIRED,
        words="password_hash: This is not",
    ),
    "a picture's time": Damage(
        "users/1.json", hand_edit(pfp_timestamp=-1), words="pfp_timestamp is not a time"
    ),
    "a picture's time to come": Damage(
        "users/1.json", hand_edit(pfp_timestamp=10**15), words="pfp_timestamp is not a time"
    ),
    "half a character": Damage(
        "users/1.json", hand_edit(name="\ud800"), **UNREPAIRED, words="damaged"
    ),
    "a path for a name": Damage("users/1.json", hand_edit(name="../x"), **UNREPAIRED, words="name"),
    "an email without @": Damage(
        "users/1.json", hand_edit(email="a.b"), **UNREPAIRED, words="email"
    ),
    "a name twice": Damage(
        "users/2.json", hand_edit(name="ADA"), **UNREPAIRED, words="users/1.json"
    ),
    "an address twice": Damage(
        "users/2.json",
        hand_edit(email="ADA@example.org"),
        **UNREPAIRED,
        words="users/1.json: change",
    ),
    "a record for others to read": Damage("users/1.json", chmod(0o644), words="0644 and not 0600"),
    "a backup of a record": Damage("users/1.json~", put(b"{}"), **UNREPAIRED, words="is nothing"),
    "no entry of a name": Damage("names/ada", remove, words="does not lead to users/1.json"),
    "no entry of an email address": Damage(
        "emails/{EMAIL}", remove, words="does not lead to users/1"
    ),
    "an entry of another user": Damage("names/ada", link("../users/2.json"), words="does not lead"),
    "an entry of a deleted user": Damage("names/ada", link("../users/3.json"), words="does not"),
    "an entry that was copied": Damage("names/ada", copy_of_record, words="does not lead"),
    "an entry that nobody needs": Damage(
        "names/zed", link("../users/1.json"), words="does not match users/1.json"
    ),
    "an entry of no user": Damage("names/zed", link("../users/9.json"), words="leads to no user"),
    "an entry without an id": Damage("names/zed", link("nowhere"), words="leads to no user"),
    "an address of nobody": Damage(f"emails/{'0' * 64}", link("../users/9.json"), words="no user"),
    "a file for an entry": Damage("names/zed", put(b"zed"), **UNREPAIRED, words="is not a link"),
    "one picture missing": Damage(PICTURE("small"), remove, words="is missing"),
    "the large picture missing": Damage(PICTURE("large"), remove, words="is missing"),
    "a picture of another size": Damage(PICTURE("small"), picture(1, "large"), words="256 x 256"),
    "a picture cut short": Damage(PICTURE("medium"), cut, words="not a whole webp file"),
    "an empty picture": Damage(PICTURE("large"), put(b""), words="not a whole webp file"),
    "a picture nginx cannot read": Damage(PICTURE("large"), chmod(0o600), words="not 0644"),
    "a folder for a picture": Damage(
        PICTURE("small"), full_folder_in_place, words="Is a directory"
    ),
    "a picture that is no file": Damage(PICTURE("large"), loop, words="Too many levels"),
    "an older picture": Damage("pfp/small/1-1.webp", picture(1, "small"), words="does not match"),
    "a picture without time": Damage(
        "pfp/small/1.webp", picture(1, "small"), words="does not match"
    ),
    "a picture of another installation": Damage(
        "pfp/large/5-1.webp", picture(5, "large"), **UNREPAIRED, words="an id that was never given"
    ),
    "a picture of a deleted user": Damage("pfp/large/3.webp", put(b"x"), words="to no record"),
    "an imported picture": Damage("pfp/medium/4.webp", put(b"x"), words="not a whole webp file"),
    "no picture at all": Damage("pfp/large/me.png", put(b"x"), **UNREPAIRED, words="is nothing"),
    "a record of a deleted user": Damage("deleted/1", put(b""), words="says that users/1.json"),
    "an id that is never given": Damage(
        "deleted/999999999999999", put(b""), **UNREPAIRED, words="is of an id that is never given"
    ),
    "a low next_user_id": Damage("next_user_id", put(b"4\n"), words="not above 4"),
    "no next_user_id": Damage("next_user_id", remove, words="not above 4"),
    "a next_user_id in words": Damage("next_user_id", put(b"five\n"), words="not above 4"),
    "no format": Damage("format", remove, words="is missing"),
    "no key file": Damage("secret_key", remove, words="is missing"),
    "no key": Damage("secret_key", put(b"\n"), **UNREPAIRED, words="has no key in it"),
    "a key for others to read": Damage("secret_key", chmod(0o640), words="0640 and not 0600"),
    "a folder for others to enter": Damage("users", chmod(0o755), words="0755 and not 0700"),
    "the folder for others to enter": Damage("", chmod(0o755), words="0755 and not 0700"),
    "a picture folder nginx cannot enter": Damage("pfp/small", chmod(0o700), words="not 0755"),
    "a lock for others to hold": Damage("accounts.lock", chmod(0o666), words="0666 and not 0600"),
    "a user's lock for others": Damage("locks/1", chmod(0o666), words="0666 and not 0600"),
    "an audit log for others": Damage("audit.log", chmod(0o644), words="0644 and not 0600"),
    "a line of the audit log": Damage("audit.log", cut, **UNREPAIRED, words="line, number 3"),
    "a line of the audit log that is a list": Damage(
        "audit.log", put(b'["time", "act", "by"]\n'), **UNREPAIRED, words="line, number 1"
    ),
    "an act that is no text": Damage(
        "audit.log", put(b'{"time": 1, "act": {}, "by": 1}\n'), **UNREPAIRED, words="line, number 1"
    ),
    "a time of an act": Damage(
        "audit.log",
        put(b'{"time": 1%s, "act": "backup", "by": 1}\n' % (b"0" * 20)),
        **UNREPAIRED,
        words="line, number 1",
    ),
    "a client cut short": Damage("clients/{CLIENT}.json", cut, **UNREPAIRED, words="is damaged"),
    "a client without secret": Damage(
        "clients/{CLIENT}.json", hand_edit(secret_sha256=""), **UNREPAIRED, words="secret_sha256"
    ),
    "a client's time": Damage(
        "clients/{CLIENT}.json",
        hand_edit(created=10**20),
        **UNREPAIRED,
        words="created is not a time",
    ),
    "a redirect URI": Damage(
        "clients/{OTHER}.json",
        hand_edit(redirect_uris=["javascript:1"]),
        **UNREPAIRED,
        words="http",
    ),
    "an address of a game": Damage(
        "clients/{CLIENT}.json",
        hand_edit(game_url="//x"),
        **UNREPAIRED,
        words="game_url: Start with",
    ),
    "a client for others to read": Damage("clients/{CLIENT}.json", chmod(0o644), words="0644"),
    "no index entry of an administrator": Damage(
        "index/administrators/1", remove, words="is missing"
    ),
    "no index entry of an owner": Damage("index/owner-1/{CLIENT}", remove, words="is missing"),
    "no index entry of a game": Damage("index/games-unlisted/{CLIENT}", remove, words="is missing"),
    "no index entry of an origin": Damage("index/{ORIGIN}/{CLIENT}", remove, words="is missing"),
    "an index entry of a player": Damage(
        "index/administrators/2", put(b""), words="does not match"
    ),
    "an index entry of a deleted user": Damage(
        "index/administrators/3", put(b""), words="belongs to no record"
    ),
    "an index entry of another owner": Damage(
        "index/owner-none/{CLIENT}", put(b""), words="does not match"
    ),
    "an index entry of no client": Damage(
        f"index/owner-none/{'c' * 24}", put(b""), words="belongs to no record"
    ),
    "an index entry without an id": Damage(
        "index/owner-none/x", put(b""), **UNREPAIRED, words="is nothing"
    ),
    "an index of nothing": Damage("index/shoe-sizes", new_folder, **UNREPAIRED, words="is nothing"),
    "an audit index that lacks a line": Damage("audit/1", first_line, words="does not have the"),
    "an audit index with another line": Damage("audit/1", repeat_lines, words="does not have the"),
    "an audit index of the same size": Damage("audit/1", swap_lines, words="does not have the"),
    "no audit index": Damage("audit/{CLIENT}", remove, words="does not have the lines"),
    "an audit index of nobody": Damage("audit/77", put(b"{}\n"), words="is about nobody"),
    "an audit index of a client that is gone": Damage(
        f"audit/{'c' * 24}", put(b"{}\n"), words="a client that is gone"
    ),
    "an audit index that is none": Damage(
        "audit/x", put(b"{}\n"), **UNREPAIRED, words="is nothing"
    ),
    "an audit index for others": Damage("audit/1", chmod(0o644), words="0644 and not 0600"),
    "no audit log": Damage("audit.log", remove, **UNREPAIRED, words="audit/ has lines of it"),
    "an invitation whose taker never was": Damage(
        "invites/{INVITE}.taken", link("../users/9.json"), words="interrupted"
    ),
    "an invitation that was used": Damage(
        "invites/{INVITE}.taken", link("../users/1.json"), words="interrupted"
    ),
    "an invitation that a deleted user used": Damage(
        "invites/{INVITE}.taken", link("../users/3.json"), words="interrupted"
    ),
}
TEMPORARY = (
    *("users/.1.json.0123abcd", "users/.1.json.0123abcd.old", "names/.0123456789abcdef"),
    *(
        "clients/.x.json.0123abcd",
        "deleted/.1.01234567",
    ),
    *("invites/.x.json.0123abcd", ".secret_key.0123abcd", "..secret_key.0123abcd.0123abcd"),
    *(".next_user_id.0123abcd.old", "pfp/small/.1-1.webp.0123abcd"),
)
DAMAGE |= {
    f"a temporary {name}": Damage(name, put(b"half"), words="left beh") for name in TEMPORARY
}


# A process decodes the larger picture, of which the lost one is made anew.
DECODED = {
    "one picture missing",
    "a picture of another size",
    "a picture cut short",
    "a folder for a picture",
}
assert DAMAGE.keys() >= DECODED


@pytest.fixture(
    params=[
        pytest.param(each, id=name, marks=pytest.mark.live if name in DECODED else ())
        for name, each in DAMAGE.items()
    ]
)
def damage(request, here, clock) -> Damage:
    """What was done to the installation, longer ago than any write takes."""
    request.param.act(here.path(request.param.file), here)
    clock.ahead = 2 * HOUR
    return request.param


def about(problems: list[Problem], file: Path) -> list[Problem]:
    return [each for each in problems if each.place == str(file)]


def test_what_is_wrong_is_named_and_what_can_be_repaired_is_repaired_for_all(here, damage):
    file = here.path(damage.file)
    everything = here.everything()
    (problem,) = about(here.check(), file)
    assert damage.words in problem.problem
    assert problem.repaired is None
    assert here.everything() == everything, "a check changed something"

    before = content_of(file)
    (problem,) = about(here.check(repair=True), file)
    assert bool(problem.repaired) == damage.repaired
    left = here.check(repair=True)
    if damage.repaired:
        assert left == []
        assert here.check() == []
    else:
        assert {each.place for each in left} == {str(file)}
        assert content_of(file) == before
    check_bystanders(here, damage)


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def check_bystanders(here: Here, damage: Damage) -> None:
    """A repair harms nobody else."""
    if damage.file != "users/2.json":
        assert here.store.find_user("bob") == here.store.find_user("bob@example.org") == here.bob
    assert pictures_of(here, here.bob) == generate_picture(BOB)
    assert here.store.read_client(here.other.id).name == "Checkers"
    if damage.file != "secret_key":
        here.store.add_user("Zoe", "zoe@example.org", "")


def pictures_of(here: Here, user: User) -> dict[str, bytes]:
    paths = here.store.layout.pictures(user.id, user.pfp_timestamp)
    return {size: Path(path).read_bytes() for size, path in paths.items()}


@pytest.mark.parametrize("act", [loop, folder_in_place])
@pytest.mark.parametrize(
    "file",
    [
        *("users/1.json", "clients/{CLIENT}.json"),
        *("next_user_id", "audit.log", "secret_key"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line_and_the_rest_is_looked_at(here, file, act):
    act(here.path(file), here)
    here.path("names/bob").unlink()
    problems = here.check()
    assert [each.place for each in problems if each.place != str(here.data / "names/bob")] == [
        str(here.path(file))
    ]
    assert about(problems, here.data / "names/bob")
    assert about(here.check(repair=True), here.path(file))[0].repaired is None


@pytest.mark.parametrize("file", ["accounts.lock", "locks/2", "deleted/3"])
def test_what_cannot_be_opened_hides_no_other_problem(here, file):
    loop(here.path(file), here)
    here.path("names/bob").unlink()
    here.path("names/old").unlink()
    problems = here.check()
    assert len(about(problems, here.path(file))) == 1
    assert len(problems) == 3


@pytest.mark.parametrize("folder", ["index/owner-1", "index/administrators"])
def test_a_folder_that_cannot_be_opened_hides_no_other_problem(here, folder):
    loop(here.path(folder), here)
    cut(here.path("audit.log"), here)
    found = {each.place for each in here.check()}
    assert str(here.path("audit.log")) in found or folder == "index/administrators"
    assert any(each.startswith(str(here.path(folder))) for each in found)


@pytest.mark.parametrize("file", ["users/3.json", f"clients/{'a' * 24}.json"])
def test_a_link_that_leads_to_no_record_is_named(here, file):
    link("nowhere")(here.path(file), here)
    (problem,) = here.check(repair=True)
    assert (problem.place, problem.repaired) == (str(here.path(file)), None)
    assert "leads nowhere" in problem.problem


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(
    "file", ["users", "users/1.json", "deleted/3", "locks/1", "next_user_id", PICTURE("small")]
)
def test_what_belongs_to_another_user_is_named(here, file):
    os.chown(here.path(file), 4242, -1)
    (problem,) = here.check(repair=True)
    assert problem == Problem(str(here.path(file)), "belongs to 4242: chown root")


def test_a_next_user_id_that_no_backup_can_keep_is_named(here):
    here.path("next_user_id").write_text("999999999999990000\n")
    (problem,) = here.check(repair=True)
    assert (problem.place, problem.repaired) == (str(here.data / "next_user_id"), None)
    assert "is too large" in problem.problem


@pytest.mark.parametrize(
    "folder", ["names", "emails", "index", "audit", "locks", "codes", "attempts"]
)
def test_a_missing_folder_is_made_and_what_follows_from_records_is_in_it(here, folder):
    shutil.rmtree(here.data / folder)
    problem, *others = here.check()
    assert (problem.place, problem.repaired) == (str(here.data / folder), None)
    assert [each.place for each in others] == [str(here.data / "index/administrators")] * (
        folder == "index"
    )
    here.check(repair=True)
    assert here.check() == []
    assert here.store.find_user("ada") == here.store.find_user("ADA@example.org") == here.ada


def test_nothing_is_removed_where_all_records_are_missing(here):
    shutil.rmtree(here.data / "users")
    before = here.everything()
    (problem,) = here.check(repair=True)
    assert (problem.place, problem.repaired) == (str(here.data / "users"), None)
    assert here.everything() == before


def test_the_pictures_of_another_installation_are_left_alone(here, tmp_path):
    """Where one of the two settings is wrong."""
    FlatFiles(str(tmp_path / "new"), str(here.pictures))
    before = here.everything()
    assert not any(each.repaired for each in check(str(tmp_path / "new"), str(here.pictures), True))
    assert here.everything() == before


def test_missing_pictures_are_named_and_repaired(here):
    shutil.rmtree(here.pictures)
    assert here.check()
    here.check(repair=True)
    assert here.check() == []
    assert pictures_of(here, here.store.read_user(ADA)) == generate_picture(ADA)


# ---------------------------------------------------------------------------------------------
# What a repair keeps, and does not invent
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [cut, put(b""), put(b"{}"), hand_edit(name=1), hand_edit(id=9)])
def test_a_damaged_record_keeps_all_that_belongs_to_it(here, act):
    path = here.path("users/1.json")
    act(path, here)
    before = here.everything()
    (problem,) = here.check(repair=True)
    assert (problem.place, problem.repaired) == (str(path), None)
    assert here.everything() == before


@pytest.mark.live
def test_lost_sizes_of_a_players_own_picture_are_made_from_the_large_one(here):
    own = own_picture()
    here.store.save_picture(ADA, own)
    before = here.store.read_user(ADA)
    here.path(f"pfp/small/1-{before.pfp_timestamp}.webp").unlink()
    assert [each.repaired for each in here.check(repair=True)] == [
        "made again from the large picture"
    ]
    after = here.store.read_user(ADA)
    assert pictures_of(here, after)["large"] == own["large"]
    assert pictures_of(here, after).keys() == PICTURE_SIZES.keys()


@pytest.mark.parametrize("lost", [["large"], ["large", "medium", "small"]])
def test_a_lost_picture_becomes_the_generated_one(here, lost):
    for size in lost:
        here.path(PICTURE(size)).unlink()
    assert len(here.check(repair=True)) == len(lost)
    assert pictures_of(here, here.store.read_user(ADA)) == generate_picture(ADA)


@pytest.mark.live
def test_a_repaired_picture_has_a_new_address_and_the_old_one_stays_gone(here):
    here.path(PICTURE("medium")).unlink()
    here.check(repair=True)
    assert here.store.read_user(ADA).pfp_timestamp > here.ada.pfp_timestamp
    for size in PICTURE_SIZES:
        with pytest.raises(NoSuchPicture):
            here.store.read_picture(size, f"1-{here.ada.pfp_timestamp}.webp")


def test_pictures_of_an_imported_account_are_welcome_and_not_needed(here):
    for size in ("large", "small"):
        picture(OLD, size)(here.path(f"pfp/{size}/4.webp"), here)
    assert here.check() == []
    assert here.store.read_user(OLD).pfp_timestamp is None


@pytest.mark.live
@pytest.mark.parametrize("lost", PICTURE_SIZES)
def test_a_lost_picture_of_an_imported_accounts_own_is_named_and_repaired(here, lost):
    own = {size: content for size, content in own_picture().items() if size != lost}
    for size in own:
        write_picture(here.path(f"pfp/{size}/4.webp"), own[size])
    (problem,) = here.check()
    assert problem == Problem(str(here.path(f"pfp/{lost}/4.webp")), "is missing")
    here.check(repair=True)
    assert here.check() == []
    repaired = pictures_of(here, here.store.read_user(OLD))
    assert repaired == (
        make_picture(own["large"]) | own if "large" in own else generate_picture(OLD)
    )


@pytest.mark.live
def test_a_spoilt_picture_of_an_imported_account_is_repaired_with_the_others(here):
    for size in PICTURE_SIZES:
        write_picture(here.path(f"pfp/{size}/4.webp"), own_picture()[size])
    cut(here.path("pfp/large/4.webp"), here)
    assert len(here.check(repair=True)) == 1
    assert here.check() == []
    assert pictures_of(here, here.store.read_user(OLD)) == generate_picture(OLD)


def test_a_rule_that_came_later_is_no_damage(here):
    here.edit("users/1.json", bio="x" * 5000, flairs=["none", "x" * 100])
    here.edit(f"clients/{here.client.id}.json", name=" x" * 100)
    here.edit("users/2.json", name="bob", email="bob@example.org", password_hash="")
    assert here.check() == []


def test_a_name_becomes_no_path(here):
    here.edit("users/1.json", name="../../x")
    here.edit("users/2.json", name="sub/x")
    here.check(repair=True)
    assert not (here.data.parent / "x").is_symlink()
    assert sorted(os.listdir(here.data / "names")) == ["old"]


def test_only_the_second_of_two_games_on_one_origin_is_named(here):
    game = here.store.add_client("Go", [], None, game_url="https://go.example/")[0]
    here.edit(f"clients/{game.id}.json", game_url=f"{GAME}/go")
    second = here.path(f"clients/{max(game.id, here.client.id)}.json")
    (problem,) = [each for each in here.check() if "/clients/" in each.place]
    assert problem.place == str(second)
    assert "same origin" in problem.problem


def test_an_administrator_may_let_a_group_in_or_keep_it_out(here):
    here.data.chmod(0o750)
    here.pictures.chmod(0o711)
    assert here.check() == []


def test_what_a_write_under_way_needs_is_left_in_peace(here):
    for name in TEMPORARY:
        here.path(name).touch()
    assert here.check(repair=True) == []


def test_what_a_write_keeps_of_an_old_file_is_as_young_as_the_write(here):
    record = here.path("users/1.json")
    os.utime(record, (1, 1))
    os.link(record, here.path("users/.1.json.0123abcd.old"))
    assert here.check(repair=True) == []


def test_other_files_of_an_administrator_are_their_own_affair(here, clock):
    (here.data / "lost+found").mkdir()
    (here.data / ".bash_history").touch()
    (here.pictures / ".gitignore").touch()
    clock.ahead = 2 * HOUR
    assert here.check(repair=True) == []


def test_what_cannot_be_repaired_is_told_and_the_rest_goes_on(here):
    (here.data / "names/ada").unlink()
    (here.data / "names/ada").mkdir()  # no rename puts a link over a folder
    (here.data / "names/bob").unlink()
    first, second = here.check(repair=True)
    assert first.place == str(here.data / "names/ada")
    assert first.repaired is None and "not repaired: the disk refused" in first.problem
    assert (second.place, second.repaired) == (str(here.data / "names/bob"), "added")


def left_by_restore(here: Here, clock, *names: str) -> list[Problem]:
    """What a repair says where these folders are left of a restore that was killed long ago."""
    for name in names:
        (here.data.parent / name).mkdir()
    clock.ahead = 2 * HOUR
    return here.check(repair=True)


def test_what_a_killed_backup_or_a_restore_that_was_all_but_done_left_is_removed(here, clock):
    names = "instance/.backup", "instance/.restore", "pfp/.restore"
    problems = left_by_restore(here, clock, *names)
    assert [each.place for each in problems] == [str(here.data.parent / name) for name in names]
    assert {each.repaired for each in problems} == {"removed"}
    assert here.check() == []


def test_a_restore_that_did_not_get_to_the_players_is_taken_back(here, clock):
    for path in here.data.glob("users/*"):
        path.unlink()
    here.check(repair=True)
    (here.data / ".restore").mkdir()
    client = here.path("clients/{CLIENT}.json")
    (here.data / ".restore/clients").mkdir()
    os.link(client, here.data / ".restore/clients" / client.name)
    problem, *others = left_by_restore(here, clock, "instance/.restore/users")
    assert {Path(each.place).relative_to(here.data).parts[0] for each in others} == {
        "index",
        "audit",
    }
    assert problem.place == str(here.data / ".restore")
    assert problem.repaired == "taken back: the restore can be repeated"
    assert not client.exists() and here.path("clients/{OTHER}.json").exists()
    assert here.check() == []


def test_what_a_restore_left_goes_where_there_are_players_now(here, clock):
    (problem,) = left_by_restore(here, clock, "instance/.restore", "instance/.restore/users")
    assert (problem.place, problem.repaired) == (str(here.data / ".restore"), "removed")
    assert here.check() == []


def test_pictures_that_a_killed_restore_put_in_place_are_removed(here):
    (here.data / ".restore").mkdir()
    path = here.path("pfp/large/9000-1.webp")
    picture(9, "large")(path, here)
    (problem,) = here.check(repair=True)
    assert (problem.place, problem.repaired) == (str(path), "removed")


def test_lines_that_a_damaged_audit_log_lost_stay_in_its_index(here):
    """A person may put them back."""
    cut(here.path("audit.log"), here)
    before = here.path(f"audit/{here.other.id}").read_bytes()
    (problem,) = here.check(repair=True)
    assert "damaged line" in problem.problem
    assert here.path(f"audit/{here.other.id}").read_bytes() == before


def test_the_audit_lines_of_a_deleted_client_are_not_indexed_again(here):
    client_id = here.client.id
    here.store.delete_client(client_id, lambda client: None)
    assert here.check() == []
    first_line(here.path("audit/1"), here)
    here.check(repair=True)
    assert here.check() == []
    assert not here.path(f"audit/{client_id}").exists()
    assert client_id in [line.get("client") for line in here.store.read_audit()]


def test_an_older_layout_is_named_and_a_repair_upgrades_it(here):
    for folder in ("index", "audit"):
        shutil.rmtree(here.data / folder)
    here.path("format").write_text("1\n")
    here.path("names/bob").unlink()
    before = here.everything()
    (problem,) = here.check()
    assert problem.place == str(here.data / "format")
    assert "which the next start upgrades" in problem.problem
    assert here.everything() == before
    assert [each.place for each in here.check(repair=True)] == [
        str(here.data / "format"),
        str(here.data / "names/bob"),
    ]
    assert here.check() == []
    assert [each.id for each in here.store.administrators()] == [ADA]


def test_verify_of_the_contract_is_this_check(here):
    here.path("names/bob").unlink()
    assert list(here.store.verify()) == here.check()
    (problem,) = here.store.verify(repair=True)
    assert problem.repaired == "added"


@pytest.mark.parametrize("content", ["3\n", "two\n", "0\n"])
def test_another_layout_is_refused(here, content):
    (here.data / "format").write_text(content)
    before = here.everything()
    with pytest.raises(BadInstallation, match="layout 3|no version number"):
        here.check(repair=True)
    assert here.everything() == before


def test_no_installation_is_refused_and_none_made(tmp_path):
    with pytest.raises(BadInstallation, match="no installation"):
        list(check(str(tmp_path / "instance"), str(tmp_path / "pfp"), repair=True))
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------
# Beside a server
# ---------------------------------------------------------------------------------------------


def somebody_waits_for_a_lock() -> bool:
    """A blocked request stands in /proc/locks behind an arrow, with the process that made it."""
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(words[1] == "->" and words[5] == str(os.getpid()) for words in waiting)


def test_a_write_under_way_is_waited_for_and_no_problem(here):
    found = []
    checking = threading.Thread(target=lambda: found.extend(here.check(repair=True)))
    user = User(5, "eve", "eve@example.org", "", pfp_timestamp=now_ms())
    with (
        here.store.layout.accounts_lock()
    ):  # as add_user does it: entries and pictures, then the record
        here.path("next_user_id").write_text("6\n")
        here.path("names/eve").symlink_to("../users/5.json")
        here.path(f"emails/{sha256('eve@example.org')}").symlink_to("../users/5.json")
        for size, path in here.store.layout.pictures(5, user.pfp_timestamp).items():
            write_picture(Path(path), generate_picture(5)[size])
        checking.start()
        wait_until(lambda: not checking.is_alive() or somebody_waits_for_a_lock())
        assert checking.is_alive(), "the check did not wait"
        here.path("users/5.json").write_bytes(encode(record_as_dict(user)))
        here.path("users/5.json").chmod(0o600)
    checking.join()
    assert found == []
    assert here.store.find_user("eve") == user


def keep_writing(data: str, pictures: str, number: int, rounds) -> None:
    """Do everything that changes files, over and over, as one of the server's workers."""
    store = FlatFiles(data, pictures)
    ours = store.add_user(f"ours {number}", f"ours{number}@example.org", "")
    images = generate_picture(number)
    while True:
        made = store.add_user(f"made {number}", f"made{number}@example.org", "")
        store.save_picture(made.id, images)
        store.rename_user(ours.id, f"theirs {number}")
        store.rename_user(made.id, f"ours {number}")
        store.change_email(made.id, f"new{number}@example.org")
        store.delete_user(made.id)
        store.rename_user(ours.id, f"ours {number}")
        store.save_picture(ours.id, images)
        with store.edit_user(ours.id) as user:
            user.play_ms += 1
        client, _ = store.add_client("Go", [], None, game_url=f"https://go{number}.example")
        store.issue_client_secret(client.id)
        code = os.urandom(8).hex()
        store.add_code(code, AuthorizationCode(client.id, ours.id, "g", [], None, None))
        store.spend_code(code)
        store.delete_client(client.id)
        store.rotate_keys(False)
        store.give_back_attempt(store.count_attempt("password", code, limit=10))
        with rounds.get_lock():
            rounds.value += 1


@pytest.mark.live
def test_a_check_beside_workers_that_write_all_the_time_finds_nothing(here):
    context = multiprocessing.get_context("fork")
    rounds = context.Value("i", 0)
    writers = [
        context.Process(
            target=keep_writing, args=(str(here.data), str(here.pictures), number, rounds)
        )
        for number in range(3)
    ]
    for writer in writers:
        writer.start()
    found, checks = [], 0
    while (rounds.value < 20 or checks < 20) and all(writer.is_alive() for writer in writers):
        found += here.check(repair=checks % 2 == 1)
        checks += 1
    alive = [writer.is_alive() for writer in writers]
    for writer in writers:
        writer.kill()
        writer.join()
    assert found == []
    assert all(alive), "a repair got in a writer's way"


# ---------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def run(here, environment):
    """Calls `identity-server check` with these arguments; returns its exit status and its texts."""
    environment.setenv("IDENTITY_DATA_DIR", str(here.data))
    environment.setenv("IDENTITY_PICTURE_DIR", str(here.pictures))

    def run(*arguments: str):
        done = CliRunner().invoke(identity_server_command, ["check", *arguments])
        return done.exit_code, done.stdout, done.stderr

    return run


def test_the_command_says_that_nothing_is_wrong(run):
    assert run() == (0, "Nothing is wrong.\n", "")
    assert run("--json") == (0, "[]\n", "")
    assert run("--repair", "--json") == (0, "[]\n", "")


def test_the_command_names_each_problem_in_one_line(here, run):
    here.path("names/ada").unlink()
    here.path("users/2.json").write_text("{")
    entry, record = here.path("names/ada"), here.path("users/2.json")
    damage = (
        "is damaged: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    )
    assert run() == (
        1,
        f"{entry}: does not lead to users/1.json\n{record}: {damage}\n",
        "Error: 2 problems: --repair repairs what can be repaired\n",
    )
    assert run("--repair") == (
        1,
        f"{entry}: does not lead to users/1.json (repaired: added)\n{record}: {damage}\n",
        "Error: 1 problem left to you\n",
    )


def test_a_repair_that_leaves_nothing_is_done(here, run):
    here.path("names/ada").unlink()
    assert run("--repair")[0] == 0
    assert run() == (0, "Nothing is wrong.\n", "")


def test_json_is_an_array_of_problems(here, run):
    here.path("names/ada").unlink()
    status, printed, told = run("--json")
    problem = {"file": str(here.path("names/ada")), "problem": "does not lead to users/1.json"}
    assert (status, json.loads(printed)) == (1, [problem | {"mended": None}])
    assert told == "Error: 1 problem: --repair repairs what can be repaired\n"
    status, printed, told = run("--json", "--repair")
    assert (status, json.loads(printed)) == (0, [problem | {"mended": "added"}])
    assert told == ""


def test_the_command_makes_no_installation(here, run):
    shutil.rmtree(here.data)
    status, printed, told = run()
    assert (status, printed, told) == (1, "", f"Error: there is no installation in {here.data}\n")
    assert not here.data.exists()


@pytest.mark.live
@pytest.mark.parametrize(
    ("closed", "told"), [(">&-", "Error: standard output or error is closed"), ("2>&-", "")]
)
def test_where_nothing_can_be_printed_no_command_begins(closed, told):
    program = [sys.executable, "-c", "from identity_admin import main; main()", "settings"]
    command = f"{shlex.join(program)} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", bool(told))
    assert done.stderr.startswith(told)


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[2Jada", os.fsdecode(b"\xff")])
def test_whatever_a_file_is_called_its_problem_is_one_line_of_text(here, clock, run, name):
    (here.data / "names" / name).touch()
    clock.ahead = 2 * HOUR
    (problem,) = here.check()
    assert problem.place == str(here.data / "names" / name)
    assert in_one_line(problem).isprintable()
    assert json.loads(run("--json")[1])[0]["file"] == problem.place
