"""The names of players and clients: what they may be, and which of them look the same.

Each `check_` function returns None, or a sentence that says how to correct the value.
"""

import functools
import itertools
import re
import unicodedata
from pathlib import Path

from model.texts import AFTER_LETTER, check_line, show_character
from model.words import say, say_in

NAME_LENGTH = (2, 30)  # characters, after NFKC
NAME_KEY_BYTES = 120
NAME_KEY = re.compile(r"[^./@][^/@]*", re.DOTALL)  # a file name of flat files
NAME_KEPT_DAYS = 90  # after a name was given up
EMAIL_KEPT_DAYS = 3  # after another address replaced it
NAME_SEPARATORS = " _.-"
TSHEG = "\u0f0b"  # between the syllables of a Tibetan word
NAME_RULE = say("Use 2 to 30 letters and numbers, with spaces, _ . - between them.")
RESERVED = say("This name is reserved. Choose another one.")
# NFKC of a run of marks takes quadratic time: seconds for 60 kB of them.
NORMALISED_LENGTH = 1024  # characters
# What players take for the voice of the site, or for nobody.
RESERVED_NAMES = ("admin", "admins", "administrator", "administrators", "mod", "mods", "moderator")
RESERVED_NAMES += ("moderators", "root", "system", "support", "staff", "official", "none")
RESERVED_NAMES += ("sysadmin", "webmaster", "security", "helpdesk", "this site", "deleted player")
IMITATED_LENGTH = 5  # letters of a site's name from which no other name may contain it
TRADE_MARKS = re.compile("[\u2120\u2122\u24c7\U0001f16a-\U0001f16c]")  # NFKC makes letters of them
# Letters and marks that show nothing: two names that look the same would be two.
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Letters that NFKC would replace by others of their script: of Armenian, Arabic, Thai, Lao, Tibetan
# and Hangul, and forms of Han characters that belong to names.
OWN_FORM = re.compile(
    "([\u0587\u0675-\u0678\u0e33\u0eb3\u0edc\u0edd\u0f77\u0f79\u3131-\u318e\uf900-\ufaff"
    "\U0002f800-\U0002fa1d])"
)
JOINERS = re.compile("[\u200c\u200d]")
JOINERS_IN_NAMES = re.compile(AFTER_LETTER)
# Most marks on a letter, by the first word of their Unicode names; those of other scripts: 3.
MOST_MARKS = {"COMBINING": 2, "MYANMAR": 5, "TAI": 5, "TIBETAN": 5}
EAST_ASIAN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC", "BOPOMOFO"})
SCRIPTS = {  # as pages call them; the others as Unicode does
    "LATIN": say_in("alphabet", "Latin"),
    "GREEK": say_in("alphabet", "Greek"),
    "CYRILLIC": say_in("alphabet", "Cyrillic"),
    "EAST ASIAN": say_in("alphabet", "East Asian"),
}
# Unicode names of letters that are read as apostrophes, quotes and colons: "this siteʼs".
PUNCTUATION_LETTER = re.compile("MODIFIER LETTER .*|.* SALTILLO|LATIN LETTER .* (CLICK|DOT)")
# Unicode names of the variants of a Latin letter, of which UTS 39 lists some.
LATIN_VARIANT = re.compile(
    r"LATIN (?:SMALL LETTER|CAPITAL LETTER|LETTER SMALL CAPITAL) ([A-Z])(?: WITH .*)?"
)
CONFUSABLES = Path(__file__).with_name("confusables.txt")
CLIENT_NAME_LENGTH = 60  # characters


def unique_key(text: str) -> str:
    """Return the same key for two names or email addresses that people read as the same."""
    if len(text) > NORMALISED_LENGTH:  # too long to be either
        return text
    # Joiners show nothing: two names that look the same would be two.
    folded = unicodedata.normalize("NFKC", JOINERS.sub("", text)).casefold()
    # Phones append a space when they complete a word.
    return unicodedata.normalize("NFKC", folded).strip()


