"""The pages of a list of records in the order of their ids."""

from collections.abc import Callable
from typing import Any, NamedTuple

from flask import request

from model.kind import Kind


class Page(NamedTuple):
    """The records on a page, and the ids at its ends if there are records before or after it."""

    shown: list[Any]
    previous: int | str | None = None
    next: int | str | None = None


def place_in(kind: Kind, parameter: str) -> int | str | None:
    """Return the id in a query parameter, None if that is missing or no id of this kind."""
    return kind.parse_id(request.args.get(parameter, ""))


def page_beside(
    read: Callable[..., list],
    size: int,
    before: int | str | None = None,
    after: int | str | None = None,
) -> Page:
    """Return the page of up to `size` records `before` an id, else `after` one, else the first.

    `read` is called with the id or None, a number of records, and True to go down from the id.
    """
    found = read(before or after, size + 1, bool(before))
    if not found:
        return Page([])
    page, has_more = found[:size], len(found) > size
    if before:
        page.reverse()
    is_first, is_last = (not has_more, False) if before else (not after, not has_more)
    return Page(page, None if is_first else page[0].id, None if is_last else page[-1].id)
