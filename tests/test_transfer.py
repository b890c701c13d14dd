"""Export and import: storage/transfer.py, and the commands."""

import io
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from archives import Site
from cached_pictures import cache_pictures, generate_picture
from click.testing import CliRunner
from PIL import Image
from test_command import Installation
from waiting import PATIENCE
from werkzeug.security import generate_password_hash

from commands.printing import describe_audit_line
from identity import links, passwords
from identity_admin import identity_server_command
from identity_server import public_profile
from storage import Storage, transfer
from storage.errors import BadFile
from storage.records import PICTURE_SIZES, Suspension, User, now_ms
from storage.transfer import ImportResult, export_users, import_users, write_line

pytestmark = pytest.mark.contract
ROOT = Path(__file__).parent.parent
A_HASH = generate_password_hash("correct horse battery staple", "pbkdf2:sha256:1")
ADA = {"id": 70, "name": "Ada", "email": "ada@example.org"}
ALL_FIELDS = ADA | {
    "bio": "Zoë says „hi“\n☃ 🙂",
    "flairs": ["none", "founder"],
    "equippedFlair": "founder",
    "playMinutes": 90,
    "lastHeartbeat": 1_700_000_000_001,
    "modLevel": 1,
    "suspended": True,
    "created": 1_600_000_000_000,
    "passwordHash": A_HASH,
}


@pytest.fixture
def import_lines(storage, monkeypatch) -> Callable[..., tuple[ImportResult, dict[int, str]]]:
    """A function that imports lines: dicts as JSON, bytes unchanged."""

    cache_pictures(monkeypatch)

    def import_lines(*lines: dict | bytes, pictures: Path | None = None, **options):
        encoded = [json.dumps(each).encode() if isinstance(each, dict) else each for each in lines]
        refused = {}
        result = import_users(
            storage,
            io.BytesIO(b"\n".join(encoded) + b"\n"),
            pictures and str(pictures),
            "command",
            options.get("progress", lambda done, total: None),
            refused.__setitem__,
            options.get("wrap_hash", str),
        )
        assert result.refused == len(refused)
        return result, refused

    return import_lines


@pytest.fixture
def export(storage, tmp_path) -> Callable[..., list[dict]]:
    """A function that exports all players and returns the decoded lines."""

    def export(with_passwords: bool = False) -> list[dict]:
        path = tmp_path / "users.jsonl"
        path.unlink(missing_ok=True)
        ignore = lambda *reported: None  # noqa: E731
        count = export_users(storage, str(path), "command", with_passwords, ignore, ignore)
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert count == len(lines)
        return lines

    return export


def players(count: int) -> list[dict]:
    return [{"id": n, "name": f"Ada {n}", "email": f"{n}@example.org"} for n in range(1, 1 + count)]


# ---------------------------------------------------------------------------------------------
# Export
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def ada(storage) -> User:
    """A player with a value in every field."""
    user_id = storage.users.register("Ada", "ada@example.org", A_HASH).id
    with storage.users.edit(user_id) as user:
        user.bio, user.play_ms, user.mod_level = "Zoë says „hi“\n☃ 🙂", 90 * 60_000 + 59_999, 1
        user.flairs, user.equipped_flair = ["none", "founder"], "founder"
        user.suspension = Suspension("command")
    return user


def test_export_line_is_the_public_profile_plus_private_fields(ada, export):
    (line,) = export()
    private = {"email": "ada@example.org", "suspended": True, "created": ada.created}
    assert line == public_profile(ada) | private
    assert export(with_passwords=True) == [line | {"passwordHash": A_HASH}]


def test_export_line_omits_a_missing_picture_and_password(storage, import_lines, export):
    import_lines(ADA)
    (line,) = export(with_passwords=True)
    assert not {"pfpTimestamp", "passwordHash"} & line.keys()


def test_export_has_mode_0600_and_replaces_no_file(storage, ada, tmp_path):
    path = tmp_path / "users.jsonl"
    before = os.umask(0)
    try:
        export_users(storage, str(path), "command", True, print, print)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    with pytest.raises(BadFile, match="is there already"):
        export_users(storage, str(path), "command", True, print, print)
    assert path.read_bytes() == content
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


