"""Backup and restore: storage/archive.py, and the snapshot and load of the backend."""

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
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archives import Members, Site, read_archive, write_archive
from cached_pictures import cache_pictures, generate_picture
from click.testing import CliRunner
from test_check import A_HASH, somebody_waits_for_a_lock
from test_command import Installation
from waiting import PATIENCE, wait_until

from commands.printing import describe_audit_line
from identity_admin import identity_server_command
from storage import (
    PICTURE_SIZES,
    BadFile,
    BadInstallation,
    Grant,
    Session,
    Storage,
    User,
    record_as_dict,
)
from storage.flat_files import disk
from storage.flat_files.user_ids import USER_IDS_END

ROOT = Path(__file__).parent.parent
ADA, BOB, CLEO, DORA = 1, 2, 3, 4  # ids; Cleo was deleted, and Dora has no picture of her own


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with an installation that has been in use, and a backup of it."""
    folder = tmp_path_factory.mktemp("prepared")
    site = Site(folder / "site")
    store = site.open()
    for name in ("Ada", "Bob", "Cleo"):
        store.add_user(name, f"{name.lower()}@example.org", A_HASH)
    store.delete_user(CLEO)
    client, _ = store.add_client("Chess", ["https://chess.example/cb"], ADA)
    store.save_picture(BOB, generate_picture(99))
    with store.edit_user(ADA) as ada:
        ada.sessions = [Session("adas session", 1, "Firefox on Linux")]
        ada.grants = {client.id: Grant("a grant", ["userinfo"], 2)}
        ada.bio = "Zoë 🙂"
    store.reserve_user_ids(DORA)
    store.add_users([User(DORA, "Dora", "dora@example.org", "")], {})
    store.issue_invite(7)
    store.count_attempt("password", "ada", limit=10)
    site.backup(folder / "backup.tar.gz")
    return folder


@pytest.fixture
def site(tmp_path, prepared, unsynced, monkeypatch) -> Site:
    """The installation, for this test alone."""
    cache_pictures(monkeypatch)
    shutil.copytree(prepared / "site", tmp_path / "site", symlinks=True)
    return Site(tmp_path / "site")


@pytest.fixture
def empty(tmp_path) -> Site:
    """Folders that are not there yet."""
    return Site(tmp_path / "empty")


@pytest.fixture
def path(tmp_path) -> Path:
    """Where the archive is to be."""
    return tmp_path / "backup.tar.gz"


@pytest.fixture
def archive(prepared, path, unsynced) -> Path:
    """A good one."""
    return Path(shutil.copy(prepared / path.name, path))


def names_in(path: Path) -> list[str]:
    return [header.name for header, _ in read_archive(path)]


def change_record(path: Path, **values) -> None:
    """Edit a record by hand."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# ---------------------------------------------------------------------------------------------
# Backup
# ---------------------------------------------------------------------------------------------


def test_everything_comes_back(site, archive, empty):
    assert empty.restore(archive) == 3
    before, after = site.open(), empty.open()
    assert empty.players() == site.players()
    assert after.user_ids() == [ADA, BOB, DORA]
    assert [*map(after.read_client, after.client_ids())] == [
        *map(before.read_client, before.client_ids())
    ]
    assert (empty.data / "deleted/3").read_bytes() == b""
    assert empty.problems() == []


def test_an_archive_of_an_earlier_version_is_restored(empty, unsynced):
    """installations/archive-1.tar.gz: a backup by version 717a893 of layout-1.tar.gz beside it."""
    assert empty.restore(Path(__file__).parent / "installations/archive-1.tar.gz") == 5
    store = empty.open()
    assert [user.name for user, _ in empty.players()] == ["Ada", "Bobby", "Cleo", "Dora", "Émile 2"]
    assert [each.name for each in store.administrators()] == ["Ada"]
    assert {each.name for each in store.clients_of(2)} == {"Space Game", "Unlisted"}
    assert list(store.audit_of(2)) != []
    assert store.add_user("New", "new@example.org", "").id == 10 + 10_000
    assert empty.problems() == []


