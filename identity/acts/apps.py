"""Acts on apps. All of them raise NotAllowed, StorageFailed and NoSuchClient; those that are logged
raise TooManyAttempts.

No two games are at one origin: each could ask in the other's name. A member may have registered the
address of somebody else's game: administrators learn which app has it, and may change or delete it.
"""

import base64
import contextlib
import itertools
import secrets
from collections.abc import Iterator

from identity.acts.actors import Authority, NotAllowed
from identity.acts.blobs import adding, discard
from identity.acts.naming import ADMINISTRATORS, name_player
from identity.acts.rights import (
    is_of_administrators,
    may_administer,
    may_list,
    may_manage,
    may_register,
)
from identity.messages.outbox import announce
from identity.site.formatting import DAY, add_reason
from model.errors import (
    AlreadyThere,
    ChangedBefore,
    InvalidField,
    OriginTaken,
    StorageError,
    TooManyAttempts,
    TooManyClients,
)
from model.kind import HOUR_MS
from model.kinds import CLIENTS, COVERS
from model.records import Client, Cover, User, now_ms
from model.rules import check_short_text, refuse
from model.words import say
from storage import Storage
from storage.users import Images

GAMES_TOLD_A_DAY = 10  # of one owner and of one event, to the chat
TOLD = {  # the event of the chat and its words, by the place that a game has now
    "waiting": ("game", say("%(game)s waits to be listed.")),
    "listed": ("listed", say("A new game is on the home page: %(game)s.")),
}
DECISIONS = {  # what the owner of a game is told
    "listed": say("%(name)s is on the home page now."),
    "unlisted": say("A moderator took %(name)s off the home page."),
    "declined": say("A moderator decided not to put %(name)s on the home page."),
}
CLIENTS_EACH = 10  # apps that one player may register; administrators have no limit


def register_client(
    by: Authority,
    owner_id: int | None,
    open_to_members: bool = False,
    **fields: str | list[str] | bool | None,
) -> tuple[Client, str | None]:
    """Register an app and return it with its secret, which cannot be read again (public: None).

    Players register their own; an administrator's game is listed at once. `fields` are those of
    `Clients.register`. Raises InvalidField, OriginTaken, TooManyClients.
    """
    trusted = owner_id is None or may_administer(by.store.users.read(owner_id))
    _require_reachable(trusted, fields.get("backchannel_logout_uri", ""))

    def right(player: User, _: Client | None) -> bool:
        is_open = open_to_members and not trusted
        return player.id == owner_id and may_register(player, is_open)

    with _naming_other_game(by):
        client, secret = by.store.clients.register(
            **fields,
            owner_id=owner_id,
            listed=trusted,
            at_most=None if trusted or by.is_command else CLIENTS_EACH,
            before=by.audited(right, "client add"),
        )
    _announce_place(by, client)
    return client, secret


def _place_of(client: Client) -> str | None:
    """Return "waiting", "listed" or "unlisted" of a game, None of an app that is no game."""
    return CLIENTS.key("queue").of(client) or CLIENTS.key("games").of(client)


def _announce_place(by: Authority, client: Client, before: str | None = None) -> None:
    """Tell the chat if a game waits to be listed, or is listed, and was not so `before`."""
    place = _place_of(client)
    if place in TOLD and place != before:
        event, words = TOLD[place]
        with contextlib.suppress(TooManyAttempts):  # an owner may change the address often
            owner = str(client.owner_id)
            by.store.attempts.count(f"{event} told of", owner, GAMES_TOLD_A_DAY, DAY)
            announce(by.store, event, words.fill(game=client.name), f"/games/{client.id}")


def change_client(by: Authority, client_id: str, **changes: str | list[str] | int | None) -> None:
    """Change fields of an app. Raises InvalidField, OriginTaken.

    A listed game that a player moves is unlisted: a moderator has looked at its old address.
    """
    with _naming_other_game(by), by.edit(may_manage, by.store.clients, client_id) as client:
        before = _place_of(client)
        uri = changes.get("backchannel_logout_uri", "")
        if uri != client.backchannel_logout_uri:
            _require_reachable(is_of_administrators(by.store, client), uri)
        is_moved = changes.get("game_url", client.game_url) != client.game_url
        if is_moved and not by.has(may_list, client):
            client.listed = client.declined = False
        for field, value in changes.items():
            setattr(client, field, value)
    _announce_place(by, client, before)


def _require_reachable(trusted: bool, uri: str) -> None:
    """Raise InvalidField if this app would be told of sign-outs in plain text, as few may be."""
    if uri.startswith("http:") and not trusted:
        problem = "Start with https://. Only apps of administrators may have http:// here."
        raise InvalidField("backchannel_logout_uri", problem)


@contextlib.contextmanager
def _naming_other_game(by: Authority) -> Iterator[None]:
    """Run the block; its OriginTaken becomes an InvalidField that names the app with this origin.

    Only administrators learn that: others get the OriginTaken.
    """
    try:
        yield
    except OriginTaken as taken:
        if taken.other is None or not by.has(may_administer):
            raise
        owner_id = taken.other.owner_id
        owner = ADMINISTRATORS if owner_id is None else name_player(by.store, owner_id).words
        shown = f"{taken.other.name}, registered by {owner}, is at this origin."
        advice = "Remove its game URL or delete it first, or use another host or port."
        raise InvalidField("game_url", f"{shown} {advice}") from taken


