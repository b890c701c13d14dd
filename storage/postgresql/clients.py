"""Clients as rows: the record, and the columns that indexes need."""

import contextlib
import json
from collections.abc import Iterator

import storage
from storage import Client, ClientCallback, ignore
from storage.encoding import decode_record
from storage.postgresql.connections import Database, Rows

CACHED = 1000  # clients
INSERT = (
    "INSERT INTO clients (record, owner_id, game_origin, listed, id) VALUES (%s, %s, %s, %s, %s)"
)
SET = "UPDATE clients SET record = %s, owner_id = %s, game_origin = %s, listed = %s WHERE id = %s"
# The column has the collation "C": the order is that of Python's strings. LIMIT NULL is no limit.
PAGE = "AND id > %s ORDER BY id LIMIT %s"
MISSING = "there is no such client"


def keys_of(client: Client) -> list:
    """Return what follows from a client's record: owner_id, game_origin, listed."""
    listed = client.listed if client.is_game else None
    return [client.owner_id, client.game_origin, listed]


def columns_of(client: Client) -> list:
    """Return the values of a client's row: record, owner_id, game_origin, listed, id."""
    record = json.dumps(storage.record_as_dict(client), ensure_ascii=False)
    return [record, *keys_of(client), client.id]


def decode_client(client_id: str, record: bytes) -> Client:
    """Return the client in a row. Raises DamagedRecord."""
    return decode_record(record, Client, f"clients/{client_id}", id=client_id)


class ClientTable:
    """The clients of a database; the methods are those of `storage.Storage`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._decoded: dict[str, tuple[bytes, Client]] = {}  # the last record of each

    # -- look-ups ------------------------------------------------------------------------------

    def read(self, client_id: str) -> Client:
        record = self._read(client_id, "SELECT record FROM clients WHERE id = %s")
        # Decoded once, as long as the record stays the same.
        last, client = self._decoded.get(client_id, (None, None))
        if record != last:
            client = decode_client(client_id, record)
            if len(self._decoded) >= CACHED:
                self._decoded.clear()
            self._decoded[client_id] = record, client
        return client

    def _read(self, client_id: str, query: str) -> bytes:
        if not storage.CLIENT_ID.fullmatch(client_id):
            raise storage.NoSuchClient(MISSING)
        rows = self._database.execute(query, [client_id])
        if not rows:
            raise storage.NoSuchClient(MISSING)
        return rows[0][0]

    def ids(self, after: str = "", at_most: int | None = None) -> list[str]:
        query = f"SELECT id FROM clients WHERE true {PAGE}"
        return [each for (each,) in self._database.execute(query, [after, at_most])]

    def of_owner(
        self, owner_id: int | None, after: str = "", at_most: int | None = None
    ) -> list[Client]:
        owner = "owner_id IS NULL" if owner_id is None else "owner_id = %s"
        args = [after, at_most] if owner_id is None else [owner_id, after, at_most]
        query = f"SELECT id, record FROM clients WHERE {owner} {PAGE}"
        return _readable(self._database.execute(query, args))

    def games(self, listed: bool, after: str = "", at_most: int | None = None) -> list[Client]:
        query = f"SELECT id, record FROM clients WHERE listed = %s {PAGE}"
        return _readable(self._database.execute(query, [listed, after, at_most]))

    # -- changes -------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        redirect_uris: list[str],
        owner_id: int | None,
        *,
        at_most: int | None = None,
        before: ClientCallback = ignore,
        **fields: str | bool | None,
    ) -> tuple[Client, str | None]:
        client, secret = storage.new_client(name, redirect_uris, owner_id, **fields)
        with self._database.transaction(f"clients of {owner_id}"):
            # Waits for a restore, which holds this row; other clients need not wait.
            self._database.execute("SELECT true FROM installation FOR KEY SHARE")
            self._refuse_taken_origin(client)
            if at_most is not None:
                # One after the other for each owner, so that the count is exact.
                self._database.execute("SELECT pg_advisory_xact_lock(%s)", [owner_id or 0])
                if len(self.of_owner(owner_id)) >= at_most:
                    raise storage.TooManyClients(at_most)
            before(client)
            self._database.save(INSERT, columns_of(client))
        return client, secret

    @contextlib.contextmanager
    def edit(self, client_id: str) -> Iterator[Client]:
        with self._database.transaction(f"clients/{client_id}"):
            client = self._read_locked(client_id)
            before = storage.record_as_dict(client)
            yield client
            if storage.changed_fields(client, before, fixed={"id", "public"}):
                self._refuse_taken_origin(client)
                self._database.save(SET, columns_of(client))

    def _read_locked(self, client_id: str) -> Client:
        query = "SELECT record FROM clients WHERE id = %s FOR UPDATE"
        return decode_client(client_id, self._read(client_id, query))

    def _refuse_taken_origin(self, client: Client) -> None:
        """Raise OriginTaken if another client's game is on the origin of this one's."""
        query = "SELECT id, record FROM clients WHERE game_origin = %s AND id <> %s"
        for other in self._database.execute(query, [client.game_origin, client.id]):
            raise storage.OriginTaken(next(iter(_readable([other])), None))

    def issue_secret(self, client_id: str, before: ClientCallback = ignore) -> str:
        with self.edit(client_id) as client:
            return storage.replace_secret(client, before)

    def delete(self, client_id: str, before: ClientCallback = ignore) -> None:
        with self._database.transaction(f"clients/{client_id}"):
            before(self._read_locked(client_id))
            self._database.save("DELETE FROM clients WHERE id = %s", [client_id])
            self._database.save("DELETE FROM audit_subjects WHERE subject = %s", [client_id])


def _readable(rows: Rows) -> list[Client]:
    """Return the clients in rows of id and record, without damaged ones."""
    found = []
    for row in rows:
        with contextlib.suppress(storage.DamagedRecord):
            found.append(decode_client(*row))
    return found
