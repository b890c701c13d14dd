"""Rights: what a player may do about a user or a client.

`identity.acts.actors` requires them of an actor, under the lock of the record, and pages ask what
to show.
"""

from collections.abc import Callable

from model.errors import DamagedRecord, NoSuchUser
from model.records import ADMINISTRATOR, MODERATOR, Client, User
from storage import Storage

Right = Callable[[User, User | Client | None], bool]


def is_oneself(player: User, user: User) -> bool:
    """Return True if the player is the user: what players do to their own account."""
    return player.id == user.id


def only_the_command(player: User, _: object) -> bool:
    """Return False: the command may do everything, and no player has this right."""
    return False


def may_moderate(player: User, user: User) -> bool:
    """Return True if the player may suspend and reset the user: a moderator, of a higher level."""
    return player.mod_level >= MODERATOR and user.mod_level < player.mod_level


def may_write_notes(player: User, user: User) -> bool:
    """Return True if the player may read and write the moderators' notes about the user."""
    is_other_administrator = may_administer(player) and not is_oneself(player, user)
    return may_moderate(player, user) or is_other_administrator


def may_delete(player: User, user: User) -> bool:
    """Return True if the player may delete the user: an administrator, of a higher level."""
    return may_administer(player) and may_moderate(player, user)


def may_unsuspend(store: Storage, player: User, user: User) -> bool:
    """Return True if the player may lift or change the suspension of a user they may moderate.

    Moderators may not if it is by an administrator, by the command, or by an unknown player.
    """
    if may_administer(player) or not user.suspended:
        return True
    try:
        by = user.suspension.by
        return isinstance(by, int) and not may_administer(store.users.read(by))
    except (NoSuchUser, DamagedRecord):
        return False


def may_administer(player: User, _: object = None) -> bool:
    """Return True if the player may change levels and flairs: an administrator."""
    return player.mod_level == ADMINISTRATOR


def may_answer(
    store: Storage, player: User, subject: User | Client | None, concerned: User | None
) -> bool:
    """Return True if the player may read and answer a report, as a moderator.

    `subject` is None if its record cannot be read. `concerned` is the player whom it is about, or
    who owns the app. Moderators may where they may moderate that player, and about apps that no
    player owns; administrators may always, but not about themselves while there is another one.
    """
    if may_administer(player):
        is_own = concerned is not None and concerned.id == player.id
        return not is_own or all(each.id == player.id for each in store.users.administrators())
    if concerned is None:  # the administrators' app, one whose owner left, or a damaged record
        return isinstance(subject, Client) and may_list(player)
    return may_moderate(player, concerned)


def may_see_hidden(viewer: User | None, user: User) -> bool:
    """Return True if the viewer, None for a guest, sees what a player hides from others."""
    return viewer is not None and (is_oneself(viewer, user) or viewer.mod_level >= MODERATOR)


def may_list(player: User, _: object = None) -> bool:
    """Return True if the player may put games on the home page: a moderator."""
    return player.mod_level >= MODERATOR


def may_admit(player: User, _: object = None) -> bool:
    """Return True if the player may let people in, and keep networks out: a moderator."""
    return player.mod_level >= MODERATOR


def may_register(player: User, open_to_members: bool) -> bool:
    """Return True if the player may register apps; a setting opens that to all members."""
    return open_to_members or may_administer(player)


def may_manage(player: User, client: Client) -> bool:
    """Return True if the player may see all of a client and change it."""
    return player.id == client.owner_id or may_administer(player)


def is_of_administrators(store: Storage, client: Client) -> bool:
    """Return True for an app of the administrators or of one of them, who may have it anywhere."""
    if client.owner_id is None:
        return True
    owner = store.users.find(client.owner_id)
    return owner is not None and may_administer(owner)
