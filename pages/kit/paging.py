"""The pages of a list of records, and the addresses of those beside the one that is shown."""

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

from flask import request

from model.kind import Kind

PLACES_KEPT = 8  # of earlier pages in an address: a key of a name may be long


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


def addresses_beside(place: int | str | None, name: str = "after") -> dict[str, str | None]:
    """Return the addresses of the `first` page, the `previous` and the `next`, None without one.

    It is for a list that is read in one direction: the next page begins behind `place`, which its
    address has as `name`. The places of up to PLACES_KEPT pages before it are there as `back`.
    """
    here, back = request.args.get(name, ""), request.args.getlist("back")[-PLACES_KEPT:]
    others = [each for each in request.args.items(multi=True) if each[0] not in (name, "back")]

    def address_of(place: int | str, back: list[str]) -> str:
        query = [*others, (name, place), *(("back", each) for each in back)]
        return f"{request.path}?{urlencode(query)}"

    return {
        "first": address_of("", []) if here else None,
        "previous": address_of(back[-1], back[:-1]) if back else None,
        "next": None if place is None else address_of(place, [*back, here]),
    }
