"""What may be done to players and apps, by whom, and what the audit log says of it.

Pages and commands ask and answer; what they let an actor do is an act of `Acts`. An act checks the
actor's rights under the lock of the record that it changes, on records that are read there: a
moderator who was demoted since the page was opened is refused. Then it writes its audit line and
makes the change, which is saved after the line. No-op changes are not logged. A player's acts that
are logged are limited, so that nobody fills the disk with lines.
"""

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import storage
from identity.rights import (
    Right,
    may_administer,
    may_list,
    may_manage,
    may_moderate,
    may_register,
    may_unsuspend,
)
from storage import ADMINISTRATOR, MODERATOR, Client, InvalidField, Storage, Suspension, User

CLIENTS_EACH = 10  # apps that one player may register; administrators have no limit
RESETS = ("bio", "name", "picture")
DAY_MS = 86_400_000  # milliseconds
HALF_AN_HOUR = 1800  # seconds: attempts are counted over this and the window before it
ACTS_AN_HOUR, MODERATORS_ACTS_AN_HOUR = 60, 600  # acts of one player that are logged


@dataclass(frozen=True)
class Actor:
    """Who acts: a user id or "command", and the address that a request came from."""

    id: int | str
    address: str | None = None


COMMAND = Actor("command")  # may do everything


class NotAllowed(Exception):
    """The actor has no right to do this; the text is for the player."""


def _is_the_same(player: User, user: User) -> bool:
    return player.id == user.id


def _only_the_command(player: User, _: object) -> bool:
    return False


# -- acts ---------------------------------------------------------------------------------------