def test_an_archive_has_the_records_and_pictures_in_their_order(site, archive):
    store = site.open()
    pictures = {
        user_id: [
            f"pictures/{size}/{store.read_user(user_id).picture_file}" for size in PICTURE_SIZES
        ]
        for user_id in (ADA, BOB)
    }
    assert names_in(archive) == [
        *("format", "next_user_id"),
        *("users/1.json", *pictures[ADA], "users/2.json", *pictures[BOB], "users/4.json"),
        *("deleted/3", f"clients/{store.client_ids()[0]}.json", "audit.log"),
    ]


def test_nothing_that_opens_a_door_is_in_an_archive(site, archive):
    """Neither keys, invitations and sessions, nor what was guessed at."""
    content = gzip.decompress(archive.read_bytes())
    assert b"a grant" in content and A_HASH.encode() in content
    for secret in (*site.open().keys(), b"adas session", b"Firefox", b"invites", b"attempts"):
        assert secret not in content


def test_only_its_owner_may_read_an_archive_whatever_the_umask(site, path):
    before = os.umask(0)
    try:
        site.backup(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_there_is_never_replaced(site, path, tmp_path):
    path.write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for taken in (path, tmp_path / "link", tmp_path):
        with pytest.raises(BadFile, match="is there already"):
            site.backup(taken)
    assert path.read_text() == "mine"
    assert site.acts().count("backup") == 1


def test_a_backup_of_nothing_is_refused(empty, path, unsynced):
    """Who forgot to name the data folder is told so, and not that all is well."""
    with pytest.raises(BadInstallation, match="no players"):
        empty.backup(path)
    assert not path.exists()


def test_a_backup_leaves_nothing_behind_but_the_archive_and_a_line_in_the_log(site, path):
    before = site.files()
    site.backup(path)
    after = site.files()
    assert after.pop("data/audit.log").startswith(before.pop("data/audit.log"))
    assert after == before
    assert site.acts()[-1] == "backup"
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, "site"]


def test_the_line_in_the_log_is_in_the_archive_too(archive):
    assert b'"act": "backup"' in {h.name: c for h, c in read_archive(archive)}["audit.log"]


# -- what goes on meanwhile ---------------------------------------------------------------------


@pytest.fixture
def while_packing(site, path, monkeypatch) -> Callable[[Callable[[Storage], object]], list[str]]:
    """Does something once the first player is packed; returns what was reported."""
    monkeypatch.setattr("storage.archive.STEP", 1)

    def while_packing(act: Callable[[Storage], object]) -> list[str]:
        reported = []

        def progress(done: int, total: int) -> None:
            if done == 1:
                act(site.open())

        site.backup(path, progress=progress, report=reported.append)
        return reported

    return while_packing


def test_a_picture_changed_meanwhile_is_in_the_archive_with_its_timestamp(
    while_packing, site, path, empty
):
    def change(store: Storage) -> None:
        for user_id in (BOB, DORA):
            store.save_picture(user_id, generate_picture(1000 + user_id))
            with store.edit_user(user_id) as user:
                user.bio = "changed since"

    assert while_packing(change) == []
    empty.restore(path)
    restored, store = empty.open(), site.open()
    for user_id in (BOB, DORA):
        user = restored.read_user(user_id)
        assert user.pfp_timestamp == store.read_user(user_id).pfp_timestamp
        picture = restored.read_picture("small", user.picture_file)[0]
        assert picture == generate_picture(1000 + user_id)["small"]
        assert user.bio == ""  # the record is that of before
    assert empty.problems() == []


def test_a_picture_that_is_drawn_meanwhile_is_waited_for(while_packing, site, path):
    large, *others = (site.pictures / size / f"{DORA}.webp" for size in PICTURE_SIZES)
    begun = threading.Event()

    def keep(store: Storage) -> None:
        with store.layout.user_lock(DORA):  # as for a picture that is generated
            large.write_bytes(generate_picture(DORA)["large"])
            begun.set()
            wait_until(somebody_waits_for_a_lock)
            for path in others:
                path.write_bytes(generate_picture(DORA)[path.parent.name])

    def begin(store: Storage) -> None:
        threading.Thread(target=keep, args=[store], daemon=True).start()
        begun.wait()

    assert while_packing(begin) == []
    assert f"pictures/small/{DORA}.webp" in names_in(path)


