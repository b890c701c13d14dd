"""The flat files: modes, damage, index entries, expiry.

What any backend promises is in contract/; kills, failing disks and power cuts are in faults/.
"""

import contextlib
import fcntl
import json
import multiprocessing
import os
import re
import shutil
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import begin_window
from contract.base import PICTURE, edit, find_all, free_name
from waiting import PATIENCE

from model.errors import (
    BadInstallation,
    CodeSpent,
    DamagedRecord,
    EmailTaken,
    LastAdministrator,
    NameTaken,
    NoSuchCode,
    OriginTaken,
    StorageFailed,
    TooManyAttempts,
)
from model.kinds import KINDS
from model.records import (
    ADMINISTRATOR,
    PICTURE_SIZES,
    AuthorizationCode,
    Client,
    Grant,
    User,
    sha256,
)
from model.rules import USER_ID, USER_IDS_END
from storage import contract, open_storage
from storage.contract import ATTEMPTS_WINDOW, PLAYING_KEPT
from storage.flat_files import codes, disk
from storage.flat_files.layout import LAYOUT_VERSION, STAGED

CODE = AuthorizationCode("c" * 24, 1, "a grant", ["userinfo"], "https://a.example/", None)


@pytest.fixture
def ada(storage) -> User:
    return storage.users.register("Ada", "ada@example.org", "a hash")


@pytest.fixture
def bob(storage, ada) -> User:
    return storage.users.register("Bob", "bob@example.org", "a hash")


@pytest.fixture
def client(storage) -> Client:
    return storage.clients.register("Chess", [], None)[0]


def files_under(folder: Path) -> set[str]:
    """Return every file and link in a folder, temporary ones too, except lock files."""
    paths = (path for path in folder.rglob("*") if not path.is_dir())
    return {str(path.relative_to(folder)) for path in paths if path.parent.name != "locks"}


def code_files(data: Path) -> list[Path]:
    return [path for path in (data / "codes").rglob("*") if path.is_file()]


def change_file(path: Path, **values) -> None:
    """Edit a record by hand; a value of `...` removes the field."""
    record = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: each for name, each in record.items() if each is not ...}))


# ---------------------------------------------------------------------------------------------
# Files that people may read and edit
# ---------------------------------------------------------------------------------------------


def test_every_record_is_indented_json_without_secrets(storage, ada, data):
    client, secret = storage.clients.register("Chess", [], ada.id)
    storage.codes.add("a code", CODE)
    edit(storage, ada.id, bio="Zoë says „hi“\n☃")
    for path in data.rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"
        assert secret not in text and "a code" not in text
    assert [path.name for path in code_files(data)] == [f"{sha256('a code')}.json"]
    assert files_under(data / "clients") == {f"{client.id}.json"}
    assert list(json.loads((data / "users/1.json").read_text(encoding="utf-8"))) == [
        *("id", "name", "email", "password_hash", "mod_level", "suspension", "bio", "flairs"),
        *("equipped_flair", "play_ms", "last_heartbeat", "pfp_timestamp", "created", "grants"),
        *("sessions", "notices", "invite", "pfp_generated"),
    ]


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


def test_existing_folder_keeps_its_mode(storage, open_installation, data, pictures):
    data.chmod(0o750)
    pictures.chmod(0o711)
    open_installation()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (data, pictures)] == [0o750, 0o711]


def test_record_edited_by_hand_is_read(storage, ada, data):
    path = data / "users/1.json"
    record = json.loads(path.read_text()) | {"bio": "by hand", "mod_level": 2}
    path.write_text(json.dumps(dict(reversed(record.items())), indent="\t"), encoding="utf-8-sig")
    assert storage.users.read(1).bio == "by hand"
    assert storage.users.find_by_login("Ada").mod_level == 2


def test_data_folder_can_be_moved(storage, ada, data, pictures, tmp_path):
    assert files_under(data / "emails") == {sha256("ada@example.org")}
    data.rename(tmp_path / "moved")
    moved = open_storage(str(tmp_path / "moved"), str(pictures))
    assert find_all(moved, "ada", "ada@example.org") == [ada] * 2


# ---------------------------------------------------------------------------------------------
# Damaged records
# ---------------------------------------------------------------------------------------------


def put(content: bytes):
    return lambda path: path.write_bytes(content)


