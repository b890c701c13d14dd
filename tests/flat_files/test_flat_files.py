"""The flat files: modes, damage, index entries, races between processes.

Tests about files are here and in test_check.py, test_archive.py and test_installations.py. Other
tests use the fixture `faults`, which works on any backend. What any backend promises is in
test_storage_contract.py; kills, failing disks and power cuts are in faults/.
"""

import contextlib
import errno
import fcntl
import json
import multiprocessing
import os
import re
import shutil
import stat
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import test_storage_contract
from waiting import PATIENCE

from storage import open_storage
from storage.contract import ATTEMPTS_WINDOW
from storage.errors import (
    BadInstallation,
    CodeSpent,
    DamagedRecord,
    EmailTaken,
    LastAdministrator,
    NameTaken,
    NoSuchCode,
    NoSuchUser,
    StorageError,
    StorageFailed,
    TooManyAttempts,
)
from storage.flat_files import codes, disk, windows
from storage.flat_files.backend import FlatFiles
from storage.flat_files.layout import LAYOUT_VERSION
from storage.records import ADMINISTRATOR, PICTURE_SIZES, AuthorizationCode, Grant, now_ms, sha256
from storage.rules import USER_ID, USER_IDS_END

PICTURE = {size: size.encode() for size in PICTURE_SIZES}
CODE = AuthorizationCode("c" * 24, 1, "a grant", ["userinfo"], "https://a.example/", None)
PROCESSES = 16

# The records that the tests of the contract start with.
ada, bob = test_storage_contract.ada, test_storage_contract.bob
client = test_storage_contract.client


@pytest.fixture
def data(tmp_path) -> Path:
    return tmp_path / "instance"


@pytest.fixture
def pictures(tmp_path) -> Path:
    return tmp_path / "pfp"


@pytest.fixture
def storage(data, pictures, unsynced, drawn_once) -> FlatFiles:
    return FlatFiles(str(data), str(pictures))


def files_under(folder: Path) -> set[str]:
    """Every file and link in a folder, temporary ones too, but for the users' lock files."""
    paths = (path for path in folder.rglob("*") if not path.is_dir())
    return {str(path.relative_to(folder)) for path in paths if path.parent.name != "locks"}


def code_files(data: Path) -> list[Path]:
    return [path for path in (data / "codes").rglob("*") if path.is_file()]


def temporary_files(*folders: Path) -> set[str]:
    return {name for each in folders for name in files_under(each) if "/." in f"/{name}"}


def change_file(path: Path, **values) -> None:
    """Edit a record by hand; a value of `...` takes the field out."""
    record = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: each for name, each in record.items() if each is not ...}))


# ---------------------------------------------------------------------------------------------
# Files that people may read and edit
# ---------------------------------------------------------------------------------------------


def test_a_user_is_indented_json_in_the_order_of_the_records_fields(storage, ada, data):
    with storage.users.edit(ada.id) as user:
        user.bio = "Zoë says „hi“\n☃"
        user.created, user.last_heartbeat, user.pfp_timestamp = 1, 2, None
    assert (data / "users/1.json").read_text(encoding="utf-8") == (
        "{\n"
        '  "id": 1,\n'
        '  "name": "Ada",\n'
        '  "email": "ada@example.org",\n'
        '  "password_hash": "a hash",\n'
        '  "mod_level": 0,\n'
        '  "suspension": null,\n'
        '  "bio": "Zoë says „hi“\\n☃",\n'
        '  "flairs": [\n    "none"\n  ],\n'
        '  "equipped_flair": "none",\n'
        '  "play_ms": 0,\n'
        '  "last_heartbeat": 2,\n'
        '  "pfp_timestamp": null,\n'
        '  "created": 1,\n'
        '  "grants": {},\n'
        '  "sessions": [],\n'
        '  "notices": [],\n'
        '  "invite": null\n'
        "}\n"
    )


def test_every_record_is_indented_json_without_secrets(storage, ada, data):
    client, secret = storage.clients.register("Chess", [], ada.id)
    storage.codes.add("a code", CODE)
    for path in data.rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert text == json.dumps(json.loads(text), indent=2) + "\n"
        assert secret not in text and "a code" not in text
    assert [path.name for path in code_files(data)] == [f"{sha256('a code')}.json"]
    assert files_under(data / "clients") == {f"{client.id}.json"}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_do_not_depend_on_the_umask(data, pictures, umask):
    before = os.umask(umask)
    try:
        storage = open_storage(str(data), str(pictures))
        for name in ("Ada", "Bob", "Cleo"):
            storage.users.register(name, f"{name}@example.org", "")
        storage.users.rename(1, "Grace")
        storage.pictures.save(1, PICTURE)
        storage.users.delete(3)
        client, _ = storage.clients.register("Chess", [], None)
        storage.clients.issue_secret(client.id)
        for code in ("spent", "live"):
            storage.codes.add(code, CODE)
        storage.codes.spend("spent")
        storage.attempts.count("password", "ada", limit=1)
    finally:
        os.umask(before)
    for top, folder_mode, file_mode in ((data, 0o700, 0o600), (pictures, 0o755, 0o644)):
        for path in (top, *top.rglob("*")):
            if not path.is_symlink():
                expected = folder_mode if path.is_dir() else file_mode
                assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_an_existing_folder_keeps_its_mode(storage, data, pictures):
    data.chmod(0o750)
    pictures.chmod(0o711)
    open_storage(str(data), str(pictures))
    assert stat.S_IMODE(data.stat().st_mode) == 0o750
    assert stat.S_IMODE(pictures.stat().st_mode) == 0o711


