"""Whole installations: one with something of everything, its folders, and its archives."""

import gzip
import tarfile
from pathlib import Path

from werkzeug.security import generate_password_hash

from images.pictures import generate_picture
from model.grant_records import Family
from model.kind import DAY_MS
from model.kinds import CLIENTS, FAMILIES, HANDLES, KINDS, USERS
from model.records import Grant, Session, Suspension, User, now_ms
from model.site_records import OpenIdKey
from storage import Storage, open_storage
from storage.whole.archive import backup, restore

A_HASH = generate_password_hash("correct horse battery staple", "pbkdf2:sha256:1")


class Site:
    """An installation as flat files, with its two folders in one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.pictures = folder / "data", folder / "pictures"

    def open(self) -> Storage:
        return open_storage(str(self.data), str(self.pictures))

    def backup(self, path: Path, **options) -> int:
        return backup(self.open(), str(path), "command", **options)

    def restore(self, path: Path, **options) -> int:
        return restore(self.open(), str(path), "command", **options)

    def problems(self) -> list[str]:
        return [f"{each.place}: {each.problem}" for each in self.open().verify()]

    def acts(self) -> list[str]:
        return [line["act"] for line in self.open().audit.read()]

    def files(self) -> dict[str, bytes]:
        """Return the content of each file and the target of each link, by path, without locks."""
        found = {}
        for path in self.folder.rglob("*"):
            if path.is_symlink():
                found[str(path.relative_to(self.folder))] = str(path.readlink()).encode()
            elif path.is_file() and path.parent.name != "locks":
                found[str(path.relative_to(self.folder))] = path.read_bytes()
        return found


def read_archived(store: Storage) -> tuple:
    """Return what an archive has of an installation, without the audit log."""
    with store.snapshot() as snapshot:
        users = list(snapshot.users())
        for user, _ in users:
            user.forget_sign_ins()
        records = (list(snapshot.records(kind)) for kind in (CLIENTS, HANDLES))
        return users, list(snapshot.deleted_ids()), *records


Members = list[tuple[tarfile.TarInfo, bytes]]


def read_archive(path: Path) -> Members:
    """Return the headers and contents of an archive."""
    with tarfile.open(path) as archive:
        return [(member, archive.extractfile(member).read()) for member in archive]


def write_archive(path: Path, members: Members) -> None:
    """Write an archive with these headers and contents."""
    with gzip.open(path, "wb", 6) as packed:
        for header, content in members:
            packed.write(header.tobuf(tarfile.PAX_FORMAT))
            packed.write(content + bytes(-len(content) % tarfile.BLOCKSIZE))
        packed.write(bytes(2 * tarfile.BLOCKSIZE))


ADA, BOB, CLEO, DORA = 1, 2, 3, 4  # ids; Cleo is deleted, and Dora has no picture
KEY_ID, PRIVATE_HALF = "k" * 43, "a private half"  # of the key of ID tokens
FAMILY_ID = "f" * 16
LARGEST = 500  # the largest id that was given


def fill(store: Storage) -> None:
    """Use an empty installation."""
    used = store.invites.issue(1)
    store.users.register("Ada", "ada@example.org", "", invite=used)
    for name in ("Bob", "Cleo"):
        store.users.register(name, f"{name}@example.org", "")
    store.audit.write("user delete", ADA, user=CLEO)
    for user_id in (ADA, CLEO):
        store.handles.of(store.users.read(user_id))
    store.users.delete(CLEO)
    store.users.reserve_ids(DORA)
    store.users.insert(User(DORA, "Dora", "dora@example.org", "", pfp_generated=True))
    game = {"game_url": "https://chess.example/", "listed": True}
    client, _ = store.clients.register("Chess", [], ADA, **game)
    store.audit.write("client listed", "command", client=client.id)
    for user_id in (ADA, BOB):
        store.pictures.save(user_id, generate_picture(user_id + 97))
    with store.users.edit(ADA) as ada:
        ada.sessions = [Session("adas session", 1, "Firefox on Linux")]
        ada.bio = "Line\nline\t“🙂” \\ ' \" {}"
        ada.grants = {client.id: Grant("a grant", ["userinfo"], 2, families=[FAMILY_ID])}
    times = {"created": 2, "expires": now_ms() + DAY_MS}
    family = Family(FAMILY_ID, ADA, client.id, "", [], "", salt="a salt", current="a hash", **times)
    store.records(FAMILIES).add(family)
    with store.users.edit(BOB) as bob:
        bob.suspension = Suspension(ADA, reason="Zoë 🙂")
    store.invites.issue(7)
    store.keys.rotate(drop_old=False)
    store.openid_keys.add(OpenIdKey(KEY_ID, "a modulus", PRIVATE_HALF, 0, now_ms() + DAY_MS))
    store.attempts.count("password", "ada", limit=10)
    store.users.reserve_ids(LARGEST)


def read_all(store: Storage) -> tuple:
    with store.snapshot() as snapshot:
        others = [snapshot.records(kind) for kind in KINDS if kind.copied and kind is not USERS]
        parts = [list(part) for part in (snapshot.users(), snapshot.deleted_ids(), *others)]
        keys = snapshot.keys()
        lines = list(snapshot.audit_lines())
        return *parts, keys, lines, snapshot.next_user_id
