"""The declarations of the kinds of records."""

from model import records
from model.door_records import Application
from model.grant_records import Family
from model.kinds import KINDS
from model.records import Client, Suspension, User
from model.site_records import Invite, Message, Note, OpenIdKey, Report

GAME = {"game_url": "https://chess.example/", "listed": True}
SAMPLES = {
    "users": lambda: User(1, "Ada", "ada@example.org", "", mod_level=2, last_heartbeat=5),
    "users.suspended": lambda: User(1, "Ada", "", "", suspension=Suspension(None, 5, "", 9)),
    "clients": lambda: Client("c" * 24, "Chess", "", [], 1, created=5, used=5, **GAME),
    "clients.queue": lambda: Client("c" * 24, "Chess", "", [], game_url=GAME["game_url"]),
    "clients.logout": lambda: Client("c" * 24, "Wiki", "", [], post_logout_redirect_uris=["x"]),
    "invites": lambda: Invite("0" * 64, 5, "f" * 64),
    "user_notes": lambda: Note("0" * 15 + "-00000000", 1, 2, "Hello", 5),
    "outbox": lambda: Message("0" * 15 + "-00000000", "chat", "player", "", 5, 6),
    "outbox.app": lambda: Message("0" * 15 + "-00000000", "logout", "logout", "", 5, 6, to="app"),
    "handles": lambda: records.Handle("ada", 1),
    "former_emails": lambda: records.FormerEmail("0" * 64, 1, 5, 4),
    "former_names": lambda: records.FormerName("0" * 64, 1, 5),
    "covers": lambda: records.Cover(f"{'c' * 24}-5", "c" * 24, "", ""),
    "reports": lambda: Report("0" * 15 + "-00000000", 1, "user:2", "spam", "", 5, 6),
    "reports.client": lambda: Report("0" * 15 + "-00000000", 1, "client:x", "spam", "", 5, 6),
    "openid_keys": lambda: OpenIdKey("k" * 43, "", "", 5, 6),
    "passkeys": lambda: records.Passkey("0" * 64, 1, "h", "c", "k", "id.example.org", "Phone", 5),
    "families": lambda: Family("f" * 16, 1, "c" * 24, "", [], "", 5, 6, "salt", "0" * 64),
    "applications": lambda: Application(f"{'0' * 15}-00000000", "Eve", "eve@x.example", "", 5, 6),
    "applications.declined": lambda: Application("x", "Eve", "", "", 5, 6, declined=7),
    "recovery_codes": lambda: records.RecoveryCodes(1, ["0" * 64], 5),
}


def other_value(value: object) -> object:
    """Return another value than that of a field; None for one of an optional or composed type."""
    return not value if type(value) is bool else {str: "x", int: 7}.get(type(value))


def test_keys_depend_only_on_their_declared_fields(subtests):
    """An edit of any other field leaves the entries of a key as they were."""
    for kind in KINDS:
        for key in kind.keys:
            sample = SAMPLES.get(f"{kind.name}.{key.name}", SAMPLES[kind.name])
            record = sample()
            value = key.of(record)
            assert value is not None
            for name in set(type(record).__slots__) - key.fields - {"id"}:
                with subtests.test(kind=kind.name, key=key.name, field=name):
                    other = sample()
                    setattr(other, name, other_value(getattr(other, name)))
                    assert key.of(other) == value