@pytest.mark.parametrize("with_passwords", [True, False])
def test_export_can_be_imported_into_another_installation(
    storage, ada, export, backend, tmp_path, with_passwords
):
    """Lines have whole minutes of play and no picture."""
    storage.users.reset_name(storage.users.register("Grace", "grace@example.org", "").id)
    lines = export(with_passwords)
    other = backend.open(str(tmp_path / "other"), str(tmp_path / "other pictures"))
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    result = import_users(other, io.BytesIO(content), None, "command", print, print, str)
    assert result == ImportResult(added=2)
    imported = [
        json.loads(write_line(other.users.read(n), with_passwords)) for n in other.users.ids()
    ]
    assert imported == [{k: v for k, v in line.items() if k != "pfpTimestamp"} for line in lines]


def test_export_leaves_out_and_names_a_damaged_user(storage, ada, tmp_path, faults):
    storage.users.register("Grace", "grace@example.org", "")
    faults.damage_user(ada.id)
    path, reported = tmp_path / "users.jsonl", []
    assert export_users(storage, str(path), "command", False, print, reported.append) == 1
    assert len(reported) == 1 and faults.user_place(ada.id) in reported[0]
    assert json.loads(path.read_text())["name"] == "Grace"


# ---------------------------------------------------------------------------------------------
# Import: valid and invalid lines
# ---------------------------------------------------------------------------------------------


def test_import_reads_every_field(storage, import_lines):
    assert import_lines(ALL_FIELDS) == (ImportResult(added=1), {})
    user = storage.users.read(70)
    assert user == User(
        id=70,
        name="Ada",
        email="ada@example.org",
        password_hash=A_HASH,
        mod_level=1,
        suspension=Suspension(by=None, since=0),
        bio="Zoë says „hi“\n☃ 🙂",
        flairs=["none", "founder"],
        equipped_flair="founder",
        play_ms=90 * 60_000,
        last_heartbeat=1_700_000_000_001,
        created=1_600_000_000_000,
    )
    assert (
        storage.users.find_by_login("ada") == storage.users.find_by_login("ADA@example.org") == user
    )


def test_import_requires_only_id_name_and_email(storage, import_lines):
    before = now_ms()
    import_lines(ADA)
    user = storage.users.read(70)
    assert before <= user.created <= now_ms()
    rest = User(70, "Ada", "ada@example.org", "", created=user.created)
    assert user == rest


def test_import_normalizes_names_and_emails(storage, import_lines):
    import_lines(ADA | {"name": " Ａｄａ ", "email": " ada@example.org "})
    user = storage.users.read(70)
    assert (user.name, user.email) == ("Ada", "ada@example.org")


def test_reset_name_is_imported_for_its_own_id_only(storage, import_lines):
    result, refused = import_lines(ADA | {"name": "player70"}, ADA | {"id": 71, "name": "player72"})
    assert result.added == 1
    assert refused == {2: "name: This name is reserved. Choose another one."}