def hand_edit(**values):
    return lambda path: change_file(path, **values)


GRANT = {"id": "g", "scope": ["userinfo"], "since": 1}
DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-30]),
    "twice": lambda path: path.write_bytes(path.read_bytes() * 2),
    "not UTF-8": lambda path: path.write_bytes(path.read_bytes().replace(b"Ada", b"\xe4da")),
    "empty": put(b""),
    "zeros": put(b"\x00" * 512),
    "a list": put(b"[]"),
    "nested too deeply": put(b"[" * 100_000),
    "another id": hand_edit(id=2),
    "id as text": hand_edit(id="1"),
    "name as number": hand_edit(name=7),
    "no password_hash": hand_edit(password_hash=...),
    "unknown field": hand_edit(nickname="Countess"),
    "level true": hand_edit(mod_level=True),
    "suspension true": hand_edit(suspension=True),
    "suspension until a date": hand_edit(suspension={"by": 1, "until": "2026-11-24"}),
    "flair not owned": hand_edit(equipped_flair="gold"),
    "no flairs": hand_edit(flairs=[]),
    "grant as text": hand_edit(grants={"c": "yes"}),
    "grant without since": hand_edit(grants={"c": {"id": "g", "scope": []}}),
    "scope as text": hand_edit(grants={"c": GRANT | {"scope": "userinfo"}}),
    "session as null": hand_edit(sessions=[None]),
    "since as text": hand_edit(sessions=[{"id": "s", "since": "now", "browser": "Firefox"}]),
}


def test_damaged_user_raises_until_the_record_is_repaired(storage, ada, data, subtests):
    path = data / "users/1.json"
    original = path.read_bytes()
    for name, damage in DAMAGE.items():
        damage(path)
        damaged = path.read_bytes()
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
            with (
                subtests.test(name),
                pytest.raises(DamagedRecord, match=r"^users/1\.json is damaged: ."),
            ):
                act()
        assert path.read_bytes() == damaged
        path.write_bytes(original)
        assert storage.users.find_by_login("Ada") == ada


def test_damaged_record_affects_no_other_player(storage, ada, bob, data, subtests):
    """It keeps its name, its email address and its pictures, and is no administrator."""
    edit(storage, bob.id, mod_level=ADMINISTRATOR)
    storage.pictures.save(ada.id, PICTURE)
    ada = storage.users.read(ada.id)
    path = data / "users/1.json"
    original = path.read_bytes()
    for number, (name, damage) in enumerate(DAMAGE.items()):
        path.write_bytes(original)
        damage(path)
        with subtests.test(name):
            saved = edit(storage, bob.id, play_ms=number)
            assert find_all(storage, "bob", "bob@example.org") == [saved] * 2
            for act, error in (
                (lambda: storage.users.register("ADA", "new@example.org", ""), NameTaken),
                (lambda: storage.users.register("New", "ADA@example.org", ""), EmailTaken),
                (lambda: storage.users.rename(bob.id, "ada"), NameTaken),
                (lambda: storage.users.change_email(bob.id, "ada@example.org"), EmailTaken),
                (storage.users.administered_without(bob.id).__enter__, LastAdministrator),
            ):
                with pytest.raises(error):
                    act()
            assert storage.pictures.read("small", ada.picture_file)
            cleo = storage.users.register("Cleo", "cleo@example.org", "")
            assert storage.users.ids() == [1, 2, cleo.id]
            storage.users.delete(cleo.id)
            free_name(storage, "Cleo")


def test_damaged_client_raises_and_affects_no_other(storage, client, data, subtests):
    other, _ = storage.clients.register("Checkers", [], None)
    path = data / f"clients/{client.id}.json"
    original = path.read_bytes()
    for damage in (
        put(b"{"),
        hand_edit(id="d" * 24),
        hand_edit(redirect_uris="https://a/"),
        hand_edit(name=...),
    ):
        path.write_bytes(original)
        damage(path)
        for act in (
            lambda: storage.clients.read(client.id),
            lambda: storage.clients.edit(client.id).__enter__(),
            lambda: storage.clients.issue_secret(client.id),
            lambda: storage.clients.delete(client.id),
        ):
            with (
                subtests.test(path.read_text()),
                pytest.raises(DamagedRecord, match=f"^clients/{client.id}.json is damaged"),
            ):
                act()
        assert storage.clients.read(other.id) == other


