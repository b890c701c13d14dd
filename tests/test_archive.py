"""Backup and restore: storage/archive.py, with the snapshot and load of the backend."""

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archives import A_HASH, Members, Site, read_archive, write_archive
from cached_pictures import cache_pictures, generate_picture
from click.testing import CliRunner
from test_command import Installation
from waiting import PATIENCE, wait_until

from commands.printing import describe_audit_line
from identity_admin import identity_server_command
from storage import Storage
from storage.encoding import record_as_dict
from storage.errors import BadFile, BadInstallation
from storage.flat_files import disk
from storage.records import PICTURE_SIZES, Grant, Session, User
from storage.rules import USER_IDS_END

pytestmark = pytest.mark.contract
ROOT = Path(__file__).parent.parent
ADA, BOB, CLEO, DORA = 1, 2, 3, 4  # ids; Cleo is deleted, and Dora has no picture


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with an installation that was used, and a backup of it."""
    folder = tmp_path_factory.mktemp("prepared")
    site = Site(folder / "site")
    store = site.open()
    for name in ("Ada", "Bob", "Cleo"):
        store.users.register(name, f"{name.lower()}@example.org", A_HASH)
    store.users.delete(CLEO)
    client, _ = store.clients.register("Chess", ["https://chess.example/cb"], ADA)
    store.pictures.save(BOB, generate_picture(99))
    with store.users.edit(ADA) as ada:
        ada.sessions = [Session("adas session", 1, "Firefox on Linux")]
        ada.grants = {client.id: Grant("a grant", ["userinfo"], 2)}
        ada.bio = "Zoë 🙂"
    store.users.reserve_ids(DORA)
    store.users.insert(User(DORA, "Dora", "dora@example.org", ""))
    store.invites.issue(7)
    store.attempts.count("password", "ada", limit=10)
    site.backup(folder / "backup.tar.gz")
    return folder


@pytest.fixture
def site(tmp_path, prepared, unsynced, monkeypatch) -> Site:
    """A copy of the prepared installation for this test."""
    cache_pictures(monkeypatch)
    shutil.copytree(prepared / "site", tmp_path / "site", symlinks=True)
    return Site(tmp_path / "site")


@pytest.fixture
def empty(tmp_path, backend) -> Site:
    """An installation that was not used yet, on each backend; `site` has flat files."""
    return Site(tmp_path / "empty", backend)


@pytest.fixture
def path(tmp_path) -> Path:
    """The path of the archive to write."""
    return tmp_path / "backup.tar.gz"


@pytest.fixture
def archive(prepared, path, unsynced) -> Path:
    """A valid archive of `site`."""
    return Path(shutil.copy(prepared / path.name, path))


def names_in(path: Path) -> list[str]:
    return [header.name for header, _ in read_archive(path)]


def change_record(path: Path, **values) -> None:
    """Change fields of a record's file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# ---------------------------------------------------------------------------------------------
# Backup
# ---------------------------------------------------------------------------------------------


def test_restore_returns_everything(site, archive, empty):
    assert empty.restore(archive) == 3
    before, after = site.open(), empty.open()
    assert empty.players() == site.players()
    assert after.users.ids() == [ADA, BOB, DORA]
    assert [*map(after.clients.read, after.clients.ids())] == [
        *map(before.clients.read, before.clients.ids())
    ]
    assert empty.deleted_ids() == [CLEO]
    assert empty.problems() == []


def test_archive_members_have_a_fixed_order(site, archive):
    store = site.open()
    pictures = {
        user_id: [
            f"pictures/{size}/{store.users.read(user_id).picture_file}" for size in PICTURE_SIZES
        ]
        for user_id in (ADA, BOB)
    }
    assert names_in(archive) == [
        *("format", "next_user_id"),
        *("users/1.json", *pictures[ADA], "users/2.json", *pictures[BOB], "users/4.json"),
        *("deleted/3", f"clients/{store.clients.ids()[0]}.json", "audit.log"),
    ]


