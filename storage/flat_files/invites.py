"""Invitations as files, under their hash.

    <sha256>.json           an invitation
    <sha256>.taken          -> ../users/7.json: a link says who takes it

It is used up by the record that the link leads to, and removed after that: a kill before the record
is there leaves the invitation as good as it was.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator

from storage import DamagedRecord, Invite, NotFound, now_ms, record_as_dict, sha256
from storage.flat_files.disk import (
    encode,
    read_record,
    remove_file,
    sync_folder,
    translate_os_errors,
    write_file,
)
from storage.flat_files.layout import Layout
from storage.flat_files.unique_index import user_id_in

DAY_MS = 86_400_000


class InviteFiles:
    """The invitations in a folder. Raises OSError."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._folder = layout.path("invites")

    def _paths(self, invite: str) -> tuple[str, str]:
        """Where an invitation is, and the link of who takes it."""
        return f"{self._folder}/{sha256(invite)}.json", f"{self._folder}/{sha256(invite)}.taken"

    def issue(self, days: int) -> str:
        invite = secrets.token_urlsafe(32)
        record = Invite(now_ms() + days * DAY_MS)
        write_file(self._paths(invite)[0], encode(record_as_dict(record)))
        return invite

    def is_good(self, invite: str) -> bool:
        path, link = self._paths(invite)
        try:
            record = read_record(path, Invite, NotFound())
        except (NotFound, DamagedRecord):
            return False
        with translate_os_errors():
            return now_ms() < record.expires and not _is_used(link)

    @contextlib.contextmanager
    def taken(self, invite: str | None, user_id: int) -> Iterator[None]:
        """The block makes this user, and with that uses the invitation up."""
        if invite is None:
            yield
            return
        link = self._paths(invite)[1]
        remove_file(link)  # of somebody who never came to be
        try:
            os.symlink(f"../users/{user_id}.json", link)
            sync_folder(self._folder)
            yield
        except OSError:
            remove_file(link)
            raise
        with contextlib.suppress(OSError):  # what the disk keeps is known as used
            settle(link)


def settle(link: str) -> str:
    """Remove the link, and the invitation first where it was used; what it returns says so."""
    was_used = _is_used(link)
    if was_used:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{link.removesuffix('.taken')}.json")
        sync_folder(os.path.dirname(link))
    os.unlink(link)
    return "removed, and the invitation with it" if was_used else "removed"


def _is_used(link: str) -> bool:
    """True where the user whom it leads to is, or was, somebody."""
    try:
        user_id = user_id_in(os.readlink(link))
    except FileNotFoundError:
        return False
    top = os.path.dirname(os.path.dirname(link))
    return any(map(os.path.exists, (f"{top}/users/{user_id}.json", f"{top}/deleted/{user_id}")))