NUMBER = "Use a number from 1 to 99999999999999."
TIME = "Use milliseconds since 1970, not in the future."
INVALID_HASH = "This is not a Werkzeug hash, or it takes too long to check."
REFUSED: dict[str, tuple[dict | bytes, str]] = {
    "not JSON": (b"hello", "it is not JSON"),
    "a truncated line": (json.dumps(ADA).encode()[:-5], "it is not JSON"),
    "invalid UTF-8": (b'{"id": 70, "name": "\xff"}', "it is not JSON"),
    "deeply nested JSON": (b"[" * 50_000, "it is not JSON"),
    "a number of 5,000 digits": (b'{"id": %s}' % (b"1" * 5000), "it is not JSON"),
    "a list": (b"[]", "it is no JSON object"),
    "a too long line": (ADA | {"bio": "x" * 2**16}, "it is longer than 65536 bytes"),
    "an unknown field": (ADA | {"shoeSize": 42}, "there is no field 'shoeSize'"),
    "the record's own name of a field": (ADA | {"mod_level": 0}, "there is no field 'mod_level'"),
    "sessions": (ADA | {"sessions": []}, "there is no field 'sessions'"),
    "no id": ({"name": "Ada", "email": "ada@example.org"}, "id is missing"),
    "no name": ({"id": 70, "email": "ada@example.org"}, "name is missing"),
    "no email": ({"id": 70, "name": "Ada"}, "email is missing"),
    "an id of zero": (ADA | {"id": 0}, f"id: {NUMBER}"),
    "a negative id": (ADA | {"id": -1}, f"id: {NUMBER}"),
    "a too large id": (ADA | {"id": 10**14}, f"id: {NUMBER}"),
    "an id as text": (ADA | {"id": "70"}, "id: This has the wrong type."),
    "an id as a float": (ADA | {"id": 70.0}, "id: This has the wrong type."),
    "a boolean id": (ADA | {"id": True}, "id: This has the wrong type."),
    "a name that is null": (ADA | {"name": None}, "name: This has the wrong type."),
    "a short name": (
        ADA | {"name": "A"},
        "name: Use 2 to 30 letters and numbers, with spaces, _ . - between them.",
    ),
    "a reserved name": (
        ADA | {"name": "Admin"},
        "name: This name is reserved. Choose another one.",
    ),
    "a name with a slash": (
        *(ADA | {"name": "../../ada"},),
        "name: Use 2 to 30 letters and numbers, with spaces, _ . - between them.",
    ),
    "a lone surrogate": (
        ADA | {"bio": "\ud800"},
        "bio: Use plain text. Some characters here can't be shown.",
    ),
    "an invalid email": (ADA | {"email": "ada"}, "email: Enter an email like ada@example.org."),
    "a long bio": (
        ADA | {"bio": "x" * 1001},
        "bio: Use up to 1,000 characters. This text has 1,001.",
    ),
    "an invalid mod level": (ADA | {"modLevel": 3}, "modLevel: Use 0, 1 or 2."),
    "suspended as text": (ADA | {"suspended": "no"}, "suspended: This has the wrong type."),
    "flairs without none": (
        *(ADA | {"flairs": ["founder"], "equippedFlair": "founder"},),
        "flairs: 'none' or the equipped flair is missing.",
    ),
    "an equipped flair not owned": (
        *(ADA | {"equippedFlair": "founder"},),
        "flairs: 'none' or the equipped flair is missing.",
    ),
    "a duplicate flair": (
        *(ADA | {"flairs": ["none", "none"]},),
        "flairs: Use up to 500 different flairs.",
    ),
    "a flair of two lines": (
        *(ADA | {"flairs": ["none", "a\nb"]},),
        "flairs: Use 1-30 characters on one line.",
    ),
    "flairs that are numbers": (
        ADA | {"flairs": ["none", 1]},
        "flairs: This is not a list of texts.",
    ),
    "flairs as text": (ADA | {"flairs": "none"}, "flairs: This has the wrong type."),
    "negative play time": (
        *(ADA | {"playMinutes": -1},),
        "playMinutes: Use a number from 0 to 1000000000.",
    ),
    "fractional play time": (ADA | {"playMinutes": 1.5}, "playMinutes: This has the wrong type."),
    "a time before 1970": (ADA | {"created": -1}, f"created: {TIME}"),
    "a time in the future": (ADA | {"lastHeartbeat": 2 * now_ms()}, f"lastHeartbeat: {TIME}"),
    "a picture timestamp of zero": (ADA | {"pfpTimestamp": 0}, f"pfpTimestamp: {TIME}"),
    "NaN": (b'{"id": 70, "playMinutes": NaN}', "name is missing"),
    "an invalid hash": (ADA | {"passwordHash": "correct horse"}, f"passwordHash: {INVALID_HASH}"),
    "a hash without a salt": (
        *(ADA | {"passwordHash": f"pbkdf2:sha256:1$${'0' * 64}"},),
        f"passwordHash: {INVALID_HASH}",
    ),
    "a hash that needs too much memory": (
        *(ADA | {"passwordHash": f"scrypt:1048576:8:1$x${'0' * 128}"},),
        f"passwordHash: {INVALID_HASH}",
    ),
    "a hash with impossible parameters": (
        *(ADA | {"passwordHash": f"scrypt:32767:8:1$x${'0' * 128}"},),
        f"passwordHash: {INVALID_HASH}",
    ),
    "a wrapped hash that takes too long": (
        *(ADA | {"passwordHash": f"wrapped:scrypt:32768:8:3$x${'0' * 128}|pbkdf2:sha1:9999999$y"},),
        f"passwordHash: {INVALID_HASH}",
    ),
    "a wrapped hash without the inner method": (
        *(ADA | {"passwordHash": f"wrapped:scrypt:32768:8:3$x${'0' * 128}"},),
        f"passwordHash: {INVALID_HASH}",
    ),
    "a hash that takes too long": (
        *(ADA | {"passwordHash": f"pbkdf2:sha256:9999999$x${'0' * 64}"},),
        f"passwordHash: {INVALID_HASH}",
    ),
}


