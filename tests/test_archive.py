"""Backup and restore: `storage.whole.archive`, with the snapshot and the load of flat files."""

import contextlib
import gzip
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest
from archives import (
    ADA,
    BOB,
    CLEO,
    DORA,
    FAMILY_ID,
    KEY_ID,
    LARGEST,
    PRIVATE_HALF,
    Members,
    Site,
    fill,
    read_archive,
    read_archived,
    write_archive,
)
from cached_pictures import cache_pictures, generate_picture
from contract.base import free_name
from test_command import COMMAND, Installation
from waiting import PATIENCE, is_waiting_for_a_lock, wait_until

from identity.site.look import LOOK_ID, read_look
from identity.site.settings import ROOT
from model.encoding import record_as_dict
from model.errors import BadFile, NameKept
from model.kinds import LOOKS
from model.records import User
from model.rules import IDS_LEFT_OUT, USER_IDS_END
from model.site_records import Look
from storage.flat_files import disk
from storage.whole.archive import VERSION

COSTLY_HASH = f"scrypt:1048576:64:9$a${'0' * 128}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with an installation that was used, and a backup of it."""
    folder = tmp_path_factory.mktemp("prepared")
    site = Site(folder / "site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("storage.contract.KEYS_CACHED", 0.01)  # seconds that a rotation waits
        fill(site.open())
    site.backup(folder / "backup.tar.gz")
    return folder


@pytest.fixture
def site(tmp_path, prepared, unsynced, monkeypatch) -> Site:
    """A copy of the prepared installation for this test."""
    cache_pictures(monkeypatch)
    shutil.copytree(prepared / "site", tmp_path / "site", symlinks=True)
    return Site(tmp_path / "site")


@pytest.fixture
def empty(tmp_path) -> Site:
    return Site(tmp_path / "empty")


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "backup.tar.gz"


@pytest.fixture
def archive(prepared, path, unsynced) -> Path:
    return Path(shutil.copy(prepared / path.name, path))


def next_id(site: Site) -> int:
    return site.open().users.register("Emmy", "emmy@example.org", "").id


# -- backup ------------------------------------------------------------------------------------


def test_restore_returns_everything(site, archive, empty):
    store = empty.open()  # as a server may have done before
    assert empty.restore(archive) == 3
    assert read_archived(store) == read_archived(site.open())
    assert store.users.find_by_login("ADA@example.org").id == ADA
    assert empty.problems() == []
    # Games may know players who came after the backup.
    assert next_id(empty) == LARGEST + 1 + IDS_LEFT_OUT
    # Programs may know the one who left before it.
    with pytest.raises(NameKept):
        store.users.register("Cleo", "cleo@example.org", "")
    free_name(store, "Cleo")
    newcomer = store.users.register("Cleo", "cleo@example.org", "")
    assert store.handles.of(newcomer) == f"player{newcomer.id}"
    assert store.handles.find_of(CLEO) == "cleo"


def test_texts_of_several_lines_are_restored(site, path, empty):
    """Else a player ends a line of a description, and no backup has the game."""
    store, text = site.open(), "Line\nline"
    [client_id] = store.clients.ids()
    with store.clients.edit(client_id) as client:
        client.description = text
    store.records(LOOKS).put(Look(LOOK_ID, 1, announcement=text))
    assert site.problems() == []
    site.backup(path)
    empty.restore(path)
    assert empty.open().clients.read(client_id).description == text
    assert read_look(empty.open()).announcement == text


def test_archive_contains_no_credentials(site, archive):
    """Keys, sessions and counted attempts are left out; of an invitation there is a hash."""
    content = gzip.decompress(archive.read_bytes())
    assert b"a grant" in content
    sessions = (b"adas session", b"Firefox")
    assert list(site.open().openid_keys.ids()) == [KEY_ID]
    keys = (*site.open().keys.current(), KEY_ID.encode(), PRIVATE_HALF.encode())
    for secret in (*keys, *sessions, FAMILY_ID.encode(), b"families", b"attempts"):
        assert secret not in content


def test_archive_and_restored_files_ignore_the_umask(site, tmp_path):
    for umask in (0o000, 0o077):
        path, restored = tmp_path / f"{umask}.tar.gz", Site(tmp_path / str(umask))
        before = os.umask(umask)
        try:
            site.backup(path)
            restored.restore(path)
        finally:
            os.umask(before)
        for each in (path, restored.data / "users/1.json"):
            assert stat.S_IMODE(each.stat().st_mode) == 0o600
        assert restored.problems() == []  # `check` compares the modes


def test_backup_never_replaces_a_file(site, path, tmp_path):
    path.write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for existing in (path, tmp_path / "link", tmp_path):
        with pytest.raises(BadFile, match="is there already"):
            site.backup(existing)
    assert path.read_text() == "mine"
    assert site.acts().count("backup") == 1


def test_backup_adds_only_the_archive_and_an_audit_line(site, path):
    before, acts = site.files(), site.acts()
    site.backup(path)
    log = {"data/audit.log": (site.data / "audit.log").read_bytes()}
    assert site.files() == before | log
    assert site.acts() == [*acts, "backup"]
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, "site"]