def test_archive_contains_no_credentials(site, archive):
    """Keys, invitations, sessions and counted attempts are left out."""
    content = gzip.decompress(archive.read_bytes())
    assert b"a grant" in content and A_HASH.encode() in content
    for secret in (
        *site.open().keys.current(),
        b"adas session",
        b"Firefox",
        b"invites",
        b"attempts",
    ):
        assert secret not in content


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_archive_and_restored_files_have_standard_modes_with_any_umask(site, path, umask, tmp_path):
    restored, before = Site(tmp_path / "restored"), os.umask(umask)
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


def test_backup_of_an_empty_installation_is_refused(empty, path, unsynced):
    """A forgotten IDENTITY_DATA_DIR must not look like a successful backup."""
    with pytest.raises(BadInstallation, match="no players"):
        empty.backup(path)
    assert not path.exists()


def test_backup_adds_only_the_archive_and_an_audit_line(site, path):
    before = site.files()
    site.backup(path)
    after = site.files()
    assert after.pop("data/audit.log").startswith(before.pop("data/audit.log"))
    assert after == before
    assert site.acts()[-1] == "backup"
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, "site"]


def test_archive_contains_the_audit_line_of_its_backup(archive):
    assert b'"act": "backup"' in {h.name: c for h, c in read_archive(archive)}["audit.log"]


# -- changes during a backup --------------------------------------------------------------------


@pytest.fixture
def while_packing(site, path, monkeypatch) -> Callable[[Callable[[Storage], object]], list[str]]:
    """A function that runs a backup and calls `act` after the first player; returns the reports."""
    monkeypatch.setattr("storage.archive.STEP", 1)

    def while_packing(act: Callable[[Storage], object]) -> list[str]:
        reported = []

        def progress(done: int, total: int) -> None:
            if done == 1:
                act(site.open())

        site.backup(path, progress=progress, report=reported.append)
        return reported

    return while_packing


def test_picture_changed_during_a_backup_is_archived_with_its_timestamp(
    while_packing, site, path, empty
):
    def change(store: Storage) -> None:
        for user_id in (BOB, DORA):
            store.pictures.save(user_id, generate_picture(1000 + user_id))
            with store.users.edit(user_id) as user:
                user.bio = "changed since"

    assert while_packing(change) == []
    empty.restore(path)
    restored, store = empty.open(), site.open()
    for user_id in (BOB, DORA):
        user = restored.users.read(user_id)
        assert user.pfp_timestamp == store.users.read(user_id).pfp_timestamp
        picture = restored.pictures.read("small", user.picture_file)[0]
        assert picture == generate_picture(1000 + user_id)["small"]
        assert user.bio == ""  # the record is that of the snapshot
    assert empty.problems() == []


def test_player_deleted_during_a_backup_is_deleted_in_the_archive(while_packing, path, empty):
    assert while_packing(lambda store: store.users.delete(BOB)) == []
    assert empty.restore(path) == 2
    assert empty.open().users.ids() == [ADA, DORA]
    assert empty.deleted_ids() == [BOB, CLEO]
    assert empty.problems() == []


def test_additions_and_renames_during_a_backup_are_not_in_the_archive(while_packing, path, empty):
    def change(store: Storage) -> None:
        store.users.rename(BOB, "Robert")
        store.users.register("Bob", "another@example.org", "")

    assert while_packing(change) == []
    empty.restore(path)
    assert [user.name for user, _ in empty.players()] == ["Ada", "Bob", "Dora"]
    assert empty.problems() == []


def test_progress_counts_players_in_a_backup_and_bytes_in_a_restore(site, path, empty, monkeypatch):
    monkeypatch.setattr("storage.archive.STEP", 2)
    packing, restoring = [], []
    site.backup(path, progress=lambda *each: packing.append(each))
    empty.restore(path, progress=lambda *each: restoring.append(each))
    assert packing == [(2, 3), (3, 3)]
    size = path.stat().st_size
    assert restoring == [(size, size)]


# -- damaged installations ----------------------------------------------------------------------


def hand_edit(**values) -> Callable[[Site], None]:
    return lambda site: change_record(site.data / "users/2.json", **values)


