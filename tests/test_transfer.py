"""Export and import: `storage.whole.transfer`, and the commands."""

import io
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from archives import A_HASH
from backends import FLAT_FILES
from cached_pictures import cache_pictures, generate_picture
from conftest import on_each_backend
from forms import edit
from PIL import Image
from test_command import Installation
from werkzeug.security import generate_password_hash

from identity.access import links, passwords
from identity.oauth.claims import public_profile
from model.errors import BadFile, BadInstallation
from model.names import NAME_RULE
from model.records import PICTURE_SIZES, Suspension, User, now_ms
from storage import Storage
from storage.maintenance import ignore
from storage.whole.player_lines import FIELDS, write_line
from storage.whole.transfer import ImportResult, export_users, import_users

ADA = {"id": 70, "name": "Ada", "email": "ada@example.org"}


def import_content(store: Storage, content: bytes, **options) -> ImportResult:
    choices = {"pictures": None, "progress": ignore, "refused": ignore, "wrap_hash": str} | options
    return import_users(store, io.BytesIO(content), by="command", **choices)


@pytest.fixture(params=["new", "used"])
def import_lines(storage, monkeypatch, request) -> Callable[..., tuple]:
    """A function that imports lines: dicts as JSON, bytes unchanged.

    It returns the result, and the reasons for each refused line by its number. The first import
    into a new installation adds everybody at once, and into one that was used each one alone.
    """
    cache_pictures(monkeypatch)
    if request.param == "used":
        storage.users.reserve_ids(1)

    def import_lines(*lines: dict | bytes, **options) -> tuple[ImportResult, dict[int, str]]:
        def refuse(number: int, reason: str) -> None:
            refused[number] = f"{refused[number]}\n{reason}" if number in refused else reason

        encoded = [json.dumps(each).encode() if type(each) is dict else each for each in lines]
        refused, content = {}, b"".join(each + b"\n" for each in encoded)
        result = import_content(storage, content, refused=refuse, **options)
        assert result.refused == len(refused)
        return result, refused

    return import_lines


@pytest.fixture
def export(storage, tmp_path) -> Callable[..., list[dict]]:
    """A function that exports all players and returns the decoded lines."""

    def export(with_passwords: bool = False) -> list[dict]:
        path = tmp_path / "users.jsonl"
        path.unlink(missing_ok=True)
        count = export_users(storage, str(path), "command", with_passwords, ignore, ignore)
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert count == len(lines)
        return lines

    return export


def players(count: int) -> list[dict]:
    return [{"id": n, "name": f"Ada {n}", "email": f"{n}@example.org"} for n in range(1, 1 + count)]


# -- export ------------------------------------------------------------------------------------


@pytest.fixture
def ada(storage) -> User:
    """A player with a value in every field."""
    user_id = storage.users.register("Ada", "ada@example.org", A_HASH).id
    with storage.users.edit(user_id) as user:
        user.bio, user.play_ms, user.mod_level = "Zoë says „hi“\n☃ 🙂", 90 * 60_000 + 59_999, 1
        user.flairs, user.equipped_flair = ["none", "founder"], "founder"
        user.suspension = Suspension("command")
    return user


def test_export_line_is_the_profile_and_private_fields(storage, ada, export):
    line = public_profile(ada) | {"email": "ada@example.org", "suspended": True}
    line |= {"created": ada.created}
    assert export() == [line]
    assert export(with_passwords=True) == [line | {"passwordHash": A_HASH}]
    (plain,) = players(1)
    import_content(storage, json.dumps(plain | {"id": 70}).encode())
    assert not {"pfpTimestamp", "passwordHash"} & export(with_passwords=True)[1].keys()
    acts = [line["act"] for line in storage.audit.read()]
    assert acts == ["export", "export passwords", "import", "export passwords"]


def test_export_has_mode_0600_and_replaces_no_file(storage, ada, tmp_path):
    path = tmp_path / "users.jsonl"
    before = os.umask(0)
    try:
        export_users(storage, str(path), "command", True, ignore, ignore)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    with pytest.raises(BadFile, match="is there already"):
        export_users(storage, str(path), "command", True, ignore, ignore)
    assert path.read_bytes() == content
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