def test_changes_during_a_backup_are_not_in_the_archive(site, path, empty, monkeypatch):
    """A picture that was changed has its new timestamp; a player whose picture went, went too."""
    monkeypatch.setattr("storage.maintenance.STEP", 1)
    store, reported = site.open(), []
    store.pictures.save(DORA, generate_picture(1001))

    def change(done: int, total: int) -> None:
        if done == 1:  # no lock is held while progress is shown: a terminal may take long
            store.pictures.save(BOB, generate_picture(1000))
            store.users.rename(BOB, "Robert")
            free_name(store, "Bob")
            store.users.register("Bob", "another@example.org", "")
            store.users.delete(DORA)

    site.backup(path, progress=change, report=reported.append)
    assert reported == []
    assert empty.restore(path) == 2
    users, deleted, *_ = read_archived(empty.open())
    assert [user.name for user, _ in users] == ["Ada", "Bob"]
    bob, pictures = users[1]
    assert bob.pfp_timestamp == store.users.read(BOB).pfp_timestamp
    assert pictures == generate_picture(1000)
    assert deleted == [CLEO, DORA]
    assert empty.problems() == []


# -- backup of a damaged installation ----------------------------------------------------------


@pytest.fixture
def back_up_and_restore(site, tmp_path) -> Callable[[], tuple[list[str], Site]]:
    """A function that restores a backup of `site`; returns what was reported, and the copy."""

    def back_up_and_restore() -> tuple[list[str], Site]:
        number = len([*tmp_path.glob("*.tar.gz")])
        path, restored, reported = tmp_path / f"{number}.tar.gz", Site(tmp_path / str(number)), []
        players = site.backup(path, report=reported.append)
        assert restored.restore(path) == players == len(restored.open().users.ids())
        assert restored.problems() == []
        return reported, restored

    return back_up_and_restore


DAMAGE: dict[str, bytes | dict] = {  # the content of Bob's record, or fields of it
    **{"invalid JSON": b"{", "another id": {"id": 7}, "a path as a name": {"name": "../ada"}},
    **{"a duplicate name": {"name": "ADA"}, "a duplicate email": {"email": "Ada@example.org"}},
    "an invalid picture timestamp": {"pfp_timestamp": 10**15},
    "a too large record": {"bio": "x" * 2**20},
    "a hash of absurd cost": {"password_hash": COSTLY_HASH},
}


def test_damaged_or_unreadable_record_is_reported_and_left_out(site, back_up_and_restore, subtests):
    record = site.data / "users/2.json"
    good = json.loads(record.read_bytes())
    for name, damage in DAMAGE.items():
        with subtests.test(name):
            content = json.dumps(good | damage).encode() if type(damage) is dict else damage
            record.write_bytes(content)
            [reported], restored = back_up_and_restore()
            assert reported.startswith("users/2.json is damaged")
            assert restored.open().users.ids() == [ADA, DORA]
    (client,) = (site.data / "clients").iterdir()
    records = (site.data / "users/2.json", client)
    for make in (lambda path: path.write_text("{"), lambda path: path.symlink_to("x"), Path.mkdir):
        for record in records:
            record.unlink()
            make(record)
        users, clients = sorted(back_up_and_restore()[0], key=lambda line: client.name in line)
        assert "users/2.json" in users and client.name in clients