DAMAGE = {
    "invalid JSON": lambda site: (site.data / "users/2.json").write_text("{"),
    "another id": hand_edit(id=7),
    "an unknown field": hand_edit(shoe_size=42),
    "a path as a name": hand_edit(name="../ada"),
    "an invalid email": hand_edit(email="bob"),
    "a duplicate name": hand_edit(name="ADA"),
    "a duplicate email": hand_edit(email="Ada@example.org"),
    "an invalid mod level": hand_edit(mod_level=9),
    "an invalid picture timestamp": hand_edit(pfp_timestamp=10**15),
    "a lone surrogate": hand_edit(bio="\ud800"),
    "a too large record": hand_edit(bio="x" * 2**20),
    "an escape in a bio": hand_edit(bio="a\x1b[2Jb"),
    "a hash of absurd cost": hand_edit(password_hash=f"scrypt:1048576:64:9$a${'0' * 128}"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_invalid_record_is_reported_and_left_out(site, path, empty, damage):
    DAMAGE[damage](site)
    reported = []
    assert site.backup(path, report=reported.append) == 2
    assert len(reported) == 1 and reported[0].startswith("users/2.json is damaged")
    assert empty.restore(path) == 2
    assert empty.open().users.ids() == [ADA, DORA]
    assert empty.problems() == []


def test_invalid_client_is_reported_and_left_out(site, path, empty):
    (record,) = (site.data / "clients").iterdir()
    change_record(record, name=5)
    reported = []
    site.backup(path, report=reported.append)
    assert len(reported) == 1 and reported[0].startswith(f"clients/{record.name} is damaged")
    empty.restore(path)
    assert empty.open().clients.ids() == []


UNREADABLE_ENTRIES = {"a dangling link": lambda path: path.symlink_to("x"), "a folder": Path.mkdir}


@pytest.mark.parametrize("make", UNREADABLE_ENTRIES.values(), ids=UNREADABLE_ENTRIES)
def test_record_that_is_not_a_file_is_reported_and_left_out(site, path, empty, make):
    (client,) = (site.data / "clients").iterdir()
    for record in (site.data / "users/2.json", client):
        record.unlink()
        make(record)
    reported = []
    assert site.backup(path, report=reported.append) == 2
    users, clients = sorted(reported, key=lambda line: client.name in line)
    assert "users/2.json" in users and client.name in clients
    assert empty.restore(path) == 2
    assert empty.open().clients.ids() == []
    assert empty.problems() == []


@pytest.mark.parametrize("next_id", [None, USER_IDS_END + 1])
def test_invalid_next_id_is_reported_and_left_out(site, path, empty, next_id):
    """The next id follows from the ids in use."""
    file = site.data / "next_user_id"
    file.unlink()
    if next_id:
        file.write_text(f"{next_id}\n")
    else:
        file.mkdir()  # reading a folder fails
    reported = []
    assert site.backup(path, report=reported.append) == 3
    assert len(reported) == 1 and str(file) in reported[0]
    assert empty.restore(path) == 3
    assert empty.open().users.register("Emmy", "emmy@example.org", "").id == DORA + 1 + 10_000


@pytest.mark.parametrize("name", ["deleted/{}", "users/{}.json"])
def test_too_large_id_is_reported_and_left_out(site, path, empty, name):
    for user_id in (USER_IDS_END, USER_IDS_END - 1):
        (site.data / name.format(user_id)).touch()
        if name.startswith("users"):
            record = record_as_dict(User(user_id, f"E{user_id}", f"{user_id}@example.org", ""))
            (site.data / name.format(user_id)).write_text(json.dumps(record))
    reported = []
    site.backup(path, report=reported.append)
    assert [line for line in reported if str(USER_IDS_END) in line] == reported[:1]
    empty.restore(path)
    restored = {*empty.deleted_ids(), *empty.open().users.ids()}
    assert USER_IDS_END - 1 in restored
    assert USER_IDS_END not in restored


@pytest.mark.parametrize("user_id", [BOB, DORA])
@pytest.mark.parametrize("content", [None, b"", b"RIFF....WEBP", "large", "a folder"])
def test_lost_picture_is_reported_and_restored_as_the_generated_one(
    site, path, empty, content, user_id
):
    """Dora's picture is at the plain address, as of an imported account."""
    user = site.open().users.read(user_id)
    small, large = (site.pictures / size / user.picture_file for size in ("small", "large"))
    if user_id == DORA:
        for size, picture in generate_picture(99).items():
            (site.pictures / size / user.picture_file).write_bytes(picture)
    if content in (None, "a folder"):
        small.unlink()
        if content:
            small.mkdir()
    else:
        small.write_bytes(large.read_bytes() if content == "large" else content)
    reported = []
    assert site.backup(path, report=reported.append) == 3
    assert len(reported) == 1 and f"player {user_id}" in reported[0]
    empty.restore(path)
    restored = empty.open()
    assert restored.users.read(user_id).pfp_timestamp is None
    drawn = restored.pictures.read("small", f"{user_id}.webp")[0]
    assert drawn == generate_picture(user_id)["small"]
    assert empty.problems() == []


def test_player_with_record_and_deletion_mark_is_archived(site, path, empty):
    """A killed deletion leaves both; the record counts."""
    (site.data / "deleted/2").touch()
    site.backup(path)
    assert empty.restore(path) == 3
    assert empty.deleted_ids() == [CLEO]
    assert empty.problems() == []


def test_temporary_files_are_not_archived(site, path):
    for name in ("users/.7.json.0123abcd", "clients/.x.0123abcd"):
        (site.data / name).write_text("{")
    reported = []
    site.backup(path, report=reported.append)
    assert reported == []
    assert not [name for name in names_in(path) if "/." in name]


# -- interrupted backups ------------------------------------------------------------------------


@contextlib.contextmanager
def waiting_backup(site, path, *before: str) -> Iterator[subprocess.Popen]:
    """Start a backup in a process that waits for a lock until the block ends."""
    call = [sys.executable, "-c", "from identity_admin import main; main()", "backup", str(path)]
    with disk.locked(str(site.data / "locks/archive")):
        process = subprocess.Popen(
            # nohup ignores SIGHUP, and child processes inherit that.
            ["env", "--default-signal=HUP", *before, *call],
            env=os.environ
            | {"IDENTITY_DATA_DIR": site.folders[0], "IDENTITY_PICTURE_DIR": site.folders[1]},
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: [*path.parent.glob(f".{path.name}.*")], process)
        yield process


@pytest.mark.live
def test_backup_under_nohup_ignores_sighup(site, path):
    with waiting_backup(site, path, "nohup") as process:
        process.send_signal(signal.SIGHUP)
    assert process.wait(PATIENCE) == 0
    assert path.exists()


@pytest.mark.live
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_backup_ended_by_a_signal_leaves_no_files(site, path, signal_number):
    """The signal comes while the backup waits for a lock."""
    before = site.files()
    with waiting_backup(site, path) as process:
        process.send_signal(signal_number)
        assert process.wait(PATIENCE) == (
            1 if signal_number == signal.SIGINT else 128 + signal_number
        )
    assert site.files() == before
    assert [each.name for each in path.parent.iterdir()] == ["site"]


# ---------------------------------------------------------------------------------------------
# Restore
# ---------------------------------------------------------------------------------------------


def test_restore_skips_ids_possibly_assigned_after_the_backup(archive, empty):
    empty.restore(archive)
    assert empty.open().users.register("Emmy", "emmy@example.org", "").id == 5 + 10_000


def test_backup_without_next_id_is_restored_with_one(site, path, empty):
    (site.data / "next_user_id").unlink()
    site.backup(path)
    empty.restore(path)
    assert empty.open().users.register("Emmy", "emmy@example.org", "").id == 5 + 10_000


def test_open_storage_sees_the_restored_data(archive, empty, unsynced):
    """A server may run on the empty folders during the restore."""
    store = empty.open()
    assert store.users.is_new()
    empty.restore(archive)
    assert store.users.find_by_login("ada").id == ADA
    assert not store.users.is_new()


def test_restore_keeps_both_audit_logs_and_adds_a_line(site, archive, empty, unsynced):
    empty.open().audit.write("invite", by="command", days=1)
    before = site.acts()
    empty.restore(archive)
    assert empty.acts() == [*before, "invite", "restore", "key drop-old"]


def test_sessions_are_not_restored(archive, empty):
    """Sessions in a handwritten archive are dropped."""
    tamper(archive, edit("users/1.json", sessions=[{"id": "x", "since": 1, "browser": "y"}]))
    empty.restore(archive)
    assert empty.open().users.read(ADA).sessions == []


# -- invalid archives ---------------------------------------------------------------------------


Change = Callable[[Members], Members]


def tamper(path: Path, change: Change, **options) -> None:
    write_archive(path, change(read_archive(path)), **options)


def header(name: str, **values) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in values.items():
        setattr(info, field, value)
    return info


def member(name: str, content: bytes = b"") -> tuple[tarfile.TarInfo, bytes]:
    return header(name, size=len(content)), content


def edit(file: str, /, **values) -> Change:
    """Change fields of a record."""

    def change(members: Members) -> Members:
        return [
            member(file, json.dumps(json.loads(content) | values).encode())
            if each.name == file
            else (each, content)
            for each, content in members
        ]

    return change


def edit_client(**values) -> Change:
    """Change fields of the client."""

    def change(members: Members) -> Members:
        (name,) = (each.name for each, _ in members if each.name.startswith("clients/"))
        return edit(name, **values)(members)

    return change


def put(name: str, content: bytes) -> Change:
    """Replace the content of a file."""
    return lambda members: [
        member(name, content) if re.fullmatch(name, each.name) else (each, old)
        for each, old in members
    ]


def drop(pattern: str) -> Change:
    return lambda members: [each for each in members if not re.fullmatch(pattern, each[0].name)]


def add(*new: tuple[tarfile.TarInfo, bytes], before: str = "audit.log") -> Change:
    """Insert members before the first one whose name matches the pattern `before`."""

    def change(members: Members) -> Members:
        names = [each.name for each, _ in members]
        at = next(n for n, name in enumerate(names) if re.fullmatch(before, name))
        return members[:at] + list(new) + members[at:]

    return change


def repeat(pattern: str) -> Change:
    def change(members: Members) -> Members:
        return [
            each for each in members for _ in range(1 + bool(re.fullmatch(pattern, each[0].name)))
        ]

    return change


def picture(content: bytes) -> Change:
    """Replace Ada's small picture."""

    def change(members: Members) -> Members:
        return [
            member(each.name, content) if each.name.startswith("pictures/small/1-") else (each, old)
            for each, old in members
        ]

    return change


CLIENT = "clients/" + "c" * 24 + ".json"
ZOE = json.dumps(record_as_dict(User(900, "Zoe", "zoe@example.org", ""))).encode()


def add_zoe(name: str = "users/900.json", **values) -> Change:
    """Add a valid player in the right place, with these header fields."""
    zoe = header(name, **{"size": len(ZOE)} | values), ZOE[: values.get("size")]
    return add(zoe, before="deleted/3")


INVALID_ARCHIVES: dict[str, Change] = {
    "an absolute path": add_zoe("/users/900.json"),
    "a path outside": add_zoe("../users/900.json"),
    "an unknown path": add_zoe("secret_key"),
    "a path that is not ASCII": add_zoe("users/é.json"),
    "an id with a leading zero": add_zoe("users/0900.json"),
    "a folder": add_zoe(type=tarfile.DIRTYPE),
    "a symbolic link": add_zoe(type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": add_zoe(type=tarfile.LNKTYPE, linkname="users/1.json"),
    "a device": add_zoe(type=tarfile.CHRTYPE, devmajor=1, devminor=5),
    "a pipe": add_zoe(type=tarfile.FIFOTYPE),
    "a sparse file": add_zoe(type=tarfile.GNUTYPE_SPARSE),
    "a long name": add_zoe(type=tarfile.GNUTYPE_LONGNAME),
    "a pax header": add_zoe(type=tarfile.XHDTYPE),
    "a truncated record": add_zoe(size=100),
    "a duplicate player": repeat("users/4.json"),
    "a duplicate player with pictures": repeat("users/1.json"),
    "a duplicate picture": repeat("pictures/small/1-.*"),
    "a duplicate deleted player": repeat("deleted/3"),
    "a duplicate client": repeat("clients/.*"),
    "two audit logs": repeat("audit.log"),
    "two layouts": repeat("format"),
    "two next ids": repeat("next_user_id"),
    "no layout": drop("format"),
    "no next id": drop("next_user_id"),
    "no audit log": drop("audit.log"),
    "no members": lambda members: [],
    "a newer layout": put("format", b"3\n"),
    "a layout that is not a number": put("format", b"one\n"),
    "a next id that is not a number": put("next_user_id", "٣".encode()),
    "a next id of zero": put("next_user_id", b"0\n"),
    "a too large next id": put("next_user_id", b"999999999999999\n"),
    "a number with too many digits": put("format", b"1" * 21),
    "a picture missing": drop("pictures/small/1-.*"),
    "all pictures of a player missing": drop("pictures/.*/1-.*"),
    "a part of a generated picture": add(
        member("pictures/large/4.webp", generate_picture(4)["large"]), before="deleted/3"
    ),
    "a picture of an unknown player": add(
        member("pictures/large/900-1.webp"), before="users/2.json"
    ),
    "a picture before its player": lambda members: [*members[:2], *members[3:6], members[2]],
    "players after clients": lambda members: [*members[:2], *members[-2:], *members[2:-2]],
    "not a picture": picture(b"<svg/>"),
    "a picture of another size": picture(generate_picture(1)["large"]),
    "a truncated picture": picture(generate_picture(1)["small"][:-1]),
    "a picture with trailing bytes": picture(generate_picture(1)["small"] + b"<?php"),
    "a too large picture": picture(bytes(2**20 + 1)),
    "a too large record": put("users/1.json", b" " * (2**20 + 1)),
    "a deleted player with content": put("deleted/3", b"x"),
    "a player with a deletion mark": add(member("deleted/1"), before="deleted/3"),
    "invalid JSON": put("users/1.json", b"{"),
    "deeply nested JSON": put("users/1.json", b"[" * 100_000),
    "a list as a record": put("users/1.json", b"[]"),
    "another id": edit("users/1.json", id=900),
    "an unknown field": edit("users/1.json", shoe_size=42),
    "a field of another type": edit("users/1.json", suspended="no"),
    "a path as a name": edit("users/1.json", name="../../x"),
    "a name with a leading dot": edit("users/1.json", name=".x"),
    "an empty name": edit("users/1.json", name=""),
    "a lone surrogate": edit("users/1.json", name="\ud800"),
    "a duplicate name": edit("users/2.json", name="ADA"),
    "a duplicate email": edit("users/2.json", email="ADA@example.org"),
    "an invalid mod level": edit("users/1.json", mod_level=3),
    "an invalid picture timestamp": edit("users/1.json", pfp_timestamp=-1),
    "an escape in a bio": edit("users/1.json", bio="a\x1b[2Jb"),
    "an escape in an email": edit("users/1.json", email="ada\x9b@example.org"),
    "a change of direction in a flair": edit("users/1.json", flairs=["none", "a\u202eb"]),
    "an escape in a grant": edit(
        "users/1.json", grants={"a\x1bb": {"id": "x", "scope": ["userinfo"], "since": 1}}
    ),
    "a hash of absurd cost": edit(
        "users/1.json", password_hash=f"scrypt:1048576:64:9$a${'0' * 128}"
    ),
    "a hash of another form": edit("users/1.json", password_hash="md5$a$b"),
    "an escape in a client name": edit_client(name="a\x07b"),
    "an escape in a description": edit_client(description="a\x1b]0;b"),
    "a secret's hash that is none": edit_client(secret_sha256="é" * 64),
    "a secret's hash of a public client": edit_client(public=True),
    "a game URL that is none": edit_client(game_url="https://a.example; script-src *"),
    "a redirect URI that is none": edit_client(redirect_uris=["javascript:alert(1)"]),
    "an escape in the audit log": put("audit.log", b'{"time": 1, "act": "\x1b[2J", "by": 1}\n'),
    "an escaped escape in it": put("audit.log", b'{"time": 1, "act": "\\u001b[2J", "by": 1}\n'),
    "a change of direction in it": put("audit.log", b'{"time": 1, "act": "\\u202e", "by": 1}\n'),
    "an escape in a damaged audit line": put("audit.log", b'{"time": \x1b[2J\n'),
    "an audit line that is no object": put("audit.log", b'["backup"]\n'),
    "an audit line that is nested": put("audit.log", b'{"time": 1, "act": {"a": "b"}, "by": 1}\n'),
    "an audit line without an end": put("audit.log", b"x" * 2**17),
    "another client id": add(member(CLIENT, b'{"id": "x"}')),
    "null as a client": add(member(CLIENT, b"null")),
}


@pytest.mark.parametrize("change", INVALID_ARCHIVES)
def test_invalid_archive_is_refused_without_changes(archive, empty, change):
    good = archive.with_name("good.tar.gz")
    good.write_bytes(archive.read_bytes())
    empty.open()
    before = empty.files()
    tamper(archive, INVALID_ARCHIVES[change])
    with pytest.raises(BadFile, match=f"^{archive} cannot be restored: "):
        empty.restore(archive)
    assert empty.files() == before
    assert empty.restore(good) == 3


def test_refused_archive_names_the_member_and_what_is_wrong(archive, empty, subtests):
    good = read_archive(archive)
    for change, told in {
        edit("users/2.json", bio="\x1b[2J"): "users/2.json is damaged: bio: This has control",
        edit("users/2.json", password_hash="x"): "users/2.json is damaged: password_hash: This is",
        edit_client(name="\x1b[2J"): ".json is damaged: name: This has control characters.",
        put("audit.log", b"{}\n\x1b\n"): "audit.log, line 2, is damaged: it has control",
    }.items():
        with subtests.test(told):
            write_archive(archive, change(good))
            with pytest.raises(BadFile, match=re.escape(told)) as refused:
                empty.restore(archive)
            assert str(refused.value).isprintable()


def test_names_and_bios_that_a_newer_rule_refuses_are_restored(archive, empty):
    """What an older version accepted is no reason to refuse a backup; nor is a valid new player."""
    tamper(archive, add_zoe())
    tamper(archive, edit("users/1.json", name="mods", bio="x" * 2000))
    tamper(archive, edit("users/2.json", name="ka\u02bbi", email="bob@example.org"))
    assert empty.restore(archive) == 4
    ada, bob, *_ = (user for user, _ in empty.players())
    assert (ada.name, ada.bio) == ("mods", "x" * 2000)
    assert bob.name == "ka\u02bbi"
    assert empty.problems() == []


def test_audit_line_that_a_kill_cut_off_is_restored(archive, empty):
    tamper(archive, put("audit.log", b'{"time": 1, "act": "ba'))
    assert empty.restore(archive) == 3


def test_audit_lines_that_a_restore_refuses_are_left_out(site, path, empty):
    before, reported = site.acts(), []
    with open(site.data / "audit.log", "ab") as log:
        log.write(b'{"time": 1, "act": "\x1b[2J", "by": 1}\n')
    site.backup(path, report=reported.append)
    assert re.fullmatch(r"audit\.log, line \d+: it has control characters: left out", reported[0])
    empty.restore(path)
    assert len(reported) == 1 and before
    assert empty.acts() == [*before, "backup", "restore", "key drop-old"]


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
    "compressed twice": gzip.compress,
    "truncated": lambda content: content[:-1],
    "a changed byte": lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:],
    "a changed checksum": lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:],
    "trailing bytes": lambda content: content + gzip.compress(b"x"),
    "a second archive": lambda content: content + content,
    "no end blocks": lambda content: gzip.compress(gzip.decompress(content)[:-1024]),
    "one end block": lambda content: gzip.compress(gzip.decompress(content)[:-512]),
    "an extra end block": lambda content: gzip.compress(gzip.decompress(content) + bytes(512)),
    "an invalid header": lambda content: gzip.compress(b"x" * 512),
    "a negative size": lambda content: gzip.compress(negative_size(gzip.decompress(content))),
}