@pytest.mark.parametrize("with_passwords", [True, False])
def test_export_can_be_imported_elsewhere(storage, ada, export, backend, tmp_path, with_passwords):
    """Lines have whole minutes of play and no picture."""
    grace = storage.users.register("Grace", "grace@example.org", "").id
    storage.users.reset_name(grace)
    edit(storage.users, grace, underage=True)  # no app learns of her there either
    lines = export(with_passwords)
    assert [each.get("underage") for each in lines] == [None, True]
    other = backend.open(str(tmp_path / "other"), str(tmp_path / "other pictures"))
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert import_content(other, content) == ImportResult(added=2)
    users = map(other.users.read, other.users.ids())
    imported = [json.loads(write_line(user, with_passwords)) for user in users]
    assert imported == [{k: v for k, v in line.items() if k != "pfpTimestamp"} for line in lines]


# -- import: valid and invalid lines -----------------------------------------------------------


@on_each_backend
def test_import_reads_every_field(storage, import_lines):
    line = ADA | {"name": " Ａｄａ ", "email": " ada@BÜCHER\u3002example ", "passwordHash": A_HASH}
    line |= {"flairs": ["none", "founder"], "equippedFlair": "founder", "playMinutes": 90}
    line |= {"lastHeartbeat": 1_700_000_000_001, "created": 1_600_000_000_000, "modLevel": 1}
    line |= {
        "suspended": True,
        "underage": True,
        "bio": "Zoë says\u2060 „hi“\n☃ 🙂",
    }  # with a hidden character
    assert import_lines(line) == (ImportResult(added=1), {})
    assert storage.users.read(70) == User(
        id=70,
        name="Ada",
        email="ada@xn--bcher-kva.example",
        password_hash=A_HASH,
        mod_level=1,
        suspension=Suspension(by=None, since=0),
        bio="Zoë says „hi“\n☃ 🙂",
        flairs=["none", "founder"],
        equipped_flair="founder",
        play_ms=90 * 60_000,
        last_heartbeat=1_700_000_000_001,
        created=1_600_000_000_000,
        pfp_generated=True,
        underage=True,
    )


def test_import_requires_only_id_and_name(storage, import_lines):
    before = now_ms()
    lines = [{"id": 70, "name": "Ada"}, {"id": 71, "name": "Bob", "email": ""}]
    assert import_lines(*lines)[0].added == 2
    for user_id, name in ((70, "Ada"), (71, "Bob")):
        user = storage.users.read(user_id)
        assert before <= user.created <= now_ms()
        assert user == User(user_id, name, "", "", created=user.created, pfp_generated=True)
    assert import_lines(*lines)[0].there == 2


def test_reset_name_is_imported_for_its_own_id_only(storage, import_lines):
    other = {"id": 71, "name": "player72", "email": "other@example.org"}
    result, refused = import_lines(ADA | {"name": "player70"}, other)
    assert result.added == 1
    assert refused == {2: "name: This name is reserved. Choose another one."}


