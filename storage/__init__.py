"""Storage: the contract of a backend, and `open_storage`.

Nothing here knows of HTTP; the views choose a status for each error. Times are integer milliseconds
since 1970 UTC unless a name says otherwise.

Begin with `contract`: what every backend does, a class for each part. `repositories` is the part
that keeps the records of any kind, with what follows for clients, invitations and handles, and
`users` what follows for players. `flat_files` and `postgresql` are the backends, and `whole` is
what is done with a whole installation: backup, restore, copy, export and import. `maintenance` has
the terms of such work, `audit_lines` the lines of the audit log, and `files` durable files.
"""

import importlib
import re
from collections.abc import Iterator
from types import ModuleType

from model.errors import BadInstallation
from storage.contract import Storage
from storage.maintenance import Advice, Problem, Progress, Upgrade, ignore

# The package of each backend, by URL scheme.
BACKENDS = {
    "files": "storage.flat_files",
    "postgresql": "storage.postgresql",
    "postgres": "storage.postgresql",
}


def open_storage(data_dir: str, picture_dir: str, url: str = "files") -> Storage:
    """Return the storage that the setting IDENTITY_STORAGE names, made if it does not exist.

    "files" keeps records and pictures in the two folders; the URL of a database needs neither, and
    is connected at the first call. Raises BadInstallation for an unknown setting, a layout that
    this program does not know or a key file without a key, and StorageFailed if the folders cannot
    be made.
    """
    return _backend_of(url).open_storage(data_dir, picture_dir, url)


def check_installation(
    data_dir: str,
    picture_dir: str,
    url: str = "files",
    repair: bool = False,
    progress: Progress = ignore,
) -> Iterator[Problem]:
    """Yield the problems of an installation; with `repair`, repair them if that invents no data.

    Flat files are not opened before: opening makes what is missing, which is a problem here.
    The first arguments are those of `open_storage`. Raises BadInstallation, StorageFailed.
    """
    return _backend_of(url).check_installation(data_dir, picture_dir, url, repair, progress)


def find_advice(data_dir: str, picture_dir: str, url: str = "files") -> list[Advice]:
    """Return what looks wrong with the place of the records, without changing anything.

    The arguments are those of `open_storage`. Raises BadInstallation for an unknown backend.
    """
    return list(_backend_of(url).find_advice(data_dir, picture_dir, url))


def find_upgrade(data_dir: str, picture_dir: str, url: str = "files") -> Upgrade | None:
    """Return what the next start does to an installation, None if there is none; change nothing.

    The arguments are those of `open_storage`. Raises BadInstallation as the start would, and
    StorageFailed.
    """
    return _backend_of(url).find_upgrade(data_dir, picture_dir, url)


def _backend_of(url: str) -> ModuleType:
    """Return the package of a backend. Raises BadInstallation for a malformed setting."""
    if problem := check_url(url):
        raise BadInstallation(f"IDENTITY_STORAGE {problem}")
    return importlib.import_module(BACKENDS[url.partition("://")[0]])


def check_url(url: str) -> str | None:
    """Return what is wrong with a value of IDENTITY_STORAGE, without showing it, or None."""
    expected = "files nor a URL like postgresql://user@host/database"
    if not url.isprintable() or url != url.strip("\"' "):
        slip = "has a quote or a space at an end, or a character that nobody sees, such as \\r"
        return f"{slip}: it is neither {expected}"
    scheme, separator, _ = url.partition("://")
    if scheme in BACKENDS and bool(separator) == (scheme != "files"):
        return None
    return f"is neither {expected}"


def mask_url(url: str) -> str:
    """Return a value of IDENTITY_STORAGE without its passwords, to be shown."""
    # Up to the last @: of a malformed URL rather too much is masked.
    url = re.sub(r"(?<=://)([^/?#@:]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    return re.sub(r"([?&](?:password|sslpassword)=)[^&]*", r"\1***", url)