@pytest.mark.parametrize("damage", FILE_DAMAGE)
def test_damaged_archive_file_is_refused_without_changes(archive, empty, damage):
    empty.open()
    before = empty.files()
    archive.write_bytes(FILE_DAMAGE[damage](archive.read_bytes()))
    with pytest.raises(BadFile, match="cannot be restored"):
        empty.restore(archive)
    assert empty.files() == before


def test_archive_truncated_at_any_length_is_refused(archive, empty):
    whole = archive.read_bytes()
    for length in range(0, len(whole), 97):
        archive.write_bytes(whole[:length])
        with pytest.raises(BadFile):
            empty.restore(archive)
    assert empty.open().users.ids() == []


@pytest.mark.live
def test_restore_from_a_pipe_is_refused(archive, empty):
    cat = subprocess.Popen(["cat", archive], stdout=subprocess.PIPE)
    with cat, pytest.raises(BadFile, match="no pipe"):
        empty.restore(Path(f"/dev/fd/{cat.stdout.fileno()}"))


def test_highly_compressed_archive_is_refused(archive, empty):
    """Each of 50 records ends with a megabyte of blanks, which JSON allows."""
    blanks = b" " * (2**20 - 400)
    record = {each.name: content for each, content in read_archive(archive)}["users/4.json"]

    def inflate(members: Members) -> Members:
        others = [
            member(
                f"users/{n}.json",
                json.dumps(
                    json.loads(record) | {"id": n, "name": f"P{n}", "email": f"{n}@example.org"}
                ).encode()
                + blanks,
            )
            for n in range(100, 150)
        ]
        return add(*others, before="deleted/3")(members)

    tamper(archive, inflate)
    assert archive.stat().st_size < 2**18
    with pytest.raises(BadFile, match="100 times its size"):
        empty.restore(archive)
    assert empty.open().users.ids() == []