OWN_HASH = f"scrypt:32768:8:3$salt${'0' * 128}"
BAD_HASHES = [
    "correct horse",
    f"pbkdf2:sha256:1$${'0' * 64}",  # without a salt
    f"scrypt:1048576:8:1$x${'0' * 128}",  # needs too much memory
    f"scrypt:32767:8:1$x${'0' * 128}",  # no power of two
    f"pbkdf2:sha256:9999999$x${'0' * 64}",  # takes too long
    f"wrapped:{OWN_HASH}|pbkdf2:sha1:9999999$y",
    f"wrapped:{OWN_HASH}",  # without the inner method
]
BAD_EMAILS = ["ada", "a@[", "ada@example.org]1", "=?utf-8?q?a?=@b.example", "a@b..example"]
WRONG_TYPE = "This has the wrong type."
FLAIR_RULE = "Use 1 to 30 characters on one line."
NOT_NOW = "Use milliseconds since 1970, not in the future."
SECONDS = "Use milliseconds since 1970, not seconds."
REFUSED_VALUES: list[tuple[str, list, str]] = [
    ("id", [0, 10**14], "Use a number from 1 to 99999999999999."),
    ("id", ["70", 70.0, True], WRONG_TYPE),
    ("name", ["../../ada"], f"You can't use “/” in a name. {NAME_RULE}"),
    ("name", ["Admin"], "This name is reserved. Choose another one."),
    ("email", BAD_EMAILS, "Enter an email like ada@example.org."),
    ("bio", ["\ud800"], "Use plain text. U+D800 can't be shown."),
    ("modLevel", [3], "Use 0, 1 or 2."),
    ("suspended", ["no"], WRONG_TYPE),
    ("flairs", [["none", 1]], "This is not a list of texts."),
    ("flairs", [["none", "none"]], "Use up to 500 different flairs."),
    ("flairs", [["none", "a\nb"]], f"You can't use U+000A here. {FLAIR_RULE}"),
    ("playMinutes", [-1], "Use a number from 0 to 1000000000."),
    ("created", [-1], NOT_NOW),
    ("lastHeartbeat", [2 * now_ms()], NOT_NOW),
    ("pfpTimestamp", [0], NOT_NOW),
    *((each, [1, 1_600_000_000], SECONDS) for each in ("created", "lastHeartbeat", "pfpTimestamp")),
    ("passwordHash", BAD_HASHES, "This is not a Werkzeug hash, or it takes too long to check."),
]
REFUSED_LINES: list[tuple[dict | bytes, str]] = [
    (ADA | {"equippedFlair": "x"}, "flairs: 'none' or the equipped flair is missing."),
    (b"hello", "it is not JSON"),
    (b'{"id": 70, "name": "\xff"}', "it is not JSON"),
    (b"[" * 50_000, "it is not JSON"),
    (b'{"id": %s}' % (b"1" * 5000), "it is not JSON"),
    (b"[]", "it is no JSON object"),
    (b'{"id": 70, "playMinutes": NaN}', f"name: This is missing.\nplayMinutes: {WRONG_TYPE}"),
    (ADA | {"bio": "x" * 2**16}, "it is longer than 65536 bytes"),
    (ADA | {"mod_level": 0}, "mod_level: There is no such field."),  # the record's own name
    (ADA | {"sessions": []}, "sessions: There is no such field."),
    *(
        ({k: v for k, v in ADA.items() if k != name}, f"{name}: This is missing.")
        for name in ("id", "name")
    ),
]


def test_invalid_line_is_refused_by_number(storage, import_lines, subtests):
    """Each invalid line is followed by a valid one, and leaves no user and no index entry."""
    rows = list(REFUSED_LINES)
    for field, values, reason in REFUSED_VALUES:
        rows += [(ADA | {field: value}, f"{field}: {reason}") for value in values]
    good = players(len(rows))
    lines = [each for (bad, _), valid in zip(rows, good, strict=True) for each in (bad, valid)]
    result, refused = import_lines(*lines)
    assert [*refused] == [*range(1, len(lines), 2)]
    for (line, reason), told in zip(rows, refused.values(), strict=True):
        with subtests.test(line=str(line)[:200]):
            assert told == reason
    assert result == ImportResult(added=len(good), refused=len(rows))
    assert storage.users.ids() == [each["id"] for each in good]
    assert storage.users.find_by_login("Ada") is None
    assert storage.users.find_by_login("ada@example.org") is None


def test_all_problems_of_a_line_are_reported(storage, import_lines):
    bad = {"name": "x", "email": None, "bio": 5, "flairs": ["a\nb"], "created": 10**9, "age": 7}
    _, refused = import_lines(bad | {"modLevel": 9, "picture": 1}, ADA)
    assert sorted(refused.pop(1).splitlines()) == [
        *("age: There is no such field.", f"bio: {WRONG_TYPE}", f"created: {SECONDS}"),
        *(f"flairs: You can't use U+000A here. {FLAIR_RULE}", "id: This is missing."),
        "modLevel: Use 0, 1 or 2.",
        "name: Use 2 to 30 letters and numbers, with spaces, _ . - between them.",
        f"picture: {WRONG_TYPE}",
    ]
    assert refused == {}