def test_address_that_breaks_the_rule_is_restored_as_not_confirmed(site, empty, path):
    """A stricter rule loses no account: `check` names the record, and its player can sign in."""
    store, reported = site.open(), []
    for user_id, email in ((70, "a@["), (71, "ada@example.org]1"), (72, "x@bücher.example")):
        store.users.insert(User(user_id, f"Eve {user_id}", email, "", email_verified=True))
    lines = [f"users/{n}.json: email: Enter an email like ada@example.org." for n in (70, 71)]
    found = [each.replace(f"{site.data}/", "").split(" Until")[0] for each in site.problems()]
    assert found == lines
    site.backup(path)
    empty.restore(path, report=reported.append)
    assert reported == [f"{line} It counts as not confirmed" for line in lines]
    users = empty.open().users
    assert [users.read(n).email_verified for n in (70, 71, 72)] == [False, False, True]
    assert users.find_by_login("A@[").id == 70


@pytest.mark.parametrize("damage", ["missing", "a folder", "too large"])
def test_lost_next_id_follows_from_the_ids_in_use(site, back_up_and_restore, damage):
    file = site.data / "next_user_id"
    file.unlink()
    if damage == "a folder":
        file.mkdir()
    elif damage == "too large":
        file.write_text(f"{USER_IDS_END + 1}\n")
    reported, restored = back_up_and_restore()
    assert [str(file) in line for line in reported] == [True] * (damage != "missing")
    assert next_id(restored) == DORA + 1 + IDS_LEFT_OUT


def test_too_large_ids_are_left_out(site, back_up_and_restore):
    record = record_as_dict(User(USER_IDS_END, "Eve", "eve@example.org", ""))
    (site.data / f"users/{USER_IDS_END}.json").write_text(json.dumps(record))
    (site.data / f"deleted/{USER_IDS_END + 1}").touch()
    [reported], restored = back_up_and_restore()
    assert str(USER_IDS_END) in reported
    assert next_id(restored) == LARGEST + 1 + IDS_LEFT_OUT


@pytest.mark.parametrize("user_id", [BOB, DORA])
def test_lost_picture_is_restored_as_generated(site, back_up_and_restore, subtests, user_id):
    """Dora's picture is at the plain address, as of an imported account."""
    with site.open().users.edit(user_id) as user:
        user.pfp_generated = False  # as in a record of an earlier version
    file = user.picture_file
    small, large = (site.pictures / size / file for size in ("small", "large"))
    for size, picture in generate_picture(99).items():
        (site.pictures / size / file).write_bytes(picture)
    for content in (b"", b"RIFF....WEBP", large.read_bytes(), None, "a folder"):
        with subtests.test(content=content and content[:4]):
            if content == "a folder":
                small.mkdir()
            elif content is None:
                small.unlink()
            else:
                small.write_bytes(content)
            [reported], restored = back_up_and_restore()
            assert f"player {user_id}" in reported
            store = restored.open()
            # At another address: caches keep what was at one with a timestamp.
            assert store.users.read(user_id).picture_file == f"{user_id}.webp"
            drawn = store.pictures.read("small", f"{user_id}.webp")[0]
            assert drawn == generate_picture(user_id)["small"]


def test_leftovers_of_a_kill_and_refused_audit_lines_are_not_archived(site, back_up_and_restore):
    """Temporary files, and the mark of a deletion whose record is there."""
    for name in ("users/.7.json.0123abcd", "clients/.x.0123abcd", "deleted/2"):
        (site.data / name).write_text("")
    reported, restored = back_up_and_restore()
    assert reported == []
    assert read_archived(restored.open()) == read_archived(site.open())
    before = site.acts()
    with open(site.data / "audit.log", "ab") as log:
        log.write(b'{"time": 1, "act": "\x1b[2J", "by": 1}\n')
    [reported], restored = back_up_and_restore()
    assert re.fullmatch(r"audit\.log, line \d+: it has control characters: left out", reported)
    assert restored.acts() == [*before, "backup", "restore", "key drop-old"]


