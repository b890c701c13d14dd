"""Characters that a text may not have: those that show nothing, or that programs obey."""

import re
import unicodedata

from model.words import say

BIO_CONTROLS = "\n\t\u2028\u2029"  # ends of lines, and tabs
# Behind a letter of Arabic, or of a script of India, a joiner changes how the word is written.
AFTER_LETTER = "(?<=[\u0620-\u0dff])[\u200c\u200d]"
# Characters that show nothing, or that turn the direction of the text around them (category Cf but
# for visible signs). The first group matches those that may stay: joiners of these scripts and
# inside of emoji, and the tags that make the flag of a part of a country.
_HIDDEN = "\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
_HIDDEN += "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
HIDDEN = re.compile(
    f"({AFTER_LETTER}|(?<=[^\x00-\x7f{_HIDDEN}])[\u200c\u200d](?=[^\x00-\x7f{_HIDDEN}])"
    f"|\U0001f3f4[\U000e0030-\U000e007a]{{1,6}}\U000e007f)|[{_HIDDEN}]"
)
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
EMOJI = re.compile("[\U0001f000-\U0001faff]")  # this Python may not know the newest


def has_controls(text: str, allowed: str = "") -> bool:
    """Return True for a text with control characters, which a terminal would obey."""
    # What is printable has none of them, which is faster to find out.
    return not text.isprintable() and any(each not in allowed for each in CONTROL.findall(text))


def find_hidden(text: str, allowed: str = "") -> str | None:
    """Return a control character that is not in `allowed`, else one that shows nothing, else None.

    Invisible characters that a word or an emoji needs are not returned.
    """
    found = [match[0] for match in CONTROL.finditer(text) if match[0] not in allowed]
    found += [match[0] for match in HIDDEN.finditer(text) if not match[1]]
    return next(iter(found), None)


def drop_hidden(text: str) -> str:
    """Return a text without the characters that show nothing or turn the direction of others."""
    return text if text.isprintable() else HIDDEN.sub(r"\1", text)


def find_unprintable(text: str) -> str | None:
    """Return the first character that a text on one line must not have, or None."""
    if text.isprintable():
        return None
    shown = HIDDEN.sub(lambda match: "" if match[1] else match[0], text)
    return next((each for each in shown if not each.isprintable() and not EMOJI.match(each)), None)


def check_line(text: str, most: int, least: int = 1) -> str | None:
    """Check a text on one line, of `least` to `most` characters, without spaces around it."""
    refused = find_unprintable(text)
    if not refused and least <= len(text) <= most and text == text.strip():
        return None
    rule = say("Use up to %(most)s characters on one line.", most=most)
    if least:
        rule = say("Use %(least)s to %(most)s characters on one line.", least=least, most=most)
    if not refused:
        return rule
    shown = show_character(refused)
    return say("You can't use %(character)s here. %(rule)s", character=shown, rule=rule)


def show_character(character: str) -> str:
    """Return a character as messages name it: “!”, or U+200B (zero width space)."""
    if character.isascii() and character.isprintable():
        return f"“{character}”"
    code, name = f"U+{ord(character):04X}", unicodedata.name(character, "").lower()
    is_seen = character.isprintable() and not unicodedata.category(character).startswith("M")
    shown = f"“{character}” " if is_seen else ""
    return f"{shown}{code} ({name})" if name else f"{shown}{code}"