# ---------------------------------------------------------------------------------------------
# The commands
# ---------------------------------------------------------------------------------------------


NEW_FOLDERS = {"IDENTITY_DATA_DIR": "new/data", "IDENTITY_PICTURE_DIR": "new/pictures"}


@pytest.fixture
def installation(site) -> Installation:
    """The command on the installation of `site`."""
    return Installation(site.folder)


def test_backup_and_restore_commands_print_the_player_count(installation, site):
    assert installation.output("backup", "a.tar.gz") == "3 players in a.tar.gz\n"
    printed = installation.output("restore", "a.tar.gz", **NEW_FOLDERS)
    assert printed == "3 players restored from a.tar.gz\n"
    assert installation.output("check", **NEW_FOLDERS) == "Nothing is wrong.\n"


def test_incomplete_backup_prints_the_omissions_and_exits_with_1(installation, site):
    (site.data / "users/2.json").write_text("{")
    done = installation.run("backup", "a.tar.gz", status=1)
    first, second = done.stdout.splitlines()
    assert first.startswith("users/2.json is damaged: ") and second == "2 players in a.tar.gz"
    assert (
        done.stderr == "Error: something is left out: `identity-server check --repair` may help\n"
    )
    assert installation.output("restore", "a.tar.gz", **NEW_FOLDERS).startswith("2 players")