@contextlib.contextmanager
def waiting_backup(site: Site, path: Path, *before: str) -> Iterator[subprocess.Popen]:
    """Start a backup in a process that waits for a lock until the block ends."""
    call = [sys.executable, "-c", "from identity_admin import main; main()", "backup", str(path)]
    folders = {"IDENTITY_DATA_DIR": site.data, "IDENTITY_PICTURE_DIR": site.pictures}
    with disk.locked(str(site.data / "locks/archive")):
        process = subprocess.Popen(
            # nohup ignores SIGHUP, and child processes inherit that.
            ["env", "--default-signal=HUP", *before, *call],
            env=os.environ | folders,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # Just before it waits, a signal would be noticed after the wait.
        wait_until(lambda: is_waiting_for_a_lock(process.pid), process)
        assert [*path.parent.glob(f".{path.name}.*")]
        yield process


@pytest.mark.live
def test_backup_ended_by_a_signal_leaves_no_files(site, path, subtests):
    """The signal comes while the backup waits for a lock; under nohup SIGHUP is ignored."""
    before = site.files()
    for number, status in {signal.SIGINT: 1, signal.SIGTERM: 143, signal.SIGHUP: 129}.items():
        with subtests.test(number.name), waiting_backup(site, path) as process:
            process.send_signal(number)
            assert process.wait(PATIENCE) == status
        assert site.files() == before
        assert [each.name for each in path.parent.iterdir()] == ["site"]
    with waiting_backup(site, path, "nohup") as process:
        process.send_signal(signal.SIGHUP)
    assert process.wait(PATIENCE) == 0
    assert path.exists()


# -- restore of a damaged archive --------------------------------------------------------------

Change = Callable[[Members], Members]
CLIENT, SMALL = "clients/.*", "pictures/small/1-.*"  # patterns of names
SINGLE_FILES = ("format", "next_user_id", "audit.log")
RECORDS = ("users/1.json", "users/4.json", "deleted/3", CLIENT)  # Ada's has pictures, Dora's none
OTHER_TYPES = (
    *(tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE),
    *(tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE),
)
OTHER_CLIENT = "clients/" + "c" * 24 + ".json"
ZOE = json.dumps(record_as_dict(User(900, "Zoe", "zoe@example.org", ""))).encode()


def header(name: str, **values) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in values.items():
        setattr(info, field, value)
    return info


def member(name: str, content: bytes = b"") -> tuple[tarfile.TarInfo, bytes]:
    return header(name, size=len(content)), content


def replace(pattern: str, copies: Callable[[str, bytes], list]) -> Change:
    """Replace each member whose name matches by the members that `copies` returns."""

    def change(members: Members) -> Members:
        found = []
        for each, content in members:
            is_meant = re.fullmatch(pattern, each.name)
            found += copies(each.name, content) if is_meant else [(each, content)]
        return found

    return change


def put(pattern: str, content: bytes) -> Change:
    return replace(pattern, lambda name, _: [member(name, content)])


def edit(pattern: str, /, **values) -> Change:

    def edited(name: str, content: bytes) -> list:
        return [member(name, json.dumps(json.loads(content) | values).encode())]

    return replace(pattern, edited)


def drop(pattern: str) -> Change:
    return replace(pattern, lambda name, content: [])


def repeat(pattern: str) -> Change:
    return replace(pattern, lambda name, content: [member(name, content)] * 2)


def add(*new: tuple[tarfile.TarInfo, bytes], before: str = "audit.log") -> Change:
    """Insert members before the first one whose name matches the pattern `before`."""

    def change(members: Members) -> Members:
        names = [each.name for each, _ in members]
        at = next(n for n, name in enumerate(names) if re.fullmatch(before, name))
        return members[:at] + list(new) + members[at:]

    return change


def add_zoe(name: str = "users/900.json", **values) -> Change:
    zoe = header(name, **{"size": len(ZOE)} | values), ZOE[: values.get("size")]
    return add(zoe, before="deleted/3")


GENERATED = member("pictures/large/4.webp", generate_picture(4)["large"])
UNKNOWN = member("pictures/large/900-1.webp")
INVALID_ARCHIVES: dict[str, Change] = {
    "an absolute path": add_zoe("/users/900.json"),
    "a path outside": add_zoe("../users/900.json"),
    "an unknown path": add_zoe("secret_key"),
    "a path that is not ASCII": add_zoe("users/é.json"),
    **{f"a member of type {each}": add_zoe(type=each) for each in OTHER_TYPES},
    "a truncated record": add_zoe(size=100),
    **{f"twice {each}": repeat(each) for each in (*SINGLE_FILES, *RECORDS, SMALL)},
    **{f"no {each}": drop(each) for each in (*SINGLE_FILES, SMALL, "pictures/.*/1-.*")},
    "no members": lambda members: [],
    "a newer layout": put("format", b"%d\n" % (VERSION + 1)),
    "a next id that is not a number": put("next_user_id", "٣".encode()),
    "a too large next id": put("next_user_id", b"999999999999999\n"),
    "a number with too many digits": put("format", b"1" * 21),
    "a part of a generated picture": add(GENERATED, before="deleted/3"),
    "a picture of an unknown player": add(UNKNOWN, before="users/2.json"),
    "players after clients": lambda members: [*members[:2], *members[-2:], *members[2:-2]],
    "not a picture": put(SMALL, b"<svg/>"),
    "a picture of another size": put(SMALL, generate_picture(1)["large"]),
    "a picture with trailing bytes": put(SMALL, generate_picture(1)["small"] + b"<?php"),
    "a too large picture": put(SMALL, bytes(2**20 + 1)),
    "a too large record": put("users/1.json", b" " * (2**20 + 1)),
    "a deleted player with content": put("deleted/3", b"x"),
    "a player with a deletion mark": add(member("deleted/1"), before="deleted/3"),
    "invalid JSON": put("users/1.json", b"{"),
    "another id": edit("users/1.json", id=900),
    "a path as a name": edit("users/1.json", name="../../x"),
    "a duplicate name": edit("users/2.json", name="ADA"),
    "a duplicate email": edit("users/2.json", email="ADA@example.org"),
    "an invalid mod level": edit("users/1.json", mod_level=3),
    "an escape in a bio": edit("users/1.json", bio="a\x1b[2Jb"),
    "an escape in a grant": edit(
        "users/1.json", grants={"a\x1bb": {"id": "x", "scope": ["userinfo"], "since": 1}}
    ),
    "a hash of absurd cost": edit("users/1.json", password_hash=COSTLY_HASH),
    "an escape in a client name": edit(CLIENT, name="a\x07b"),
    "a secret's hash that is none": edit(CLIENT, secret_sha256="é" * 64),
    "a game URL that is none": edit(CLIENT, game_url="https://a.example; script-src *"),
    "a redirect URI that is none": edit(CLIENT, redirect_uris=["javascript:alert(1)"]),
    "an escape in the audit log": put("audit.log", b'{"time": 1, "act": "\x1b[2J", "by": 1}\n'),
    "a change of direction in it": put("audit.log", b'{"time": 1, "act": "\\u202e", "by": 1}\n'),
    "an escape in a damaged audit line": put("audit.log", b'{"time": \x1b[2J\n'),
    "an audit line that is no object": put("audit.log", b'["backup"]\n'),
    "an audit line that is nested": put("audit.log", b'{"time": 1, "act": {"a": "b"}, "by": 1}\n'),
    "an audit line without an end": put("audit.log", b"x" * 2**17),
    "an accent that is no colour": add(
        member("looks/site.json", b'{"id": "site", "changed": 1, "accent": "red; } * {"}')
    ),
    "another client id": add(member(OTHER_CLIENT, b'{"id": "x"}')),
    "a handle that is none": add(member("handles/Zoe.json", b'{"id": "Zoe", "user_id": 9}')),
    "another handle of a player": add(member("handles/zoe.json", b'{"id": "zoe", "user_id": 1}')),
}


def test_invalid_archive_is_refused_without_changes(archive, empty, subtests):
    good = read_archive(archive)
    empty.open()
    before = empty.files()
    for name, change in INVALID_ARCHIVES.items():
        with subtests.test(name):
            write_archive(archive, change(good))
            with pytest.raises(BadFile, match=f"^{archive} cannot be restored: ") as refused:
                empty.restore(archive)
            assert str(refused.value).isprintable()
            assert empty.files() == before
    write_archive(archive, good)
    assert empty.restore(archive) == 3


def test_archive_that_a_newer_rule_refuses_is_restored(archive, empty):
    """What an older version accepted, and a line of the log that a kill cut off."""
    members = read_archive(archive)
    sessions = [{"id": "x", "since": 1, "browser": "y"}]  # no backup has them
    for change in (
        add_zoe(),
        edit("users/1.json", name="mods", bio="x" * 2000, sessions=sessions),
        edit("users/2.json", name="ka\u02bbi"),
        put("audit.log", b'{"time": 1, "act": "ba'),
    ):
        members = change(members)
    write_archive(archive, members)
    assert empty.restore(archive) == 4
    store = empty.open()
    ada, bob = map(store.users.read, (ADA, BOB))
    assert (ada.name, ada.bio, ada.sessions) == ("mods", "x" * 2000, [])
    assert bob.name == "ka\u02bbi"
    assert [each.problem for each in store.verify()] == ["has a damaged line, number 1"]


def negative_size(content: bytes) -> bytes:
    """Give Ada's record a size of -512 bytes, which could make a reader loop over it."""
    at = content.index(b"users/1.json")
    record = bytearray(content[at : at + 512])
    record[124:136] = (2**96 - 512).to_bytes(12, "big")
    record[148:156] = b"%06o\0 " % (sum(record[:148]) + 8 * 32 + sum(record[156:]))
    return content[:at] + bytes(record) + content[at + 512 :]


FILE_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "an empty file": lambda content: b"",
    "not compressed": gzip.decompress,
    "truncated": lambda content: content[:-1],
    "a changed byte": lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:],
    "a changed checksum": lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:],
    "trailing bytes": lambda content: content + gzip.compress(b"x"),
    "one end block": lambda content: gzip.compress(gzip.decompress(content)[:-512]),
    "an extra end block": lambda content: gzip.compress(gzip.decompress(content) + bytes(512)),
    "an invalid header": lambda content: gzip.compress(b"x" * 512),
    "a negative size": lambda content: gzip.compress(negative_size(gzip.decompress(content))),
}


