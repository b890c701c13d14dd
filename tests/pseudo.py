"""Pseudo languages: catalogues made of the marked sentences, which show what is not marked."""

import contextlib
import functools
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from bs4 import BeautifulSoup

from identity.site import languages
from identity.site.catalogues import LANGUAGES

TEMPLATE = languages.FOLDER / "messages.pot"

# No letter of ASCII: what is in ASCII on a page was not marked.
ACCENTED = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "àƀćđéƒĝĥîĵķļɱñöþɋřšţûṽŵẋýžÀƁĆĐÉƑĜĤÎĴĶĻṀÑÖÞɊŘŠŢÛṼŴẊÝŽ",
)
ARABIC = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "ابجدهفغحيىكلمنوبقرستعوشخيزابجدهفغحيىكلمنوبقرستعوشخيز",
)
KEPT = re.compile(r"(%\(\w+\)s|%%?|<[^<>]*>|&\w+;)")

PSEUDO = "qps"
# What people wrote, what is code, and what is English in every language: each marked up as such.
NOT_OURS = "script, style, bdi, code, pre, textarea, time, [dir=auto], [dir=ltr]:not(html), "
NOT_OURS += "[lang]:not(html)"
SHOWN = ("alt", "aria-label", "title", "placeholder", "data-copy", "data-local", "label")
WORD, CODE = re.compile(r"[A-Za-z]{2,}"), re.compile(r"#[0-9a-f]{6}|IDENTITY_\S+")
NAMES = {"Identity", "Server", "UTC", "Discord", "http", "localhost"}


def accented(text: str) -> str:
    """Return a text with accents and a third longer: each third letter is there twice."""
    return _change(text, lambda part: re.sub(r"(\w)(\w\w)", r"\1\1\2", part).translate(ACCENTED))


def arabic(text: str) -> str:
    """Return a text in Arabic letters."""
    return _change(text, lambda part: part.translate(ARABIC))


def _change(text: str, change: Callable[[str], str]) -> str:
    """Return a text of which `change` changed what is not a place or a tag."""
    parts = KEPT.split(text)
    parts[::2] = map(change, parts[::2])
    return "".join(parts)


@contextlib.contextmanager
def pseudo_language(folder: Path, code: str, change: Callable[[str], str]) -> Iterator[None]:
    """`with pseudo_language(...):` a language whose texts `change` makes of the sources."""
    with catalogue_in(folder, code, pseudo_catalogue(change)):
        yield


@contextlib.contextmanager
def catalogue_in(folder: Path, code: str, content: bytes) -> Iterator[None]:
    """`with catalogue_in(...):` a language with this catalogue, in a folder without others."""
    (folder / f"{code.replace('-', '_')}.po").write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(languages, "FOLDER", folder)
        patch.setitem(LANGUAGES, code, LANGUAGES.get(code, "The pseudo language"))
        forget_languages()
        yield
    forget_languages()


def forget_languages() -> None:
    languages.language_of.cache_clear()
    languages.find_preferred.cache_clear()


@functools.cache
def pseudo_catalogue(change: Callable[[str], str]) -> bytes:
    """Return the catalogue of all marked sentences, each changed."""
    with TEMPLATE.open("rb") as file:
        template = read_po(file)
    catalogue = Catalog(locale="en")
    for message in template:
        if message.id:
            sources = message.id if isinstance(message.id, tuple) else (message.id,)
            texts = tuple(map(change, sources))
            string = texts if len(texts) > 1 else texts[0]
            catalogue.add(message.id, string, context=message.context)
    return _written(catalogue)


def catalogue_of(translations: dict[str, str]) -> bytes:
    """Return a catalogue with these translations, by their sentences."""
    catalogue = Catalog(locale="en")
    for sentence, translation in translations.items():
        catalogue.add(sentence, translation)
    return _written(catalogue)


def _written(catalogue: Catalog) -> bytes:
    with io.BytesIO() as file:
        write_po(file, catalogue)
        return file.getvalue()


# -- what is not marked --------------------------------------------------------------------------


def unmarked(page, names: set[str] = frozenset()) -> list[str]:
    """Return the texts of a page that were not marked; `names` are words that stay as they are."""
    kept = NAMES | names
    return [text for text in texts_of(page.text) if set(WORD.findall(CODE.sub("", text))) - kept]


def texts_of(html: str) -> list[str]:
    """Return the texts of a page that are sentences of ours."""
    soup = BeautifulSoup(html, "html.parser")  # not `parse`: it is changed
    texts = []
    for script in soup.select("script"):  # with the words that it shows
        texts += [text for name, text in script.attrs.items() if name.startswith("data-")]
    for each in soup.select(NOT_OURS):
        each.decompose()
    texts += soup.stripped_strings
    texts += [text.strip() for each in soup.select("template") for text in each.strings]
    texts += [tag[name] for tag in soup.select("*") for name in SHOWN if tag.has_attr(name)]
    texts += [tag["content"] for tag in soup.select('[name=description], [property*="descr"]')]
    return texts