@on_each_backend
def test_import_reads_what_other_systems_write(storage, import_lines, subtests):
    """null for what is not there, ends of lines of Windows, flairs without `none`."""
    optional = {*FIELDS, "picture"} - {"id", "name"}
    lines = [
        ({"bio": "one\r\ntwo\rthree\n"}, "bio", "one\ntwo\nthree\n"),
        ({"flairs": ["founder"], "equippedFlair": "founder"}, "flairs", ["none", "founder"]),
        ({"flairs": []}, "flairs", ["none"]),
        # Without a day of joining, the join was before all else.
        ({"lastHeartbeat": 17 * 10**11, "pfpTimestamp": 16 * 10**11}, "created", 16 * 10**11 - 1),
        *(({name: None}, "name", "{name}") for name in sorted(optional)),
    ]
    people = players(len(lines))
    pairs = zip(people, lines, strict=True)
    result, refused = import_lines(*(one | more for one, (more, *_) in pairs))
    assert (result.added, refused) == (len(lines), {})
    for one, (more, field, expected) in zip(people, lines, strict=True):
        with subtests.test(str(more)):
            value = one["name"] if expected == "{name}" else expected
            assert getattr(storage.users.read(one["id"]), field) == value


def test_check_reports_everything_and_adds_nobody(storage, import_lines):
    """Also what an earlier line has, or a player."""
    grace = storage.users.register("Grace", "grace@example.org", "").id
    lines = [
        *(ADA, ADA, ADA | {"id": 71}, ADA | {"name": "Bob B", "email": "bob@example.org"}),
        {"id": grace, "name": "Grace", "email": "grace@example.org"},
        {"id": 72, "name": "grace", "bio": 5},
        {"id": 73, "name": "Zoe"},
    ]
    acts = [line["act"] for line in storage.audit.read()]

    result, refused = import_lines(*lines, check=True, wrap_hash=pytest.fail)  # hashes nothing
    assert result == ImportResult(added=2, there=2, refused=3)
    assert refused == {
        3: "name: Another player has this name. Choose a different one.",
        4: "id: Another player has, or had, this id.",
        6: f"bio: {WRONG_TYPE}\nname: Another player has this name. Choose a different one.",
    }
    assert len(storage.users.ids()) == 1
    assert [line["act"] for line in storage.audit.read()] == acts
    assert import_lines(*lines)[0] == result


def test_werkzeug_hashes_are_imported_unchanged(storage, import_lines):
    scrypt = generate_password_hash("x", "scrypt:32768:8:1")
    longer = scrypt.replace("scrypt:32768:8:1", "scrypt:32768:8:3")  # takes three times as long
    hashes = [scrypt, longer, generate_password_hash("x", "pbkdf2:sha256:1000")]
    import_lines(*with_hashes(hashes))
    assert [storage.users.read(user_id).password_hash for user_id in (1, 2, 3)] == hashes


def with_hashes(hashes: list[str]) -> list[dict]:
    """Return as many players, who have these password hashes."""
    rows = zip(players(len(hashes)), hashes, strict=True)
    return [player | {"passwordHash": each} for player, each in rows]


def test_foreign_hash_is_wrapped_once_and_own_hash_unchanged(storage, import_lines):
    foreign_hashes, wrapped_hash = [], f"wrapped:{OWN_HASH}|pbkdf2:sha256:1$salt"

    def wrap_hash(kept_hash: str) -> str:
        foreign_hashes.append(kept_hash)
        return wrapped_hash

    hashes = [A_HASH, OWN_HASH, f"wrapped:{OWN_HASH}|pbkdf2:sha256:1000$other", ""]
    for _ in range(2):  # the second import adds no user and hashes nothing
        import_lines(*with_hashes(hashes), wrap_hash=wrap_hash)
        found = [storage.users.read(user_id).password_hash for user_id in (1, 2, 3, 4)]
        assert found == [wrapped_hash, *hashes[1:]]
        assert foreign_hashes == [A_HASH]