def test_damaged_archive_file_is_refused_without_changes(archive, empty, subtests):
    whole = archive.read_bytes()
    empty.open()
    before = empty.files()
    damaged = {name: damage(whole) for name, damage in FILE_DAMAGE.items()}
    damaged |= {length: whole[:length] for length in range(0, len(whole), 97)}
    for name, content in damaged.items():
        with subtests.test(name):
            archive.write_bytes(content)
            with pytest.raises(BadFile, match="cannot be restored"):
                empty.restore(archive)
            assert empty.files() == before


def test_highly_compressed_archive_is_refused(archive, empty):
    """Each of 50 records ends with a megabyte of blanks, which JSON allows."""
    blanks = b" " * (2**20 - 700)

    def record(user_id: int) -> bytes:
        user = User(user_id, f"P{user_id}", f"{user_id}@example.org", "")
        return json.dumps(record_as_dict(user)).encode() + blanks

    inflated = [member(f"users/{n}.json", record(n)) for n in range(100, 150)]
    write_archive(archive, add(*inflated, before="deleted/3")(read_archive(archive)))
    assert archive.stat().st_size < 2**18
    with pytest.raises(BadFile, match="100 times its size"):
        empty.restore(archive)
    assert empty.open().users.ids() == []


def test_highly_compressed_members_without_content_are_refused(archive, empty):
    """Ids of the same digits have the same checksum: a header takes four bytes."""
    deleted = [0b1 << 14 | sum(1 << n for n in each) for each in combinations(range(14), 7)]
    members = [each for each in read_archive(archive) if each[0].name in SINGLE_FILES]
    many = [member(f"deleted/{number:b}") for number in sorted(deleted)]
    write_archive(archive, add(*many)(members))
    archive.write_bytes(gzip.compress(gzip.decompress(archive.read_bytes()), 9))
    with pytest.raises(BadFile, match="100 times its size"):
        empty.restore(archive)
    # As many as a backup has them.
    write_archive(archive, add(*(member(f"deleted/{n}") for n in range(1, 3000)))(members))
    assert empty.restore(archive) == 0


