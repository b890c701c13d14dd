"""The languages of the pages and letters, and how words are shown in one of them."""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from markupsafe import Markup, escape

from identity.site.catalogues import LANGUAGES, read_catalogue
from identity.site.settings import RESOURCES
from model.words import Words, in_english, say_in, say_number, speaker

RIGHT_TO_LEFT = {"ar", "arc", "ckb", "dv", "fa", "he", "ps", "sd", "ur", "yi"}
FOLDER = Path(RESOURCES) / "translations"
LONGEST_HEADER = 1000  # characters of Accept-Language that are read


class Language:
    """A language that words are shown in: a `model.words.Speaker`."""

    def __init__(self, code: str) -> None:
        self.code, self.name = code, LANGUAGES[code]
        self.direction = "rtl" if code.partition("-")[0] in RIGHT_TO_LEFT else "ltr"
        self.catalogue = read_catalogue(file_of(code)) if code != "en" else None
        separators = say_in("number", ","), say_in("number", ".")
        self._separators = {ord(each): self.text(each) for each in separators}

    @property
    def missing(self) -> int:
        """How many sentences are not translated, and shown in English."""
        return getattr(self.catalogue, "missing", 0)

    @property
    def what_is_missing(self) -> str:
        return self.text(
            say_number(
                "%(number)s sentence is not translated yet, and is in English.",
                "%(number)s sentences are not translated yet, and are in English.",
                self.missing,
            )
        )

    def text(self, words: Words) -> str:
        """Return words as text in this language."""
        template = self._template_of(words)
        if not words.values:
            return template
        return template % {name: self._value(each) for name, each in words.values.items()}

    def html(self, words: Words) -> Markup:
        """Return words as HTML in this language; only values that are Markup have tags."""
        return self._fill(escape(self._template_of(words)), words.values)

    def shown(self, text: str) -> str:
        """Return a text as it is, or words as text in this language."""
        return self.text(text) if isinstance(text, Words) else text

    def number(self, number: float) -> str:
        """Return an integer as "2,000", another number as "2.5", as this language separates."""
        return in_english(number).translate(self._separators)

    # -- what templates call: their sentences are HTML, in the catalogue too ---------------------

    def sentence(self, template: str, **values) -> Markup:
        """Return a sentence of a template, in which `values` take the places."""
        return self._fill(self._find("", template), values)

    def counted(self, one: str, other: str, number: int, **values) -> Markup:
        """Return a sentence of a template with a number, %(number)s."""
        template = self._find_plural("", one, other, number)
        return self._fill(template, {"number": number, **values})

    def sentence_in(self, context: str, template: str, **values) -> Markup:
        """Return a sentence of a template that has a context."""
        return self._fill(self._find(context, template), values)

    def _fill(self, template: str, values: dict) -> Markup:
        """Return a template of HTML with values in its places, those of Markup as they are."""
        if values:
            filled = {name: self._value_as_html(each) for name, each in values.items()}
            template = str(template) % filled  # not Markup's own %, which is slow
        return Markup(template)

    def _value_as_html(self, value: object) -> Markup:
        return self.html(value) if isinstance(value, Words) else escape(self._value(value))

    def _value(self, value: object) -> object:
        if isinstance(value, Words):
            return self.text(value)
        return self.number(value) if type(value) in (int, float) else value

    # -- the catalogue ---------------------------------------------------------------------------

    def _template_of(self, words: Words) -> str:
        if words.other:
            return self._find_plural(words.context, words.template, words.other, words.number)
        return self._find(words.context, words.template)

    def _find(self, context: str, template: str) -> str:
        if not self.catalogue or not template:  # gettext has its header under ""
            return template
        if context:
            return self.catalogue.pgettext(context, template)
        return self.catalogue.gettext(template)

    def _find_plural(self, context: str, one: str, other: str, number: int) -> str:
        if self.catalogue:
            try:
                if context:
                    return self.catalogue.npgettext(context, one, other, number)
                return self.catalogue.ngettext(one, other, number)
            except ArithmeticError:  # the catalogue's own rule divides by 0
                pass
        return one if number == 1 else other


def file_of(code: str) -> Path:
    """Return the path of the catalogue of a language."""
    return FOLDER / f"{code.replace('-', '_')}.po"


@functools.cache
def language_of(code: str) -> Language:
    """Return a language; its catalogue is read when it is needed first."""
    return Language(code)


def spoken() -> Language:
    """Return the language of the page or letter that is being written."""
    return speaker.get() or language_of("en")


@contextmanager
def speaking(code: str) -> Iterator[Language]:
    """`with speaking(code):` show words in a language."""
    language = language_of(code)
    token = speaker.set(language)
    try:
        yield language
    finally:
        speaker.reset(token)


def sentence_functions() -> dict[str, Callable[..., Markup]]:
    """Return the functions with which templates mark their sentences, by name."""
    return {
        "_": lambda template, **values: spoken().sentence(template, **values),
        "ngettext": lambda *sentence, **values: spoken().counted(*sentence, **values),
        "pgettext": lambda *sentence, **values: spoken().sentence_in(*sentence, **values),
    }


# -- which language somebody asks for -----------------------------------------------------------


@functools.lru_cache(maxsize=256)
def find_preferred(header: str) -> str | None:
    """Return the language that an Accept-Language header prefers (RFC 9110 12.5.4), or None."""
    ranges = []
    for part in header[:LONGEST_HEADER].split(","):
        tag, _, weight = part.strip().lower().partition(";")
        match = re.fullmatch(r"\s*q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*", weight or "q=1")
        if match and float(match[1]) > 0:
            ranges.append((-float(match[1]), tag.strip()))
    # Sorted by weight alone: of equal ones the first comes first.
    return find_language([tag for _, tag in sorted(ranges, key=lambda each: each[0])])


def find_language(ranges: list[str]) -> str | None:
    """Return the language of the first range that has one (RFC 4647 3.4), None for "*" or none."""
    known = {code.lower(): code for code in LANGUAGES}
    known |= {code.partition("-")[0].lower(): code for code in LANGUAGES}  # "pt" of "pt-BR"
    for each in ranges:
        tag = each.lower()
        if tag == "*":
            return None
        while tag:
            if tag in known:
                return known[tag]
            tag = tag.rpartition("-")[0]
    return None


def first_known(*codes: str | None) -> str:
    """Return the first of the codes that is a language here; an older program knew others."""
    return next((code for code in codes if code in LANGUAGES), "en")