def test_player_without_hash_needs_a_sign_in_link(store, app, browser):
    """No password matches, not even an empty one."""
    import_content(store, json.dumps(ADA | {"passwordHash": ""}).encode())
    for password in ("", " ", "correct horse battery staple"):
        assert "Hello, " not in browser.sign_in(password=password).text
        with app.test_request_context():
            assert not passwords.verify_password_with_limits("", password, "Ada")
    with app.app_context():
        link = links.issue_sign_in_link(store, "http://localhost", store.users.read(70))
    sent = {"link": link.partition("#")[2], "new_password": "a wholly different phrase"}
    browser.post("/recover/password", data=sent)
    browser.post("/sign-out")
    browser.sign_in(password="a wholly different phrase")
    assert "Hello, " in browser.get("/").text


def test_bom_crlf_and_blank_lines_are_accepted(storage):
    content = "\ufeff{}\r\n\n \t\n{}\n{}".format(*map(json.dumps, players(3)))
    assert import_content(storage, content.encode()) == ImportResult(added=3)
    assert import_content(storage, b"") == ImportResult()


# -- import: existing players ------------------------------------------------------------------


def test_ids_of_the_file_are_reserved_during_the_import(storage, import_lines, monkeypatch):
    """Also the id of a refused line, which can be corrected and imported again."""
    monkeypatch.setattr("storage.maintenance.STEP", 1)
    storage.users.reserve_ids(1)
    new_ids = []

    def sign_up(done: int, total: int) -> None:
        new_ids.append(storage.users.register(f"New {done}", f"new{done}@example.org", "").id)

    lines = [*players(2), {"id": 5000, "name": "x", "email": "x"}]
    result, refused = import_lines(*lines, progress=sign_up)
    assert (result.added, [*refused]) == (2, [3])
    assert new_ids == [5001, 5002, 5003]


