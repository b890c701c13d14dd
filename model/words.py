"""Sentences for people: English texts that can be shown in the reader's language.

A sentence is marked where it is written, by `say`, `say_number` or `say_in`, and translated where
it is shown: on a page, in a letter. Everywhere else it is the English text: in the terminal, in
JSON, in the log. Its places are %(name)s. `translations/update` finds the marked sentences, so each
template is written out as a literal.
"""

import html
import json
import re
from contextvars import ContextVar
from typing import Protocol

PLACE = re.compile(r"%\(\w+\)s|%%")
LONGEST_KEPT = 10_000  # characters of words in a record, and of the text that they are
DEEPEST_KEPT = 10  # words in words


class Speaker(Protocol):
    """What shows words in one language: `identity.site.languages.Language`."""

    def html(self, words: "Words") -> str:
        """Return the words as HTML."""


# The language of the page or the letter that is being written; None is English.
speaker: ContextVar[Speaker | None] = ContextVar("speaker", default=None)


class Words(str):
    """An English text that remembers its template, and the values in that.

    A value is a text, an integer, a float (shown with one decimal), further words, or HTML as
    Markup. Jinja and Markup show the words in the language of the page (`__html__`). Formatting,
    joining and cutting make plain English of them. Records take what `plain` returns of them.
    """

    __slots__ = ("context", "number", "other", "template", "values")

    def __new__(
        cls, template: str, values: dict, context: str = "", other: str = "", number: int = 1
    ) -> "Words":
        text = template if number == 1 else other
        if values:
            text %= {name: in_english(each) for name, each in values.items()}
        self = super().__new__(cls, text)
        self.template, self.values, self.context = template, values, context
        self.other, self.number = other, number
        return self

    def fill(self, **values) -> "Words":
        """Return these words, of one form and without values, with values in their places."""
        return Words(self.template, values, self.context)

    def __str__(self) -> str:
        return self  # `str(error)` keeps the words of an error

    def __html__(self) -> str:
        spoken = speaker.get()
        return spoken.html(self) if spoken else html.escape(plain(self))

    def __reduce__(self) -> tuple:
        return Words, (self.template, self.values, self.context, self.other, self.number)


def in_english(value: object) -> str:
    """Return a value of words as the terminal shows it: 2000 as "2,000", 2.5 as "2.5"."""
    if type(value) is int:
        return f"{value:,}"
    return f"{value:,.1f}" if type(value) is float else str(value)


def say(template: str, **values) -> Words:
    """Mark a sentence."""
    return Words(template, values)


def say_number(one: str, other: str, number: int, **values) -> Words:
    """Mark a sentence with a number, %(number)s: `one` for 1, `other` for all other numbers."""
    return Words(one, {"number": number, **values}, other=other, number=number)


def say_in(context: str, template: str, **values) -> Words:
    """Mark a text that needs a context: "Look" on a tab is another word than on a button."""
    return Words(template, values, context)


def plain(text: str) -> str:
    """Return words as their English text, which a record can keep; another text as it is."""
    return str.__str__(text)


def dump_words(text: str) -> str:
    """Return words as JSON that a record can keep, "" for other text. See `load_words`."""
    return json.dumps(_as_json(text), ensure_ascii=False) if isinstance(text, Words) else ""


def load_words(kept: str, text: str) -> str:
    """Return the words that `dump_words` made JSON of; the `text` itself if they are none.

    A record may have been edited by hand: what could not be shown is the text.
    """
    try:
        words = _from_json(json.loads(kept)) if 0 < len(kept) <= LONGEST_KEPT else text
        plain(words).encode()  # no half of a character
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return text
    return words if isinstance(words, Words) else text


def _as_json(value: object) -> object:
    if not isinstance(value, Words):
        return value if type(value) in (int, float) else str(value)
    values = {name: _as_json(each) for name, each in value.values.items()}
    return [value.template, values, value.context, value.other, value.number]


def _from_json(value: object, depth: int = 0) -> object:
    if not isinstance(value, list):
        return value if type(value) in (int, float) else str(value)
    template, values, context, other, number = value
    has_types = {type(template), type(context), type(other)} == {str} and type(number) is int
    if not has_types or depth > DEEPEST_KEPT or (values and "%" in PLACE.sub("", template + other)):
        raise ValueError
    values = {name: _from_json(each, depth + 1) for name, each in values.items()}
    words = Words(template, values, context, other, number)
    if len(words) > LONGEST_KEPT:
        raise ValueError
    return words
