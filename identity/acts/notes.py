"""The notes that moderators write about players, for each other, and the acts on them.

They raise NotAllowed, NotFound, StorageFailed, InvalidField, TooManyAttempts.
"""

from contextlib import suppress

from identity.acts.actors import Authority
from identity.acts.rights import is_oneself, may_administer, may_moderate, may_write_notes
from model.errors import InvalidField, NotFound, StorageError
from model.kinds import NOTES
from model.records import User, now_ms
from model.rules import check_note, refuse
from model.site_records import Note
from model.words import say
from storage import Storage
from storage.repositories import new_time_id

NOTES_EACH = 200  # about one player
NOTES_SHOWN = 20
WARNINGS_AN_HOUR = 60  # of one moderator: a copied cookie must not write to everybody


def add(by: Authority, user_id: int, text: str) -> None:
    """Write a note about a player. Raises InvalidField if NOTES_EACH are there."""
    notes, now = by.store.records(NOTES), now_ms()
    note = Note(new_time_id(now), user_id, by.actor.id, text, now)
    with notes.adding(note):
        by.require(may_write_notes, by.store.users.read(user_id))
        if notes.count("user", str(user_id), NOTES_EACH) == NOTES_EACH:
            raise InvalidField("text", say("There are too many notes. Delete an old one first."))
        by.audit("note add", user=user_id, note=note.id)


def warn(by: Authority, user_id: int, text: str) -> None:
    """Warn a player, whose pages show the text until they confirm it. Raises InvalidField."""
    refuse("warning", check_note(text))
    by.count_own("warnings by", WARNINGS_AN_HOUR)
    now = now_ms()
    note = Note(new_time_id(now), user_id, by.actor.id, text, now, warns=True)
    with by.edit(may_moderate, by.store.users, user_id) as user:
        if find_warning(by.store, user):
            problem = say("This player has not confirmed the last warning yet.")
            raise InvalidField("warning", problem)
        by.audit("note warn", user=user_id, note=note.id)
        by.store.records(NOTES).put(note)
        user.warning = note.id
    words = say("A moderator sent you a warning. Read and confirm it on the site.")
    by.write_to(user, "warning", words)


def confirm_warning(by: Authority, user_id: int, note_id: str) -> None:
    """Note that a player has read a warning, which the pages show no more."""
    with by.edit(is_oneself, by.store.users, user_id) as user:
        if user.warning == note_id:
            user.warning = None
            with suppress(NotFound), by.store.records(NOTES).edit_inside(note_id) as note:
                note.confirmed = now_ms()


def find_warning(store: Storage, user: User) -> Note | None:
    """Return the warning that a player has to confirm; None without one that can be read."""
    with suppress(StorageError):
        return store.records(NOTES).find(user.warning) if user.warning else None
    return None


def delete(by: Authority, note_id: str) -> None:
    """Delete a note: the moderator who wrote it may, and an administrator."""
    with by.store.records(NOTES).deleting(note_id) as note:
        user = by.store.users.read(note.user_id)
        by.require(lambda player, _: may_delete_note(player, user, note))
        by.audit("note delete", user=note.user_id, note=note.id)


def may_delete_note(player: User, user: User, note: Note) -> bool:
    """Return True if the player may delete a note about the user."""
    is_own = note.by == player.id
    return may_write_notes(player, user) and (is_own or may_administer(player))


def notes_about(store: Storage, user: User, at_most: int = NOTES_SHOWN) -> list[Note]:
    """Return the notes about a player, the newest first."""
    return store.records(NOTES).page("user", str(user.id), at_most=at_most, newest_first=True)