# -- the commands ------------------------------------------------------------------------------


def test_backup_and_restore_commands_print_counts(site, tmp_path):
    installation = Installation(site.folder)
    unused = {"IDENTITY_DATA_DIR": "new/data", "IDENTITY_PICTURE_DIR": "new/pictures"}
    for folder, mode in zip(unused.values(), (0o700, 0o755), strict=True):
        (site.folder / folder).mkdir(parents=True)  # root says whose they are
        (site.folder / folder).chmod(mode)
    assert "no players" in installation.refusal("backup", "a.tar.gz", **unused)
    assert installation.output("backup", "a.tar.gz") == "3 players in a.tar.gz\n"
    assert "there is no folder" in installation.refusal("backup", "nowhere/a.tar.gz")
    assert "has players or clients" in installation.refusal("restore", "a.tar.gz")
    (site.folder / "damaged").write_text("x")
    refusal = installation.refusal("restore", "damaged", **unused)
    assert refusal.startswith("damaged cannot be restored: ")
    restored = installation.output("restore", "a.tar.gz", **unused)
    assert restored == "3 players restored from a.tar.gz\n"
    assert installation.output("check", **unused) == "Nothing is wrong.\n"
    (site.data / "users/2.json").write_text("{")
    done = installation.run("backup", "b.tar.gz", status=1)
    first, second = done.stdout.splitlines()
    assert first.startswith("users/2.json is damaged: ") and second == "2 players in b.tar.gz"
    assert done.stderr.startswith("Error: something is left out: ")