# ---------------------------------------------------------------------------------------------
# Entries of names and email addresses
# ---------------------------------------------------------------------------------------------


def test_stale_index_entry_finds_nobody_and_blocks_nothing(storage, bob, data, subtests):
    for target in (
        "../users/99.json",  # never finished, or deleted
        "../users/2.json",  # Bob's, who has another name by now
        *("nowhere", "../users", "../users/x.json", "../users/-1.json", "/dev/null", "Cleo"),
    ):
        for path in (data / "names/cleo", data / "emails" / sha256("cleo@example.org")):
            path.unlink(missing_ok=True)
            path.symlink_to(target)
        with subtests.test(target):
            assert find_all(storage, "Cleo", "cleo@example.org") == [None] * 2
            cleo = storage.users.register("Cleo", "cleo@example.org", "")
            assert find_all(storage, "Cleo", "cleo@example.org", "Bob") == [cleo, cleo, bob]
            storage.users.delete(cleo.id)
            free_name(storage, "Cleo")


def test_index_entry_with_another_key_finds_nothing(storage, ada, client, data):
    for key, record in (("users/role/administrator", ada), ("clients/owner/1", client)):
        (data / "index" / key).mkdir(exist_ok=True)
        (data / "index" / key / str(record.id)).touch()
    assert (storage.users.administrators(), storage.clients.of_owner(ada.id)) == ([], [])


def test_longest_names_are_stored_and_found(storage, ada):
    for letter in "𐌰𠀀ẞก":
        renamed = storage.users.rename(ada.id, letter * 30)
        assert storage.users.find_by_login(letter * 30) == renamed


def test_text_that_is_no_name_makes_no_path(storage, ada, subtests):
    for text in (
        *(".", "..", "../users/1.json", "a/b", "/", "/etc/passwd", "names/ada", "ada/", "ada/."),
        *("\x00", "ada\x00", "\ud800", "\ud800@example.org", "a" * 121, "é" * 61, "a" * 100_000),
        "．．／ｕｓｅｒｓ",  # dots and slashes once it is folded
    ):
        with subtests.test(ascii(text[:20])):
            assert storage.users.find_by_login(text) is None


def test_missing_folder_is_not_a_missing_record(storage, data, subtests):
    for folder, look_up in {
        "users": lambda: storage.users.read(7),
        "clients": lambda: storage.clients.read("c" * 24),
        "names": lambda: storage.users.find_by_login("nobody"),
        "emails": lambda: storage.users.find_by_login("nobody@example.org"),
        "index": lambda: storage.clients.games(listed=True),
        "invites": lambda: storage.invites.read("0" * 64),
        "codes": lambda: storage.codes.read("none"),
    }.items():
        (data / folder).rename(data / "away")
        with (
            subtests.test(folder),
            pytest.raises(StorageFailed, match=f"the disk refused at {data}/{folder}"),
        ):
            look_up()
        (data / "away").rename(data / folder)


def test_save_drops_grants_of_deleted_clients_only(storage, ada, client, data):
    grants = dict.fromkeys((client.id, "../users/1", "0" * 24), GRANT)
    change_file(data / "users/1.json", grants=grants)
    (data / f"clients/{client.id}.json").write_text("{")
    edit(storage, ada.id, bio="Saved")
    assert list(storage.users.read(ada.id).grants) == [client.id]


def test_save_keeps_grants_if_the_folder_of_clients_is_gone(storage, ada, client, data):
    """Nor are they dropped if the disk refuses to look into it."""
    edit(storage, ada.id, grants={client.id: Grant(**GRANT)})
    (data / "clients").rename(data / "away")
    edit(storage, ada.id, bio="Saved")
    assert list(storage.users.read(ada.id).grants) == [client.id]
    (data / "clients").symlink_to("clients")
    edit(storage, ada.id, bio="Saved again")
    assert list(storage.users.read(ada.id).grants) == [client.id]


def test_damaged_game_keeps_its_origin(storage, data):
    game = {"game_url": "https://space.example/play", "listed": True}
    first, _ = storage.clients.register("Space Game", [], None, **game)
    path = data / f"clients/{first.id}.json"
    original = path.read_text()
    path.write_text("{")
    with pytest.raises(OriginTaken):
        storage.clients.register("Chess", [], None, **game)
    assert storage.clients.games(listed=True) == []
    path.write_text(original)
    change_file(path, game_url="https://")
    second, _ = storage.clients.register("Chess", [], None, **game)
    assert second.id in [each.id for each in storage.clients.games(listed=True)]


