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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import begin_window
from contract.base import PICTURE, edit, find_all, free_name
from test_command import Installation
from waiting import PATIENCE, is_waiting_for_a_lock, wait_until

from commands.printing import describe_audit_line
from identity.acts.actors import COMMAND, Authority
from identity.oauth.openid import rotate_keys
from model import errors
from model.errors import EmailTaken, IdTaken, InviteSpent, NameTaken, StorageFailed
from model.grant_records import AuthorizationCode
from model.kinds import KINDS
from model.records import ADMINISTRATOR, PICTURE_SIZES, Client, Grant, User, sha256
from model.rules import USER_ID, USER_IDS_END
from storage import contract, open_storage
from storage.contract import ATTEMPTS_WINDOW, PLAYING_KEPT
from storage.flat_files import codes, disk
from storage.flat_files import keys as key_files
from storage.flat_files.layout import LAYOUT_VERSION, STAGED

from .test_check import cut, hand_edit, put

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


# -- Files that people may read and edit ---------------------------------------------------------


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


# -- Damaged records -----------------------------------------------------------------------------


GRANT = {"id": "g", "scope": ["userinfo"], "since": 1}
DAMAGE = {
    "truncated": cut,
    "twice": lambda path: path.write_bytes(path.read_bytes() * 2),
    "not UTF-8": lambda path: path.write_bytes(path.read_bytes().replace(b"Ada", b"\xe4da")),
    **{"empty": put(b""), "zeros": put(b"\x00" * 512), "a list": put(b"[]")},
    **{"nested too deeply": put(b"[" * 100_000), "no flairs": hand_edit(flairs=[])},
    **{"another id": hand_edit(id=2), "id as text": hand_edit(id="1")},
    **{"name as number": hand_edit(name=7), "no password_hash": hand_edit(password_hash=...)},
    **{"unknown field": hand_edit(nickname="A"), "flair not owned": hand_edit(equipped_flair="x")},
    **{"level true": hand_edit(mod_level=True), "suspension true": hand_edit(suspension=True)},
    "suspension until a date": hand_edit(suspension={"by": 1, "until": "2026-11-24"}),
    "grant as text": hand_edit(grants={"c": "yes"}),
    "grant without since": hand_edit(grants={"c": {"id": "g", "scope": []}}),
    "scope as text": hand_edit(grants={"c": GRANT | {"scope": "userinfo"}}),
    "session as null": hand_edit(sessions=[None]),
    "since as text": hand_edit(sessions=[{"id": "s", "since": "now", "browser": "Firefox"}]),
}


def test_damaged_user_raises_until_repaired_and_affects_no_other(storage, ada, bob, data, subtests):
    """It keeps its name, its email address and its pictures, and is no administrator."""
    edit(storage, bob.id, mod_level=ADMINISTRATOR)
    storage.pictures.save(ada.id, PICTURE)
    ada, path, users = storage.users.read(ada.id), data / "users/1.json", storage.users
    original = path.read_bytes()
    for number, (name, damage) in enumerate(DAMAGE.items()):
        damage(path)
        damaged = path.read_bytes()
        with subtests.test(name):
            for act in (
                *(lambda: users.read(1), lambda: users.edit(1).__enter__()),
                *(lambda: users.find_by_login("Ada"), lambda: users.find_by_login(ada.email)),
                *(lambda: users.rename(1, "Grace"), lambda: users.change_email(1, "g@example.org")),
                *(lambda: storage.pictures.save(1, PICTURE), lambda: users.delete(1)),
            ):
                with pytest.raises(errors.DamagedRecord, match=r"^users/1\.json is damaged: ."):
                    act()
            saved = edit(storage, bob.id, play_ms=number)
            assert find_all(storage, "bob", "bob@example.org") == [saved] * 2
            for act, error in (
                (lambda: users.register("ADA", "new@example.org", ""), errors.NameTaken),
                (lambda: users.register("New", "ADA@example.org", ""), errors.EmailTaken),
                (lambda: users.rename(bob.id, "ada"), errors.NameTaken),
                (lambda: users.change_email(bob.id, "ada@example.org"), errors.EmailTaken),
                (lambda: users.administered_without(bob.id).__enter__(), errors.LastAdministrator),
            ):
                with pytest.raises(error):
                    act()
            assert storage.pictures.read("small", ada.picture_file)
            cleo = users.register("Cleo", "cleo@example.org", "")
            assert users.ids() == [1, 2, cleo.id]
            users.delete(cleo.id)
            free_name(storage, "Cleo")
            assert path.read_bytes() == damaged
        path.write_bytes(original)
        assert users.find_by_login("Ada") == ada


