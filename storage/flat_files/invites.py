"""Invitations as files, named after their hash.

    <sha256>.json           an invitation
    <sha256>.taken          -> ../users/7.json: the account that is made with it

An invitation is used once the record that the link names exists; then both files are removed. A
kill before that leaves the invitation valid.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator

from storage import DamagedRecord, Invite, NotFound, now_ms, sha256
from storage.flat_files import disk
from storage.flat_files.layout import Layout
from storage.flat_files.unique_index import user_id_in

DAY_MS = 86_400_000
INVITE_FILE = re.compile(r"[0-9a-f]{64}\.json")


class InviteFiles:
    """The invitations in a folder. Raises OSError."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._folder = layout.path("invites")

    def _paths(self, invite: str) -> tuple[str, str]:
        """Return the paths of an invitation and of its link."""
        return f"{self._folder}/{sha256(invite)}.json", f"{self._folder}/{sha256(invite)}.taken"

    def issue(self, days: int) -> str:
        """As `Storage.issue_invite`."""
        invite = secrets.token_urlsafe(32)
        disk.write_record(self._paths(invite)[0], Invite(now_ms() + days * DAY_MS))
        return invite

    def find(self, invite: str) -> Invite | None:
        """As `Storage.find_invite`."""
        path, link = self._paths(invite)
        try:
            record = disk.read_record(path, Invite, NotFound())
        except (NotFound, DamagedRecord):
            return None
        return record if now_ms() < record.expires and not _is_used(link) else None

    @contextlib.contextmanager
    def taken(self, invite: str | None, user_id: int) -> Iterator[None]:
        """Use an invitation up for the user that the block adds."""
        if invite is None:
            yield
            return
        link = self._paths(invite)[1]
        disk.remove_file(link)  # left by a sign-up that was killed
        with disk.rollback_on_error() as undo:
            undo.callback(disk.remove_file, link)
            os.symlink(f"../users/{user_id}.json", link)
            disk.sync_folder(self._folder)
            yield
        with contextlib.suppress(OSError):  # files that stay are recognised as used
            settle(link)


def unused_invites(layout: Layout) -> list[str]:
    """Return the hashes of the unused invitations, expired ones too. Raises OSError."""
    names = filter(INVITE_FILE.fullmatch, os.listdir(layout.path("invites")))
    hashes = sorted(name.removesuffix(".json") for name in names)
    return [each for each in hashes if not _is_used(layout.path("invites", f"{each}.taken"))]


def settle(link: str) -> str:
    """Remove the link, and the invitation before if it is used; return what was done."""
    was_used = _is_used(link)
    if was_used:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{link.removesuffix('.taken')}.json")
        disk.sync_folder(os.path.dirname(link))
    os.unlink(link)
    return "removed, and the invitation with it" if was_used else "removed"


def _is_used(link: str) -> bool:
    """Return True if the user that the link names exists or is deleted."""
    try:
        user_id = user_id_in(os.readlink(link))
    except FileNotFoundError:
        return False
    top = os.path.dirname(os.path.dirname(link))
    return any(map(os.path.exists, (f"{top}/users/{user_id}.json", f"{top}/deleted/{user_id}")))