@on_each_backend
def test_interrupted_import_into_a_new_installation_adds_nobody(storage, import_lines, monkeypatch):
    """In one that was used, it leaves those who were added; a repetition adds the others."""

    def interrupt(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    was_new = storage.users.is_new()
    monkeypatch.setattr("storage.maintenance.STEP", 1)
    with pytest.raises(KeyboardInterrupt):
        import_lines(*players(3), progress=interrupt)
    assert storage.users.ids() == ([] if was_new else [1, 2])
    keys = storage.keys.current()
    assert import_lines(*players(3))[0].added == (3 if was_new else 1)
    assert storage.keys.current() == keys
    assert storage.users.ids() == [1, 2, 3]
    assert [line["act"] for line in storage.audit.read()] == ["import"] * (1 if was_new else 2)
    assert [*storage.verify()] == []
    assert storage.users.register("New", "new@example.org", "").id == 4


@on_each_backend
def test_import_keeps_invitations_that_are_there(storage, import_lines):
    secret = storage.invites.issue(7)
    import_lines(*players(2))
    assert storage.users.register("Zoe", "", "", invite=secret).id == 3


def test_sign_up_during_an_import_into_a_new_installation_refuses_it(tmp_path, monkeypatch):
    """Nobody's account is lost. (In a database the sign-up waits.)"""
    monkeypatch.setattr("storage.maintenance.STEP", 1)
    storage = FLAT_FILES.open(str(tmp_path / "data"), str(tmp_path / "pictures"))
    lines = (json.dumps(each | {"id": each["id"] + 9}) for each in players(2))
    content = "\n".join(lines).encode()

    def sign_up(done: int, total: int) -> None:
        if done == 1:
            storage.users.register("Zoe", "", "")

    with pytest.raises(BadInstallation, match="somebody signed up meanwhile"):
        import_content(storage, content, progress=sign_up)
    assert storage.users.ids() == [1]
    assert import_content(storage, content).added == 2


def test_existing_player_is_not_changed_and_taken_id_name_or_email_refused(storage, import_lines):
    deleted = storage.users.register("Zoe", "zoe@example.org", "").id
    storage.users.delete(deleted)
    grace = storage.users.register("Grace", "grace@example.org", "").id
    edit(storage.users, grace, bio="my own words")
    result, refused = import_lines(
        ADA,
        ADA | {"name": "Ada B", "email": "adab@example.org"},
        ADA | {"id": 72, "name": "Other"},
        ADA | {"id": 73, "name": "grace", "email": "other@example.org"},
        ADA | {"id": deleted, "name": "Zoe", "email": "zoe@example.org"},
        {"id": grace, "name": "Grace", "email": "grace@example.org"},
    )
    assert result == ImportResult(added=1, there=1, refused=4)
    assert refused == {
        2: "id: Another player has, or had, this id.",
        3: "email: Another account has this email. Use a different one.",
        4: "name: Another player has this name. Choose a different one.",
        5: "id: Another player has, or had, this id.",
    }
    assert storage.users.read(grace).bio == "my own words"


def test_import_from_a_pipe_is_refused(storage):
    read_end, write_end = os.pipe()
    os.close(write_end)
    with open(read_end, "rb", buffering=0) as file, pytest.raises(BadFile, match="no pipe"):
        import_users(storage, file, None, "command", ignore, ignore, str)
    assert list(storage.audit.read()) == []


# -- pictures ----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "uploads/large").mkdir(parents=True)
    return tmp_path / "uploads"


def draw_picture(path: Path, colour: str = "red") -> None:
    Image.new("RGB", (40, 30), colour).save(path)


def is_red(storage: Storage, user: User) -> bool:
    """Return whether a player has a red picture in each size."""
    colours = []
    for size, side in PICTURE_SIZES.items():
        picture = Image.open(io.BytesIO(storage.pictures.read(size, user.picture_file)[0]))
        assert picture.size == (side, side)
        colours.append(picture.convert("RGB").getpixel((8, 8)))
    return all(red > 128 > max(green, blue) for red, green, blue in colours)


@pytest.mark.load
@pytest.mark.live
def test_pictures_are_imported_from_two_kinds_of_folder(storage, import_lines, folder, subtests):
    """The address keeps its timestamp, or stays plain."""
    timestamp = 1_700_000_000_000
    names = [(f"{{}}.{each}", timestamp) for each in ("webp", "png", "gif")]
    kinds = ("webp", "png", "gif", "jpg", "jpeg", "jfif", "JPG", "PNG", "WEBP")
    names += [(f"{{}}.{each}", None) for each in kinds]
    names += [("large/{}.webp", None), (f"large/{{}}-{timestamp}.webp", timestamp)]
    for line, (name, time) in zip(players(len(names)), names, strict=True):
        with subtests.test(name, time=time):
            draw_picture(folder / name.format(line["id"]))
            fields = {"pfpTimestamp": time} if time else {}
            import_lines(line | fields, pictures=str(folder))
            user = storage.users.read(line["id"])
            assert user.pfp_timestamp == time
            assert is_red(storage, user)


@pytest.mark.live
def test_line_names_the_file_of_its_picture(storage, import_lines, folder, subtests):
    """Only a file in the folder: the line may be from anyone."""
    draw_picture(folder / "large/Ada's face.PNG")
    draw_picture(folder.parent / "secret.png")
    (folder / "link.png").symlink_to("../secret.png")
    names = ["../secret.png", str(folder.parent / "secret.png"), "link.png", "large", "", "a\0b"]
    for name in (*names, "\ud800", "nowhere.png"):
        with subtests.test(name=name):
            _, refused = import_lines(ADA | {"picture": name}, pictures=str(folder))
            assert refused == {1: f"picture: there is no file {name!r} in {folder}"}
    line = ADA | {"picture": "large/Ada's face.PNG"}
    assert "--pictures" in import_lines(line)[1][1]
    assert import_lines(line, pictures=str(folder))[0].added == 1
    assert is_red(storage, storage.users.read(70))


def test_timestamp_without_its_picture_is_dropped(storage, import_lines, folder):
    """The player gets a generated picture; folders and pipes are no pictures."""
    (folder / "70.png").mkdir()
    os.mkfifo(folder / "70.webp")
    import_lines(ADA | {"pfpTimestamp": 1_700_000_000_000}, pictures=str(folder))
    import_lines(ADA | {"id": 71, "name": "B B", "email": "b@example.org", "pfpTimestamp": 10**12})
    for user_id in (70, 71):
        assert storage.users.read(user_id).pfp_timestamp is None
        drawn = storage.pictures.read("small", f"{user_id}.webp")[0]
        assert drawn == generate_picture(user_id)["small"]


@pytest.mark.live
def test_invalid_picture_refuses_its_player(storage, import_lines, folder):
    path = folder / "70.png"
    for content, reason in {
        b"": "This file is empty. Choose another one.",
        b"<svg/>": "This file is not a PNG, JPEG, WebP or GIF picture. Choose another one.",
        b"\x89PNG\r\n\x1a\n": "This file is damaged. Choose another one.",
        bytes(8 * 2**20 + 1): "This file is larger than 8 MB. Choose a smaller one.",
    }.items():
        path.write_bytes(content)
        _, refused = import_lines(ADA, *players(1), pictures=str(folder))
        assert refused == {1: f"picture: {path}: {reason}"}
    path.unlink()
    path.symlink_to("/proc/self/mem")  # it opens, and its first bytes cannot be read (proc(5))
    _, refused = import_lines(ADA, *players(1), pictures=str(folder))
    assert refused == {1: f"picture: {path}: Input/output error"}
    path.unlink()
    draw_picture(path)
    result, _ = import_lines(ADA, *players(1), pictures=str(folder))
    assert result == ImportResult(added=1, there=1)
    assert is_red(storage, storage.users.read(70))


@pytest.mark.live
def test_import_keeps_the_picture_of_an_existing_player(storage, import_lines, folder):
    draw_picture(folder / "70.png")
    import_lines(ADA, pictures=str(folder))
    draw_picture(folder / "70.png", "blue")
    stranger = ADA | {"name": "Stranger", "email": "stranger@example.org"}
    result, _ = import_lines(ADA, stranger, pictures=str(folder))
    assert (result.there, result.refused) == (1, 1)
    assert is_red(storage, storage.users.read(70))


# -- the commands ------------------------------------------------------------------------------


@pytest.mark.live
def test_import_and_export_commands_print_counts(tmp_path):
    installation = Installation(tmp_path)
    path = tmp_path / "users.jsonl"
    path.write_text(f"{json.dumps(ADA)}\nhello\n")
    for folder in ("uploads", "data", "pictures"):
        (tmp_path / folder).mkdir()
    draw_picture(tmp_path / "uploads/70.png")
    arguments = ("import", "users.jsonl", "--pictures", "uploads")
    done = installation.run(*arguments, status=1)
    assert done.stdout == "line 2: it is not JSON\n1 player added, 0 were there already\n"
    assert done.stderr == "Error: 1 line refused\n"
    done = installation.run(*arguments, "--check", status=1)
    assert done.stdout == "line 2: it is not JSON\n0 players can be added, 1 are there already\n"
    path.write_text(f"{json.dumps(ADA)}\n")
    assert installation.output(*arguments) == "0 players added, 1 were there already\n"
    assert installation.output("export", "out.jsonl") == "1 player in out.jsonl\n"
    assert json.loads((tmp_path / "out.jsonl").read_text())["name"] == "Ada"


def test_export_command_leaves_out_and_names_a_damaged_user(tmp_path):
    installation = Installation(tmp_path)
    for name in ("ada", "grace"):
        installation.add_user(name)
    installation.faults.damage_user(1)
    done = installation.run("export", "out.jsonl", status=1)
    assert done.stdout.startswith("users/1.json is damaged: ")
    assert done.stdout.endswith(": not exported\n1 player in out.jsonl\n")
    assert "something is left out" in done.stderr
    assert json.loads((tmp_path / "out.jsonl").read_text())["name"] == "grace"