def test_invalid_line_is_refused_by_number_and_the_rest_imported(storage, import_lines, subtests):
    """Each invalid line is followed by a valid one, and leaves no user and no index entry."""
    good = players(len(REFUSED))
    lines = [
        each for pair in zip(REFUSED.values(), good, strict=True) for each in (pair[0][0], pair[1])
    ]
    result, refused = import_lines(*lines)
    for number, (name, (_, reason)) in enumerate(REFUSED.items()):
        with subtests.test(name):
            assert refused.get(2 * number + 1) == reason
    assert list(refused) == [*range(1, len(lines), 2)]
    assert result == ImportResult(added=len(good), refused=len(REFUSED))
    assert storage.users.ids() == [each["id"] for each in good]
    assert (
        storage.users.find_by_login("Ada") is storage.users.find_by_login("ada@example.org") is None
    )


def test_werkzeug_hashes_are_imported_unchanged(storage, import_lines):
    scrypt = generate_password_hash("x", "scrypt:32768:8:1")
    longer = scrypt.replace("scrypt:32768:8:1", "scrypt:32768:8:3")  # takes three times as long
    hashes = [scrypt, longer, generate_password_hash("x", "pbkdf2:sha256:1000")]
    import_lines(
        *(each | {"passwordHash": hash_} for each, hash_ in zip(players(3), hashes, strict=True))
    )
    assert [storage.users.read(user_id).password_hash for user_id in (1, 2, 3)] == hashes


OWN_HASH = f"scrypt:32768:8:3$salt${'0' * 128}"


def test_foreign_hash_is_wrapped_once_and_own_hash_unchanged(storage, import_lines):
    def wrap_hash(kept_hash: str) -> str:
        wrapped_hashes.append(kept_hash)
        method, salt, _ = kept_hash.split("$")
        return f"wrapped:{OWN_HASH}|{method}${salt}"

    wrapped_hashes = []
    hashes = [A_HASH, OWN_HASH, f"wrapped:{OWN_HASH}|pbkdf2:sha256:1000$other", ""]
    lines = [each | {"passwordHash": hash_} for each, hash_ in zip(players(4), hashes, strict=True)]
    method, salt, _ = A_HASH.split("$")
    for _ in range(2):  # the second import adds no user and hashes nothing
        import_lines(*lines, wrap_hash=wrap_hash)
        assert [storage.users.read(user_id).password_hash for user_id in (1, 2, 3, 4)] == [
            f"wrapped:{OWN_HASH}|{method}${salt}",
            *hashes[1:],
        ]
        assert wrapped_hashes == [A_HASH]


