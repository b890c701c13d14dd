"""The declarations of the kinds of records."""

from storage.kinds import KINDS
from storage.records import Client, Handle, Invite, OpenIdKey, User

GAME = {"game_url": "https://chess.example/", "listed": True}
SAMPLES = {
    "users": lambda: User(1, "Ada", "ada@example.org", "", mod_level=2, invite="an invitation"),
    "clients": lambda: Client("c" * 24, "Chess", "", [], owner_id=1, **GAME),
    "invites": lambda: Invite("0" * 64, 5),
    "handles": lambda: Handle("ada", 1),
    "openid_keys": lambda: OpenIdKey("k" * 43, "", "", 5, 6),
}


def other_value(value: object) -> object:
    """Return another value than that of a field; None for one of an optional or composed type."""
    return not value if type(value) is bool else {str: "x", int: 7}.get(type(value))


def test_keys_depend_only_on_their_declared_fields(subtests):
    """An edit of any other field leaves the entries of a key as they were."""
    for kind in KINDS:
        for key in kind.keys:
            record = SAMPLES[kind.name]()
            value = key.of(record)
            assert value is not None
            for name in set(type(record).__slots__) - key.fields - {"id"}:
                with subtests.test(kind=kind.name, key=key.name, field=name):
                    other = SAMPLES[kind.name]()
                    setattr(other, name, other_value(getattr(other, name)))
                    assert key.of(other) == value
