"""Clients as files: one record each, and its entries in the index."""

import contextlib
import functools
from collections.abc import Iterator

import storage
from storage import Client, ClientCallback, ignore
from storage.flat_files import disk
from storage.flat_files.index import Index, games_key, index_keys, origin_key, owner_key
from storage.flat_files.layout import Layout
from storage.flat_files.record_files import client_ids, edit_record, read_client


class ClientFiles:
    """The clients below a data folder; the methods are those of `storage.Storage`."""

    def __init__(self, layout: Layout, index: Index) -> None:
        self._layout = layout
        self._index = index
        self._cache = disk.StatCache()

    # -- look-ups ------------------------------------------------------------------------------

    def read(self, client_id: str) -> Client:
        read = functools.partial(read_client, self._layout, client_id)
        return self._cache.get(self._layout.client(client_id), read)

    def ids(self, after: str = "", at_most: int | None = None) -> list[str]:
        list_all = functools.partial(client_ids, self._layout)
        return disk.part_of(self._cache.get(self._layout.path("clients"), list_all), after, at_most)

    def of_owner(
        self, owner_id: int | None, after: str = "", at_most: int | None = None
    ) -> list[Client]:
        return self._index.records(owner_key(owner_id), self.read, after, at_most)

    def games(self, listed: bool, after: str = "", at_most: int | None = None) -> list[Client]:
        return self._index.records(games_key(listed), self.read, after, at_most)

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
        with self._layout.lock("clients"):
            self._refuse_taken_origin(client)
            if at_most is not None and len(self.of_owner(client.owner_id)) >= at_most:
                raise storage.TooManyClients(at_most)
            before(client)
            with self._index.updated(client):
                disk.write_record(self._layout.client(client.id), client)
        return client, secret

    @contextlib.contextmanager
    def edit(self, client_id: str) -> Iterator[Client]:
        layout, path = self._layout, self._layout.client(client_id)
        read = functools.partial(read_client, layout, client_id)
        lock = layout.lock("clients")
        with edit_record(layout, self._index, lock, path, read, fixed={"id", "public"}) as client:
            game_url = client.game_url
            yield client
            if client.game_url != game_url:
                storage.refuse_bad_record(client, {"game_url"})
                self._refuse_taken_origin(client)

    def issue_secret(self, client_id: str, before: ClientCallback = ignore) -> str:
        with self.edit(client_id) as client:
            return storage.replace_secret(client, before)

    def delete(self, client_id: str, before: ClientCallback = ignore) -> None:
        with self._layout.lock("clients"):
            client = self.read(client_id)
            before(client)
            disk.remove_durably(self._layout.client(client_id))
            self._index.remove(index_keys(client), client_id)
            disk.remove_file(self._layout.path("audit", client_id))

    def _refuse_taken_origin(self, client: Client) -> None:
        """Raise OriginTaken if another client's game is on the origin of this one's."""
        if client.game_origin is None:
            return
        for each in self._index.records(origin_key(client.game_origin), self.read):
            if each.id != client.id:
                raise storage.OriginTaken(each)
