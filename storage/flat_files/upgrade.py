"""The upgrade of an older layout, when an installation is opened.

Layout 2 has index/ and audit/, which follow from the records and from the audit log. Layout 3 has
`suspension` in the record of a user: older records are read as they are, and saved as new ones. Its
bios have no hidden characters. Layout 4 has `public` in the record of a client, layout 5 has
`require_pkce` and `no_email`, and `notices` in that of a user.
"""

import contextlib
import os
import shutil

from storage import DamagedRecord, NotFound, drop_hidden, origin_of
from storage.flat_files import disk
from storage.flat_files.audit import indexed_subjects_in
from storage.flat_files.index import Index, index_keys, origin_key
from storage.flat_files.layout import LAYOUT_VERSION, Layout
from storage.flat_files.record_files import (
    client_ids,
    drop_hidden_in_bio,
    read_client,
    read_user,
    user_ids,
)

INDEXED = 2  # the first layout with index/ and audit/
CLEAN_BIOS = 3  # the first layout whose bios have no hidden characters
SHARED_LOOPBACK = 5  # the first layout in which no game has a loopback origin for itself


def upgrade(layout: Layout, index: Index) -> None:
    """Make what the newest layout needs. Repeatable: it may be killed at any step.

    Raises OSError, BadInstallation.
    """
    if layout.version() == LAYOUT_VERSION:
        return
    with layout.accounts_lock(), layout.lock("clients"):
        version = layout.version()
        if version == LAYOUT_VERSION:  # another worker was first
            return
        has_records = any(map(os.listdir, (layout.users, layout.path("clients"))))
        if version < INDEXED and (has_records or os.path.exists(layout.path("audit.log"))):
            with disk.synced(layout.data_dir), layout.audit_lock():
                index_records(layout, index)
                index_audit_log(layout)
        if version < CLEAN_BIOS:
            clean_bios(layout)
        if INDEXED <= version < SHARED_LOOPBACK:
            free_loopback_origins(layout, index)
        # Last: an installation without this file was never whole.
        disk.write_file(layout.path("format"), b"%d\n" % LAYOUT_VERSION)


def index_records(layout: Layout, index: Index) -> None:
    """Add the index entries of every record that can be read."""
    for read, ids in ((read_user, user_ids(layout)), (read_client, client_ids(layout))):
        for record_id in ids:
            with contextlib.suppress(NotFound, DamagedRecord):
                for key in index_keys(read(layout, record_id)):
                    index.add(key, str(record_id), durable=False)


def clean_bios(layout: Layout) -> None:
    """Drop the hidden characters that older versions accepted."""
    for user_id in user_ids(layout):
        with contextlib.suppress(NotFound, DamagedRecord):
            bio = read_user(layout, user_id).bio
            if bio != drop_hidden(bio):
                with layout.user_lock(user_id):  # a worker of the older version may still run
                    drop_hidden_in_bio(read_user(layout, user_id), layout.user(user_id))


def free_loopback_origins(layout: Layout, index: Index) -> None:
    """Remove the index entries of loopback origins, of which each belonged to one game."""
    for client_id in client_ids(layout):
        with contextlib.suppress(NotFound, DamagedRecord):
            client = read_client(layout, client_id)
            if client.is_game and client.game_origin is None:
                index.remove([origin_key(origin_of(client.game_url))], client_id)


def index_audit_log(layout: Layout) -> None:
    """Write the index files of the audit log again; the caller holds its lock."""
    folder = layout.path("audit")
    shutil.rmtree(folder, ignore_errors=True)
    disk.make_folder(folder, 0o700)
    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with contextlib.suppress(FileNotFoundError), disk.open_log(layout.path("audit.log")) as log:
        for line in log:
            for subject in indexed_subjects_in(layout, line):
                with disk.opened(f"{folder}/{subject}", append) as descriptor:
                    disk.write_all(descriptor, line)