def set_disabled(by: Authority, client_id: str, disabled: bool) -> Client:
    """Disable or enable an app, and return it.

    Its owner cannot enable what an administrator has disabled, also after the owner did.
    """
    with by.edit(may_manage, by.store.clients, client_id) as client:
        overrules = disabled and client.disabled_by == client.owner_id != by.actor.id
        if client.disabled == disabled and not overrules:
            return client
        is_own = not client.disabled or client.disabled_by == by.actor.id
        if not is_own and not by.has(may_administer, client):
            raise NotAllowed("An administrator disabled this app. Ask them to enable it.")
        by.audit(f"client {'disable' if disabled else 'enable'}", client=client_id)
        client.disabled, client.disabled_by = disabled, by.actor.id if disabled else None
        if disabled:
            client.epoch = secrets.token_urlsafe(6)
    return client


def set_listed(
    by: Authority, client_id: str, listed: bool, seen_url: str | None = None, reason: str = ""
) -> Client:
    """Put a game on the home page or take it off, and return its client.

    The owner is told, with the reason. Raises InvalidField, also if the game is not at `seen_url`,
    where the moderator has seen it.
    """
    refuse("reason", check_short_text(reason))
    decision = None
    with by.edit(may_list, by.store.clients, client_id) as client:
        before = _place_of(client)
        if client.listed != listed:
            if listed and seen_url not in (None, client.game_url):
                problem = say("The game URL has just changed. Play the game, then list it again.")
                raise InvalidField("game_url", problem)
            decision = "listed" if listed else "unlisted"
            client.listed, client.declined = listed, not listed
        elif not listed and not client.declined:  # it waits no more
            decision, client.declined = "declined", True
        if decision:
            by.audit(f"client {decision}", client=client_id)
    _announce_place(by, client, before)
    if decision and client.owner_id not in (None, by.actor.id):
        text = add_reason(DECISIONS[decision].fill(name=client.name), reason)
        by.notify(client.owner_id, text, "game")
    return client


def hand_over(
    by: Authority, client_id: str, owner_id: int | None, seen_owner: int | None
) -> Client:
    """Give an app to another player, None for the administrators, and return it.

    Both owners are told. Raises InvalidField, ChangedBefore if `seen_owner` has it no more,
    TooManyClients.
    """
    clients = by.store.clients
    with by.edit(may_administer, clients, client_id) as client:
        if client.owner_id != seen_owner:
            raise ChangedBefore("owner")
        if owner_id == seen_owner:
            return client
        owner = None if owner_id is None else by.store.users.read(owner_id)
        if owner and owner.suspended:
            raise InvalidField("owner", "This player is suspended. Choose another one.")
        is_limited = owner is not None and not may_administer(owner)
        if is_limited and clients.count("owner", str(owner_id), CLIENTS_EACH) == CLIENTS_EACH:
            raise TooManyClients(CLIENTS_EACH)
        user = {} if owner_id is None else {"user": owner_id}
        by.audit("client owner", client=client_id, **user)
        if client.disabled_by == seen_owner is not None:
            client.disabled_by = owner_id  # who may enable it
        client.owner_id = owner_id
    given = say("An administrator gave you the app %(app)s.", app=client.name)
    taken = say("An administrator gave your app %(app)s to somebody else.", app=client.name)
    for user_id, text in ((owner_id, given), (seen_owner, taken)):
        if user_id is not None:
            by.notify(user_id, text)
    return client


def issue_client_secret(by: Authority, client_id: str) -> str:
    """Replace an app's secret and return the new one."""
    before = by.audited(may_manage, "client new-secret")
    return by.store.clients.issue_secret(client_id, before)


def save_cover(by: Authority, client_id: str, images: Images) -> None:
    """Make these images of all sizes the cover of an app.

    If two are saved at once, the app has the one whose commit came last.
    """
    client = by.store.clients.read(client_id)
    by.require(may_manage, client)
    files = {size: base64.b64encode(each).decode() for size, each in images.items()}
    # AlreadyThere: another upload has the id of this millisecond, so the next one is tried.
    for timestamp in itertools.count(max(now_ms(), (client.cover or 0) + 1)):
        new = Cover(f"{client_id}-{timestamp}", client_id, **files)
        with contextlib.suppress(AlreadyThere), adding(by.store.records(COVERS), new):
            return _set_cover(by, client_id, timestamp)


def remove_cover(by: Authority, client_id: str) -> None:
    """Go back to the generated cover."""
    _set_cover(by, client_id, None)


def _set_cover(by: Authority, client_id: str, timestamp: int | None) -> None:
    with by.edit(may_manage, by.store.clients, client_id) as client:
        old, client.cover = client.cover_id, timestamp
    discard(by.store.records(COVERS), old)


def delete_client(by: Authority, client_id: str) -> None:
    before = by.audited(may_manage, "client delete")
    by.store.clients.delete(client_id, before)


def note_sign_in(store: Storage, client_id: str) -> None:
    """Keep that a player signs in to an app now: in its record once an hour."""
    now = now_ms()
    with contextlib.suppress(StorageError):  # the sign-in goes on
        if now - store.clients.read(client_id).used >= HOUR_MS:
            with store.clients.edit(client_id) as client:
                client.used = now - now % HOUR_MS