def can_be_key(field: str, key: str) -> bool:
    """Return True for a key under which every backend finds its user: of a "name" or "email"."""
    if not key.isprintable():  # half a surrogate pair, for one, has no bytes
        return False
    if field == "email":
        return "@" in key
    return bool(NAME_KEY.fullmatch(key)) and len(key.encode()) <= NAME_KEY_BYTES


def can_be_in_key(part: str) -> bool:
    """Return True for a text that the key of a name may contain."""
    return can_be_key("name", f"a{part}")  # a key begins with no dot, and a part of one may


def normal_name(text: str) -> str:
    """Return a typed name in the form in which it is stored: as its own script writes it."""
    if len(text) > NORMALISED_LENGTH:  # too long to be a name
        return text
    parts = OWN_FORM.split(text)
    parts[::2] = [unicodedata.normalize("NFKC", each) for each in parts[::2]]
    return "".join(parts).strip()


def check_name(name: str, site_name: str = "") -> str | None:
    """Check a name that `normal_name` has returned. Nobody is called as the site is."""
    bare = JOINERS_IN_NAMES.sub("", name)
    if len(bare) < NAME_LENGTH[0] or len(name) > NAME_LENGTH[1]:
        return NAME_RULE
    if name != normal_name(name):
        return say("Some characters only look like others. Use the usual ones.")
    if refused := next((each for each in bare if not _may_be_in_name(each)), None):
        shown = show_character(refused)
        return say(
            "You can't use %(character)s in a name. %(rule)s", character=shown, rule=NAME_RULE
        )
    if unicodedata.category(bare[0])[0] not in "LN" or bare[-1] in NAME_SEPARATORS + TSHEG:
        return say("Start and end with a letter or number.")
    if "  " in bare:
        return say("Use one space at a time.")
    if problem := _check_marks(bare, unmarked=NAME_SEPARATORS + TSHEG):
        return problem
    scripts = list(_scripts_of(bare).items())
    if len(scripts) > 1:
        (one, first), (other, second) = scripts[:2]
        return say(
            "Use letters from one alphabet only: "
            "“%(first)s” is %(one)s, “%(second)s” is %(other)s.",
            first=first,
            one=SCRIPTS.get(one, one.title()),
            second=second,
            other=SCRIPTS.get(other, other.title()),
        )
    if looks_official(name, site_name) or _looks_reset(name):
        return RESERVED
    if len(unique_key(name).encode()) > NAME_KEY_BYTES:
        return say("This name is too long. Choose a shorter one.")
    return None


def _may_be_in_name(character: str) -> bool:
    """Return True for a letter or mark that shows, a digit, or a separator."""
    kind = unicodedata.category(character)
    is_punctuation = PUNCTUATION_LETTER.fullmatch(_name_of(character))
    if kind[0] in "LM" or kind == "Nd":
        return not (is_punctuation or INVISIBLE.match(character))
    return character in NAME_SEPARATORS + TSHEG


def _check_marks(text: str, unmarked: str = "") -> str | None:
    """Check that no letter has more marks than its script puts on one: they cover other lines.

    The `unmarked` characters have none.
    """
    before = ""
    for is_mark, group in itertools.groupby(JOINERS.sub("", text), _is_mark):
        characters = list(group)
        if is_mark and before and before in unmarked:
            return say("Put accents on letters only, not on “%(sign)s”.", sign=before)
        if is_mark and len(characters) > min(map(_most_marks, characters)):
            return say("Put fewer accents on “%(letter)s”.", letter=before)
        before = characters[-1]
    return None


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _most_marks(mark: str) -> int:
    return MOST_MARKS.get(_script_of(mark), 3)


def _name_of(character: str) -> str:
    return unicodedata.name(character, "UNNAMED")