def test_player_without_hash_cannot_sign_in_before_a_sign_in_link(store, app, browser):
    """No password matches, not even an empty one."""
    line = json.dumps(ADA | {"passwordHash": ""}).encode()
    import_users(store, io.BytesIO(line), None, "command", print, print, str)
    for password in ("", " ", "correct horse battery staple"):
        assert "Hello, " not in browser.sign_in(password=password).text
        with app.test_request_context():
            assert not passwords.verify_password_with_limits("", password, "Ada")
    with app.app_context():
        link = links.issue_sign_in_link(store, "http://localhost", store.users.read(70))
    sent = {"link": link.partition("link=")[2], "new_password": "a wholly different phrase"}
    browser.post("/new-password", data=sent)
    browser.post("/sign-out")
    browser.sign_in(password="a wholly different phrase")
    assert "Hello, " in browser.get("/").text


def test_blank_lines_bom_crlf_and_missing_last_newline_are_accepted(storage, import_lines):
    first, second = (json.dumps(each).encode() for each in players(2))
    assert import_lines(b"\xef\xbb\xbf" + first + b"\r", b"", b" \t", second) == (
        *(ImportResult(added=2),),
        {},
    )
    content = io.BytesIO(json.dumps(ADA).encode())
    assert import_users(storage, content, None, "command", print, print, str).added == 1


def test_empty_file_adds_no_player(storage, import_lines):
    assert (
        import_users(storage, io.BytesIO(b""), None, "command", print, print, str) == ImportResult()
    )
    assert storage.users.is_new()


# ---------------------------------------------------------------------------------------------
# Import: existing players
# ---------------------------------------------------------------------------------------------


def test_ids_of_the_file_are_reserved_during_the_import(storage, import_lines, monkeypatch):
    """Also the id of a refused line, which can be corrected and imported again."""
    monkeypatch.setattr(transfer, "STEP", 1)
    new_ids = []

    def sign_up(done: int, total: int) -> None:
        new_ids.append(storage.users.register(f"New {done}", f"new{done}@example.org", "").id)

    lines = [*players(2), {"id": 5000, "name": "x", "email": "x"}]
    result, refused = import_lines(*lines, progress=sign_up)
    assert (result.added, [*refused]) == (2, [3])
    assert new_ids == [5001, 5002, 5003]


def test_existing_player_is_counted_and_not_changed(storage, import_lines):
    import_lines(*players(2))
    with storage.users.edit(1) as user:
        user.bio = "my own words"
    assert import_lines(*players(3)) == (ImportResult(added=1, there=2), {})
    assert storage.users.read(1).bio == "my own words"


def test_taken_id_name_or_email_is_refused(storage, import_lines):
    deleted = storage.users.register("Zoe", "zoe@example.org", "").id
    storage.users.delete(deleted)
    storage.users.register("Grace", "grace@example.org", "")
    _, refused = import_lines(
        ADA,
        ADA | {"name": "Ada B", "email": "adab@example.org"},
        ADA | {"id": 71, "name": "ADA"},
        ADA | {"id": 72, "name": "Other"},
        ADA | {"id": 73, "name": "grace", "email": "other@example.org"},
        ADA | {"id": deleted, "name": "Zoe", "email": "zoe@example.org"},
    )
    assert refused == {
        2: "id: Another player has, or had, this id.",
        3: "name: Another player has this name. Choose a different one.",
        4: "email: Another account has this email. Use a different one.",
        5: "name: Another player has this name. Choose a different one.",
        6: "id: Another player has, or had, this id.",
    }


def test_import_progress_counts_lines(import_lines, monkeypatch):
    monkeypatch.setattr(transfer, "STEP", 2)
    reported = []
    import_lines(*players(5), progress=lambda *each: reported.append(each))
    assert reported == [(2, 5), (4, 5), (5, 5)]


def test_import_from_a_pipe_is_refused(storage, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDWR)
    with open(descriptor, "rb", buffering=0) as file, pytest.raises(BadFile, match="no pipe"):
        import_users(storage, file, None, "command", print, print, str)
    assert list(storage.audit.read()) == []