def test_a_record_edited_by_hand_is_read(storage, ada, data):
    path = data / "users/1.json"
    record = json.loads(path.read_text()) | {"bio": "by hand", "mod_level": 2}
    path.write_text(json.dumps(dict(reversed(record.items())), indent="\t"), encoding="utf-8-sig")
    assert storage.users.read(1).bio == "by hand"
    assert storage.users.find_by_login("Ada").mod_level == 2


def test_the_data_folder_can_be_moved(storage, ada, data, pictures, tmp_path):
    data.rename(tmp_path / "moved")
    moved = open_storage(str(tmp_path / "moved"), str(pictures))
    assert moved.users.find_by_login("ada") == moved.users.find_by_login("ada@example.org") == ada


def test_an_edit_that_changes_nothing_writes_nothing(storage, ada, client, data):
    paths = data / "users/1.json", data / f"clients/{client.id}.json"
    before = [path.stat() for path in paths]
    with storage.users.edit(ada.id) as user:
        user.bio = "changed" and ada.bio
    with storage.clients.edit(client.id):
        pass
    assert [path.stat().st_ino for path in paths] == [each.st_ino for each in before]
    assert [path.stat().st_mtime_ns for path in paths] == [each.st_mtime_ns for each in before]


def test_files_left_by_a_kill_are_ignored(storage, ada, client, data, pictures):
    for folder in ("users", "clients", "codes", "deleted", "names", "emails"):
        for name in (".1.json.0123abcd", ".0123abcd"):
            (data / folder / name).write_text("{")
    (data / ".secret_key.0123abcd").write_text("half a k")
    again = open_storage(str(data), str(pictures))
    assert again.users.ids() == [ada.id]
    assert list(map(again.clients.read, again.clients.ids())) == [client]
    assert again.users.find_by_login("ada") == ada
    assert again.users.find_by_login(".0123abcd") is None
    assert again.keys.current() == storage.keys.current()
    assert again.users.register("Bob", "bob@example.org", "").id == 2


# ---------------------------------------------------------------------------------------------
# Damaged records
# ---------------------------------------------------------------------------------------------


def put(content: bytes):
    return lambda path: path.write_bytes(content)


def hand_edit(**values):
    return lambda path: change_file(path, **values)


GRANT = {"id": "g", "scope": ["userinfo"], "since": 1}
DAMAGE = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-30]),
    "twice": lambda path: path.write_bytes(path.read_bytes() * 2),
    "not UTF-8": lambda path: path.write_bytes(path.read_bytes().replace(b"Ada", b"\xe4da")),
    "empty": put(b""),
    "zeros": put(b"\x00" * 512),
    "null": put(b"null"),
    "a list": put(b"[]"),
    "an empty object": put(b"{}"),
    "too deep": put(b"[" * 100_000),
    "another's record": hand_edit(id=2),
    "id as text": hand_edit(id="1"),
    "name as number": hand_edit(name=7),
    "no email": hand_edit(email=...),
    "no password_hash": hand_edit(password_hash=...),
    "unknown field": hand_edit(nickname="Countess"),
    "level true": hand_edit(mod_level=True),
    "level 1.0": hand_edit(mod_level=1.0),
    "suspension true": hand_edit(suspension=True),
    "suspension without by": hand_edit(suspension={}),
    "suspension until a date": hand_edit(suspension={"by": 1, "until": "2026-11-24"}),
    "suspension with more": hand_edit(suspension={"by": 1, "days": 1}),
    "no bio but null": hand_edit(bio=None),
    "flair not owned": hand_edit(equipped_flair="gold"),
    "no flairs": hand_edit(flairs=[]),
    "grants as list": hand_edit(grants=[]),
    "grant as text": hand_edit(grants={"c": "yes"}),
    "grant without since": hand_edit(grants={"c": {"id": "g", "scope": []}}),
    "grant with more": hand_edit(grants={"c": GRANT | {"until": 2}}),
    "scope as text": hand_edit(grants={"c": GRANT | {"scope": "userinfo"}}),
    "session as null": hand_edit(sessions=[None]),
    "since as text": hand_edit(sessions=[{"id": "s", "since": "now", "browser": "Firefox"}]),
}


