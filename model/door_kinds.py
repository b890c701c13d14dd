"""The kinds of records of who may come in; `model.kinds` has them in its list."""

from collections.abc import Iterator
from ipaddress import ip_network

from model import addresses, names, rules
from model.door_records import Application, NetworkBans, Text
from model.errors import EmailTaken, NameTaken, NotFound
from model.kind import Index, Kind, Unique, day_of


def _name_key(application: Application) -> str | None:
    key = names.unique_key(application.name)
    return key if names.can_be_key("name", key) and not application.declined else None


def _email_key(application: Application) -> str | None:
    return addresses.email_key(application.email)


def _last_day(application: Application) -> str | None:
    """Return the day until which an application waits, None for one that was declined."""
    return None if application.declined else day_of(application.expires)


def _declined_name(application: Application) -> str | None:
    return names.unique_key(application.name) if application.declined else None


def _problems_of_bans(kept: NetworkBans) -> Iterator[str]:
    for each in kept.bans:
        try:
            ip_network(each.network)
        except ValueError:
            yield f"{each.network!r} is no network"


APPLICATIONS = Kind(
    "applications",
    "application",
    Application,
    rules.TIME_ID,
    NotFound,
    unique=(
        Unique("name", "applied_names", _name_key, NameTaken, {"name", "declined"}),
        Unique("email", "applied_emails", _email_key, EmailTaken, {"email"}),
    ),
    indexes=(
        Index("waiting", _last_day, {"declined", "expires"}),
        Index("declined", _declined_name, {"declined", "name"}),
    ),
    rules=lambda application: {
        "name": names.check_name,
        "email": addresses.check_email,
        "text": rules.check_application,
        "reason": rules.check_short_text,
    },
    must_hold=lambda application: {"password_hash": rules.check_hash_format},
    fixed=frozenset({"id", "created"}),
    problems=lambda each: rules.check_times({"created": each.created, "expires": each.expires}),
    expires=lambda application: application.expires,
    counts=False,
)
# A list of domains has up to 4 MiB (identity/site/domains.py), of which JSON may double some bytes.
TEXTS = Kind("texts", "text", Text, rules.WORD, NotFound, counts=False, most_bytes=9 * 2**20)
NETWORK_BANS = Kind(
    "network_bans",
    "list of bans",
    NetworkBans,
    rules.WORD,
    NotFound,
    problems=_problems_of_bans,
    cached=True,
    counts=False,
)
