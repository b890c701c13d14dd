"""A copy of a whole installation into an empty one, of the same or another backend.

Everything that lasts is copied as it is: sessions, access tokens and client secrets stay good.
Authorization codes and counted attempts expire, and are left behind.
"""

from model import kinds
from model.errors import BadInstallation
from storage import Storage
from storage.files import translate_os_errors
from storage.maintenance import Load, Progress, Report, Snapshot, ignore


def copy(
    source: Storage, target: Storage, progress: Progress = ignore, report: Report = ignore
) -> int:
    """Copy an installation into an empty one; return the number of players.

    The target has nothing until everything is there, and the source is not changed. `report` gets a
    line for each thing that cannot be read: then nothing is copied. Raises BadInstallation, and
    SaveUnconfirmed if the target may have everything, or nothing.
    """
    if source.is_empty():
        raise BadInstallation("there are no players and no clients to copy")
    unreadable = []

    def skip(line: str) -> None:
        unreadable.append(line)
        report(line)

    with translate_os_errors(), target.load(report=report) as load:
        with source.snapshot(report=skip, progress=progress) as snapshot:
            players = _copy_all(snapshot, load)
        if unreadable:
            raise BadInstallation("nothing is copied: `identity-server check --repair` may help")
    return players


def _copy_all(snapshot: Snapshot, load: Load) -> int:
    """Add everything of a snapshot; return the number of players."""
    players = 0
    for user, pictures in snapshot.users():
        load.add_user(user, pictures)
        players += 1
    for user_id in snapshot.deleted_ids():
        load.add_deleted_id(user_id)
    for kind in kinds.KINDS:
        if kind.copied and kind is not kinds.USERS:
            for record in snapshot.records(kind):
                load.add(kind, record)
    load.keys = snapshot.keys()
    load.add_audit_log(snapshot.audit_lines())
    load.next_user_id = snapshot.next_user_id
    return players