@pytest.fixture(params=DAMAGE.values(), ids=DAMAGE)
def damaged(request, storage, ada, bob, data) -> Path:
    """The file of Ada's record, damaged; Bob's is whole."""
    path = data / "users/1.json"
    request.param(path)
    return path


def test_a_damaged_record_is_no_administrator(damaged, storage, bob):
    with storage.users.edit(bob.id) as user:
        user.mod_level = ADMINISTRATOR
    with pytest.raises(LastAdministrator), storage.users.administered_without(bob.id):
        pytest.fail("the block was entered")


def test_a_damaged_record_raises_wherever_its_user_is_needed(storage, damaged):
    content = damaged.read_bytes()
    for act in (
        lambda: storage.users.read(1),
        lambda: storage.users.find_by_login("Ada"),
        lambda: storage.users.find_by_login("ada@example.org"),
        lambda: storage.users.edit(1).__enter__(),
        lambda: storage.users.rename(1, "Grace"),
        lambda: storage.users.change_email(1, "grace@example.org"),
        lambda: storage.pictures.save(1, PICTURE),
        lambda: storage.users.delete(1),
    ):
        with pytest.raises(DamagedRecord, match=r"^users/1\.json is damaged: ."):
            act()
    assert damaged.read_bytes() == content


def test_a_damaged_record_affects_nobody_else(storage, damaged, bob):
    assert storage.users.ids() == [1, 2]
    assert (
        storage.users.find_by_login("bob") == storage.users.find_by_login("bob@example.org") == bob
    )
    with storage.users.edit(bob.id) as user:
        user.bio = "still here"
    storage.users.rename(bob.id, "Robert")
    assert storage.users.register("Cleo", "cleo@example.org", "").id == 3


def test_a_damaged_record_keeps_its_index_entries_and_pictures(
    storage, damaged, ada, bob, pictures
):
    with pytest.raises(NameTaken):
        storage.users.register("ADA", "new@example.org", "")
    with pytest.raises(EmailTaken):
        storage.users.register("New", "ADA@example.org", "")
    with pytest.raises(NameTaken):
        storage.users.rename(bob.id, "ada")
    with pytest.raises(EmailTaken):
        storage.users.change_email(bob.id, "ada@example.org")
    assert storage.pictures.read("small", f"1-{ada.pfp_timestamp}.webp")


def test_a_repaired_record_is_read_at_once(storage, ada, data):
    path = data / "users/1.json"
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    with pytest.raises(DamagedRecord):
        storage.users.find_by_login("Ada")
    path.write_bytes(content)
    assert storage.users.find_by_login("Ada") == ada


@pytest.mark.parametrize(
    "damage",
    [put(b"{"), hand_edit(id="d" * 24), hand_edit(redirect_uris="https://a/"), hand_edit(name=...)],
    ids=["cut short", "another's record", "uris as text", "no name"],
)
def test_a_damaged_client_raises_and_affects_no_other(storage, client, data, damage):
    other, _ = storage.clients.register("Checkers", [], None)
    damage(data / f"clients/{client.id}.json")
    for act in (
        lambda: storage.clients.read(client.id),
        lambda: storage.clients.edit(client.id).__enter__(),
        lambda: storage.clients.issue_secret(client.id),
        lambda: storage.clients.delete(client.id),
    ):
        with pytest.raises(DamagedRecord, match=f"^clients/{client.id}.json is damaged"):
            act()
    assert storage.clients.read(other.id) == other


# ---------------------------------------------------------------------------------------------
# Entries of names and email addresses
# ---------------------------------------------------------------------------------------------

STALE = [
    "../users/99.json",  # never finished, or deleted
    "../users/1.json",  # Bob's, who bears another name by now
    *("nowhere", "../users", "../users/x.json", "../users/-1.json", "/dev/null", "Ada"),
]


@pytest.fixture
def stale(request, storage, bob, data) -> None:
    """Entries of Ada's name and address, left behind by a kill."""
    for path in (data / "names/ada", data / "emails" / sha256("ada@example.org")):
        path.symlink_to(request.param)


@pytest.mark.parametrize("stale", STALE, indirect=True)
def test_a_stale_index_entry_finds_nobody_and_does_not_block_a_new_user(storage, stale, bob):
    assert storage.users.find_by_login("Ada") is None
    assert storage.users.find_by_login("ada@example.org") is None
    ada = storage.users.register("Ada", "ada@example.org", "")
    assert (
        storage.users.find_by_login("Ada") == storage.users.find_by_login("ada@example.org") == ada
    )
    assert storage.users.find_by_login("Bob") == bob


@pytest.mark.parametrize("stale", STALE, indirect=True)
def test_a_stale_index_entry_does_not_block_a_change(storage, stale, bob):
    storage.users.rename(bob.id, "Ada")
    changed = storage.users.change_email(bob.id, "ada@example.org")
    assert (
        storage.users.find_by_login("Ada")
        == storage.users.find_by_login("ada@example.org")
        == changed
    )