def test_broken_output_pipe_is_not_reported_as_a_disk_error(storage):
    """For example in `identity-server import FILE | head -2`."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "wb", buffering=0) as reported, pytest.raises(BrokenPipeError):
        import_users(
            *(storage, io.BytesIO(b"no player\n"), None, "command", print),
            lambda number, reason: reported.write(reason.encode()),
            str,
        )


def test_audit_log_describes_import_and_export(storage, import_lines, export):
    import_lines(ADA)
    export()
    export(with_passwords=True)
    assert [describe_audit_line(line).partition("  ")[2] for line in storage.audit.read()] == [
        "the command: import",
        "the command: export",
        "the command: export passwords",
    ]


# ---------------------------------------------------------------------------------------------
# Pictures
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder of pictures to import."""
    (tmp_path / "uploads/large").mkdir(parents=True)
    return tmp_path / "uploads"


def draw_picture(path: Path, colour: str = "red") -> None:
    Image.new("RGB", (40, 30), colour).save(path)


def colour_of(storage: Storage, user: User, size: str = "small") -> str:
    """Return the colour of a player's picture, "red" or "blue"."""
    content, _ = storage.pictures.read(size, user.picture_file)
    pixel = Image.open(io.BytesIO(content)).convert("RGB").getpixel((8, 8))
    return {(255, 0, 0): "red", (0, 0, 255): "blue"}[
        tuple(255 if value > 128 else 0 for value in pixel)
    ]


TIMESTAMPS = [None, 1_700_000_000_000]


@pytest.mark.live
@pytest.mark.parametrize(
    ("name", "timestamp"),
    [
        *((f"70.{each}", now) for each in ("webp", "png", "jpg", "gif") for now in TIMESTAMPS),
        *(("70.jpeg", None), ("large/70.webp", None), ("large/70-1700000000000.webp", 17 * 10**11)),
    ],
)
def test_pictures_are_imported_from_uploads_or_a_picture_folder(
    storage, import_lines, folder, name, timestamp
):
    """The address keeps its timestamp, or stays plain."""
    draw_picture(folder / name)
    import_lines(ADA | ({"pfpTimestamp": timestamp} if timestamp else {}), pictures=folder)
    user = storage.users.read(70)
    assert user.pfp_timestamp == timestamp
    for size, side in PICTURE_SIZES.items():
        content, _ = storage.pictures.read(size, user.picture_file)
        assert Image.open(io.BytesIO(content)).size == (side, side)
    assert colour_of(storage, user) == "red"


def test_timestamp_without_its_picture_is_dropped(storage, import_lines, folder):
    """The player gets a generated picture at the plain address."""
    import_lines(ADA | {"pfpTimestamp": 1_700_000_000_000}, pictures=folder)
    import_lines(ADA | {"id": 71, "name": "B B", "email": "b@example.org", "pfpTimestamp": 5})
    for user_id in (70, 71):
        assert storage.users.read(user_id).pfp_timestamp is None
        drawn = storage.pictures.read("small", f"{user_id}.webp")[0]
        assert drawn == generate_picture(user_id)["small"]


@pytest.mark.live
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "This file is empty. Choose another one."),
        (b"<svg/>", "This file is not a PNG, JPEG, WebP or GIF picture. Choose another one."),
        (b"\x89PNG\r\n\x1a\n", "This file is damaged. Choose another one."),
        (bytes(8 * 2**20 + 1), "This file is larger than 8 MB. Choose a smaller one."),
    ],
)
def test_invalid_picture_refuses_its_player_until_it_is_replaced(
    storage, import_lines, folder, content, reason
):
    (folder / "70.png").write_bytes(content)
    result, refused = import_lines(ADA, *players(1), pictures=folder)
    assert result.added == 1
    assert refused == {1: f"{folder}/70.png: {reason}"}
    draw_picture(folder / "70.png")
    assert import_lines(ADA, *players(1), pictures=folder) == (ImportResult(added=1, there=1), {})
    assert colour_of(storage, storage.users.read(70)) == "red"


@pytest.mark.live
def test_import_keeps_the_picture_of_an_existing_player(storage, import_lines, folder):
    draw_picture(folder / "70.png")
    import_lines(ADA, pictures=folder)
    draw_picture(folder / "70.png", "blue")
    stranger = ADA | {"name": "Stranger", "email": "stranger@example.org"}
    result, _ = import_lines(ADA, stranger, pictures=folder)
    assert (result.there, result.refused) == (1, 1)
    assert colour_of(storage, storage.users.read(70)) == "red"