def test_damaged_client_raises_and_affects_no_other(storage, client, data, subtests):
    other, clients = storage.clients.register("Checkers", [], None)[0], storage.clients
    path = data / f"clients/{client.id}.json"
    original = path.read_bytes()
    fields = ({"id": "d" * 24}, {"redirect_uris": "https://a/"}, {"name": ...})
    for damage in (put(b"{"), *(hand_edit(**each) for each in fields)):
        path.write_bytes(original)
        damage(path)
        for act in (
            *(clients.read, clients.issue_secret, clients.delete),
            lambda client_id: clients.edit(client_id).__enter__(),
        ):
            with (
                subtests.test(path.read_text()),
                pytest.raises(errors.DamagedRecord, match=f"^clients/{client.id}.json is damaged"),
            ):
                act(client.id)
        assert clients.read(other.id) == other


# -- Entries of names and email addresses --------------------------------------------------------


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
            pytest.raises(errors.StorageFailed, match=f"the disk refused at {data}/{folder}"),
        ):
            look_up()
        (data / "away").rename(data / folder)


def test_save_drops_grants_of_deleted_clients_only(storage, ada, client, data):
    grants = dict.fromkeys((client.id, "../users/1", "0" * 24), GRANT)
    hand_edit(grants=grants)(data / "users/1.json")
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
    with pytest.raises(errors.OriginTaken):
        storage.clients.register("Chess", [], None, **game)
    assert storage.clients.games(listed=True) == []
    path.write_text(original)
    hand_edit(game_url="https://")(path)
    second, _ = storage.clients.register("Chess", [], None, **game)
    assert second.id in [each.id for each in storage.clients.games(listed=True)]


# -- Installations that cannot be used -----------------------------------------------------------


def test_installation_without_its_users_folder_is_not_opened(open_installation, data):
    """With an empty users folder `check` would remove every index entry and picture."""
    ada = open_installation().users.register("Ada", "ada@example.org", "")
    (data / "users").rename(data / "lost")
    with pytest.raises(errors.BadInstallation, match="users is missing.*put it back"):
        open_installation()
    (data / "lost").rename(data / "users")
    assert open_installation().users.find_by_login("ada") == ada


def test_no_installation_is_made_beside_pictures(storage, ada, backend, pictures, tmp_path):
    """The disk with the records may not be mounted."""
    storage.pictures.save(ada.id, PICTURE)
    for size in PICTURE_SIZES:
        other = tmp_path / size
        shutil.copytree(pictures / size, other / size)
        folders = str(other / "data"), str(other)
        before = sorted(other.rglob("*"))
        with pytest.raises(errors.BadInstallation, match=f"mount its disk, or move {other} away"):
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
        (None, errors.BadInstallation, "next_user_id is missing.*write a number into"),
        *((each, errors.BadInstallation, "missing or too low") for each in (b"1", b"0", b"-1")),
        *((each, errors.DamagedRecord, "next_user_id") for each in (b"", b"one", b"1.5", b"\xff")),
        (b"1" * 5000, errors.DamagedRecord, "next_user_id"),
        (b"%d" % USER_IDS_END, errors.BadInstallation, "next_user_id is too large"),
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
        with subtests.test(content), pytest.raises(errors.BadInstallation, match=message):
            open_installation()


def test_key_file_without_a_key_stops_the_start(storage, open_installation, data):
    for content in (b"", b"\n", b" \n\t\n"):
        (data / "secret_key").write_bytes(content)
        with pytest.raises(errors.BadInstallation, match="has no key"):
            open_installation()
        assert (data / "secret_key").read_bytes() == content


def test_folders_that_cannot_be_made_raise_storage_failed(tmp_path):
    (tmp_path / "file").write_text("")
    for folders in (("file", "pfp"), ("file/below", "pfp"), ("instance", "file")):
        with pytest.raises(errors.StorageFailed):
            open_storage(*(str(tmp_path / folder) for folder in folders))


