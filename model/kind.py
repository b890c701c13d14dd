"""The kind of a record: what a backend needs to keep the records of a kind, and their keys."""

import functools
import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any

from model import rules
from model.encoding import build_record, record_as_dict
from model.errors import KeyTaken, NotFound

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
# Such a key is itself the name of a folder in flat files, where its order is that of the keys.
SHORT_KEY = re.compile(r"[a-z0-9]{1,64}")
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
    """A key that several records of a kind share.

    `of` returns the key of a record, None for a record without one. It depends on `fields` alone.
    """

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
    archived: bool = True  # in a backup
    copied: bool = True  # in a copy; a letter with a link that works must not be sent again
    counts: bool = True  # an installation with such a record is not empty
    most_bytes: int = 2**20  # of a record in a backup
    checked: bool = True  # by a check; not what ends by itself and is had again by a sign-in

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
        """Return the key with this name. Raises KeyError for a name that the kind does not have."""
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
        """Return the error for an id without a record; it shows an id only if that is a number."""
        which = f"{self.one} {record_id}" if self.number else f"such {self.one}"
        return self.missing(f"there is no {which}")

    def has_expired(self, record: Any, now: int) -> bool:
        """Return True for a record that does not count any more."""
        return self.expires is not None and self.expires(record) <= now

    def require_rules(self, record: Any, changed: Set[str] | None = None) -> None:
        """Raise InvalidField for the first field that breaks its rule.

        With `changed`, only the fields of these names are checked: a record that is older than a
        rule can still be edited.
        """
        for name, check in self.rules(record).items():
            if changed is None or name in changed:
                rules.refuse(name, check(getattr(record, name)))

    def changed_fields(self, record: Any, before: dict, changes: Set[str]) -> Set[str]:
        """Return the names of the fields that an edit changed; `before` has their old values.

        `changes` are the fields that the edit announced, of which it has checked the rules. Raises
        ValueError for any other fixed field or a value of another type, InvalidField for one that
        breaks a rule.
        """
        after = record_as_dict(record)
        changed = {name for name in after if after[name] != before[name]}
        if fixed := changed & self._fixed_fields(changes):
            raise ValueError(f"not changed by this edit: {', '.join(sorted(fixed))}")
        if changed:
            build_record(self.record, after)  # refuses what could not be read again
            self.require_rules(record, changed - changes)
        return changed

    def _fixed_fields(self, changes: Set[str]) -> Set[str]:
        # A record under one of several locks keeps its unique keys, unless the lock of the kind is
        # held as well.
        keys = self.unique if self.locks > 1 else ()
        return self.fixed.union(*(each.fields for each in keys)) - changes


def day_of(time: int) -> str:
    """Return the number of a day, as text in the order of days."""
    return f"{time // DAY_MS:06d}"


FIRST_DAY = day_of(0)


def hour_of(time: int) -> str:
    """Return the number of an hour, as text in the order of hours."""
    return f"{time // HOUR_MS:07d}"
