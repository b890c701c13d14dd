"""Records as JSON: what is stored of them, and which of their fields an edit changed."""

import codecs
import json
from collections.abc import Set
from dataclasses import asdict, fields, is_dataclass
from types import UnionType

from storage.errors import DamagedRecord
from storage.records import (
    AuthorizationCode,
    Client,
    Grant,
    Invite,
    Notice,
    Session,
    Suspension,
    User,
    refuse_bad_record,
)

__all__ = ["RECORD_TYPES", "build_record", "changed_fields", "record_as_dict"]


def _kinds_of(record_type: type) -> dict[str, tuple[type, ...]]:
    """Return the JSON types of each field: `list` for `list[str]`, `dict` for records."""
    kinds = {}
    for each in fields(record_type):
        options = each.type.__args__ if isinstance(each.type, UnionType) else (each.type,)
        options = (dict if is_dataclass(option) else option for option in options)
        kinds[each.name] = tuple(getattr(option, "__origin__", option) for option in options)
    return kinds


RECORD_TYPES = (Grant, Session, Suspension, Notice, User, Client, AuthorizationCode, Invite)
_KINDS = {kind: _kinds_of(kind) for kind in RECORD_TYPES}
_TEXT_LISTS = {
    kind: [each.name for each in fields(kind) if each.type == list[str]] for kind in RECORD_TYPES
}


def build_record(record_type: type, values: dict):
    """Return the record that decoded JSON describes.

    Raises TypeError or ValueError that names a field which is missing, unknown or of another type.
    """
    if record_type is User and "suspended" in values:
        values = _with_suspension(values)
    record = record_type(**values)
    kinds = _KINDS[record_type]
    for name, value in values.items():
        if type(value) not in kinds[name]:  # not isinstance: True is no number here
            raise ValueError(f"{name}: This has the wrong type.")
    for name in _TEXT_LISTS[record_type]:
        for each in getattr(record, name):
            if type(each) is not str:
                raise ValueError(f"{name}: This is not a list of texts.")
    if record_type is User:
        record.grants = {name: build_record(Grant, each) for name, each in record.grants.items()}
        record.sessions = [build_record(Session, each) for each in record.sessions]
        record.notices = [build_record(Notice, each) for each in record.notices]
        if record.suspension is not None:
            record.suspension = build_record(Suspension, record.suspension)
        if record.equipped_flair not in record.flairs or "none" not in record.flairs:
            raise ValueError("flairs: 'none' or the equipped flair is missing.")
    return record


def _with_suspension(values: dict) -> dict:
    """Return a user of layout 2, or of an import, with the suspension that `suspended` means."""
    values = {"suspension": None, **values}
    suspended = values.pop("suspended")
    if type(suspended) is not bool or values["suspension"] is not None:
        raise ValueError("suspended: This has the wrong type.")
    if suspended:
        values["suspension"] = record_as_dict(Suspension(by=None, since=0))
    return values


def record_as_dict(record) -> dict:
    """Return the record as JSON values, in the order of its fields."""
    return asdict(record)


def encode(values: dict) -> bytes:
    """Return JSON that people can read and edit: indented, keys in the record's order."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def decode_record(content: bytes, record_type: type, path: str, **expected: object):
    """Return the record in `content`, the bytes of the file at `path`. Raises DamagedRecord."""
    try:
        # json.loads accepts half a surrogate pair, as bytes or as an escape, which nothing can
        # encode again.
        values = json.loads(content.removeprefix(codecs.BOM_UTF8).decode())
        if b"\\u" in content:
            encode(values)
        record = build_record(record_type, values)
        for name, value in expected.items():
            if getattr(record, name) != value:
                raise ValueError(f"its {name} is {getattr(record, name)!r}")
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedRecord("/".join(path.split("/")[-2:]), str(error)) from error
    return record


def changed_fields(
    record: User | Client, before: dict, fixed: Set[str], unchecked: Set[str] = frozenset()
) -> set[str]:
    """Return the fields that an edit changed since `before`, what `record_as_dict` returned then.

    The rules of the fields in `unchecked` are not applied. Raises ValueError for a changed field in
    `fixed` or a value of another type, InvalidField for one that breaks a rule.
    """
    after = record_as_dict(record)
    changed = {name for name in after if after[name] != before[name]}
    if changed & fixed:
        raise ValueError(f"not changed by an edit: {', '.join(sorted(changed & fixed))}")
    if changed:
        build_record(type(record), after)  # refuses what could not be read again
        refuse_bad_record(record, changed - unchecked)
    return changed