def test_refused_backup_or_restore_prints_one_line(site, empty, path, environment):
    def refusal(*arguments: str, on: Site, status: int = 1) -> str:
        environment.setenv("IDENTITY_DATA_DIR", str(on.data))
        environment.setenv("IDENTITY_PICTURE_DIR", str(on.pictures))
        environment.setenv("IDENTITY_STORAGE", on.backend.setting(str(on.data)))
        done = CliRunner().invoke(identity_server_command, arguments)
        assert (done.exit_code, done.stdout) == (status, "")
        return done.stderr.splitlines()[-1]

    path.write_text("x")
    assert f"{path} cannot be restored: " in refusal("restore", str(path), on=empty)
    assert "does not exist" in refusal("restore", f"{path}x", on=empty, status=2)
    assert "has players or clients" in refusal("restore", str(path), on=site)
    assert "is there already" in refusal("backup", str(path), on=site)
    assert "there is no folder" in refusal("backup", f"{path}/nowhere/x", on=site)
    assert "no players" in refusal("backup", f"{path}x", on=empty)


def test_audit_log_describes_backup_and_restore(archive, empty):
    empty.restore(archive)
    printed = [describe_audit_line(line).partition("  ")[2] for line in empty.open().audit.read()]
    assert printed[-3:-1] == ["the command: backup", "the command: restore"]
