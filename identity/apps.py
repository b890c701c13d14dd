"""What may be done to apps, by whom, and what the audit log says of it, as in `identity.accounts`.

No two games are at one origin: each could ask in the other's name. A member may have registered the
address of somebody else's game. Administrators learn which app has it, and may take it over, unless
a moderator has listed that app.
"""

import contextlib
from collections.abc import Callable
from typing import TypeVar

from identity.actors import Actor, Authority, NotAllowed
from identity.naming import name_owner
from identity.rights import may_administer, may_list, may_manage, may_register
from storage import Storage
from storage.errors import DamagedRecord, InvalidField, NoSuchUser, OriginTaken
from storage.kinds import CLIENTS
from storage.records import Client, User

CLIENTS_EACH = 10  # apps that one player may register; administrators have no limit

Value = TypeVar("Value")


class AppActs:
    """What an actor does to the apps of a storage.

    All acts raise NotAllowed, StorageFailed, and NoSuchClient. Those that are logged raise
    TooManyAttempts.
    """

    def __init__(self, store: Storage, actor: Actor) -> None:
        self._store = store
        self._actor = actor
        self._authority = Authority(store, actor)

    def register_client(
        self,
        owner_id: int | None,
        open_to_members: bool = False,
        take_over: bool = False,
        **fields: str | list[str] | bool | None,
    ) -> tuple[Client, str | None]:
        """Register an app and return it with its secret, which cannot be read again.

        Players register their own; an administrator's game is listed at once. `fields` are those of
        `Clients.register`. Raises TooManyClients, and the errors of `_save_game`.
        """
        trusted = owner_id is None or may_administer(self._store.users.read(owner_id))

        def right(player: User, _: Client | None) -> bool:
            is_open = open_to_members and not trusted
            return player.id == owner_id and may_register(player, is_open)

        def save() -> tuple[Client, str | None]:
            return self._store.clients.register(
                **fields,
                owner_id=owner_id,
                listed=trusted,
                at_most=None if trusted or self._authority.is_command else CLIENTS_EACH,
                before=self._authority.audited(right, "client add"),
            )

        self._authority.require(right)  # before a take-over
        return self._save_game(save, take_over)

    def change_client(
        self, client_id: str, take_over: bool = False, **changes: str | list[str] | int | None
    ) -> None:
        """Change fields of an app. Raises the errors of `_save_game`.

        A listed game that a player moves is unlisted: a moderator has looked at its old address.
        """

        def save() -> None:
            with self._store.clients.edit(client_id) as client:
                self._authority.require(may_manage, client)
                changed = {name for name in changes if changes[name] != getattr(client, name)}
                if "game_url" in changed and not self._authority.has(may_list, client):
                    client.listed = False
                for field in changed:
                    setattr(client, field, changes[field])
                CLIENTS.refuse_broken_rules(client, changed)  # before a take-over

        self._save_game(save, take_over)

    def _save_game(self, save: Callable[[], Value], take_over: bool) -> Value:
        """Return `save()`, if need be after a take-over of the origin of its game.

        Raises OriginTaken, and InvalidField that names the other app to an administrator: of the
        field "take_over" if that may be taken over.
        """
        try:
            return save()
        except OriginTaken as taken:
            if taken.other is None or not self._authority.has(may_administer):
                raise
            other = taken.other
        owner = name_owner(self._store, other).words
        shown = f"{other.name}, registered by {owner}, is at this origin"
        if other.listed:
            problem = f"{shown} and is listed. Unlist it first, or use another host or port."
            raise InvalidField("game_url", problem)
        if not take_over:
            problem = f"{shown}. Take the origin over, or use another host or port."
            raise InvalidField("take_over", problem)
        # Two saves: no lock spans two records. The refused save had its rights and fields checked,
        # and both audit lines have room, so that the second fails only if the storage does, or if
        # others act in between. Then the other app has no game URL, as its owner is told, and the
        # origin is free for another try.
        self._authority.require_lines_left(2)
        self.end_game(other)
        return save()

    def end_game(self, seen: Client) -> None:
        """Remove the game URL of an unlisted app for another app, and tell its owner.

        Raises OriginTaken if it was listed or moved since.
        """
        with self._store.clients.edit(seen.id) as client:
            self._authority.require(may_administer, client)
            if client.listed or client.game_origin != seen.game_origin:
                raise OriginTaken(client)
            self._authority.audit("client take-over", client=client.id)
            client.game_url = None
        with contextlib.suppress(NoSuchUser, DamagedRecord):
            if client.owner_id is not None:
                with self._store.users.edit(client.owner_id) as owner:
                    owner.notify(
                        "An administrator registered another app at the origin of your app "
                        f"{client.name}, which has no game URL any more. Enter another one."
                    )

    def set_disabled(self, client_id: str, disabled: bool) -> Client:
        """Disable or enable an app, and return it.

        Its owner cannot enable what an administrator has disabled, also after the owner did.
        """
        with self._store.clients.edit(client_id) as client:
            self._authority.require(may_manage, client)
            overrules = disabled and client.disabled_by == client.owner_id != self._actor.id
            if client.disabled == disabled and not overrules:
                return client
            is_own = not client.disabled or client.disabled_by == self._actor.id
            if not is_own and not self._authority.has(may_administer, client):
                raise NotAllowed("An administrator disabled this app. Ask them to enable it.")
            self._authority.audit(f"client {'disable' if disabled else 'enable'}", client=client_id)
            client.disabled, client.disabled_by = disabled, self._actor.id if disabled else None
        return client

    def set_listed(self, client_id: str, listed: bool, seen_url: str | None = None) -> Client:
        """Put a game on the home page or take it off, and return its client.

        Raises InvalidField if the game is not at `seen_url`, where the moderator has seen it.
        """
        with self._store.clients.edit(client_id) as client:
            self._authority.require(may_list, client)
            if client.listed != listed:
                if listed and seen_url not in (None, client.game_url):
                    problem = "The game URL has just changed. Play the game, then list it again."
                    raise InvalidField("game_url", problem)
                act = f"client {'listed' if listed else 'unlisted'}"
                self._authority.audit(act, client=client_id)
                client.listed = listed
        return client

    def issue_client_secret(self, client_id: str) -> str:
        """Replace an app's secret and return the new one."""
        before = self._authority.audited(may_manage, "client new-secret")
        return self._store.clients.issue_secret(client_id, before)

    def delete_client(self, client_id: str) -> None:
        """Remove an app."""
        before = self._authority.audited(may_manage, "client delete")
        self._store.clients.delete(client_id, before)