def test_edited_or_missing_key_file_counts_within_a_second(storage, data):
    path = data / "secret_key"
    [first] = storage.keys.current()
    with path.open("ab") as file:
        file.write(b"another-key\n")
    time.sleep(contract.KEYS_CACHED)
    assert storage.keys.current() == (first, b"another-key")
    path.rename(data / "elsewhere")
    with pytest.raises(errors.StorageFailed):  # at once
        storage.require_health()
    time.sleep(contract.KEYS_CACHED)
    with pytest.raises(errors.StorageFailed):
        storage.keys.current()
    (data / "elsewhere").rename(path)
    assert storage.keys.current() == (first, b"another-key")


# -- Authorization codes -------------------------------------------------------------------------


def test_damaged_code_or_one_of_an_earlier_boot_is_unknown(storage, data):
    """Codes are not synced: a power cut may leave anything of them, and restore a spent one."""
    contents = put(b""), put(b"\x00" * 300), put(b"{"), put(b"[]")
    for number, damage in enumerate((*contents, hand_edit(boot_id="an earlier one"))):
        code = f"code {number}"
        storage.codes.add(code, CODE)
        damage(next((data / "codes").glob(f"*/{sha256(code)}.json")))
        with pytest.raises(errors.NoSuchCode):
            storage.codes.read(code)
        storage.codes.spend(code)
        with pytest.raises(errors.NoSuchCode):
            storage.codes.read(code)


def test_codes_are_removed_after_two_windows(storage, data, clock):
    begin_window(clock)
    clock.shift(codes.WINDOW - 1)
    for code in ("live", "spent"):
        storage.codes.add(code, CODE)
    storage.codes.spend("spent")
    clock.shift(codes.WINDOW)
    storage.codes.add("next", CODE)
    assert storage.codes.read("live").grant_id == CODE.grant_id
    with pytest.raises(errors.CodeSpent):
        storage.codes.spend("spent")
    storage.codes.spend("live")
    clock.shift(1)
    storage.codes.add("new", CODE)
    assert {path.stem for path in code_files(data)} == {sha256("next"), sha256("new")}
    for code in ("live", "spent"):
        with pytest.raises(errors.NoSuchCode):
            storage.codes.read(code)


def test_code_outlives_a_clock_set_back_by_a_window(storage, clock):
    """Also if another code is added then, which removes those of expired windows."""
    storage.codes.add("a code", CODE)
    clock.shift(-codes.WINDOW)
    storage.codes.add("another", CODE)
    storage.codes.spend("a code")
    with pytest.raises(errors.CodeSpent):
        storage.codes.read("a code")


# -- Attempts and audit --------------------------------------------------------------------------


def test_refused_attempt_makes_no_file(storage, data, clock):
    begin_window(clock)
    storage.attempts.count("password", "ada", limit=1)
    before = set((data / "attempts").rglob("*"))
    for seconds in (0, ATTEMPTS_WINDOW):
        clock.shift(seconds)
        with pytest.raises(errors.TooManyAttempts):
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


@pytest.mark.load
def test_attempts_of_racing_processes_are_counted_exactly(storage, folders):
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(4)
    racing = [spawn.Process(target=count_often, args=(barrier, *folders)) for _ in range(4)]
    for each in racing:
        each.start()
    for each in racing:
        each.join()
    storage.attempts.require_left("password", "ada", limit=801)
    with pytest.raises(errors.TooManyAttempts):
        storage.attempts.require_left("password", "ada", limit=800)


# -- adding a user: the new id is synced without a lock ------------------------------------------


@pytest.fixture
def while_adding(storage, monkeypatch) -> Callable[..., User]:
    """A function that adds Ada, and calls another one before it writes her record."""

    def add(happens: Callable[[], object], **options: object) -> User:
        sync = disk.sync_folder

        def sync_and(path: str) -> None:
            sync(path)
            monkeypatch.setattr(disk, "sync_folder", sync)
            happens()

        monkeypatch.setattr(disk, "sync_folder", sync_and)
        return storage.users.register("Ada", "ada@example.org", "", **options)

    yield add
    assert list(storage.verify()) == []