def test_index_entries_are_relative_links_without_email_addresses(storage, ada, data):
    assert files_under(data / "names") == {"ada"}
    assert files_under(data / "emails") == {sha256("ada@example.org")}
    for folder in ("names", "emails"):
        assert {os.readlink(path) for path in (data / folder).iterdir()} == {"../users/1.json"}


def test_a_rename_leaves_an_index_entry_of_another_user(storage, ada, bob, data):
    """Somebody wrote Ada's name into Bob's record by hand; putting it right takes nothing."""
    change_file(data / "users/2.json", name="Ada", email="ada@example.org")
    storage.users.rename(bob.id, "Bob")
    storage.users.change_email(bob.id, "bob@example.org")
    assert (
        storage.users.find_by_login("Ada") == storage.users.find_by_login("ada@example.org") == ada
    )
    assert storage.users.find_by_login("Bob") == bob


@pytest.mark.parametrize(
    "act",
    [
        lambda storage: storage.users.delete(1),
        lambda storage: storage.users.rename(1, "Grace"),
        lambda storage: storage.users.change_email(1, "grace@example.org"),
    ],
    ids=["delete", "rename", "change_email"],
)
def test_old_index_entries_are_removed_under_the_lock_of_the_kind(
    storage, ada, data, monkeypatch, act
):
    """Otherwise the removed entry could be one that another user has just added."""
    removed_entries = []
    unlink = os.unlink

    def unlink_entry(path):
        if os.path.basename(os.path.dirname(path)) in ("names", "emails") and os.path.islink(path):
            with open(data / "locks/users") as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            removed_entries.append(path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", unlink_entry)
    act(storage)
    assert removed_entries


@pytest.mark.parametrize("name", ["𐌰" * 30, "𠀀" * 30, "ẞ" * 30, "ก" * 30])
def test_the_longest_names_can_be_stored_and_found(storage, name):
    user = storage.users.register(name, "ada@example.org", "")
    assert storage.users.find_by_login(name) == user
    storage.users.rename(user.id, "Ada")
    assert storage.users.rename(user.id, name) == user == storage.users.find_by_login(name)


@pytest.mark.parametrize(
    "text",
    [
        *(".", "..", "../users/1.json", "a/b", "/", "/etc/passwd", "names/ada", "ada/", "ada/."),
        *("\x00", "ada\x00", "\ud800", "\ud800@example.org", "a" * 121, "é" * 61, "a" * 100_000),
        "．．／ｕｓｅｒｓ",  # dots and slashes once it is folded
    ],
)
def test_text_that_is_no_name_makes_no_path(storage, ada, text):
    assert storage.users.find_by_login(text) is None


LOOK_UPS = {
    "users": lambda storage: storage.users.read(7),
    "clients": lambda storage: storage.clients.read("c" * 24),
    "names": lambda storage: storage.users.find_by_login("nobody"),
    "emails": lambda storage: storage.users.find_by_login("nobody@example.org"),
    "index": lambda storage: storage.clients.games(listed=True),
    "invites": lambda storage: storage.invites.find_unused("none"),
    "codes": lambda storage: storage.codes.read("none"),
}


@pytest.mark.parametrize("folder", LOOK_UPS)
def test_a_folder_that_is_gone_is_not_a_missing_record(storage, data, folder):
    (data / folder).rename(data / "away")
    with pytest.raises(StorageFailed, match=f"the disk refused at {data}/{folder}"):
        LOOK_UPS[folder](storage)


# ---------------------------------------------------------------------------------------------
# Installations that cannot be used
# ---------------------------------------------------------------------------------------------


def test_an_installation_without_its_users_folder_is_not_opened(storage, ada, data, pictures):
    """With an empty users folder `check` would remove every index entry and picture."""
    (data / "users").rename(data / "lost")
    with pytest.raises(BadInstallation, match="users is missing.*put it back"):
        open_storage(str(data), str(pictures))
    (data / "lost").rename(data / "users")
    assert open_storage(str(data), str(pictures)).users.find_by_login("ada") == ada


@pytest.mark.parametrize("size", PICTURE_SIZES)
def test_no_installation_is_made_beside_pictures_of_players(storage, ada, data, pictures, size):
    """The disk with the records may not be mounted."""
    data.rename(data.with_name("unmounted"))
    for other in PICTURE_SIZES.keys() - {size}:
        shutil.rmtree(pictures / other)
    before = sorted(data.parent.rglob("*"))
    with pytest.raises(BadInstallation, match=f"mount its disk, or move {pictures} away"):
        open_storage(str(data), str(pictures))
    assert sorted(data.parent.rglob("*")) == before
    (pictures / size).rename(pictures / "old")
    assert open_storage(str(data), str(pictures)).users.is_new()


@pytest.mark.parametrize("left", ["users", "deleted"])
def test_a_missing_next_user_id_stops_adding_and_says_the_fix(storage, ada, data, left):
    if left == "deleted":
        storage.users.delete(ada.id)
    (data / "next_user_id").unlink()
    for _ in range(2):
        with pytest.raises(BadInstallation, match="next_user_id is missing.*write a number into"):
            storage.users.register("Bob", "bob@example.org", "")
    (data / "next_user_id").write_text("7")
    assert storage.users.register("Bob", "bob@example.org", "").id == 7


@pytest.mark.parametrize("left", ["users", "deleted"])
@pytest.mark.parametrize("number", [1, 0, -1])
def test_a_next_user_id_that_was_given_before_stops_adding(storage, ada, data, left, number):
    """A copy of the file put back by hand must not cost a player their record."""
    if left == "deleted":
        storage.users.delete(ada.id)
    before = files_under(data / "users")
    (data / "next_user_id").write_text(str(number))
    with pytest.raises(BadInstallation, match="next_user_id is missing or too low"):
        storage.users.register("Bob", "bob@example.org", "")
    assert files_under(data / "users") == before
    assert storage.users.find_by_login("Bob") is None


@pytest.mark.parametrize("content", [b"", b"one", b"1.5", b"\xff", b"1" * 5000])
def test_a_next_user_id_that_is_no_number_stops_adding(storage, ada, data, content):
    (data / "next_user_id").write_bytes(content)
    with pytest.raises(DamagedRecord, match="next_user_id"):
        storage.users.register("Bob", "bob@example.org", "")
    assert storage.users.find_by_login("Ada") == ada


def test_no_id_has_more_digits_than_fit(storage, ada, data):
    (data / "next_user_id").write_text(str(USER_IDS_END - 1))
    bob = storage.users.register("Bob", "bob@example.org", "")
    assert USER_ID.fullmatch(str(bob.id))
    for _ in range(2):
        with pytest.raises(BadInstallation, match="next_user_id is too large"):
            storage.users.register("Cleo", "cleo@example.org", "")
    assert storage.users.ids() == [ada.id, bob.id]


def test_a_layout_of_a_newer_program_stops_the_start(storage, data, pictures):
    (data / "format").write_text(f"{LAYOUT_VERSION + 1}\n")
    with pytest.raises(BadInstallation, match="newer program"):
        open_storage(str(data), str(pictures))


@pytest.mark.parametrize("content", [b"", b"one", b"\xff", b"0", b"-1", b"01", b"+1", b"1" * 5000])
def test_a_layout_without_a_version_stops_the_start(storage, data, pictures, content):
    (data / "format").write_bytes(content)
    with pytest.raises(BadInstallation, match="no version number"):
        open_storage(str(data), str(pictures))


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\t\n"])
def test_a_key_file_without_a_key_stops_the_start(storage, data, pictures, content):
    (data / "secret_key").write_bytes(content)
    with pytest.raises(BadInstallation, match="has no key"):
        open_storage(str(data), str(pictures))
    assert (data / "secret_key").read_bytes() == content


def test_folders_that_cannot_be_made_raise_storage_failed(tmp_path):
    (tmp_path / "file").write_text("")
    for folders in (("file", "pfp"), ("file/below", "pfp"), ("instance", "file")):
        with pytest.raises(StorageFailed):
            open_storage(*(str(tmp_path / folder) for folder in folders))


# ---------------------------------------------------------------------------------------------
# Keys
# ---------------------------------------------------------------------------------------------


def test_a_key_added_with_an_editor_counts_at_once(storage, data):
    os.utime(data / "secret_key", (1, 1))  # a kernel's clock may tick every few milliseconds only
    first = storage.keys.current()
    with open(data / "secret_key", "ab") as file:
        file.write(b"another-key\n")
    assert storage.keys.current() == (*first, b"another-key")


def test_a_missing_key_file_raises_until_it_is_back(storage, data):
    keys = storage.keys.current()
    (data / "secret_key").rename(data / "elsewhere")
    with pytest.raises(StorageFailed):
        storage.keys.current()
    (data / "elsewhere").rename(data / "secret_key")
    assert storage.keys.current() == keys


# ---------------------------------------------------------------------------------------------
# Authorization codes
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spent", [False, True], ids=["live", "spent"])
def test_a_code_from_an_earlier_boot_is_refused(storage, data, spent):
    """A power cut can bring back what was spent just before it."""
    storage.codes.add("a code", CODE)
    if spent:
        storage.codes.spend("a code")
    change_file(code_files(data)[0], boot_id="an earlier one")
    with pytest.raises(NoSuchCode):
        storage.codes.read("a code")


@pytest.mark.parametrize("content", [b"", b"\x00" * 300, b"{", b"[]"])
def test_a_damaged_code_is_unknown(storage, data, content):
    """Codes are not synced: a power cut may leave anything of them."""
    storage.codes.add("a code", CODE)
    code_files(data)[0].write_bytes(content)
    with pytest.raises(NoSuchCode):
        storage.codes.read("a code")
    storage.codes.spend("a code")
    with pytest.raises(NoSuchCode):
        storage.codes.read("a code")


def test_codes_work_without_a_boot_id(data, pictures, monkeypatch):
    monkeypatch.setattr(disk, "BOOT_ID_FILE", str(data / "missing"))
    storage = open_storage(str(data), str(pictures))
    for code in ("one", "two"):
        storage.codes.add(code, CODE)
    storage.codes.spend("one")
    again = open_storage(str(data), str(pictures))
    assert again.codes.read("two") == CODE
    with pytest.raises(CodeSpent):
        again.codes.spend("one")


def step_clock(monkeypatch, window: int, into: int = 0) -> None:
    """Let it be so many seconds into this quarter of an hour."""
    monkeypatch.setattr(time, "time", lambda: window * codes.WINDOW + into)


def test_codes_are_removed_after_two_windows(storage, data, monkeypatch):
    step_clock(monkeypatch, 1_000_000, 899)
    for code in ("live", "spent"):
        storage.codes.add(code, CODE)
    storage.codes.spend("spent")
    step_clock(monkeypatch, 1_000_001, 899)
    storage.codes.add("next", CODE)
    assert storage.codes.read("live").grant_id == CODE.grant_id
    with pytest.raises(CodeSpent):
        storage.codes.spend("spent")
    storage.codes.spend("live")
    step_clock(monkeypatch, 1_000_002)
    storage.codes.add("new", CODE)
    assert {path.parent.name for path in code_files(data)} == {"1000001", "1000002"}
    for code in ("live", "spent"):
        with pytest.raises(NoSuchCode):
            storage.codes.read(code)


def test_expired_codes_are_removed_in_parts(storage, data, monkeypatch):
    step_clock(monkeypatch, 1_000_000)
    for number in range(2 * windows.REMOVED_AT_ONCE + 1):
        storage.codes.add(f"old {number}", CODE)
    step_clock(monkeypatch, 1_000_002)
    left = []
    for number in range(4):
        storage.codes.add(f"new {number}", CODE)
        left.append(len(files_under(data / "codes")) - number - 1)
    assert left == [windows.REMOVED_AT_ONCE + 1, 1, 0, 0]
    assert os.listdir(data / "codes") == ["1000002"]


@pytest.mark.parametrize("step", [-1, -4])
def test_a_code_outlives_a_clock_that_steps_back(storage, monkeypatch, step):
    step_clock(monkeypatch, 1_000_000)
    for code in ("live", "spent"):
        storage.codes.add(code, CODE)
    storage.codes.spend("spent")
    step_clock(monkeypatch, 1_000_000 + step)
    assert storage.codes.read("live").grant_id == CODE.grant_id
    storage.codes.spend("live")
    for code in ("live", "spent"):
        with pytest.raises(CodeSpent):
            storage.codes.read(code)


# ---------------------------------------------------------------------------------------------
# Attempts and audit
# ---------------------------------------------------------------------------------------------


def test_a_refused_attempt_makes_no_file(storage, data, monkeypatch):
    start = time.time() // ATTEMPTS_WINDOW * ATTEMPTS_WINDOW
    monkeypatch.setattr(time, "time", lambda: start)
    storage.attempts.count("password", "ada", limit=1)
    before = files_under(data), set((data / "attempts").iterdir())
    for seconds in (0, ATTEMPTS_WINDOW):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: start + seconds)
        with pytest.raises(TooManyAttempts):
            storage.attempts.count("password", "ada", limit=1)
    assert (files_under(data), set((data / "attempts").iterdir())) == before