def test_who_has_some_of_the_drawn_pictures_gets_the_others_after_a_restore(site, path, empty):
    """A server that was killed while it kept them, and no lost picture."""
    (site.pictures / f"large/{DORA}.webp").write_bytes(generate_picture(DORA)["large"])
    reported = []
    site.backup(path, report=reported.append)
    assert reported == []
    empty.restore(path)
    assert empty.players() == site.players()


def test_a_player_who_is_deleted_meanwhile_is_deleted_in_the_archive(while_packing, path, empty):
    assert while_packing(lambda store: store.delete_user(BOB)) == []
    assert empty.restore(path) == 2
    assert empty.open().user_ids() == [ADA, DORA]
    assert {each.name for each in (empty.data / "deleted").iterdir()} == {"2", "3"}
    assert empty.problems() == []


def test_who_is_added_and_renamed_meanwhile_is_so_in_the_next_backup(while_packing, path, empty):
    def change(store: Storage) -> None:
        store.rename_user(BOB, "Robert")
        store.add_user("Bob", "another@example.org", "")

    assert while_packing(change) == []
    empty.restore(path)
    assert [user.name for user, _ in empty.players()] == ["Ada", "Bob", "Dora"]
    assert empty.problems() == []


def test_progress_is_told_in_players_and_in_bytes(site, path, empty, monkeypatch):
    monkeypatch.setattr("storage.archive.STEP", 2)
    packing, restoring = [], []
    site.backup(path, progress=lambda *each: packing.append(each))
    empty.restore(path, progress=lambda *each: restoring.append(each))
    assert packing == [(2, 3), (3, 3)]
    size = path.stat().st_size
    assert restoring == [(size, size)]


# -- what is wrong with an installation ---------------------------------------------------------


def hand_edit(**values) -> Callable[[Site], None]:
    return lambda site: change_record(site.data / "users/2.json", **values)


