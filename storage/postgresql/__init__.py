"""The storage contract on PostgreSQL, for several machines.

All machines use one primary server; with a synchronous standby, what was saved survives the loss of
the primary. Users and clients are read anew each time, so a change holds at the next request to any
machine.

- `backend`: the parts of the contract; `schema`: the tables, and the version of their layout
- `connections`: statements and transactions, with a time limit each; `watchdog`: a circuit breaker
- `record_table`: the records of any kind, with a column for each of their keys; `users`: what
  players and invitations need besides
- `codes`, `attempts`, `playing`: what expires
- `keys`: the signing keys; `audit`: the audit log; `pictures`: those that were uploaded
- `check`: finding and repairing rows; `advice`: what looks wrong with the database's settings
- `snapshot`, `load`: one state of all tables for a backup or a copy; filling an empty database
"""

import contextlib
from collections.abc import Iterator

from model.errors import BadInstallation
from storage import Storage
from storage.maintenance import Advice, Problem, Progress, Upgrade

NO_PSYCOPG = "IDENTITY_STORAGE names a database, and psycopg is not installed"
INSTALL = "pip install 'identity-server[postgresql]'"


def open_storage(data_dir: str, picture_dir: str, url: str) -> Storage:
    """Return the storage in the database at `url`; the folders are not used.

    Raises BadInstallation if psycopg is not installed or the URL is malformed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise BadInstallation(f"{NO_PSYCOPG}: {INSTALL}") from error
    from storage.postgresql.backend import PostgreSQL

    try:
        return PostgreSQL(url)
    except psycopg.ProgrammingError:
        raise BadInstallation(
            "IDENTITY_STORAGE is no URL of a database, like postgresql://user@host/database"
        ) from None  # the text of that error may have the password


def check_installation(
    data_dir: str, picture_dir: str, url: str, repair: bool, progress: Progress
) -> Iterator[Problem]:
    """Yield the problems of the database at `url`; with `repair`, repair them."""
    with contextlib.closing(open_storage(data_dir, picture_dir, url)) as store:
        yield from store.verify(repair, progress)


def find_advice(data_dir: str, picture_dir: str, url: str) -> list[Advice]:
    """Return what looks wrong with the database at `url`."""
    try:
        from storage.postgresql.advice import check_database
    except ImportError:
        return [Advice(NO_PSYCOPG, INSTALL)]
    return check_database(url)


def find_upgrade(data_dir: str, picture_dir: str, url: str) -> Upgrade | None:
    """Return what the next start does to the database at `url`."""
    with contextlib.closing(open_storage(data_dir, picture_dir, url)) as store:
        return store.database.find_upgrade()
