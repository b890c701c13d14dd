"""The address of the running server, which starts the links that commands print.

`serve` writes its base URL to the file `address` in the data folder, and locks the file for as
long as it runs. The kernel releases the lock when the processes end, also after SIGKILL or a power
cut: a file without a lock is of a server that is gone. So it need not be synced or removed.

The file is about this machine. It is no part of the storage contract, and in no backup.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from commands.printing import echo
from identity.site.settings import read_settings
from storage.files import created, opened, remove_file, temporary_beside


def _path(values: dict) -> str:
    return os.path.join(values["DATA_DIR"], "address")


@contextlib.contextmanager
def kept_address(values: dict) -> Iterator[None]:
    """Keep the base URL of these settings for other commands until the block ends. Raises OSError.

    A program that replaces this process by exec inherits the lock, and so do its workers. If two
    servers share a data folder, the commands find the one that started last, while it runs.
    """
    os.makedirs(values["DATA_DIR"], 0o700, exist_ok=True)  # missing if a database has the records
    temporary = temporary_beside(_path(values))
    try:
        with created(temporary) as file:
            os.write(file, values["BASE_URL"].encode())
        # Read-only: a file open for writing would keep the disk from being remounted read-only.
        with opened(temporary, os.O_RDONLY) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # before the file has its name
            os.rename(temporary, _path(values))
            os.set_inheritable(file, True)
            yield
    finally:
        remove_file(temporary)


def find_base_url() -> str | None:
    """Return the setting IDENTITY_BASE_URL, else the running server's, None if no server runs."""
    values = read_settings()
    if "IDENTITY_BASE_URL" in os.environ:
        return values["BASE_URL"]
    # Nonblocking: opening a named pipe would wait for a writer.
    with contextlib.suppress(OSError), opened(_path(values), os.O_RDONLY | os.O_NONBLOCK) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # until it is closed
        except BlockingIOError:  # its server runs
            return os.read(file, 1000).decode()
    return None


def base_url_of_links() -> str:
    """Return `find_base_url()`, else the default base URL, with a note on standard error."""
    if found := find_base_url():
        return found
    note = "No running server was found, so the address is the default one. To get another, "
    echo(f"{note}start `serve` first, or set IDENTITY_BASE_URL.", err=True)
    return read_settings()["BASE_URL"]