def test_expired_attempts_are_removed(storage, data, monkeypatch):
    start = time.time() // ATTEMPTS_WINDOW * ATTEMPTS_WINDOW
    for window in range(4):
        now = start + window * ATTEMPTS_WINDOW
        monkeypatch.setattr(time, "time", lambda now=now: now)
        storage.attempts.count("password", "ada", limit=100)
    windows = [str(int(start // ATTEMPTS_WINDOW) + window) for window in (2, 3)]
    assert sorted(path.name for path in (data / "attempts").iterdir()) == windows


def test_attempt_files_do_not_show_their_subject(storage, data, tmp_path):
    other = open_storage(str(tmp_path / "other"), str(tmp_path / "other pfp"))
    for each in (storage, other):
        each.attempts.count("password", "ada", limit=1)
    (name,) = (path.name for path in (data / "attempts").glob("*/*"))
    (other_name,) = (path.name for path in (tmp_path / "other/attempts").glob("*/*"))
    assert re.fullmatch("[0-9a-f]{64}", name)
    assert name != other_name  # keyed: nobody can test names


def test_an_audit_line_is_json_in_the_log(storage, client, data):
    before = now_ms()
    storage.audit.write("client listed", by=3, client=client.id)
    storage.audit.write("suspend", by=3, user=7)
    lines = (data / "audit.log").read_text().splitlines()
    times = [before, *(json.loads(line)["time"] for line in lines), now_ms()]
    assert times == sorted(times)
    assert [{**json.loads(line), "time": 0} for line in lines] == [
        {"time": 0, "act": "client listed", "by": 3, "client": client.id},
        {"time": 0, "act": "suspend", "by": 3, "user": 7},
    ]


@pytest.mark.parametrize("size", [1, 2, 7, 64, disk.READ_SIZE])
def test_a_log_is_read_from_its_end_in_parts_of_any_size(data, storage, monkeypatch, size):
    monkeypatch.setattr(disk, "READ_SIZE", size)
    lines = [b"\n", b"a" * 9 + b"\n", b"b" * 63 + b"\n", b"c" * 64 + b"\n", b"torn"]
    (data / "log").write_bytes(b"".join(lines))
    assert list(disk.read_backwards(str(data / "log"))) == lines[::-1]
    assert list(disk.read_backwards(str(data / "missing"))) == []


@pytest.mark.parametrize("torn", ['{"time": 1, "ac', '{"time": 1, "act": "backup", "by": 1}'])
def test_an_audit_line_after_a_torn_line_stays_whole(storage, data, torn):
    storage.audit.write("invite", by=1)
    with (data / "audit.log").open("a") as file:
        file.write(torn)
    storage.audit.write("invite", by=2)
    first, second, third = (data / "audit.log").read_text().splitlines()
    assert (json.loads(first)["by"], second, json.loads(third)["by"]) == (1, torn, 2)


# ---------------------------------------------------------------------------------------------
# What fails leaves nothing behind
# ---------------------------------------------------------------------------------------------


def test_a_failed_add_leaves_nothing(storage, bob, data, pictures):
    before = files_under(data), files_under(pictures)
    shutil.move(pictures / "small", pictures / "elsewhere")
    with pytest.raises(StorageFailed):
        storage.users.register("Ada", "ada@example.org", "")
    shutil.move(pictures / "elsewhere", pictures / "small")
    assert (files_under(data), files_under(pictures)) == before
    assert storage.users.register("Ada", "ada@example.org", "").id > bob.id


def test_a_failed_index_entry_leaves_nothing(storage, bob, data, pictures):
    before = files_under(data), files_under(pictures)
    shutil.move(data / "emails", data / "elsewhere")
    with pytest.raises(StorageFailed):
        storage.users.register("Ada", "ada@example.org", "")
    with pytest.raises(StorageFailed):
        storage.users.change_email(bob.id, "ada@example.org")
    shutil.move(data / "elsewhere", data / "emails")
    assert (files_under(data), files_under(pictures)) == before
    assert storage.users.read(bob.id) == bob


def test_a_failed_picture_leaves_the_old_one(storage, ada, data, pictures):
    before = files_under(data), files_under(pictures)
    with pytest.raises(KeyError):
        storage.pictures.save(ada.id, {"large": b"large"})
    shutil.move(pictures / "small", pictures / "elsewhere")
    with pytest.raises(StorageFailed):
        storage.pictures.save(ada.id, PICTURE)
    shutil.move(pictures / "elsewhere", pictures / "small")
    assert (files_under(data), files_under(pictures)) == before
    assert storage.users.read(ada.id) == ada


def test_a_failed_delete_leaves_the_user_whole(storage, ada, data, pictures):
    (data / "deleted/1").mkdir()  # no file can be renamed over it
    before = files_under(data), files_under(pictures)
    with pytest.raises(StorageFailed):
        storage.users.delete(ada.id)
    assert (files_under(data), files_under(pictures)) == before
    (data / "deleted/1").rmdir()
    storage.users.delete(ada.id)
    with pytest.raises(NoSuchUser):
        storage.users.read(ada.id)


# ---------------------------------------------------------------------------------------------
# Several processes on one installation
# ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes():
    """Processes that begin a piece of work at the same moment."""
    # Not fork: other tests may have left threads in this process.
    context = multiprocessing.get_context("forkserver")
    # Each process imports them otherwise.
    context.set_forkserver_preload(["PIL.Image", "storage.pictures", __name__])
    start = context.Barrier(PROCESSES)
    with ProcessPoolExecutor(PROCESSES, context, wait_for, (start,)) as pool:
        yield pool


def wait_for(start) -> None:
    """In each process: the barrier of `take_part`, which no task can carry; and as `unsynced`."""
    take_part.start = start
    os.fsync = lambda descriptor: None


@pytest.fixture
def race(processes, data, pictures):
    """race(act): act(storage, n) in all processes at once, for n from 0; returns the results."""

    def run(act) -> list:
        futures = [
            processes.submit(take_part, act, str(data), str(pictures), n) for n in range(PROCESSES)
        ]
        return [future.result(PATIENCE) for future in futures]

    return run


def take_part(act, data: str, pictures: str, n: int):
    """What `act` returns, or the name of its StorageError."""
    take_part.start.wait(PATIENCE)
    try:
        return act(open_storage(data, pictures), n)
    except StorageError as error:
        return type(error).__name__


def read_keys(storage, n):
    return storage.keys.current()


@pytest.mark.live
def test_racing_first_starts_agree_on_one_key(race, data, pictures):
    (keys,) = set(race(read_keys))
    assert keys == open_storage(str(data), str(pictures)).keys.current()
    assert not temporary_files(data, pictures)


def add_somebody(storage, n):
    return storage.users.register(f"Somebody {chr(97 + n)}", f"{n}@example.org", "").id


@pytest.mark.live
def test_sixteen_processes_add_sixteen_users(race, storage):
    assert sorted(race(add_somebody)) == storage.users.ids() == list(range(1, PROCESSES + 1))


def add_or_delete_ada(storage, n):
    """Half of them add Ada over and over, half delete her."""
    for _ in range(10):
        with contextlib.suppress(NameTaken, NoSuchUser):
            if n % 2:
                storage.users.register("Ada", "ada@example.org", "")
            elif user := storage.users.find_by_login("Ada"):
                storage.users.delete(user.id)


@pytest.mark.live
def test_a_name_in_constant_reuse_finds_its_user(race, storage):
    race(add_or_delete_ada)
    bearers = [storage.users.read(user_id) for user_id in storage.users.ids()] or [None]
    found = [storage.users.find_by_login(text) for text in ("Ada", "ada@example.org")]
    assert found == bearers * 2


def log(storage, n):
    for number in range(10):
        storage.audit.write("suspend", by="command", user=number, process=n)


@pytest.mark.live
def test_audit_lines_of_sixteen_processes_never_mix(race, storage, data):
    race(log)
    lines = [json.loads(line) for line in (data / "audit.log").read_text().splitlines()]
    written = [(line["process"], line["user"]) for line in lines]
    assert sorted(written) == [(n, number) for n in range(PROCESSES) for number in range(10)]


def read_everything(data: str, pictures: str, timestamp: int) -> bool:
    storage = open_storage(data, pictures)
    (client,) = map(storage.clients.read, storage.clients.ids())
    storage.clients.read(client.id)
    storage.codes.read("a code")
    storage.codes.spend("a code")  # one rename
    storage.pictures.read("small", f"1-{timestamp}.webp")
    storage.keys.current()
    found = [storage.users.find_by_login(text) for text in ("Ada", "ada@example.org", "nobody")]
    return found == [storage.users.read(1)] * 2 + [None] and storage.users.ids() == [1]


@pytest.mark.live
def test_reads_take_no_lock(processes, storage, ada, client, data, pictures):
    storage.codes.add("a code", CODE)
    with contextlib.ExitStack() as held:
        for name in ("locks/users", "locks/clients", *(f"locks/users-{n}" for n in range(64))):
            file = held.enter_context(open(data / name, "a"))
            fcntl.flock(file, fcntl.LOCK_EX)
        reading = processes.submit(read_everything, str(data), str(pictures), ada.pfp_timestamp)
        assert reading.result(PATIENCE)


# ---------------------------------------------------------------------------------------------
# Grants
# ---------------------------------------------------------------------------------------------


def test_a_save_keeps_grants_of_damaged_clients_and_drops_those_of_no_id(storage, ada, data):
    client, _ = storage.clients.register("Chess", [], None)
    path = data / "users/1.json"
    record = json.loads(path.read_text())
    record["grants"] = dict.fromkeys((client.id, "../users/1", "0" * 24), GRANT)
    path.write_text(json.dumps(record))
    (data / f"clients/{client.id}.json").write_text("{")
    with storage.users.edit(ada.id) as user:
        user.bio = "Saved"
    assert list(storage.users.read(ada.id).grants) == [client.id]


def test_a_save_keeps_grants_if_the_disk_does_not_tell_which_clients_exist(
    storage, ada, monkeypatch
):
    client, _ = storage.clients.register("Chess", [], None)
    with storage.users.edit(ada.id) as user:
        user.grants = {client.id: Grant(**GRANT)}

    def fail(path):
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(os, "lstat", fail)
    with storage.users.edit(ada.id) as user:
        user.bio = "Saved"
    assert list(storage.users.read(ada.id).grants) == [client.id]


def test_a_save_keeps_grants_if_the_folder_of_clients_is_gone(storage, ada, data):
    client, _ = storage.clients.register("Chess", [], None)
    with storage.users.edit(ada.id) as user:
        user.grants = {client.id: Grant(**GRANT)}
    (data / "clients").rename(data / "away")
    with storage.users.edit(ada.id) as user:
        user.bio = "Saved"
    assert list(storage.users.read(ada.id).grants) == [client.id]