DAMAGE = {
    "no JSON": lambda site: (site.data / "users/2.json").write_text("{"),
    "another id": hand_edit(id=7),
    "an unknown field": hand_edit(shoe_size=42),
    "a name that makes no path": hand_edit(name="../ada"),
    "an address by which nobody is found": hand_edit(email="bob"),
    "another player's name": hand_edit(name="ADA"),
    "another player's address": hand_edit(email="Ada@example.org"),
    "a mod level that there is not": hand_edit(mod_level=9),
    "a timestamp that makes no address": hand_edit(pfp_timestamp=10**15),
    "half a character": hand_edit(bio="\ud800"),
    "too large": hand_edit(bio="x" * 2**20),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_record_that_no_restore_would_take_is_left_out_and_named(site, path, empty, damage):
    DAMAGE[damage](site)
    reported = []
    assert site.backup(path, report=reported.append) == 2
    assert len(reported) == 1 and reported[0].startswith("users/2.json is damaged")
    assert empty.restore(path) == 2
    assert empty.open().user_ids() == [ADA, DORA]
    assert empty.problems() == []


def test_a_client_that_cannot_be_read_is_left_out_and_named(site, path, empty):
    (record,) = (site.data / "clients").iterdir()
    change_record(record, name=5)
    reported = []
    site.backup(path, report=reported.append)
    assert len(reported) == 1 and reported[0].startswith(f"clients/{record.name} is damaged")
    empty.restore(path)
    assert empty.open().client_ids() == []


NO_FILES = {"a link that leads nowhere": lambda path: path.symlink_to("x"), "a folder": Path.mkdir}


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_a_record_that_is_no_file_is_left_out_and_named(site, path, empty, make):
    (client,) = (site.data / "clients").iterdir()
    for record in (site.data / "users/2.json", client):
        record.unlink()
        make(record)
    reported = []
    assert site.backup(path, report=reported.append) == 2
    users, clients = sorted(reported, key=lambda line: client.name in line)
    assert "users/2.json" in users and client.name in clients
    assert empty.restore(path) == 2
    assert empty.open().client_ids() == []
    assert empty.problems() == []


def test_folders_among_the_records_are_in_nobodys_way(site, path):
    for part in ("users", "deleted", "clients"):
        (site.data / part / "old").mkdir()
    reported = []
    assert site.backup(path, report=reported.append) == 3
    assert reported == []


@pytest.mark.parametrize("next_id", [None, USER_IDS_END + 1])
def test_a_next_id_that_no_restore_would_take_is_left_out_and_named(site, path, empty, next_id):
    """The ids that were given say what the next one may be."""
    file = site.data / "next_user_id"
    file.unlink()
    if next_id:
        file.write_text(f"{next_id}\n")
    else:
        file.mkdir()  # and so cannot be read
    reported = []
    assert site.backup(path, report=reported.append) == 3
    assert len(reported) == 1 and str(file) in reported[0]
    assert empty.restore(path) == 3
    assert empty.open().add_user("Emmy", "emmy@example.org", "").id == DORA + 1 + 10_000


@pytest.mark.parametrize("name", ["deleted/{}", "users/{}.json"])
def test_an_id_that_no_restore_would_take_is_left_out_and_named(site, path, empty, name):
    for user_id in (USER_IDS_END, USER_IDS_END - 1):
        (site.data / name.format(user_id)).touch()
        if name.startswith("users"):
            record = record_as_dict(User(user_id, f"E{user_id}", f"{user_id}@example.org", ""))
            (site.data / name.format(user_id)).write_text(json.dumps(record))
    reported = []
    site.backup(path, report=reported.append)
    assert [line for line in reported if str(USER_IDS_END) in line] == reported[:1]
    empty.restore(path)
    left = {each.name for each in (empty.data / name).parent.iterdir()}
    assert Path(name.format(USER_IDS_END - 1)).name in left
    assert Path(name.format(USER_IDS_END)).name not in left


@pytest.mark.parametrize("user_id", [BOB, DORA])
@pytest.mark.parametrize("content", [None, b"", b"RIFF....WEBP", "large", "a folder"])
def test_a_player_whose_picture_is_lost_is_in_the_archive_with_the_drawn_one(
    site, path, empty, content, user_id
):
    """Also one who was imported with a picture, at the plain address."""
    user = site.open().read_user(user_id)
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
    assert restored.read_user(user_id).pfp_timestamp is None
    drawn = restored.read_picture("small", f"{user_id}.webp")[0]
    assert drawn == generate_picture(user_id)["small"]
    assert empty.problems() == []


def test_a_deletion_that_was_killed_half_way_is_not_yet_one(site, path, empty):
    """Both the mark and the record are there; the record is the truth."""
    (site.data / "deleted/2").touch()
    site.backup(path)
    assert empty.restore(path) == 3
    assert not (empty.data / "deleted/2").exists()
    assert empty.problems() == []


def test_temporary_files_are_not_packed(site, path):
    for name in ("users/.7.json.0123abcd", "users/.2.json.0123abcd.old", "clients/.x.0123abcd"):
        (site.data / name).write_text("{")
    reported = []
    site.backup(path, report=reported.append)
    assert reported == []
    assert not [name for name in names_in(path) if "/." in name]


# -- what is left by one that dies --------------------------------------------------------------


def test_a_backup_that_fails_leaves_nothing(site, path):
    before = site.files()
    with pytest.raises(KeyboardInterrupt):
        site.backup(path, progress=interrupt)
    after = site.files()
    assert after.keys() == before.keys()
    assert [each.name for each in path.parent.iterdir()] == ["site"]


def interrupt(done: int, total: int) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def waiting_backup(site, path, *before: str) -> Iterator[subprocess.Popen]:
    """One that waits, in a process of its own, until another one ends with the block."""
    call = [sys.executable, "-c", "from identity_admin import main; main()", "backup", str(path)]
    with disk.locked(str(site.data / "locks/archive")):
        process = subprocess.Popen(
            # Under nohup SIGHUP is ignored, and what is started inherits that.
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
def test_a_backup_goes_on_where_a_closed_terminal_is_to_be_ignored(site, path):
    with waiting_backup(site, path, "nohup") as process:
        process.send_signal(signal.SIGHUP)
    assert process.wait(PATIENCE) == 0
    assert path.exists()


@pytest.mark.live
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_backup_that_is_stopped_leaves_nothing(site, path, end):
    """Stopped while it waits for another one to end."""
    before = site.files()
    with waiting_backup(site, path) as process:
        process.send_signal(end)
        assert process.wait(PATIENCE) == (1 if end == signal.SIGINT else 128 + end)
    assert site.files() == before
    assert [each.name for each in path.parent.iterdir()] == ["site"]


def killed_while(site: Site, call: str) -> None:
    """Make this call in another process, which kills itself at the first report of progress."""
    program = f"""
import os, signal
from pathlib import Path
from archives import Site
kill = lambda done, total: os.kill(os.getpid(), signal.SIGKILL)
Site(Path({str(site.folder)!r})).{call}
"""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=PATIENCE)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.live
def test_what_a_killed_backup_leaves_is_in_nobodys_way_and_goes_with_the_next(site, path, empty):
    killed_while(site, f"backup(Path({str(path)!r}), progress=kill)")
    assert (site.data / ".backup/users/1.json").exists()
    assert not path.exists()
    store = site.open()
    with store.edit_user(BOB) as user:
        user.bio = "after the kill"
    store.delete_user(DORA)
    assert site.backup(path) == 2
    assert not (site.data / ".backup").exists()
    empty.restore(path)
    assert empty.open().read_user(BOB).bio == "after the kill"
    assert empty.problems() == []


# ---------------------------------------------------------------------------------------------
# Restore
# ---------------------------------------------------------------------------------------------


def test_ids_that_may_have_been_given_after_the_backup_are_left_out(archive, empty):
    empty.restore(archive)
    assert empty.open().add_user("Emmy", "emmy@example.org", "").id == 5 + 10_000


def test_where_an_installation_had_given_larger_ids_none_comes_again(archive, empty, unsynced):
    store = empty.open()
    store.reserve_user_ids(20_000)
    store.delete_user(store.add_user("Test", "test@example.org", "").id)
    empty.restore(archive)
    assert store.add_user("Emmy", "emmy@example.org", "").id == 20_002
    assert empty.problems() == []


def test_an_installation_that_lost_its_next_id_is_restored_with_one(site, path, empty):
    (site.data / "next_user_id").unlink()
    site.backup(path)
    empty.restore(path)
    assert empty.open().add_user("Emmy", "emmy@example.org", "").id == 5 + 10_000


def test_a_restored_installation_signs_with_a_key_of_its_own(site, archive, empty, unsynced):
    keys = empty.open().keys()
    empty.restore(archive)
    assert not set(empty.open().keys()) & {*keys, *site.open().keys()}


def test_a_restored_installation_works_for_who_has_it_open(archive, empty, unsynced):
    """A server that runs on the empty folders, for one."""
    store = empty.open()
    assert store.is_new()
    empty.restore(archive)
    assert store.find_user("ada").id == ADA
    assert not store.is_new()


def test_both_logs_are_kept_and_say_that_it_was_restored(site, archive, empty, unsynced):
    empty.open().write_audit("invite", by="command", days=1)
    before = site.acts()
    empty.restore(archive)
    assert empty.acts() == [*before, "invite", "restore", "key drop-old"]


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_are_as_a_new_installation_has_them(archive, empty, umask):
    before = os.umask(umask)
    try:
        empty.restore(archive)
    finally:
        os.umask(before)
    assert empty.problems() == []  # it looks at modes
    assert stat.S_IMODE((empty.data / "users/1.json").stat().st_mode) == 0o600


def test_where_players_are_signed_in_is_not_restored(archive, empty):
    """Not even from an archive that somebody wrote by hand."""
    tamper(archive, edit("users/1.json", sessions=[{"id": "x", "since": 1, "browser": "y"}]))
    empty.restore(archive)
    assert empty.open().read_user(ADA).sessions == []


def test_where_somebody_is_nothing_is_restored(site, archive):
    before = site.files()
    with pytest.raises(BadInstallation, match="has players or clients"):
        site.restore(archive)
    for user_id in site.open().user_ids():
        site.open().delete_user(user_id)
    with pytest.raises(BadInstallation, match="has players or clients"):
        site.restore(archive)  # into one that has a client
    assert [name for name in before if "clients/" in name]
    assert "restore" not in site.acts()


# -- archives that no backup wrote --------------------------------------------------------------


Change = Callable[[Members], Members]


def tamper(path: Path, change: Change, **options) -> None:
    write_archive(path, change(read_archive(path)), **options)


def header(name: str, **values) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for field, value in values.items():
        setattr(made, field, value)
    return made


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


def put(name: str, content: bytes) -> Change:
    """Another content of a file."""
    return lambda members: [
        member(name, content) if re.fullmatch(name, each.name) else (each, old)
        for each, old in members
    ]


def drop(pattern: str) -> Change:
    return lambda members: [each for each in members if not re.fullmatch(pattern, each[0].name)]


def add(*made: tuple[tarfile.TarInfo, bytes], before: str = "audit.log") -> Change:
    """Put members before the first whose name has this form."""

    def change(members: Members) -> Members:
        names = [each.name for each, _ in members]
        at = next(n for n, name in enumerate(names) if re.fullmatch(before, name))
        return members[:at] + list(made) + members[at:]

    return change


def repeat(pattern: str) -> Change:
    def change(members: Members) -> Members:
        return [
            each for each in members for _ in range(1 + bool(re.fullmatch(pattern, each[0].name)))
        ]

    return change


def picture(content: bytes) -> Change:
    """Other bytes in the place of Ada's small picture."""

    def change(members: Members) -> Members:
        return [
            member(each.name, content) if each.name.startswith("pictures/small/1-") else (each, old)
            for each, old in members
        ]

    return change


CLIENT = "clients/" + "c" * 24 + ".json"
ZOE = json.dumps(record_as_dict(User(900, "Zoe", "zoe@example.org", ""))).encode()


def add_zoe(name: str = "users/900.json", **values) -> Change:
    """Another player, in her place, and nothing wrong with her but the header."""
    made = header(name, **{"size": len(ZOE)} | values), ZOE[: values.get("size")]
    return add(made, before="deleted/3")


HOSTILE: dict[str, Change] = {
    "an absolute name": add_zoe("/users/900.json"),
    "a way out": add_zoe("../users/900.json"),
    "a name of nothing we keep": add_zoe("secret_key"),
    "a name that is not ASCII": add_zoe("users/é.json"),
    "an id with a zero before it": add_zoe("users/0900.json"),
    "a folder": add_zoe(type=tarfile.DIRTYPE),
    "a symbolic link": add_zoe(type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": add_zoe(type=tarfile.LNKTYPE, linkname="users/1.json"),
    "a device": add_zoe(type=tarfile.CHRTYPE, devmajor=1, devminor=5),
    "a pipe": add_zoe(type=tarfile.FIFOTYPE),
    "a sparse file": add_zoe(type=tarfile.GNUTYPE_SPARSE),
    "a long name": add_zoe(type=tarfile.GNUTYPE_LONGNAME),
    "a pax header": add_zoe(type=tarfile.XHDTYPE),
    "a record that is cut off": add_zoe(size=100),
    "a player twice": repeat("users/4.json"),
    "a player twice, with pictures": repeat("users/1.json"),
    "a picture twice": repeat("pictures/small/1-.*"),
    "a deleted player twice": repeat("deleted/3"),
    "a client twice": repeat("clients/.*"),
    "two logs": repeat("audit.log"),
    "two layouts": repeat("format"),
    "two next ids": repeat("next_user_id"),
    "no layout": drop("format"),
    "no next id": drop("next_user_id"),
    "no log": drop("audit.log"),
    "nothing": lambda members: [],
    "a newer layout": put("format", b"2\n"),
    "a layout that is no number": put("format", b"one\n"),
    "a next id that is no number": put("next_user_id", "٣".encode()),
    "a next id of zero": put("next_user_id", b"0\n"),
    "no room for ids": put("next_user_id", b"999999999999999\n"),
    "a large number": put("format", b"1" * 21),
    "a picture missing": drop("pictures/small/1-.*"),
    "all of a player's pictures missing": drop("pictures/.*/1-.*"),
    "half of a drawn picture": add(
        member("pictures/large/4.webp", generate_picture(4)["large"]), before="deleted/3"
    ),
    "a stranger's picture": add(member("pictures/large/900-1.webp"), before="users/2.json"),
    "a picture before its player": lambda members: [*members[:2], *members[3:6], members[2]],
    "players after clients": lambda members: [*members[:2], *members[-2:], *members[2:-2]],
    "a picture that is none": picture(b"<svg/>"),
    "a picture of another size": picture(generate_picture(1)["large"]),
    "a picture that is cut off": picture(generate_picture(1)["small"][:-1]),
    "a picture with something behind": picture(generate_picture(1)["small"] + b"<?php"),
    "a large picture": picture(bytes(2**20 + 1)),
    "a large record": put("users/1.json", b" " * (2**20 + 1)),
    "a deleted player with content": put("deleted/3", b"x"),
    "somebody who is deleted and there": add(member("deleted/1"), before="deleted/3"),
    "no JSON": put("users/1.json", b"{"),
    "deep JSON": put("users/1.json", b"[" * 100_000),
    "no record": put("users/1.json", b"[]"),
    "another id": edit("users/1.json", id=900),
    "an unknown field": edit("users/1.json", shoe_size=42),
    "a field of another type": edit("users/1.json", suspended="no"),
    "a name that makes no path": edit("users/1.json", name="../../x"),
    "a name that is hidden": edit("users/1.json", name=".x"),
    "no name": edit("users/1.json", name=""),
    "half a character": edit("users/1.json", name="\ud800"),
    "two players of one name": edit("users/2.json", name="ADA"),
    "two players of one address": edit("users/2.json", email="ADA@example.org"),
    "a mod level that there is not": edit("users/1.json", mod_level=3),
    "a timestamp that makes no address": edit("users/1.json", pfp_timestamp=-1),
    "a client of another id": add(member(CLIENT, b'{"id": "x"}')),
    "a client that is none": add(member(CLIENT, b"null")),
}


@pytest.mark.parametrize("change", HOSTILE)
def test_an_archive_that_no_backup_wrote_is_refused_and_leaves_nothing(archive, empty, change):
    good = archive.with_name("good.tar.gz")
    good.write_bytes(archive.read_bytes())
    empty.open()
    before = empty.files()
    tamper(archive, HOSTILE[change])
    with pytest.raises(BadFile, match=f"^{archive} cannot be restored: "):
        empty.restore(archive)
    assert empty.files() == before
    assert empty.restore(good) == 3


def test_what_was_tampered_with_and_is_still_good_is_taken(archive, empty):
    """The tests above refuse for what they changed, and not because it was written anew."""
    tamper(archive, edit("users/1.json", bio="tampered with"))
    tamper(archive, add_zoe())
    assert empty.restore(archive) == 4
    assert empty.open().read_user(ADA).bio == "tampered with"
    assert empty.problems() == []


def negative_size(content: bytes) -> bytes:
    """Ada's record has minus 512 bytes, which a header can say: to be read again and again."""
    at = content.index(b"users/1.json")
    record = bytearray(content[at : at + 512])
    record[124:136] = (2**96 - 512).to_bytes(12, "big")
    record[148:156] = b"%06o\0 " % (sum(record[:148]) + 8 * 32 + sum(record[156:]))
    return content[:at] + bytes(record) + content[at + 512 :]


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "not packed": gzip.decompress,
    "packed twice": gzip.compress,
    "cut off": lambda content: content[:-1],
    "cut in half": lambda content: content[: len(content) // 2],
    "a byte changed": lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:],
    "a check sum changed": lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:],
    "something behind": lambda content: content + gzip.compress(b"x"),
    "another archive behind": lambda content: content + content,
    "without its end": lambda content: gzip.compress(gzip.decompress(content)[:-1024]),
    "with half its end": lambda content: gzip.compress(gzip.decompress(content)[:-512]),
    "more end": lambda content: gzip.compress(gzip.decompress(content) + bytes(512)),
    "a header that is none": lambda content: gzip.compress(b"x" * 512),
    "a size below zero": lambda content: gzip.compress(negative_size(gzip.decompress(content))),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_file_that_was_damaged_is_refused_and_leaves_nothing(archive, empty, spoil):
    empty.open()
    before = empty.files()
    archive.write_bytes(SPOILT[spoil](archive.read_bytes()))
    with pytest.raises(BadFile, match="cannot be restored"):
        empty.restore(archive)
    assert empty.files() == before


def test_every_archive_that_is_cut_off_is_refused(archive, empty):
    whole = archive.read_bytes()
    for length in range(0, len(whole), 97):
        archive.write_bytes(whole[:length])
        with pytest.raises(BadFile):
            empty.restore(archive)
    assert empty.open().user_ids() == []


@pytest.mark.live
def test_a_pipe_cannot_be_restored(archive, empty):
    cat = subprocess.Popen(["cat", archive], stdout=subprocess.PIPE)
    with cat, pytest.raises(BadFile, match="no pipe"):
        empty.restore(Path(f"/dev/fd/{cat.stdout.fileno()}"))


def test_a_small_file_cannot_fill_the_disk(archive, empty):
    """A megabyte of blanks in each of a thousand records: JSON allows them."""
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
    assert empty.open().user_ids() == []


# -- interrupted --------------------------------------------------------------------------------


@pytest.mark.live
def test_a_restore_that_was_killed_is_told_of_and_done_again(archive, empty, unsynced):
    killed_while(empty, f"restore(Path({str(archive)!r}), progress=kill)")
    store = empty.open()
    assert store.is_new()  # nothing of it counts
    reported = []
    assert empty.restore(archive, report=reported.append) == 3
    assert reported == ["an earlier restore was interrupted: what it left is removed"]
    assert not (empty.data / ".restore").exists() and not (empty.pictures / ".restore").exists()
    assert empty.problems() == []


@pytest.mark.live
def test_a_start_after_a_killed_restore_is_as_the_first(archive, empty, unsynced):
    killed_while(empty, f"restore(Path({str(archive)!r}), progress=kill)")
    user = empty.open().add_user("Zoe", "zoe@example.org", "")
    with pytest.raises(BadInstallation, match="has players"):
        empty.restore(archive)
    assert empty.open().find_user("zoe") == user


# ---------------------------------------------------------------------------------------------
# The commands
# ---------------------------------------------------------------------------------------------


ELSEWHERE = {"IDENTITY_DATA_DIR": "new/data", "IDENTITY_PICTURE_DIR": "new/pictures"}


@pytest.fixture
def installation(site) -> Installation:
    """The command on that installation."""
    return Installation(site.folder)


def test_the_commands_say_how_many_players_they_took(installation, site):
    assert installation.output("backup", "a.tar.gz") == "3 players in a.tar.gz\n"
    told = installation.output("restore", "a.tar.gz", **ELSEWHERE)
    assert told == "3 players restored from a.tar.gz\n"
    assert installation.output("check", **ELSEWHERE) == "Nothing is wrong.\n"


def test_a_backup_that_left_something_out_says_what_and_exits_with_1(installation, site):
    (site.data / "users/2.json").write_text("{")
    done = installation.run("backup", "a.tar.gz", status=1)
    first, second = done.stdout.splitlines()
    assert first.startswith("users/2.json is damaged: ") and second == "2 players in a.tar.gz"
    assert (
        done.stderr == "Error: something is left out: `identity-server check --repair` may help\n"
    )
    assert installation.output("restore", "a.tar.gz", **ELSEWHERE).startswith("2 players")


def test_what_cannot_be_done_is_refused_in_one_line(site, empty, path, environment):
    def refusal(*arguments: str, on: Site, status: int = 1) -> str:
        environment.setenv("IDENTITY_DATA_DIR", str(on.data))
        environment.setenv("IDENTITY_PICTURE_DIR", str(on.pictures))
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


def test_the_log_tells_of_it_in_words(archive, empty):
    empty.restore(archive)
    told = [describe_audit_line(line).partition("  ")[2] for line in empty.open().read_audit()]
    assert told[-3:-1] == ["the command made a backup", "the command restored a backup"]