def test_folders_and_pipes_are_not_imported_as_pictures(storage, import_lines, folder):
    (folder / "70.png").mkdir()
    os.mkfifo(folder / "70.webp")
    assert import_lines(ADA, pictures=folder) == (ImportResult(added=1), {})


# ---------------------------------------------------------------------------------------------
# Interrupted imports
# ---------------------------------------------------------------------------------------------


def start_import(site: Site, path: Path) -> subprocess.Popen:
    environment = os.environ | {
        "IDENTITY_DATA_DIR": str(site.data),
        "IDENTITY_PICTURE_DIR": str(site.pictures),
    }
    program = "from identity_admin import main; main()"
    command = [sys.executable, "-c", program, "import", str(path)]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)


@pytest.mark.load
def test_repeatedly_killed_import_is_complete_in_the_end(tmp_path):
    """After each kill `check` finds nothing, and every record is complete."""
    site, path, count = Site(tmp_path), tmp_path / "users.jsonl", 1500
    path.write_text("".join(f"{json.dumps(each)}\n" for each in players(count)))
    record_counts = []
    for after in (0, 1, 1000):
        process, deadline = start_import(site, path), time.monotonic() + PATIENCE
        while process.poll() is None and count_user_records(site) <= after:
            assert time.monotonic() < deadline
            time.sleep(0.001)  # listing the folder blocks its writer
        process.kill()
        process.wait()
        record_counts.append(count_user_records(site))
        # Index entries of users that were not added are allowed.
        assert [each for each in site.problems() if not each.endswith("leads to no user")] == []
    assert record_counts == sorted(record_counts) and record_counts[0] > 0
    store = site.open()
    assert store.users.register("New", "new@example.org", "").id > count
    assert start_import(site, path).wait(60) == 0
    assert store.users.ids()[:count] == [*range(1, count + 1)]
    assert site.problems() == []


def count_user_records(site: Site) -> int:
    """Return the number of user records; called often while the import writes."""
    try:
        return sum(not name.startswith(".") for name in os.listdir(site.data / "users"))
    except FileNotFoundError:
        return 0


# ---------------------------------------------------------------------------------------------
# The commands
# ---------------------------------------------------------------------------------------------


@pytest.mark.live
def test_import_and_export_commands_print_counts(tmp_path):
    installation = Installation(tmp_path)
    path = tmp_path / "users.jsonl"
    path.write_text(f"{json.dumps(ADA)}\nhello\n")
    (tmp_path / "uploads").mkdir()
    draw_picture(tmp_path / "uploads/70.png")
    arguments = ("import", "users.jsonl", "--pictures", "uploads")
    done = installation.run(*arguments, status=1)
    assert done.stdout == "line 2: it is not JSON\n1 player added, 0 were there already\n"
    assert done.stderr == "Error: 1 line refused\n"
    path.write_text(f"{json.dumps(ADA)}\n")
    printed = installation.output(*arguments)
    assert printed == "0 players added, 1 were there already\n"
    assert installation.output("export", "out.jsonl") == "1 player in out.jsonl\n"
    assert json.loads((tmp_path / "out.jsonl").read_text())["name"] == "Ada"


def test_export_command_names_a_user_who_is_left_out(
    ada, tmp_path, environment, backend, folders, faults
):
    environment.setenv("IDENTITY_DATA_DIR", folders[0])
    environment.setenv("IDENTITY_PICTURE_DIR", folders[1])
    environment.setenv("IDENTITY_STORAGE", backend.setting(folders[0]))
    faults.damage_user(ada.id)
    path = str(tmp_path / "out.jsonl")
    done = CliRunner().invoke(identity_server_command, ["export", path])
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{faults.user_place(ada.id)} is damaged: ")
    assert done.stdout.endswith(f": not exported\n0 players in {path}\n")
    assert "something is left out" in done.stderr