@pytest.mark.live
def test_dash_is_standard_output_or_input(site, subtests):
    """In pipelines of the shell: what the first command says is on standard error."""
    environment = Installation(site.folder).environment | {"COMMAND": str(COMMAND)}
    (site.data / "users/2.json").write_text("{")  # it is left out, which is said
    before = {each.name for each in site.folder.iterdir()}
    pipelines = {
        "backup -": ("restore -", "2 players restored from -\n"),
        "export -": ("import -", "2 players added, 0 were there already\n"),
    }
    for first, (second, printed) in pipelines.items():
        with subtests.test(first):
            new = f"{first} new"
            (site.folder / new / "pfp").mkdir(parents=True)
            folders = f"IDENTITY_DATA_DIR='{new}' IDENTITY_PICTURE_DIR='{new}/pfp'"
            line = f'"$COMMAND" {first} | {folders} "$COMMAND" {second}'
            options = {"cwd": site.folder, "env": environment, "capture_output": True}
            done = subprocess.run(["sh", "-c", line], text=True, timeout=PATIENCE, **options)
            assert (done.returncode, done.stdout) == (0, printed)
            assert "users/2.json is damaged" in done.stderr and "2 players in -" in done.stderr
    after = {each.name for each in site.folder.iterdir()}
    assert after - before == {f"{first} new" for first in pipelines}


@pytest.mark.live
def test_terminal_is_no_archive(site, subtests):
    controller, terminal = pty.openpty()
    options = {"cwd": site.folder, "env": Installation(site.folder).environment}
    options |= {"stdin": terminal, "stdout": terminal, "stderr": subprocess.PIPE}
    for line in ("backup -", "export -", "restore -", "import -"):
        with subtests.test(line):
            done = subprocess.run([COMMAND, *line.split()], timeout=PATIENCE, **options)
            assert done.returncode == 1 and b"is a terminal" in done.stderr
    os.close(terminal)
    with open(controller, "rb", buffering=0) as printed, contextlib.suppress(OSError):
        assert printed.read(1) == b""  # a terminal without a program raises EIO