class Acts:
    """What an actor does to the players and apps of a storage.

    All acts raise NotAllowed, StorageFailed, and NoSuchUser or NoSuchClient. Those that are logged
    raise TooManyAttempts.
    """

    def __init__(self, store: Storage, actor: Actor) -> None:
        self._store = store
        self._actor = actor

    @property
    def administers(self) -> bool:
        """True for an administrator and for the command."""
        return self._has_right(may_administer, None)

    # -- players -------------------------------------------------------------------------------

    def suspend(
        self, user_id: int, reason: str = "", days: int | None = None, keep_end: bool = False
    ) -> None:
        """Stop a player from signing in, for some days or until somebody lifts it.

        Sessions and tokens end. A suspended player gets the new reason and end, with `keep_end` the
        reason alone. Raises InvalidField, LastAdministrator.
        """
        storage.refuse("reason", storage.check_description(reason))
        now = storage.now_ms()
        until = None if days is None else now + days * DAY_MS
        last = self._keep_an_administrator(may_moderate, user_id)
        with last, self._store.edit_user(user_id) as user:
            self._require_suspension_right(user)
            if keep_end and not user.suspended:
                raise InvalidField("length", "The suspension has just ended. Choose how long.")
            until = user.suspension.until if keep_end else until
            new = Suspension(self._actor.id, now, reason, until)
            if user.suspended and replace(user.suspension, since=now) == new:
                return
            length = {} if days is None else {"days": days}
            self._audit("user suspend", user=user_id, **length)
            user.suspension, user.sessions = new, []
            for grant in user.grants.values():
                grant.end_tokens()

    def unsuspend(self, user_id: int) -> None:
        """Let a suspended player sign in again."""
        with self._store.edit_user(user_id) as user:
            self._require_suspension_right(user)
            if user.suspended:
                self._audit("user unsuspend", user=user_id)
                user.suspension = None

    def sign_out(self, user_id: int) -> None:
        """End all sessions of a player."""
        with self._store.edit_user(user_id) as user:
            self._require(_only_the_command, user)
            if user.sessions:
                self._audit("user sign-out", user=user_id)
                user.sessions = []

    def reset(self, user_id: int, what: str) -> None:
        """Take away a bio, name or picture that nobody should see; `what` is one of RESETS."""
        act = f"user reset {what}"
        if what == "name":
            self._reset_name(user_id, self._audited(may_moderate, act, "name", f"player{user_id}"))
        elif what == "picture":
            self._save_generated_picture(user_id, may_moderate, self._audited(may_moderate, act))
        elif what == "bio":
            self._set_field(user_id, may_moderate, act, "bio", "")
        else:
            raise ValueError(f"{what} cannot be reset")

    def _reset_name(self, user_id: int, audit: Callable[[User], None]) -> None:
        def before(user: User) -> None:
            audit(user)
            if user.name != f"player{user_id}":
                user.notify(
                    f"A moderator changed your name to player{user_id}. Choose a new one on your "
                    "account page."
                )

        self._store.reset_name(user_id, before)

    def set_mod_level(self, user_id: int, mod_level: int) -> None:
        """Change what a player may do here. Raises InvalidField, LastAdministrator."""
        storage.refuse("mod_level", storage.check_mod_level(mod_level))
        last = nullcontext()
        if mod_level != ADMINISTRATOR:
            last = self._keep_an_administrator(may_administer, user_id)
        act, field = "user mod-level", "mod_level"
        with last:
            self._set_field(user_id, may_administer, act, field, mod_level, mod_level=mod_level)

    def grant_flair(self, user_id: int, flair: str) -> None:
        """Give a player a flair, which they may then equip. Raises InvalidField."""
        storage.refuse("flair", storage.check_flair(flair))
        with self._store.edit_user(user_id) as user:
            self._require(may_administer, user)
            if flair not in user.flairs:
                self._audit("flair grant", user=user_id, flair=flair)
                user.flairs.append(flair)

    def revoke_flair(self, user_id: int, flair: str) -> None:
        """Take a flair from a player. Raises InvalidField for "none" and a flair they lack."""
        with self._store.edit_user(user_id) as user:
            self._require(may_administer, user)
            if flair == "none" or flair not in user.flairs:
                raise InvalidField("flair", "This player does not have this flair.")
            self._audit("flair revoke", user=user_id, flair=flair)
            user.flairs = [each for each in user.flairs if each != flair]
            if user.equipped_flair == flair:
                user.equipped_flair = "none"

    def change_field(self, user_id: int, field: str, value: str) -> None:
        """Change a player's name, email or bio to a normalized value. Raises InvalidField."""
        act, right = f"user set {field}", _only_the_command
        if field == "name":
            self._store.rename_user(user_id, value, self._audited(right, act, field, value))
        elif field == "email":
            self._store.change_email(user_id, value, self._audited(right, act, field, value))
        else:
            storage.refuse("bio", storage.check_bio(value))
            self._set_field(user_id, right, act, "bio", value)

    def remove_picture(self, user_id: int) -> None:
        """Go back to the generated picture. There is no audit line."""
        before = functools.partial(self._require, _is_the_same)
        self._save_generated_picture(user_id, _is_the_same, before)

    def delete_user(self, user_id: int) -> None:
        """Delete a player, who may do so without an audit line. Raises LastAdministrator."""

        def before(user: User) -> None:
            self._require(_is_the_same, user)
            if self._actor == COMMAND:
                self._audit("user delete", user=user_id)

        with self._keep_an_administrator(_is_the_same, user_id):
            self._store.delete_user(user_id, before)

    # -- the site, and lost passwords ----------------------------------------------------------

    def issue_invites(self, days: int, count: int) -> list[str]:
        """Return new invitations, each for one account and with an audit line."""
        self._require(_only_the_command, None)
        invites = []
        for _ in range(count):
            self._audit("invite", days=days)
            invites.append(self._store.issue_invite(days))
        return invites

    def rotate_keys(self, drop_old: bool) -> None:
        """Add a signing key, as `Storage.rotate_keys` does."""
        self._require(_only_the_command, None)
        self._audit("key drop-old" if drop_old else "key rotate")
        self._store.rotate_keys(drop_old)

    def issue_sign_in_link(self, user_id: int, base_url: str) -> str:
        """Return the address where a player who lost the password sets a new one."""
        from identity.links import issue_sign_in_link  # Flask, which no other act needs

        user = self._store.read_user(user_id)
        self._require(_only_the_command, user)
        self._audit("user sign-in-link", user=user_id)
        return issue_sign_in_link(self._store, base_url, user)

    # -- apps ----------------------------------------------------------------------------------

    def register_client(
        self,
        owner_id: int | None,
        open_to_members: bool = False,
        **fields: str | list[str] | bool | None,
    ) -> tuple[Client, str | None]:
        """Register an app and return it with its secret, which cannot be read again.

        Players register their own; an administrator's game is listed at once. `fields` are those of
        `Storage.add_client`. Raises InvalidField, OriginTaken, TooManyClients.
        """
        trusted = owner_id is None or may_administer(self._store.read_user(owner_id))

        def right(player: User, client: Client) -> bool:
            is_open = open_to_members and not trusted
            return player.id == owner_id and may_register(player, is_open)

        return self._store.add_client(
            **fields,
            owner_id=owner_id,
            listed=trusted,
            at_most=None if trusted or self._actor == COMMAND else CLIENTS_EACH,
            before=self._audited(right, "client add"),
        )

    def change_client(self, client_id: str, **changes: str | list[str] | int | None) -> None:
        """Change fields of an app. Raises InvalidField, OriginTaken.

        A listed game that a player moves is unlisted: a moderator has looked at its old address.
        """
        with self._store.edit_client(client_id) as client:
            self._require(may_manage, client)
            moved = changes.get("game_url", client.game_url) != client.game_url
            if moved and not self._has_right(may_list, client):
                client.listed = False
            for field, value in changes.items():
                setattr(client, field, value)

    def end_game(self, seen: Client) -> None:
        """Remove the game URL of an unlisted app for another app, and tell its owner.

        Raises OriginTaken if it was listed or moved since.
        """
        with self._store.edit_client(seen.id) as client:
            self._require(may_administer, client)
            if client.listed or client.game_origin != seen.game_origin:
                raise storage.OriginTaken(client)
            self._audit("client take-over", client=client.id)
            client.game_url = None
        with contextlib.suppress(storage.NoSuchUser, storage.DamagedRecord):
            if client.owner_id is not None:
                with self._store.edit_user(client.owner_id) as owner:
                    owner.notify(
                        "An administrator registered another app at the origin of your app "
                        f"{client.name}, which has no game URL any more. Enter another one."
                    )

    def set_disabled(self, client_id: str, disabled: bool) -> Client:
        """Disable or enable an app, and return it.

        Its owner cannot enable what an administrator has disabled, also after the owner did.
        """
        with self._store.edit_client(client_id) as client:
            self._require(may_manage, client)
            overrules = disabled and client.disabled_by == client.owner_id != self._actor.id
            if client.disabled == disabled and not overrules:
                return client
            is_own = not client.disabled or client.disabled_by == self._actor.id
            if not is_own and not self._has_right(may_administer, client):
                raise NotAllowed("An administrator disabled this app. Ask them to enable it.")
            self._audit(f"client {'disable' if disabled else 'enable'}", client=client_id)
            client.disabled, client.disabled_by = disabled, self._actor.id if disabled else None
        return client

    def set_listed(self, client_id: str, listed: bool, seen_url: str | None = None) -> Client:
        """Put a game on the home page or take it off, and return its client.

        Raises InvalidField if the game is not at `seen_url`, where the moderator has seen it.
        """
        with self._store.edit_client(client_id) as client:
            self._require(may_list, client)
            if client.listed != listed:
                if listed and seen_url not in (None, client.game_url):
                    problem = "The game URL has just changed. Play the game, then list it again."
                    raise InvalidField("game_url", problem)
                self._audit(f"client {'listed' if listed else 'unlisted'}", client=client_id)
                client.listed = listed
        return client

    def issue_client_secret(self, client_id: str) -> str:
        """Replace an app's secret and return the new one."""
        before = self._audited(may_manage, "client new-secret")
        return self._store.issue_client_secret(client_id, before)

    def delete_client(self, client_id: str) -> None:
        """Remove an app."""
        self._store.delete_client(client_id, self._audited(may_manage, "client delete"))

    # -- what the acts share -------------------------------------------------------------------

    def _has_right(self, right: Right, record: User | Client | None) -> bool:
        if self._actor == COMMAND:
            return True
        try:
            player = self._store.read_user(self._actor.id)
        except storage.NoSuchUser:
            return False
        return not player.suspended and right(player, record)

    def _require(self, right: Right, record: User | Client | None) -> None:
        if not self._has_right(right, record):
            raise NotAllowed("You are not allowed to do this.")

    def _require_suspension_right(self, user: User) -> None:
        """Require the right to suspend and unsuspend a user. Raises NotAllowed."""
        self._require(may_moderate, user)
        if not self._has_right(functools.partial(may_unsuspend, self._store), user):
            raise NotAllowed("An administrator suspended this player. Ask them to change it.")

    def _audit(self, act: str, **ids: int | str) -> None:
        if self._actor != COMMAND:
            is_moderator = self._store.read_user(self._actor.id).mod_level >= MODERATOR
            limit = MODERATORS_ACTS_AN_HOUR if is_moderator else ACTS_AN_HOUR
            self._store.count_attempt("act by", str(self._actor.id), limit, HALF_AN_HOUR)
        origin = {"address": self._actor.address} if self._actor.address else {}
        self._store.write_audit(act, self._actor.id, **ids, **origin)

    def _audited(
        self, right: Right, act: str, field: str | None = None, value: object = None, **ids: int
    ) -> Callable[[User | Client], None]:
        """Return a `before` that requires the right, and audits unless a field has this value."""

        def before(record: User | Client) -> None:
            self._require(right, record)
            if field is None or getattr(record, field) != value:
                kind = "user" if isinstance(record, User) else "client"
                self._audit(act, **{kind: record.id}, **ids)

        return before

    def _set_field(
        self, user_id: int, right: Right, act: str, field: str, value: object, **ids: int
    ) -> None:
        """Set a field of a player. Setting the same value is a no-op without an audit line."""
        with self._store.edit_user(user_id) as user:
            self._audited(right, act, field, value, **ids)(user)
            setattr(user, field, value)

    def _keep_an_administrator(self, right: Right, user_id: int) -> AbstractContextManager[None]:
        """Return `administered_without(user_id)`; the command may do without administrators."""
        if self._actor == COMMAND:
            return nullcontext()
        # First, because LastAdministrator tells who the last administrator is.
        self._require(right, self._store.read_user(user_id))
        return self._store.administered_without(user_id)

    def _save_generated_picture(
        self, user_id: int, right: Right, before: Callable[[User], None]
    ) -> None:
        from storage.pictures import generate_picture  # Pillow: memory a worker rarely needs

        user = self._store.read_user(user_id)
        self._require(right, user)
        generated = generate_picture(user_id)
        with contextlib.suppress(storage.NoSuchPicture):  # lost, or it has just changed
            content, _ = self._store.read_picture("large", user.picture_file)
            if content == generated["large"]:
                return
        self._store.save_picture(user_id, generated, before)