def _scripts_of(name: str) -> dict[str, str]:
    """Return the scripts of a name, each with its first letter; Han, kana and Hangul are one.

    The standard library has no script property: the first word of a character's name is used
    (LATIN, CYRILLIC, CJK). ASCII digits and combining accents go with every script.
    """
    scripts: dict[str, str] = {}
    for character in name:
        word = _script_of(character)
        if character not in NAME_SEPARATORS and word not in ("DIGIT", "COMBINING"):
            scripts.setdefault("EAST ASIAN" if word in EAST_ASIAN else word, character)
    return scripts


def _script_of(character: str) -> str:
    """Return the script of a character: the first word of its Unicode name."""
    return re.split("[ -]", _name_of(character).removeprefix("EXTENDED "))[0]


def check_client_name(name: str, site_name: str | None = None) -> str | None:
    """Check the name that players read when a client asks for access.

    With `site_name` the client is a player's, and its name must not look like the site's.
    """
    if problem := check_line(name, CLIENT_NAME_LENGTH):
        return problem
    # Players must be able to read it on the consent page, and it must not cover other lines.
    if not any(c.isalnum() and not INVISIBLE.match(c) for c in name):
        return "Use at least one letter or number."
    if problem := _check_marks(name):
        return problem
    if site_name is not None and looks_official(name, site_name):
        return RESERVED
    return None


# -- names that look the same -------------------------------------------------------------------


def looks_official(name: str, site_name: str) -> bool:
    """Return True for a name that looks like a reserved one or the site's, or that contains it.

    A site's name below IMITATED_LENGTH may be a part of other words. It is refused beside a
    reserved one.
    """
    names = [*RESERVED_NAMES, site_name]
    for each in RESERVED_NAMES if site_name else ():
        names += [f"{site_name} {each}", f"{each} {site_name}"]
    if any(_looks_of(name) & _looks_of(each) for each in names):
        return True
    sites = [each for each in _looks_of(site_name) if len(each) >= IMITATED_LENGTH]
    return any(site in look for site in sites for look in _looks_of(name))


def _looks_reset(name: str) -> bool:
    """Return True for a name that looks like `player7`, which a moderator's reset gives.

    "player id 7" is what the consent page says of a player.
    """
    return any(re.fullmatch("p[li]ayer(ld)?[0-9lo]+", look) for look in _looks_of(name))


@functools.lru_cache(maxsize=100)  # the reserved names are compared again and again
def _looks_of(text: str) -> frozenset[str]:
    """Return what a text looks like as it is, in small letters and in capital ones.

    Two names look the same if they have a look in common: skeletons as of UTS 39, of which only the
    letters and digits count, of any case.
    """
    looks = {_skeleton(each) for each in (text, text.casefold(), text.upper())}
    return frozenset(looks - {""})


def _skeleton(text: str) -> str:
    """Return the letters and digits of a text, each as the one that it looks like (UTS 39)."""
    text = TRADE_MARKS.sub("", INVISIBLE.sub("", text[:NORMALISED_LENGTH]))
    plain = unicodedata.normalize("NFKD", text)
    # Twice: of one character only the capital letter may be listed, of another the small one.
    for _ in range(2):
        plain = "".join(map(_plain_letter, plain)).translate(_confusables()).casefold()
        plain = unicodedata.normalize("NFKD", plain)
    # A capital i is listed as a small L, which some programs show for both.
    return "".join(filter(str.isalnum, plain)).replace("i", "l")


def _plain_letter(character: str) -> str:
    """Return the Latin letter of which a character is a variant; else the character."""
    variant = None if character.isascii() else LATIN_VARIANT.fullmatch(_name_of(character))
    return variant[1] if variant else character


@functools.cache  # read when the first name is checked: most workers never do
def _confusables() -> dict[int, str]:
    """Return what each confusable character looks like, for `str.translate`."""
    lines = CONFUSABLES.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {ord(character): look for look, characters in rows for character in characters}
