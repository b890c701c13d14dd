"""The kinds of records, each of them declared once.

A declaration has what a backend needs to keep the records of a kind, and what backup, restore,
copy, check and repair need to know of them. A new one is a dataclass beside the other records and a
declaration in KINDS. A new key of records that are there is added to them at the next start;
another meaning of a key needs another name.
"""

from collections.abc import Callable, Iterator

from model import addresses, client_rules, names, rules
from model.door_kinds import APPLICATIONS, NETWORK_BANS, TEXTS
from model.errors import (
    EmailTaken,
    HandleTaken,
    InviteSpent,
    NameTaken,
    NoSuchClient,
    NoSuchUser,
    NotFound,
    OriginTaken,
    ReportedBefore,
)
from model.grant_records import Family
from model.kind import Index, Kind, Rules, Unique, day_of, hour_of
from model.records import (
    Client,
    Cover,
    FormerEmail,
    FormerName,
    Handle,
    Passkey,
    RecoveryCodes,
    User,
)
from model.site_records import Invite, Logo, Look, Message, Note, OpenIdKey, Report, State, Webhook

NO_END = "999999"  # behind the key of every day; of a suspension without an end

# -- players ------------------------------------------------------------------------------------


def _name_key(user: User) -> str | None:
    key = names.unique_key(user.name)
    return key if names.can_be_key("name", key) else None


def _email_key(user: User) -> str | None:
    return addresses.email_key(user.email)


def _role(user: User) -> str | None:
    # A suspension can end without a save, so an administrator has the key during one that ends.
    return "administrator" if user.may_administer else None


def _hour_of_play(user: User) -> str | None:
    return hour_of(user.last_heartbeat) if user.has_played else None


def _end_of_suspension(user: User) -> str | None:
    """Return the day on which a suspension ends; one that has ended keeps it."""
    if user.suspension is None:
        return None
    until = user.suspension.until
    return NO_END if until is None else day_of(until)


USER_RULES: Rules = {
    "name": names.check_name,
    "email": addresses.check_email,
    "suspension": lambda each: rules.check_short_text(each.reason) if each else None,
    "bio": rules.check_bio,
    "mod_level": rules.check_mod_level,
}


def _problems_of_user(user: User) -> Iterator[str]:
    """Yield wrong times, and an email address that breaks a rule newer than the record."""
    times = {"created": user.created, "last_heartbeat": user.last_heartbeat}
    times["play_ms"] = user.play_ms
    times |= {f"grants.{client}.since": each.since for client, each in user.grants.items()}
    for field in ("sessions", "notices"):
        for number, each in enumerate(getattr(user, field)):
            times[f"{field}[{number}].since"] = each.since
    yield from rules.check_times(times)
    problem = addresses.check_email(user.email)  # a stricter rule locks nobody out
    if problem and not addresses.check_email_key(user.email):
        yield f"email: {problem} Until then no letter goes there, and no app gets it."


USERS = Kind(
    "users",
    "user",
    User,
    rules.USER_ID,
    NoSuchUser,
    unique=(
        Unique("name", "names", _name_key, NameTaken, {"name"}, needed=True, ordered=True),
        Unique("email", "emails", _email_key, EmailTaken, {"email"}),
    ),
    indexes=(
        Index("role", _role, {"mod_level", "suspension"}),
        Index("joined", lambda user: day_of(user.created), {"created"}),
        Index("played", _hour_of_play, {"last_heartbeat", "created"}),
        Index("suspended", _end_of_suspension, {"suspension"}),
    ),
    rules=lambda user: USER_RULES,
    must_hold=lambda user: {
        "email": addresses.check_email_key,
        "mod_level": rules.check_mod_level,
        "password_hash": rules.check_hash_format,
    },
    problems=_problems_of_user,
    number=True,
    locks=64,
)

PASSKEYS = Kind(
    "passkeys",
    "passkey",
    Passkey,
    rules.SHA256,
    NotFound,
    indexes=(Index("user", lambda passkey: str(passkey.user_id), {"user_id"}, dies_with="users"),),
    rules=lambda passkey: {"name": rules.check_passkey_name},
    fixed=frozenset({"id", "user_id", "handle", "credential_id", "public_key", "rp_id"}),
    problems=lambda passkey: rules.check_times({"created": passkey.created, "used": passkey.used}),
    locks=16,
    counts=False,
)
RECOVERY_CODES = Kind(
    "recovery_codes",
    "set of recovery codes",
    RecoveryCodes,
    rules.USER_ID,
    NotFound,
    indexes=(Index("user", lambda codes: str(codes.id), {"id"}, dies_with="users"),),
    problems=lambda codes: rules.check_times({"created": codes.created}),
    number=True,
    counts=False,
)

# -- apps ---------------------------------------------------------------------------------------


def owner_key(owner_id: int | None) -> str:
    """Return the key of an owner's clients; None means the administrators."""
    return "none" if owner_id is None else str(owner_id)


