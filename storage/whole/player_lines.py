"""A player as a line of JSON, which an export writes and an import reads.

A line has the shape of `GET /api/users/info`, with what an administrator knows besides: email,
suspended, created and, on demand, passwordHash. Times are milliseconds since 1970 UTC. A line that
is read may also name the file of a picture. It may be from anyone, and every field is checked.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from model.addresses import normal_email
from model.encoding import BadValue, build_record
from model.errors import StorageError
from model.kinds import USERS
from model.names import normal_name
from model.records import Suspension, User, now_ms
from model.rules import check_flair, check_hash_format
from model.texts import drop_hidden

FIELDS = {  # of a line, and of the record
    "name": "name",
    "id": "id",
    "bio": "bio",
    "flairs": "flairs",
    "equippedFlair": "equipped_flair",
    "playMinutes": "play_ms",
    "lastHeartbeat": "last_heartbeat",
    "modLevel": "mod_level",
    "pfpTimestamp": "pfp_timestamp",
    "email": "email",
    "suspended": "suspended",
    "underage": "underage",
    "created": "created",
    "passwordHash": "password_hash",
}
FIELDS_OF_RECORD = {field: name for name, field in FIELDS.items()}
# In place of fields that are missing or wrong, so that the others are checked as well.
BLANK = {"id": 1, "name": "ada", "email": "", "password_hash": ""}
NEEDED = ("id", "name")
LONGEST_LINE = 2**16  # bytes
LARGEST_ID = 10**14 - 1  # ids have up to 15 digits: this leaves nine tenths of them for later
MOST_PLAY = 10**9  # minutes
CLOCK_SKEW = 86_400_000  # milliseconds that a time may lie ahead
SECONDS_END = 10**11  # as milliseconds in 1973, as seconds in the year 5138
MOST_FLAIRS = 500
WRONG_TYPE = "This has the wrong type."


class LineRefused(StorageError):
    """A line that describes no player; `problems` has a sentence or a clause for each reason."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass
class PlayerLine:
    """The player of a line, and what is wrong with it: sentences by the field of the line."""

    user: User
    picture: str | None  # the file in the folder of pictures, if the line names it
    problems: dict[str, str]


# -- written --------------------------------------------------------------------------------------


def write_line(user: User, with_password: bool) -> bytes:
    """Return a player as a line of the file."""
    values = exported_fields(user)
    if with_password and user.password_hash:
        values["passwordHash"] = user.password_hash
    return (json.dumps(values, ensure_ascii=False) + "\n").encode()


def exported_fields(user: User) -> dict:
    """Return the fields of a line but the password hash; play time is in whole minutes."""
    values = {name: getattr(user, field) for name, field in FIELDS.items()}
    values["playMinutes"] //= 60_000
    del values["passwordHash"]
    if user.pfp_timestamp is None:
        del values["pfpTimestamp"]
    if not user.underage:
        del values["underage"]
    return values


# -- read -----------------------------------------------------------------------------------------


def read_line(line: bytes) -> PlayerLine:
    """Return the player of a line with all its problems. Raises LineRefused if it has no fields."""
    # Other systems write null for what is not there.
    values = {name: each for name, each in read_object(line).items() if each is not None}
    picture, problems = values.pop("picture", None), {}
    for name in values:
        if name not in FIELDS:
            problems[name[:40]] = "There is no such field."
    for name in NEEDED:
        if name not in values:
            problems[name] = "This is missing."
    if type(picture) not in (str, type(None)):
        problems["picture"] = WRONG_TYPE
    user = _build_user({FIELDS[name]: values[name] for name in FIELDS if name in values}, problems)
    for field, problem in _problems_of(user):
        problems.setdefault(FIELDS_OF_RECORD.get(field, field), problem)
    return PlayerLine(user, picture, problems)


def read_object(line: bytes) -> dict:
    """Return the JSON object in a line. Raises LineRefused."""
    if len(line) > LONGEST_LINE:
        raise LineRefused(f"it is longer than {LONGEST_LINE} bytes")
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise LineRefused("it is not JSON") from None
    if type(values) is not dict:
        raise LineRefused("it is no JSON object")
    return values


def _build_user(record: dict, problems: dict[str, str]) -> User:
    """Return the user of these values, without those of another type, which become problems."""
    suspended = record.pop("suspended", False)
    if type(suspended) is not bool:
        problems["suspended"] = WRONG_TYPE
    flairs = record.get("flairs")
    if type(flairs) is list and "none" not in flairs:  # every account owns it
        record["flairs"] = ["none", *flairs]
    while True:
        try:
            user = build_record(User, BLANK | record)
            break
        except BadValue as error:
            problems.setdefault(FIELDS_OF_RECORD[error.field], error.problem)
            # The equipped flair may be what is wrong with the flairs.
            del record[error.field if error.field in record else "equipped_flair"]
    user.suspension = Suspension(by=None, since=0) if suspended is True else None
    user.name, user.email = normal_name(user.name), normal_email(user.email)
    # Other servers may accept hidden characters, and have other ends of lines.
    user.bio = drop_hidden(user.bio.replace("\r\n", "\n").replace("\r", "\n"))
    user.play_ms *= 60_000  # a line has minutes
    if "created" not in record:  # a player with a past is not new: the join was before all of it
        past = [user.last_heartbeat, user.pfp_timestamp]
        known = [time - 1 for time in past if time and not _check_time(time, 1)]
        user.created = min([user.created, *known])
    return user


def _problems_of(user: User) -> Iterator[tuple[str, str]]:
    """Yield each field of the record with a value that no player may have, and the problem."""
    if not 0 < user.id <= LARGEST_ID:
        yield "id", f"Use a number from 1 to {LARGEST_ID}."
    for field, check in USERS.rules(user).items():
        # A moderator's reset gave this name, which nobody can choose.
        was_reset = field == "name" and user.name == f"player{user.id}"
        if not was_reset and (problem := check(getattr(user, field))):
            yield field, problem
    if problem := _check_flairs(user.flairs):
        yield "flairs", problem
    for field, earliest in (("created", 0), ("last_heartbeat", 0), ("pfp_timestamp", 1)):
        if problem := _check_time(getattr(user, field), earliest):
            yield field, problem
    if not 0 <= user.play_ms <= MOST_PLAY * 60_000:
        yield "play_ms", f"Use a number from 0 to {MOST_PLAY}."
    if problem := check_hash_format(user.password_hash):
        yield "password_hash", problem


def _check_flairs(flairs: list[str]) -> str | None:
    if len(set(flairs)) < len(flairs) or len(flairs) > MOST_FLAIRS:
        return f"Use up to {MOST_FLAIRS} different flairs."
    return next(filter(None, map(check_flair, flairs)), None)


def _check_time(time: int | None, earliest: int) -> str | None:
    """Check a time in milliseconds, from `earliest` to now; None is no time, and good."""
    if time and 0 < time < SECONDS_END:
        return "Use milliseconds since 1970, not seconds."
    if time is not None and not earliest <= time <= now_ms() + CLOCK_SKEW:
        return "Use milliseconds since 1970, not in the future."
    return None
