"""Faults in flat files, made behind the server's back; the fixture `faults` in conftest.py."""

import json
import os
import shutil
import time
from pathlib import Path

from model.kinds import USERS
from storage import contract

# Each kind of change that can be made to fail, and what then cannot be opened: locks, which every
# change of such a record takes first, or folders.
USER_LOCKS = [f"locks/users-{number}" for number in range(USERS.locks)]
REFUSED = {
    "users": USER_LOCKS,  # changes of existing users
    "pictures": USER_LOCKS,
    "accounts": ["locks/users"],  # users that are added, renamed or deleted
    **{each: [f"locks/{each}"] for each in ("clients", "openid_keys", "handles", "audit")},
    **{"codes": ["codes"], "attempts": ["attempts"]},  # new codes
    "health": ["users"],  # the write of the health check
}


class FlatFileFaults:
    """Faults in the JSON files below a data folder and in the pictures below a picture folder."""

    REFUSAL = "the disk refused"  # how messages begin if a save fails
    DAMAGES = {
        **{"truncated": b'{"id": ', "empty": b"", "incomplete": b"{}", "only an id": b'{"id": 1}'},
        **{"another id": b'{"id": 2}', "not an object": b"[]", "null": b"null"},
        **{"nested too deeply": b"[" * 100_000, "not UTF-8": b"\xff"},
    }

    def __init__(self, data_dir: str, picture_dir: str) -> None:
        self._data, self._pictures = Path(data_dir), Path(picture_dir)
        self._parts = {"pictures": self._pictures, "keys": self._data / "secret_key"}
        self._originals: dict[int, bytes] = {}  # records of damaged users, by id
        self._refused: list[Path] = []

    # -- records that are damaged, changed or gone ----------------------------------------------

    def damage_user(self, user_id: int, damage: str = "truncated") -> None:
        """Make the record of a user unreadable; `damage` is a key of DAMAGES."""
        path = self._user(user_id)
        self._originals.setdefault(user_id, path.read_bytes())
        _replace(path, self.DAMAGES[damage])

    def damage_client(self, client_id: str, damage: str = "truncated") -> None:
        """Make the record of a client unreadable, as `damage_user`."""
        _replace(self._client(client_id), self.DAMAGES[damage])

    def repair_user(self, user_id: int) -> None:
        """Restore the record that `damage_user` replaced."""
        _replace(self._user(user_id), self._originals.pop(user_id))

    def change_client(self, client_id: str, **values: object) -> None:
        """Store other values in the record of a client, without any check."""
        path = self._client(client_id)
        _replace(path, json.dumps(json.loads(path.read_bytes()) | values).encode())

    def remove_user(self, user_id: int) -> None:
        self._user(user_id).unlink()

    def add_audit_line(self, line: str) -> None:
        """Add a line to the audit log as it is."""
        with (self._data / "audit.log").open("a") as file:
            file.write(f"{line}\n")

    def damage_audit_log(self) -> None:
        self.add_audit_line("no JSON")

    def replace_keys(self, *keys: bytes) -> None:
        """Store these signing keys, the newest last, and return when they count."""
        _replace(self._parts["keys"], b"".join(key + b"\n" for key in keys))
        time.sleep(contract.KEYS_CACHED)

    def take_away(self, part: str) -> None:
        """Make a part unavailable, for reading too: "users", "keys" or "pictures"."""
        self._part(part).rename(_aside(self._part(part)))

    def user_place(self, user_id: int) -> str:
        """Return how messages name the record of a user."""
        return f"users/{user_id}.json"

    def audit_line_place(self, number: int) -> str:
        """Return how messages name a line of the audit log; the first is 1."""
        return f"line {number},"

    # -- changes that fail ----------------------------------------------------------------------

    def refuse_saves(self, *kinds: str) -> None:
        """Make changes of these kinds fail with StorageFailed until `allow_saves`.

        A kind is a key of REFUSED, "everything" but "health", or "used codes": present codes can
        be read, and cannot be marked as used. With other kinds, reading may fail as well.
        """
        if "everything" in kinds:
            kinds = tuple(kind for kind in REFUSED if kind != "health")
        for kind in kinds:
            for path in self._refused_paths(kind):
                if path in self._refused:
                    continue
                self._refused.append(path)
                was_folder = path.is_dir()
                if path.exists():
                    path.rename(_aside(path))
                # Neither can be opened or renamed as the other.
                path.touch() if was_folder else path.mkdir()

    def allow_saves(self) -> None:
        """Undo every `refuse_saves`."""
        for path in reversed(self._refused):
            path.rmdir() if path.is_dir() else path.unlink()
            if _aside(path).exists():
                _aside(path).rename(path)
        self._refused.clear()

    def _refused_paths(self, kind: str) -> list[Path]:
        if kind == "used codes":
            return [path.with_suffix(".spent") for path in (self._data / "codes").rglob("*.json")]
        return [self._data / name for name in REFUSED[kind]]

    # -- what is stored -------------------------------------------------------------------------

    def stored(self, *parts: str) -> dict[str, bytes]:
        """Return everything that is stored, without locks.

        `parts` limits it to some of "users", "names", "codes", "attempts" and "pictures".
        """
        folders = [self._part(part) for part in parts] or [self._data, self._pictures]
        found = {}
        for folder in folders:
            root = str(self._pictures if folder == self._pictures else self._data)
            for parent, _, names in os.walk(folder):  # pathlib takes three times as long
                for name in names if os.path.basename(parent) != "locks" else ():
                    if os.path.isfile(path := f"{parent}/{name}"):
                        with open(path, "rb") as file:
                            found[path[len(root) + 1 :]] = file.read()
        return found

    def stored_text(self) -> str:
        """Return everything that is stored as one text, to prove that no secret is in it."""
        return "\n".join(
            f"{place}\n{content.decode(errors='backslashreplace')}"
            for place, content in sorted(self.stored().items())
        )

    def saved_version_of_user(self, user_id: int) -> tuple:
        """Return a value that changes whenever the record of a user is written."""
        stat = self._user(user_id).stat()
        return stat.st_ino, stat.st_mtime_ns, self._user(user_id).read_bytes()

    # -- paths ----------------------------------------------------------------------------------

    def _user(self, user_id: int) -> Path:
        return self._data / f"users/{user_id}.json"

    def _client(self, client_id: str) -> Path:
        return self._data / f"clients/{client_id}.json"

    def _part(self, part: str) -> Path:
        return self._parts.get(part, self._data / part)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.aside")


def _replace(path: Path, content: bytes) -> None:
    """Replace a file by a new one: caches of the server compare inodes."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    shutil.copymode(path, new)
    os.rename(new, path)