# ---------------------------------------------------------------------------------------------
# Installations that cannot be used
# ---------------------------------------------------------------------------------------------


def test_installation_without_its_users_folder_is_not_opened(open_installation, data):
    """With an empty users folder `check` would remove every index entry and picture."""
    ada = open_installation().users.register("Ada", "ada@example.org", "")
    (data / "users").rename(data / "lost")
    with pytest.raises(BadInstallation, match="users is missing.*put it back"):
        open_installation()
    (data / "lost").rename(data / "users")
    assert open_installation().users.find_by_login("ada") == ada


def test_no_installation_is_made_beside_pictures_of_players(
    storage, ada, backend, data, pictures, tmp_path
):
    """The disk with the records may not be mounted."""
    storage.pictures.save(ada.id, PICTURE)
    for size in PICTURE_SIZES:
        other = tmp_path / size
        shutil.copytree(pictures / size, other / size)
        folders = str(other / "data"), str(other)
        before = sorted(other.rglob("*"))
        with pytest.raises(BadInstallation, match=f"mount its disk, or move {other} away"):
            backend.open(*folders)
        assert sorted(other.rglob("*")) == before
        (other / size).rename(tmp_path / f"old {size}")
        assert backend.open(*folders).users.is_new()


def test_load_reports_the_leftovers_of_an_interrupted_one(storage, data):
    (data / STAGED / "users").mkdir(parents=True)
    reported = []
    for _ in range(2):
        with storage.load(report=reported.append) as load:
            load.next_user_id = 1
    [line] = reported
    assert "interrupted" in line


def test_load_waits_for_whoever_adds_a_record(storage):
    """Otherwise both would find the installation empty, and one would replace the other's files."""

    def load_nothing() -> None:
        with storage.load() as load:
            load.next_user_id = 1

    for kind in KINDS:
        loading = threading.Thread(target=load_nothing)
        with storage.layout.kind_lock(kind):
            loading.start()
            loading.join(0.2)
            assert loading.is_alive()
        loading.join()


@pytest.mark.parametrize("left", ["users", "deleted"])
def test_unusable_next_user_id_stops_registration(storage, ada, data, left, subtests):
    """A copy of the file put back by hand must not cost a player their record."""
    if left == "deleted":
        storage.users.delete(ada.id)
    before = files_under(data / "users")
    path = data / "next_user_id"
    for content, error, message in (
        (None, BadInstallation, "next_user_id is missing.*write a number into"),
        *((each, BadInstallation, "missing or too low") for each in (b"1", b"0", b"-1")),
        *((each, DamagedRecord, "next_user_id") for each in (b"", b"one", b"1.5", b"\xff")),
        (b"1" * 5000, DamagedRecord, "next_user_id"),
        (b"%d" % USER_IDS_END, BadInstallation, "next_user_id is too large"),
    ):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with subtests.test(content), pytest.raises(error, match=message):
            storage.users.register("Bob", "bob@example.org", "")
        assert files_under(data / "users") == before
        assert storage.users.find_by_login("Bob") is None
    path.write_text(str(USER_IDS_END - 1))
    assert USER_ID.fullmatch(str(storage.users.register("Bob", "bob@example.org", "").id))


def test_unknown_layout_stops_the_start(storage, open_installation, data, subtests):
    newer = b"%d\n" % (LAYOUT_VERSION + 1)
    others = (b"", b"one", b"\xff", b"0", b"-1", b"01", b"+1", b"1" * 5000)
    for content, message in {
        newer: "newer program",
        **dict.fromkeys(others, "no version number"),
    }.items():
        (data / "format").write_bytes(content)
        with subtests.test(content), pytest.raises(BadInstallation, match=message):
            open_installation()


def test_key_file_without_a_key_stops_the_start(storage, open_installation, data):
    for content in (b"", b"\n", b" \n\t\n"):
        (data / "secret_key").write_bytes(content)
        with pytest.raises(BadInstallation, match="has no key"):
            open_installation()
        assert (data / "secret_key").read_bytes() == content


