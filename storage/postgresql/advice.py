"""What looks wrong with the database at a URL, each with a fix: settings, standbys, poolers."""

import time
from collections.abc import Iterator

import psycopg
from psycopg.conninfo import conninfo_to_dict

from model.records import CLOCK_TOLERANCE
from storage.maintenance import Advice
from storage.postgresql.connections import DEFAULTS, storage_error

OLDEST_SERVER = 15
POOLER_TRIES = 20  # a busy pooler may give two connections different server processes by chance
STANDBYS = "SELECT count(*) FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'"
RELOAD = "and SELECT pg_reload_conf()"


def check_database(url: str) -> list[Advice]:
    """Return what looks wrong; an unreachable database, too."""
    try:
        address = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its text may have the password
        fix = "set it to one like postgresql://user@host/database"
        return [Advice("IDENTITY_STORAGE is no URL of a database", fix)]
    try:
        # Prepared statements fail behind a pooler in transaction mode, which is to be found.
        options = DEFAULTS | address | {"prepare_threshold": None, "autocommit": True}
        with psycopg.connect(**options) as first, psycopg.connect(**options) as second:
            return [*_check_server(first), *_check_saves(first), *_check_pooler(first, second)]
    except psycopg.Error as error:
        fix = "start it, or set IDENTITY_STORAGE to the address of the primary server"
        return [Advice(str(storage_error(error)), fix)]


def _check_server(connection: psycopg.Connection) -> Iterator[Advice]:
    """Look at the version, the encoding and the clock of the server."""
    version = connection.info.server_version // 10_000
    if version < OLDEST_SERVER:
        yield Advice(
            f"the database is PostgreSQL {version}, which is too old",
            f"upgrade it to PostgreSQL {OLDEST_SERVER} or newer (pg_upgrade)",
        )
    encoding = _show(connection, "server_encoding")
    if encoding != "UTF8":
        yield Advice(
            f"the database has the encoding {encoding}, which lacks most letters",
            "back the installation up, and restore it into a database that was made with "
            "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
        )
    clock = "SELECT extract(epoch FROM clock_timestamp())::double precision"
    ahead = _one(connection, clock) - time.time()  # seconds
    if abs(ahead) > CLOCK_TOLERANCE:
        direction = "ahead of" if ahead > 0 else "behind"
        yield Advice(
            f"the clock of the database is {abs(ahead):.0f} s {direction} this machine's",
            "set the clocks of all machines (timedatectl set-ntp true): codes, tokens and sessions "
            "expire by them",
        )


def _check_saves(connection: psycopg.Connection) -> Iterator[Advice]:
    """Look for settings under which saves that were confirmed can be lost."""
    for setting in ("fsync", "full_page_writes"):
        if _show(connection, setting) == "off":
            yield Advice(
                f"{setting} is off: a power cut can destroy the database",
                f"ALTER SYSTEM RESET {setting}, {RELOAD}",
            )
    standbys, required = _one(connection, STANDBYS), _show(connection, "synchronous_standby_names")
    if standbys and not required:
        yield Advice(
            "a standby is attached, and synchronous_standby_names is empty: a failover can lose "
            "saves that were confirmed, and give an id to two players",
            f"ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (*)', {RELOAD}",
        )
    if required and not standbys:
        yield Advice(
            "synchronous_standby_names is set, and no standby is attached: nothing can be saved",
            f"start the standby, or ALTER SYSTEM RESET synchronous_standby_names, {RELOAD}",
        )


def _check_pooler(first: psycopg.Connection, second: psycopg.Connection) -> Iterator[Advice]:
    """Find out whether a pooler gives each transaction another connection to the server."""
    if _server_process(first) == first.info.backend_pid:
        return  # of the server itself: a pooler makes up its own numbers
    seen = [{_server_process(each) for _ in range(POOLER_TRIES)} for each in (first, second)]
    # One after the other: a pooler gives the connection that was last returned.
    if seen[0] & seen[1] or any(len(each) > 1 for each in seen):
        yield Advice(
            "a pooler in transaction mode is between this machine and the database: limits, locks "
            "and prepared statements need a connection that stays",
            "connect to PostgreSQL itself, or use pool_mode = session",
        )


def _server_process(connection: psycopg.Connection) -> int:
    return _one(connection, "SELECT pg_backend_pid()")


def _show(connection: psycopg.Connection, setting: str) -> str:
    return _one(connection, f"SHOW {setting}")


def _one(connection: psycopg.Connection, query: str) -> object:
    return connection.execute(query).fetchone()[0]
