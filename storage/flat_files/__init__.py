"""The storage contract kept as JSON files on disk.

`backend.py` has the methods of the contract, `layout.py` the folders, paths and locks. The records
of each kind have a module: `users`, `clients`, `codes`, `invites`, `attempts`, `keys`, `audit`,
`pictures`. `unique_index` and `index` find records, `upgrade` brings an older installation up to
date, `check` finds and repairs what is wrong, and `disk` writes files durably.
"""

from storage.flat_files.backend import FlatFiles


def open_storage(data_dir: str, picture_dir: str, url: str) -> FlatFiles:
    """Return the storage in these folders, made if they are missing."""
    return FlatFiles(data_dir, picture_dir)