def test_folders_that_cannot_be_made_raise_storage_failed(tmp_path):
    (tmp_path / "file").write_text("")
    for folders in (("file", "pfp"), ("file/below", "pfp"), ("instance", "file")):
        with pytest.raises(StorageFailed):
            open_storage(*(str(tmp_path / folder) for folder in folders))


def test_edited_or_missing_key_file_counts_within_a_second(storage, data):
    path = data / "secret_key"
    [first] = storage.keys.current()
    with path.open("ab") as file:
        file.write(b"another-key\n")
    time.sleep(contract.KEYS_CACHED)
    assert storage.keys.current() == (first, b"another-key")
    path.rename(data / "elsewhere")
    with pytest.raises(StorageFailed):  # at once
        storage.require_health()
    time.sleep(contract.KEYS_CACHED)
    with pytest.raises(StorageFailed):
        storage.keys.current()
    (data / "elsewhere").rename(path)
    assert storage.keys.current() == (first, b"another-key")


# ---------------------------------------------------------------------------------------------
# Authorization codes
# ---------------------------------------------------------------------------------------------


def test_damaged_code_is_unknown(storage, data):
    """Codes are not synced: a power cut may leave anything of them."""
    for content in (b"", b"\x00" * 300, b"{", b"[]"):
        code = str(content)
        storage.codes.add(code, CODE)
        next((data / "codes").glob(f"*/{sha256(code)}.json")).write_bytes(content)
        with pytest.raises(NoSuchCode):
            storage.codes.read(code)
        storage.codes.spend(code)
        with pytest.raises(NoSuchCode):
            storage.codes.read(code)


def test_code_from_an_earlier_boot_is_unknown(storage, data):
    """A power cut can restore what was spent just before it."""
    storage.codes.add("a code", CODE)
    change_file(code_files(data)[0], boot_id="an earlier one")
    with pytest.raises(NoSuchCode):
        storage.codes.read("a code")


def test_codes_are_removed_after_two_windows(storage, data, clock):
    begin_window(clock)
    clock.shift(codes.WINDOW - 1)
    for code in ("live", "spent"):
        storage.codes.add(code, CODE)
    storage.codes.spend("spent")
    clock.shift(codes.WINDOW)
    storage.codes.add("next", CODE)
    assert storage.codes.read("live").grant_id == CODE.grant_id
    with pytest.raises(CodeSpent):
        storage.codes.spend("spent")
    storage.codes.spend("live")
    clock.shift(1)
    storage.codes.add("new", CODE)
    assert {path.stem for path in code_files(data)} == {sha256("next"), sha256("new")}
    for code in ("live", "spent"):
        with pytest.raises(NoSuchCode):
            storage.codes.read(code)


def test_code_outlives_a_clock_set_back_by_a_window(storage, clock):
    """Also if another code is added then, which removes those of expired windows."""
    storage.codes.add("a code", CODE)
    clock.shift(-codes.WINDOW)
    storage.codes.add("another", CODE)
    storage.codes.spend("a code")
    with pytest.raises(CodeSpent):
        storage.codes.read("a code")


# ---------------------------------------------------------------------------------------------
# Attempts and audit
# ---------------------------------------------------------------------------------------------


def test_refused_attempt_makes_no_file(storage, data, clock):
    begin_window(clock)
    storage.attempts.count("password", "ada", limit=1)
    before = set((data / "attempts").rglob("*"))
    for seconds in (0, ATTEMPTS_WINDOW):
        clock.shift(seconds)
        with pytest.raises(TooManyAttempts):
            storage.attempts.count("password", "ada", limit=1)
    assert set((data / "attempts").rglob("*")) == before


def test_playing_folder_that_is_lost_fails_nobody(storage, data):
    storage.playing.note(1, "a" * 24)
    shutil.rmtree(data / "playing")
    (data / "playing").touch()
    storage.playing.note(1, "a" * 24)
    assert storage.playing.now() == {}


