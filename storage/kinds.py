"""The kinds of records, each of them declared once.

A declaration has what a backend needs to keep the records of a kind, and what backup, restore,
copy, check and repair need to know of them: nothing else names a kind. A new one is a dataclass in
`storage.records` and a declaration in KINDS. (One that changes the keys of records which are there
needs a new version of the layout, whose upgrade is the repair of that kind.)
"""

import functools
import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any

from storage import names, rules
from storage.encoding import build_record, record_as_dict
from storage.errors import (
    EmailTaken,
    HandleTaken,
    InviteSpent,
    KeyTaken,
    NameTaken,
    NoSuchClient,
    NoSuchUser,
    NotFound,
    OriginTaken,
    ReportedBefore,
)
from storage.records import (
    Client,
    Cover,
    FormerName,
    Handle,
    Invite,
    OpenIdKey,
    Report,
    User,
    check_suspension,
)

DAY_MS = 86_400_000
Rules = dict[str, Callable[[Any], str | None]]  # the `check_` function of each field


@dataclass(frozen=True, slots=True, eq=False)
class Unique:
    """A key that no two records of a kind share.

    `of` returns the key of a record, None for a record without one. It depends on `fields` alone.
    """

    name: str  # of the column in a database
    folder: str  # of its entries in flat files
    of: Callable[[Any], str | None]
    taken: type[KeyTaken]
    fields: Set[str]
    needed: bool = False  # no record may be without it
    ordered: bool = False  # flat files name an entry after the key, and not after its hash


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """A key that several records of a kind share, `of` and `fields` as those of `Unique`."""

    name: str
    of: Callable[[Any], str | None]
    fields: Set[str]
    dies_with: str = ""  # the kind whose id the key is: records go with the one that they belong to


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of records; each has an `id`."""

    name: str  # of the folder or the table
    one: str  # of its records, to people
    record: type
    id: re.Pattern
    missing: type[NotFound]
    unique: tuple[Unique, ...] = ()
    indexes: tuple[Index, ...] = ()
    rules: Callable[[Any], Rules] = lambda record: {}
    must_hold: Callable[[Any], Rules] = lambda record: {}  # rules that no backup may break
    fixed: Set[str] = frozenset({"id"})  # fields that no edit changes
    problems: Callable[[Any], Iterator[str]] = lambda record: iter(())  # besides broken rules
    expires: Callable[[Any], int] | None = None  # the time from which a record does not count
    number: bool = False  # ids are integers; else texts
    locks: int = 1  # of flat files: what many players write has several
    cached: bool = False  # a record that was read is shared, and must not be changed
    archived: bool = True  # in a backup; a copy has all kinds
    counts: bool = True  # an installation with such a record is not empty

    @functools.cached_property
    def keys(self) -> tuple[Unique | Index, ...]:
        """All keys, unique ones first."""
        if self.expires is None:
            return (*self.unique, *self.indexes)
        day = Index("day", lambda record: day_of(self.expires(record)), frozenset({"expires"}))
        return (*self.unique, *self.indexes, day)

    @functools.cached_property
    def _keys_by_name(self) -> dict[str, Unique | Index]:
        return {key.name: key for key in self.keys}

    def key(self, name: str) -> Unique | Index:
        """Return one of the keys by its name."""
        return self._keys_by_name[name]

    def parse_id(self, text: str) -> int | str | None:
        """Return the id that a text is, None if it is none."""
        if not self.id.fullmatch(text):
            return None
        return int(text) if self.number else text

    def may_have(self, record_id: int | str) -> bool:
        """Return True for an id that the program may give."""
        is_small = not self.number or record_id < rules.USER_IDS_END
        return is_small and self.parse_id(str(record_id)) is not None

    def not_found(self, record_id: int | str) -> NotFound:
        """Return the error for an id that no record has; an id that is a text may be any text."""
        which = f"{self.one} {record_id}" if self.number else f"such {self.one}"
        return self.missing(f"there is no {which}")

    def has_expired(self, record: Any, now: int) -> bool:
        """Return True for a record that does not count any more."""
        return self.expires is not None and self.expires(record) <= now

    def refuse_broken_rules(self, record: Any, changed: Set[str] | None = None) -> None:
        """Raise InvalidField for the first field that breaks its rule.

        With `changed`, only those fields are checked: a newer rule locks nobody out.
        """
        for name, check in self.rules(record).items():
            if changed is None or name in changed:
                rules.refuse(name, check(getattr(record, name)))

    def changed_fields(self, record: Any, before: dict, changes: Set[str]) -> Set[str]:
        """Return the fields that an edit, announced for `changes`, changed.

        `before` is what `record_as_dict` returned at first. Raises ValueError for a field that is
        fixed or a value of another type, InvalidField for one that breaks a rule.
        """
        after = record_as_dict(record)
        changed = {name for name in after if after[name] != before[name]}
        if fixed := changed & self._fixed_fields(changes):
            raise ValueError(f"not changed by this edit: {', '.join(sorted(fixed))}")
        if changed:
            build_record(self.record, after)  # refuses what could not be read again
            self.refuse_broken_rules(record, changed - changes)
        return changed

    def _fixed_fields(self, changes: Set[str]) -> Set[str]:
        # A record under one of several locks keeps its unique keys, unless the lock of the kind is
        # held as well.
        keys = self.unique if self.locks > 1 else ()
        return self.fixed.union(*(each.fields for each in keys)) - changes


def day_of(time: int) -> str:
    """Return the number of a day, as text in the order of days."""
    return f"{time // DAY_MS:06d}"


# -- players ------------------------------------------------------------------------------------


def _name_key(user: User) -> str | None:
    key = names.unique_key(user.name)
    return key if names.can_be_key("name", key) else None


def _email_key(user: User) -> str | None:
    key = names.unique_key(user.email)
    return key if names.can_be_key("email", key) else None


def _check_email_key(email: str) -> str | None:
    if not email or names.can_be_key("email", names.unique_key(email)):
        return None
    return "Nobody can be found by this."


def _role(user: User) -> str | None:
    # The end of a suspension is no save that could change the key.
    return "administrator" if user.may_administer else None


USER_RULES: Rules = {
    "name": names.check_name,
    "email": rules.check_email,
    "suspension": check_suspension,
    "bio": rules.check_bio,
    "mod_level": rules.check_mod_level,
}


def _problems_of_user(user: User) -> Iterator[str]:
    times = {"created": user.created, "last_heartbeat": user.last_heartbeat}
    times["play_ms"] = user.play_ms
    times |= {f"grants.{client}.since": each.since for client, each in user.grants.items()}
    for field in ("sessions", "notices"):
        for number, each in enumerate(getattr(user, field)):
            times[f"{field}[{number}].since"] = each.since
    yield from rules.check_times(times)


USERS = Kind(
    "users",
    "user",
    User,
    rules.USER_ID,
    NoSuchUser,
    unique=(
        Unique("name", "names", _name_key, NameTaken, {"name"}, needed=True, ordered=True),
        Unique("email", "emails", _email_key, EmailTaken, {"email"}),
        Unique("invite", "used_invites", lambda user: user.invite, InviteSpent, {"invite"}),
    ),
    indexes=(Index("role", _role, {"mod_level", "suspension"}),),
    rules=lambda user: USER_RULES,
    must_hold=lambda user: {
        "email": _check_email_key,
        "mod_level": rules.check_mod_level,
        "password_hash": rules.check_hash_format,
    },
    problems=_problems_of_user,
    number=True,
    locks=64,
)

# -- apps ---------------------------------------------------------------------------------------


def owner_key(owner_id: int | None) -> str:
    """Return the key of an owner's clients; None means the administrators."""
    return "none" if owner_id is None else str(owner_id)


