"""The storage contract kept as JSON files on disk; docs/storage.md shows the folders.

- `backend`: the parts of the contract; `layout`: the paths of all files, and the locks
- `disk`: durable writes, locks and reading
- `record_files`: the records of any kind; `users`: what players and invitations need besides
- `entries`: which record has a name, which records have an owner; `added_keys`: entries for keys
  that are new in this version; `key_list`: all names in their order; `entry_writer`: a process that
  writes the entries of a restore
- `codes`, `attempts`, `playing`: what expires, in `windows`: a folder for each quarter of an hour
- `keys`: the signing keys; `audit`: the audit log; `pictures`: those that were uploaded
- `leads`: which process sends the messages
- `check`, `check_records`, `problems`: finding and repairing damaged files; `advice`: what looks
  wrong with the folders and the disk
- `snapshot`, `load`: one state of all files for a backup; writing all files for a restore
"""

from collections.abc import Iterator

from storage.files import translate_os_errors
from storage.flat_files import added_keys
from storage.flat_files.backend import FlatFiles
from storage.flat_files.layout import Layout
from storage.maintenance import Advice, Problem, Progress, Upgrade


def open_storage(data_dir: str, picture_dir: str, url: str) -> FlatFiles:
    """Return the storage in these folders, made if they are missing."""
    return FlatFiles(data_dir, picture_dir)


def check_installation(
    data_dir: str, picture_dir: str, url: str, repair: bool, progress: Progress
) -> Iterator[Problem]:
    """Yield the problems of the installation in these folders; with `repair`, repair them."""
    from storage.flat_files.check import check  # only here: workers do not need its memory

    return check(data_dir, picture_dir, repair, progress)


def find_advice(data_dir: str, picture_dir: str, url: str) -> Iterator[Advice]:
    """Yield what looks wrong with these folders, their disks and the clock."""
    from storage.flat_files.advice import check_place

    return check_place(data_dir, picture_dir)


def find_upgrade(data_dir: str, picture_dir: str, url: str) -> Upgrade | None:
    """Return what the next start does to the installation in these folders."""
    with translate_os_errors():
        return added_keys.find_upgrade(Layout(data_dir, picture_dir))
