"""The storage contract kept as JSON files on disk; docs/reading.md lists the modules."""

from collections.abc import Iterator

from storage.flat_files.backend import FlatFiles
from storage.maintenance import Advice, Problem, Progress


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
