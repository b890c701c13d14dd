"""Catalogues: the sentences of one language, read from a file in `translations/`.

A file is a `.po` of GNU gettext, as translators' programs write it, and is read as it is: there is
nothing to compile. What is wrong in it costs its own sentence, which stays English, and a line in
the log.
"""

import gettext
import io
import logging
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# By BCP 47 tag, each in its own words. A language is offered when four fifths of the sentences are
# translated: tests/test_translations.py.
LANGUAGES = {
    "en": "English",
    "de": "Deutsch",
    "es": "Español",
    "fr": "Français",
    "ja": "日本語",
    "pl": "Polski",
    "pt-BR": "Português (Brasil)",
}
LARGEST_FILE = 1_000_000  # bytes; a catalogue of all sentences has 200,000
LOG = logging.getLogger(__name__)
LINE = re.compile(r'(msgctxt|msgid|msgid_plural|msgstr|msgstr\[\d\])? *"([^\0]*)"')
ESCAPE = re.compile(r"\\(.)")
ESCAPES = {"n": "\n", "t": "\t"}
# What a translation has as often as its source: places, and what becomes HTML in a template, or a
# line in a letter.
PART = re.compile(r"<[^<>]*>|%\(\w+\)s|&\w+;|[%<>&\"\x00-\x1f\x7f-\x9f\u2028\u2029\u202d\u202e]")
TAG = re.compile(r"<(/?)(\w+)")
CONTEXT_END = "\x04"  # of gettext, between the context of a sentence and the sentence


class BadCatalogue(ValueError):
    """A file is no catalogue that can be used; the text says why."""


def read_catalogue(path: Path) -> gettext.NullTranslations:
    """Return the catalogue in a file; an empty one, and a line in the log, if it cannot be used."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise BadCatalogue(f"it is larger than {LARGEST_FILE:,} bytes")
        return build_catalogue(path.read_bytes().decode(), path)
    except Exception as error:  # gettext raises others as well, for a header that it cannot read
        LOG.error("%s is not used, its pages are in English: %s", path.name, error)
        return gettext.NullTranslations()


def build_catalogue(text: str, path: Path) -> gettext.GNUTranslations:
    """Return the catalogue of a file's text, with the number of sentences that are `missing`.

    Raises ValueError.
    """
    entries, wrong, missing, plurals = {}, [], 0, 0
    for entry in parse_entries(text):
        source = entry["msgid"]
        if not source:
            entries[""], plurals = _read_header(entry["msgstr"])
        elif not any(forms := forms_of(entry)):
            missing += 1
        elif problem := problem_of(entry, plurals):
            wrong.append(f"{source!r}: {problem}")
        else:
            key = f"{entry['msgctxt']}{CONTEXT_END}{source}" if "msgctxt" in entry else source
            key += f"\0{entry['msgid_plural']}" if "msgid_plural" in entry else ""
            entries[key] = "\0".join(forms)
    if not plurals:
        raise BadCatalogue("it has no header")
    if wrong:
        LOG.error("%s: %d sentences stay English, such as %s", path.name, len(wrong), wrong[0])
    catalogue = gettext.GNUTranslations(io.BytesIO(_as_mo(entries)))
    catalogue.plural(1)  # Python 3.12 asks for that at each sentence that is missing
    catalogue.missing = missing + len(wrong)
    return catalogue


def parse_entries(text: str) -> Iterator[dict[str, str]]:
    """Yield the entries of a `.po` but fuzzy ones: by "msgctxt", "msgid", "msgstr[0]" and so on.

    Raises BadCatalogue for a line that no catalogue has, or an entry that is cut off.
    """
    parts, field, is_fuzzy = {}, "", False
    lines = map(str.strip, text.removeprefix("\ufeff").split("\n"))
    for number, line in enumerate([*lines, ""], 1):
        if line.startswith("#"):
            is_fuzzy = is_fuzzy or (line.startswith("#,") and "fuzzy" in line)
        elif not line:
            entry = {name: "".join(each) for name, each in parts.items()}
            if entry and not ("msgid" in entry and forms_of(entry)):
                raise BadCatalogue(f"the entry above line {number} is not whole")
            # Tools mark the header of a new file as fuzzy.
            if entry and (not is_fuzzy or not entry["msgid"]):
                yield entry
            parts, field, is_fuzzy = {}, "", False
        else:
            match = LINE.fullmatch(line)
            field = (match and match[1]) or field
            if not match or not field:
                raise BadCatalogue(f"line {number} is not of a catalogue")
            part = ESCAPE.sub(lambda found: ESCAPES.get(found[1], found[1]), match[2])
            parts.setdefault(field, []).append(part)


def forms_of(entry: dict[str, str]) -> list[str]:
    """Return the translation of an entry: one text, or one for each plural form."""
    return [text for field, text in entry.items() if field.startswith("msgstr")]


def problem_of(entry: dict[str, str], plurals: int) -> str | None:
    """Return why a translated entry cannot be used in a language with so many plural forms."""
    forms, sources = forms_of(entry), [entry["msgid"], entry.get("msgid_plural", entry["msgid"])]
    needed = plurals if "msgid_plural" in entry else 1
    if len(forms) != needed or not all(forms):
        return f"it needs {needed} forms"
    allowed = [_parts(each) for each in sources]
    # The form for one may leave the number out, as "One player" does.
    first = [each - Counter(["%(number)s"]) for each in allowed if "msgid_plural" in entry]
    if any(_parts(form) not in allowed + first * (form is forms[0]) for form in forms):
        return "places like %(name)s and tags differ from the source"
    if max(map(len, forms)) > 5 * max(map(len, sources)) + 100:  # a notice goes into the cookie
        return "it is far longer than the source"
    if not all(map(_closes_opened, forms)):
        return "a tag is closed before it is opened"
    return None


def _parts(text: str) -> Counter:
    """Return how often a text has each place, and each tag or other sign of HTML."""
    return Counter(PART.findall(text))


def _closes_opened(text: str) -> bool:
    """Return False if a link, say, would end before it begins: it would go on behind the text."""
    opened = Counter()
    for slash, name in TAG.findall(text):
        opened[name] += -1 if slash else 1
        if opened[name] < 0:
            return False
    return True


def _read_header(header: str) -> tuple[str, int]:
    """Return what gettext needs of a header, and the number of plural forms."""
    match = re.search(r"Plural-Forms: *nplurals *= *([1-6]) *;.*", header)
    if not match:
        raise BadCatalogue("its header has no plural forms")
    return f"Content-Type: text/plain; charset=UTF-8\n{match[0]}\n", int(match[1])


def _as_mo(entries: dict[str, str]) -> bytes:
    """Return the catalogue in the format that `gettext.GNUTranslations` reads."""
    pairs = sorted((key.encode(), text.encode()) for key, text in entries.items())
    start = 28 + 16 * len(pairs)  # behind the header and both tables
    tables, strings = [], bytearray()
    for column in (0, 1):
        for pair in pairs:
            tables += [len(pair[column]), start + len(strings)]
            strings += pair[column] + b"\0"
    head = [0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0]
    return struct.pack(f"<{7 + len(tables)}I", *head, *tables) + strings