def test_who_plays_is_noted_without_a_sync_and_removed_later(storage, data, clock, monkeypatch):
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: pytest.fail("the next heartbeat is soon"))
    begin_window(clock)
    made = []
    for game in ("a" * 24, "a" * 24, "b" * 24, None):
        storage.playing.note(1, game)
        [entry] = data.glob("playing/*/*")  # no temporary file is left
        assert os.readlink(entry) == (game or "-")
    for _ in range(4):
        clock.shift(PLAYING_KEPT // 2)
        storage.playing.note(1, None)
        made += sorted(set(os.listdir(data / "playing")) - set(made))
    assert sorted(os.listdir(data / "playing")) == made[-2:]


def test_expired_attempts_are_removed(storage, data, clock):
    made = []
    for _ in range(4):
        clock.shift(ATTEMPTS_WINDOW)
        storage.attempts.count("password", "ada", limit=100)
        made += sorted(set(os.listdir(data / "attempts")) - set(made))
    assert sorted(os.listdir(data / "attempts")) == made[-2:]


def test_attempt_files_do_not_show_their_subject(storage, data, tmp_path):
    other = open_storage(str(tmp_path / "other"), str(tmp_path / "other pfp"))
    for each in (storage, other):
        each.attempts.count("password", "ada", limit=1)
    [name] = (path.name for path in (data / "attempts").glob("*/*"))
    [other_name] = (path.name for path in (tmp_path / "other/attempts").glob("*/*"))
    assert re.fullmatch("[0-9a-f]{64}", name)
    assert name != other_name  # keyed: nobody can test names


def test_log_is_read_from_its_end_in_parts_of_any_size(data, storage, monkeypatch):
    lines = [b"\n", b"a" * 9 + b"\n", b"b" * 63 + b"\n", b"c" * 64 + b"\n", b"torn"]
    (data / "log").write_bytes(b"".join(lines))
    for size in (1, 2, 7, 64, disk.READ_SIZE):
        monkeypatch.setattr(disk, "READ_SIZE", size)
        found = list(disk.read_backwards(str(data / "log")))
        assert [line for _, line in found] == lines[::-1]
        for end in range(-1, 150):  # those that are whole before it
            read = list(disk.read_backwards(str(data / "log"), end))
            whole = [each for each in found if each[0] + len(each[1]) <= end]
            assert read == whole, end
    assert list(disk.read_backwards(str(data / "missing"))) == []


@pytest.mark.parametrize("torn", ['{"time": 1, "ac', '{"time": 1, "act": "backup", "by": 1}'])
def test_audit_line_after_a_torn_line_is_whole(storage, data, torn):
    storage.audit.write("invite", by=1)
    with (data / "audit.log").open("a") as file:
        file.write(torn)
    storage.audit.write("invite", by=2)
    first, second, third = (data / "audit.log").read_text().splitlines()
    assert (json.loads(first)["by"], second, json.loads(third)["by"]) == (1, torn, 2)


def test_reads_take_no_lock(storage, open_installation, ada, client, data):
    storage.codes.add("a code", CODE)

    def read_everything() -> None:
        own = open_installation()
        assert own.clients.ids() == [client.id]
        assert own.clients.read(client.id) == client
        assert own.codes.read("a code") == CODE
        own.codes.spend("a code")  # one rename
        assert own.pictures.read("small", ada.picture_file)
        assert own.keys.current() == storage.keys.current()
        assert find_all(own, "Ada", "ada@example.org", "nobody") == [ada, ada, None]
        assert own.users.ids() == [ada.id]

    with ThreadPoolExecutor(1) as reader, contextlib.ExitStack() as held:
        for name in ("users", "clients", "keys", "audit", *(f"users-{n}" for n in range(64))):
            file = held.enter_context(open(data / f"locks/{name}", "a"))
            fcntl.flock(file, fcntl.LOCK_EX)
        reader.submit(read_everything).result(PATIENCE)


def count_often(barrier, *folders: str) -> None:
    """Count 200 attempts of a subject, in a process that starts to count with the others."""
    attempts = open_storage(*folders).attempts
    barrier.wait()
    for _ in range(200):
        attempts.count("password", "ada", limit=1000)


@pytest.mark.live
def test_attempts_of_racing_processes_are_counted_exactly(storage, folders):
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(4)
    racing = [spawn.Process(target=count_often, args=(barrier, *folders)) for _ in range(4)]
    for each in racing:
        each.start()
    for each in racing:
        each.join()
    storage.attempts.require_left("password", "ada", limit=801)
    with pytest.raises(TooManyAttempts):
        storage.attempts.require_left("password", "ada", limit=800)
