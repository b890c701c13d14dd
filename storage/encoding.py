"""Records as JSON: what is stored of them."""

import codecs
import functools
import json
from dataclasses import asdict, fields, is_dataclass
from types import UnionType
from typing import NamedTuple

from storage.errors import DamagedRecord
from storage.records import User


class Shape(NamedTuple):
    """What the fields of a record may hold, by their names."""

    types: dict[str, tuple[type, ...]]  # of JSON: `list` for `list[str]`, `dict` for a record
    text_lists: list[str]
    records: dict[str, tuple[type, type]]  # fields with records: list, dict or one, and their type


@functools.cache
def _shape_of(record_type: type) -> Shape:
    shape = Shape({}, [], {})
    for each in fields(record_type):
        options = each.type.__args__ if isinstance(each.type, UnionType) else (each.type,)
        containers = [getattr(option, "__origin__", option) for option in options]
        shape.types[each.name] = tuple(dict if is_dataclass(it) else it for it in containers)
        if each.type == list[str]:
            shape.text_lists.append(each.name)
        for option, container in zip(options, containers, strict=True):
            inner = getattr(option, "__args__", (option,))[-1]
            if is_dataclass(inner):
                shape.records[each.name] = container, inner
    return shape


class BadValue(ValueError):
    """A value that a field of a record cannot have; `problem` is a whole sentence."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


def build_record(record_type: type, values: dict):
    """Return the record that decoded JSON describes.

    Raises BadValue for a value of another type, TypeError for a field that is missing or unknown.
    """
    record = record_type(**values)
    types, text_lists, records = _shape_of(record_type)
    for name, value in values.items():
        if type(value) not in types[name]:  # not isinstance: True is no number here
            raise BadValue(name, "This has the wrong type.")
    for name in text_lists:
        for each in getattr(record, name):
            if type(each) is not str:
                raise BadValue(name, "This is not a list of texts.")
    for name, (container, inner) in records.items():
        if (value := getattr(record, name)) is not None:
            setattr(record, name, _build_inside(container, inner, value))
    if record_type is User:
        _check_flairs(record)
    return record


def _check_flairs(user: User) -> None:
    if user.equipped_flair not in user.flairs or "none" not in user.flairs:
        raise BadValue("flairs", "'none' or the equipped flair is missing.")


def _build_inside(container: type, record_type: type, value: list | dict):
    """Return a field with records: a list or a dict of them, or one."""
    if container is list:
        return [build_record(record_type, each) for each in value]
    if container is dict:
        return {key: build_record(record_type, each) for key, each in value.items()}
    return build_record(record_type, value)


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
