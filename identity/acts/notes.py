"""The notes that moderators write about players, for each other, as in `identity.acts.accounts`."""

from identity.acts.actors import Actor, Authority
from identity.acts.rights import may_administer, may_write_notes
from model.errors import InvalidField
from model.kinds import NOTES
from model.records import User, now_ms
from model.site_records import Note
from storage import Storage
from storage.repositories import new_time_id

NOTES_EACH = 200  # about one player
NOTES_SHOWN = 20


class NoteActs:
    """What an actor does to the notes of a storage.

    All acts raise NotAllowed, NotFound, StorageFailed, InvalidField, TooManyAttempts.
    """

    def __init__(self, store: Storage, actor: Actor) -> None:
        self._store = store
        self._actor = actor
        self._authority = Authority(store, actor)

    def add(self, user_id: int, text: str) -> None:
        """Write a note about a player."""
        notes, now = self._store.records(NOTES), now_ms()

        def before(note: Note) -> None:
            self._authority.require(may_write_notes, self._store.users.read(user_id))
            if notes.count("user", str(user_id), NOTES_EACH) == NOTES_EACH:
                raise InvalidField("text", "There are too many notes. Delete an old one first.")
            self._authority.audit("note add", user=user_id, note=note.id)

        notes.add(Note(new_time_id(now), user_id, self._actor.id, text, now), before)

    def delete(self, note_id: str) -> None:
        """Delete a note: the moderator who wrote it may, and an administrator."""

        def before(note: Note) -> None:
            user = self._store.users.read(note.user_id)
            self._authority.require(lambda player, _: may_delete_note(player, user, note))
            self._authority.audit("note delete", user=note.user_id, note=note.id)

        self._store.records(NOTES).delete(note_id, before)


def may_delete_note(player: User, user: User, note: Note) -> bool:
    """Return True if the player may delete a note about the user."""
    is_own = note.by == player.id
    return may_write_notes(player, user) and (is_own or may_administer(player))


def notes_about(store: Storage, user: User, at_most: int = NOTES_SHOWN) -> list[Note]:
    """Return the notes about a player, the newest first."""
    return store.records(NOTES).page("user", str(user.id), at_most=at_most, newest_first=True)
