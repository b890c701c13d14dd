"""What people paste, or type from paper, with all that comes with it.

Chats and letters put <>, a full stop or words around a link, keyboards make dashes of hyphens and
write wide or Arabic digits, and some programs add characters that show nothing.
"""

import re
import unicodedata
from urllib.parse import unquote

LONGEST = 1000  # characters in which a code is looked for
# No name, address of mail, id or path begins or ends with these.
WRAPPING = ' \t\r\n\u00a0<>()[]"“”„«»‘’,;:.'
BEHIND_ADDRESS = ')>],.;:!?"”»\u200b\u2060\ufeff'
BETWEEN = r"[\s.,\u2010-\u2015\u2212-]*"  # may stand between the characters of a code
SECRET = "[A-Za-z0-9_-][A-Za-z0-9_.-]{15,}"  # signed, or of `secrets.token_urlsafe`


def drop_unseen(text: str) -> str:
    """Return a text without what shows nothing, joiners too (unlike `drop_hidden`); spaces stay."""
    return "".join(each for each in text if each.isprintable() or each.isspace())


def unwrap(text: str) -> str:
    """Return a name, address, id or path without WRAPPING; a text of nothing else is kept."""
    return drop_unseen(text).strip(WRAPPING) or text.strip()


def find_code(text: str, letters: str, length: int) -> str | None:
    """Return the first code of so many letters in a text, in any case and grouping, or None.

    `letters` are capital ones, or digits, as of a class in a regular expression.
    """
    plain = unicodedata.normalize("NFKC", drop_unseen(text[:LONGEST])).upper()
    plain = "".join(str(int(each)) if each.isdecimal() else each for each in plain)
    code = rf"[{letters}](?:{BETWEEN}[{letters}]){{{length - 1}}}"
    match = re.search(rf"(?<![^\W_]){code}(?![^\W_])", plain)
    return re.sub(BETWEEN, "", match[0]) if match else None


def find_secret(text: str, mark: str) -> str:
    """Return the secret of a link, behind the `mark` or alone; without one, the text stripped."""
    plain = unquote(drop_unseen(text))  # some programs encode the mark
    found = re.search(f"{re.escape(mark)}({SECRET})", plain) or re.search(f"({SECRET})", plain)
    return found[1].rstrip(".") if found else plain.strip()
