"""Records as JSON: what is stored of them."""

import codecs
import json
from dataclasses import fields, is_dataclass
from types import UnionType

from model.errors import DamagedRecord
from model.records import User

DECODER = json.JSONDecoder()  # json.loads takes a tenth longer


class _Shapes(dict):
    """What the fields of each type of record may hold; functools.cache would take twice as long.

    A shape has the types in JSON of each field, `list` for `list[str]` and `dict` for a record; the
    fields with texts, numbers or records inside: name, container and what is in it; and the names
    of those that are `added`.
    """

    def __missing__(self, record_type: type) -> tuple[dict, list, set]:
        """Return the shape of a type that was not asked for before, and keep it."""
        types: dict[str, tuple[type, ...]] = {}
        inside: list[tuple[str, type, type]] = []
        for each in fields(record_type):
            options = each.type.__args__ if isinstance(each.type, UnionType) else (each.type,)
            containers = [getattr(option, "__origin__", option) for option in options]
            types[each.name] = tuple(dict if is_dataclass(it) else it for it in containers)
            for option, container in zip(options, containers, strict=True):
                inner = getattr(option, "__args__", (option,))[-1]
                if is_dataclass(inner) or each.type in (list[str], list[int]):
                    inside.append((each.name, container, inner))
        new = {each.name for each in fields(record_type) if "added" in each.metadata}
        self[record_type] = types, inside, new
        return self[record_type]


_SHAPES = _Shapes()


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
    types, inside, _ = _SHAPES[record_type]
    for name, value in values.items():
        if type(value) not in types[name]:  # not isinstance: True is no number here
            raise BadValue(name, "This has the wrong type.")
    for name, container, inner in inside:
        value = getattr(record, name)
        if inner in (str, int):
            _require_each(name, value, inner)
        elif container is list and value:
            setattr(record, name, [build_record(inner, each) for each in value])
        elif container is dict and value:
            setattr(record, name, {key: build_record(inner, value[key]) for key in value})
        elif container is inner and value is not None:
            setattr(record, name, build_record(inner, value))
    if record_type is User:
        _require_flairs(record)
    return record


def _require_flairs(user: User) -> None:
    if user.equipped_flair not in user.flairs or "none" not in user.flairs:
        raise BadValue("flairs", "'none' or the equipped flair is missing.")


def _require_each(field: str, values: list, type_inside: type) -> None:
    for each in values:
        if type(each) is not type_inside:
            words = "texts" if type_inside is str else "numbers"
            raise BadValue(field, f"This is not a list of {words}.")


def record_as_dict(record, stored: bool = False) -> dict:
    """Return the record as JSON values, in the order of its fields.

    With `stored`, an `added` field without a value is left out. `dataclasses.asdict` takes five
    times as long.
    """
    types, _, new = _SHAPES[type(record)]
    left_out = new if stored else ()
    values = ((name, getattr(record, name)) for name in types)
    return {name: _as_json(each, stored) for name, each in values if each or name not in left_out}


def _as_json(value: object, stored: bool) -> object:
    """Return the value of a field with each record inside as a dict, as `record_as_dict` has it."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list):
        return [_as_json(each, stored) for each in value]
    if isinstance(value, dict):
        return {name: _as_json(each, stored) for name, each in value.items()}
    return record_as_dict(value, stored) if is_dataclass(value) else value


def encode_values(values: dict) -> bytes:
    """Return JSON that people can read and edit: indented, keys in the record's order."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def decode_record(content: bytes, record_type: type, path: str, **expected: object):
    """Return the record in `content`. Raises DamagedRecord at `path`, also if not as `expected`."""
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode().strip()
        values, end = DECODER.raw_decode(text)
        if end < len(text):
            raise ValueError("there is more behind the record")
        # The decoder accepts half a surrogate pair as an escape, which nothing can encode again.
        if b"\\u" in content:
            encode_values(values)
        record = build_record(record_type, values)
        for name, value in expected.items():
            if getattr(record, name) != value:
                raise ValueError(f"its {name} is {getattr(record, name)!r}")
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedRecord("/".join(path.split("/")[-2:]), str(error)) from error
    return record