def _shelf(client: Client) -> str | None:
    return ("listed" if client.listed else "unlisted") if client.is_game else None


def _client_rules(client: Client) -> Rules:
    return {
        "name": names.check_client_name,
        "secret_sha256": lambda secret: rules.check_secret_hash(secret, client.public),
        "redirect_uris": lambda uris: rules.check_redirect_uris(uris, client.public),
        "game_url": rules.check_game_url,
        "description": rules.check_description,
        "post_logout_redirect_uris": lambda uris: rules.check_redirect_uris(uris, client.public),
        "only_groups": rules.check_groups,
    }


CLIENTS = Kind(
    "clients",
    "client",
    Client,
    rules.CLIENT_ID,
    NoSuchClient,
    unique=(Unique("origin", "origins", lambda c: c.game_origin, OriginTaken, {"game_url"}),),
    indexes=(
        Index("owner", lambda client: owner_key(client.owner_id), {"owner_id"}),
        Index("games", _shelf, {"game_url", "listed"}),
    ),
    rules=_client_rules,
    must_hold=lambda client: {
        field: _client_rules(client)[field]
        for field in ("secret_sha256", "redirect_uris", "game_url", "post_logout_redirect_uris")
    },
    fixed=frozenset({"id", "public"}),
    problems=lambda client: rules.check_times({"created": client.created}),
    cached=True,
)

