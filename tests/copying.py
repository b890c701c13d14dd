"""An installation with something of everything, and all that a copy of it must have."""

from storage import Grant, Session, Storage, Suspension, User
from storage.pictures import generate_picture

ADA, BOB, CLEO, DORA = 1, 2, 3, 4  # ids; Cleo is deleted, and Dora has no picture
LARGEST = 500  # the largest id that was given


def fill(store: Storage) -> None:
    """Use an empty installation."""
    used = store.issue_invite(1)
    store.add_user("Ada", "ada@example.org", "", invite=used)
    for name in ("Bob", "Cleo"):
        store.add_user(name, f"{name}@example.org", "")
    store.write_audit("user delete", ADA, user=CLEO)
    store.delete_user(CLEO)
    store.reserve_user_ids(DORA)
    store.add_users([User(DORA, "Dora", "dora@example.org", "")], {})
    game = {"game_url": "https://chess.example/", "listed": True}
    client, _ = store.add_client("Chess", [], ADA, **game)
    store.write_audit("client listed", "command", client=client.id)
    store.save_picture(BOB, generate_picture(99))
    with store.edit_user(ADA) as ada:
        ada.sessions = [Session("adas session", 1, "Firefox on Linux")]
        ada.grants = {client.id: Grant("a grant", ["userinfo"], 2)}
    with store.edit_user(BOB) as bob:
        bob.suspension = Suspension(ADA, reason="Zoë 🙂")
    store.issue_invite(7)
    store.rotate_keys(drop_old=False)
    store.count_attempt("password", "ada", limit=10)
    store.reserve_user_ids(LARGEST)


def read_all(store: Storage) -> tuple:
    """Return everything that is copied."""
    with store.snapshot() as snapshot:
        parts = snapshot.users(), snapshot.deleted_ids(), snapshot.clients(), snapshot.invites()
        parts = [list(part) for part in parts]
        keys = snapshot.keys()
        with snapshot.audit_log() as log:
            return *parts, keys, log.read(), snapshot.next_user_id