CLIENTS = Kind(
    "clients",
    "client",
    Client,
    rules.CLIENT_ID,
    NoSuchClient,
    unique=(Unique("origin", "origins", lambda c: c.game_origin, OriginTaken, {"game_url"}),),
    indexes=(
        Index("owner", lambda client: owner_key(client.owner_id), {"owner_id"}),
        Index("games", client_rules.shelf, {"game_url", "listed"}),
        Index("time", client_rules.by_time, {"game_url", "listed", "created"}),
        Index("title", client_rules.by_title, {"game_url", "listed", "name"}),
        Index("queue", client_rules.awaits_listing, {"game_url", "listed", "declined", "disabled"}),
        Index("used", lambda c: hour_of(c.used) if c.used else None, {"used"}),
        Index("logout", client_rules.signs_out, {"post_logout_redirect_uris"}),
    ),
    rules=client_rules.new_rules,
    must_hold=client_rules.kept_rules,
    fixed=frozenset({"id", "public"}),
    problems=lambda client: rules.check_times({"created": client.created}),
    cached=True,
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

# A restore would bring back what was ended since the backup. There is no index by player: a grant
# names those that count, and an edit of the player that leaves one out removes its record.
FAMILIES = Kind(
    "families",
    "family",
    Family,
    rules.FAMILY_ID,
    NotFound,
    fixed=frozenset({"id", "user_id", "client_id", "epoch", "scope", "granted", "created", "salt"}),
    expires=lambda family: family.expires,
    locks=64,
    archived=False,
    counts=False,
    checked=False,
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
# While a player may take an address back, which somebody else has replaced.
FORMER_EMAILS = Kind(
    "former_emails",
    "former email",
    FormerEmail,
    rules.SHA256,  # of the unique key of the address
    NotFound,
    indexes=(Index("player", lambda e: str(e.user_id), {"user_id"}, dies_with="users"),),
    expires=lambda email: email.expires,
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
    """Return how a report names what it is about: "user:" or "client:", and the id."""
    return f"{'user' if isinstance(record, User) else 'client'}:{record.id}"


def _subject(kind: str) -> Callable[[Report], str | None]:
    """Return the function that finds the id of a reported "user" or "client" in a report."""
    return lambda report: report.about.partition(f"{kind}:")[2] or None


REPORTS = Kind(
    "reports",
    "report",
    Report,
    rules.TIME_ID,
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
        "answer": lambda answer: rules.check_short_text(answer or ""),
    },
    fixed=frozenset({"id", "by", "about", "reason", "text", "created", "expires"}),
    problems=lambda report: rules.check_times(
        {"created": report.created, "expires": report.expires}
    ),
    expires=lambda report: report.expires,
    counts=False,
)

# -- the site -----------------------------------------------------------------------------------

INVITES = Kind(
    "invites",
    "invitation",
    Invite,
    rules.INVITE_ID,
    NotFound,
    # The secret is the id of one that an earlier version made.
    unique=(Unique("secret", "secrets", lambda i: i.secret or i.id, InviteSpent, {"secret"}),),
    indexes=(Index("list", lambda invite: "all", set()),),
    rules=lambda invite: {"note": rules.check_short_text},
    fixed=frozenset({"id", "secret", "expires", "good_until", "by", "created"}),
    expires=lambda invite: invite.expires,
    counts=False,
)
NOTES = Kind(
    "user_notes",
    "note",
    Note,
    rules.TIME_ID,
    NotFound,
    indexes=(Index("user", lambda note: str(note.user_id), {"user_id"}, dies_with="users"),),
    rules=lambda note: {"text": rules.check_note},
    fixed=frozenset({"id", "user_id", "by", "created"}),
    counts=False,
)
LOOKS = Kind(
    "looks",
    "look",
    Look,
    rules.WORD,
    NotFound,
    must_hold=lambda look: {"accent": rules.check_accent, "name": rules.check_site_name},
    cached=True,
    counts=False,
)
LOGOS = Kind(
    "logos",
    "logo",
    Logo,
    rules.USER_ID,
    NotFound,
    must_hold=lambda logo: {"image": rules.check_base64},
    number=True,
    counts=False,
)
WEBHOOKS = Kind("webhooks", "webhook", Webhook, rules.WORD, NotFound, cached=True, counts=False)


def queue_of(channel: str, first: bool = False) -> str:
    """Return the key of the messages that wait for a channel; those with links are `first`."""
    return f"{channel}{1 if first else 2}"


def waiting_queues(channel: str) -> list[str]:
    """Return the keys of all messages that wait for a channel, in the order of sending."""
    return [queue_of(channel, first=True), queue_of(channel)]


def given_up_of(channel: str) -> str:
    """Return the key of the messages of a channel that were given up."""
    return f"{channel}0"


def _queue(message: Message) -> str:
    """Return the key of a message, by its channel and whether it waits or was given up."""
    if message.given_up:
        return given_up_of(message.channel)
    return queue_of(message.channel, first=message.good_until > 0)


_APP = frozenset({"given_up", "channel", "to"})  # fields
OUTBOX = Kind(
    "outbox",
    "message",
    Message,
    rules.TIME_ID,
    NotFound,
    indexes=(
        Index("queue", _queue, {"given_up", "channel", "good_until"}),
        # The id of the app that waits to be told of a sign-out.
        Index("app", lambda m: (m.channel == "logout" and not m.given_up and m.to) or None, _APP),
    ),
    fixed=frozenset({"id", "channel", "event", "browser", "created", "good_until"}),
    expires=lambda message: message.expires,
    locks=16,
    archived=False,
    copied=False,
    counts=False,
)
STATES = Kind("states", "state", State, rules.WORD, NotFound, archived=False, counts=False)

KINDS = [  # in the order of a backup
    *(USERS, CLIENTS, INVITES, HANDLES, OPENID_KEYS, FORMER_NAMES, FORMER_EMAILS, COVERS, REPORTS),
    *(NOTES, LOOKS, LOGOS, WEBHOOKS, OUTBOX, STATES, PASSKEYS, RECOVERY_CODES, FAMILIES),
    *(APPLICATIONS, TEXTS, NETWORK_BANS),
]


def dependents_of(kind: Kind) -> Iterator[tuple[Kind, Index]]:
    """Yield the kinds whose records go with one of this kind, and the index that tells which."""
    for each in KINDS:
        for index in each.indexes:
            if index.dies_with == kind.name:
                yield each, index
