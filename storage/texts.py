"""Characters that a text may not have: those that show nothing, or that programs obey."""

import re

BIO_CONTROLS = "\n\t\u2028\u2029"  # ends of lines, and tabs
# Characters that show nothing, or that turn the direction of the text around them (category Cf but
# for visible signs). The first group matches those that may stay: joiners inside of emoji and of
# words in Arabic or Indian letters, and the tags that make the flag of a part of a country.
_HIDDEN = "\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
_HIDDEN += "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
HIDDEN = re.compile(
    f"((?<=[^\x00-\x7f{_HIDDEN}])[\u200c\u200d](?=[^\x00-\x7f{_HIDDEN}])"
    f"|\U0001f3f4[\U000e0030-\U000e007a]{{1,6}}\U000e007f)|[{_HIDDEN}]"
)
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def has_controls(text: str, allowed: str = "") -> bool:
    """Return True for a text with control characters, which a terminal would obey."""
    # What is printable has none of them, which is faster to find out.
    return not text.isprintable() and any(each not in allowed for each in CONTROL.findall(text))


def drop_hidden(text: str) -> str:
    """Return a text without the characters that show nothing or turn the direction of others."""
    return text if text.isprintable() else HIDDEN.sub(r"\1", text)
