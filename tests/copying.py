"""An installation with something of everything, and all that a copy of it must have."""

from images.pictures import generate_picture
from model.kind import DAY_MS
from model.kinds import KINDS, USERS
from model.records import Grant, OpenIdKey, Session, Suspension, User, now_ms
from storage import Storage

ADA, BOB, CLEO, DORA = 1, 2, 3, 4  # ids; Cleo is deleted, and Dora has no picture
KEY_ID, PRIVATE_HALF = "k" * 43, "a private half"  # of the key of ID tokens
LARGEST = 500  # the largest id that was given


def fill(store: Storage) -> None:
    """Use an empty installation."""
    used = store.invites.issue(1)
    store.users.register("Ada", "ada@example.org", "", invite=used)
    for name in ("Bob", "Cleo"):
        store.users.register(name, f"{name}@example.org", "")
    store.audit.write("user delete", ADA, user=CLEO)
    for user_id in (ADA, CLEO):
        store.handles.of(store.users.read(user_id))
    store.users.delete(CLEO)
    store.users.reserve_ids(DORA)
    store.users.insert(User(DORA, "Dora", "dora@example.org", "", pfp_generated=True))
    game = {"game_url": "https://chess.example/", "listed": True}
    client, _ = store.clients.register("Chess", [], ADA, **game)
    store.audit.write("client listed", "command", client=client.id)
    for user_id in (ADA, BOB):
        store.pictures.save(user_id, generate_picture(user_id + 97))
    with store.users.edit(ADA) as ada:
        ada.sessions = [Session("adas session", 1, "Firefox on Linux")]
        ada.bio = "Line\nline\t“🙂” \\ ' \" {}"
        ada.grants = {client.id: Grant("a grant", ["userinfo"], 2)}
    with store.users.edit(BOB) as bob:
        bob.suspension = Suspension(ADA, reason="Zoë 🙂")
    store.invites.issue(7)
    store.keys.rotate(drop_old=False)
    store.openid_keys.add(OpenIdKey(KEY_ID, "a modulus", PRIVATE_HALF, 0, now_ms() + DAY_MS))
    store.attempts.count("password", "ada", limit=10)
    store.users.reserve_ids(LARGEST)


def read_all(store: Storage) -> tuple:
    """Return everything that is copied."""
    with store.snapshot() as snapshot:
        others = [snapshot.records(kind) for kind in KINDS if kind.copied and kind is not USERS]
        parts = [list(part) for part in (snapshot.users(), snapshot.deleted_ids(), *others)]
        keys = snapshot.keys()
        lines = list(snapshot.audit_lines())
        return *parts, keys, lines, snapshot.next_user_id