# -- invitations --------------------------------------------------------------------------------

INVITES = Kind(
    "invites",
    "invitation",
    Invite,
    rules.SHA256,  # of the invitation, which is a credential
    NotFound,
    expires=lambda invite: invite.expires,
    archived=False,
    counts=False,
)

# -- OpenID Connect -----------------------------------------------------------------------------

# They stay when their player leaves.
HANDLES = Kind(
    "handles",
    "handle",
    Handle,
    rules.HANDLE,
    NotFound,
    unique=(Unique("player", "handles_of", lambda h: str(h.user_id), HandleTaken, {"user_id"}),),
    fixed=frozenset({"id", "user_id"}),
    cached=True,
)
OPENID_KEYS = Kind(
    "openid_keys",
    "key",
    OpenIdKey,
    rules.THUMBPRINT,
    NotFound,
    problems=lambda key: rules.check_times({"signs_from": key.signs_from, "expires": key.expires}),
    expires=lambda key: key.expires,
    cached=True,
    archived=False,
    counts=False,
)

# -- names that were given up, covers, reports --------------------------------------------------

# They stay when their player leaves.
FORMER_NAMES = Kind(
    "former_names",
    "former name",
    FormerName,
    rules.SHA256,  # of the unique key of the name
    NotFound,
    indexes=(Index("player", lambda name: str(name.user_id), {"user_id"}),),
    problems=lambda name: rules.check_times({"expires": name.expires}),
    expires=lambda name: name.expires,
    counts=False,
)
COVERS = Kind(
    "covers",
    "cover",
    Cover,
    rules.COVER_ID,
    NotFound,
    indexes=(Index("client", lambda cover: cover.client_id, {"client_id"}, dies_with="clients"),),
    must_hold=lambda cover: {"small": rules.check_base64, "large": rules.check_base64},
    fixed=frozenset({"id", "client_id"}),
    counts=False,
)


def about(record: User | Client) -> str:
    """Return how a report names the player or the app that it is about."""
    return f"{'user' if isinstance(record, User) else 'client'}:{record.id}"


def _subject(kind: str) -> Callable[[Report], str | None]:
    return lambda report: report.about.partition(f"{kind}:")[2] or None


REPORTS = Kind(
    "reports",
    "report",
    Report,
    rules.REPORT_ID,
    NotFound,
    unique=(
        Unique("thing", "reported", lambda r: f"{r.by} {r.about}", ReportedBefore, {"by", "about"}),
    ),
    indexes=(
        Index("state", lambda r: "open" if r.answer is None else "answered", {"answer"}),
        Index("by", lambda report: str(report.by), {"by"}, dies_with="users"),
        Index("user", _subject("user"), {"about"}, dies_with="users"),
        Index("client", _subject("client"), {"about"}, dies_with="clients"),
    ),
    rules=lambda report: {
        "reason": rules.check_report_reason,
        "text": rules.check_report_text,
        "answer": lambda answer: rules.check_description(answer or ""),
    },
    fixed=frozenset({"id", "by", "about", "reason", "text", "created", "expires"}),
    problems=lambda report: rules.check_times(
        {"created": report.created, "expires": report.expires}
    ),
    expires=lambda report: report.expires,
    counts=False,
)

KINDS = [  # in the order of a backup
    *(USERS, CLIENTS, INVITES, HANDLES, OPENID_KEYS, FORMER_NAMES, COVERS, REPORTS)
]


def dependents_of(kind: Kind) -> Iterator[tuple[Kind, Index]]:
    """Yield the kinds whose records go with one of this kind, and the index that tells which."""
    for each in KINDS:
        for index in each.indexes:
            if index.dies_with == kind.name:
                yield each, index