@pytest.fixture
def add_bob(storage) -> Callable[..., User]:
    def add_bob(name: str = "Bob", email: str = "bob@example.org", **options: object) -> User:
        return storage.users.register(name, email, "", **options)

    return add_bob


def test_sign_up_does_not_wait_for_the_sync_of_another(storage, while_adding, add_bob):
    ada = while_adding(add_bob)
    assert (ada.id, storage.users.find_by_login("bob").id) == (1, 2)
    assert storage.users.ids() == [1, 2]


def test_sign_up_with_what_was_taken_meanwhile_is_refused(storage, while_adding, add_bob, subtests):
    invite = storage.invites.issue(1)
    imported = User(1, "Bob", "bob@example.org", "")
    for happens, options, error in (
        (lambda: storage.users.insert(imported), {}, IdTaken),
        (lambda: add_bob(name="ADA"), {}, NameTaken),
        (lambda: add_bob(email="ADA@example.org"), {}, EmailTaken),
        (lambda: add_bob(invite=invite), {"invite": invite}, InviteSpent),
    ):
        with subtests.test(error.__name__):
            with pytest.raises(error):
                while_adding(happens, **options)
            [other] = map(storage.users.read, storage.users.ids())
            storage.users.delete(other.id)
            free_name(storage, other.name)


def test_link_of_the_first_account_makes_one_account(storage, while_adding, add_bob):
    def add_another() -> None:
        with pytest.raises(InviteSpent):
            add_bob(first=True)

    assert while_adding(add_another, first=True).id == 1
    assert storage.users.ids() == [1]


# -- the command `rotate-key`, and racing rotations ----------------------------------------------


def test_rotate_key_explains_what_stays_valid_and_what_ends(tmp_path):
    installation = Installation(tmp_path)
    [first] = installation.open().keys.current()
    printed = installation.output("rotate-key")
    assert printed == (
        "A new key signs. What the key before signed goes on until the next rotation.\n"
    )
    kept, second = installation.open().keys.current()
    assert kept == first
    printed = installation.output("rotate-key", "--drop-old")
    assert printed == (
        "A new key signs. Everything signed before has ended: everyone signs in again.\n"
    )
    [key] = installation.open().keys.current()
    assert key not in (first, second)
    kept, dropped = map(describe_audit_line, installation.open().audit.read())
    assert kept.endswith("  the command: key rotate")
    assert dropped.endswith("  the command: key drop-old")


def test_keys_are_not_rotated_without_an_audit_line(storage, faults):
    before = storage.keys.current()
    faults.refuse_saves("audit")
    with pytest.raises(StorageFailed):
        rotate_keys(Authority(storage, COMMAND), drop_old=True)
    assert storage.keys.current() == before


def test_concurrent_rotations_keep_both_keys(storage, monkeypatch):
    new_keys = iter(("first", "second"))
    started, resume = threading.Event(), threading.Event()

    def new_key() -> str:
        started.set()
        resume.wait(PATIENCE)
        return next(new_keys)

    monkeypatch.setattr(key_files, "new_key", new_key)
    first, second = (threading.Thread(target=storage.keys.rotate, args=(False,)) for _ in range(2))
    first.start()
    started.wait(PATIENCE)
    second.start()
    wait_until(lambda: not second.is_alive() or is_waiting_for_a_lock())
    resume.set()
    first.join()
    second.join()
    assert storage.keys.current() == (b"first", b"second")


def test_first_start_after_a_rotation_keeps_the_keys(storage):
    storage.keys.rotate(drop_old=False)
    keys = storage.keys.current()
    storage.keys.make()  # as a first start that found no file just before the rotation
    assert storage.keys.current() == keys


def test_forgetting_does_not_fill_the_disk(storage, monkeypatch):
    """Otherwise saves beside it would fail while the log is copied, each hour again."""
    storage.audit.write("look", 1, address="192.0.2.1")
    before, room = [*storage.audit.lines()], shutil.disk_usage(".")
    little = room._replace(free=2 * storage.audit.ends()[1] - 1)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: little)
        with pytest.raises(errors.StorageFull):
            storage.audit.forget(*storage.audit.ends())
    assert [*storage.audit.lines()] == before
    storage.audit.forget(*storage.audit.ends())
    assert [*storage.audit.lines()] != before
