"""The rules of the records' fields: what is accepted and what is refused, in tables."""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import SplitResult, urlsplit

import pytest

from identity.acts.look import check_welcome
from identity.site.settings import SettingError, read_settings
from model.addresses import ascii_email, check_email, login_key, normal_email
from model.client_rules import check_new_uris
from model.names import CONFUSABLES, check_client_name, check_name, normal_name, unique_key
from model.records import Client
from model.rules import (
    COMMON_LENGTH,
    COMMON_PASSWORDS,
    check_bio,
    check_flair,
    check_note,
    check_passkey_name,
    check_password,
    check_redirect_uri,
    check_report_text,
    check_short_text,
)
from model.texts import CONTROL, HIDDEN, drop_hidden


def rows(problem: str, *texts: str) -> list[tuple[str, str]]:
    """Return each text with a part of the problem that its check has to return."""
    return [(text, problem) for text in texts]


def judge(subtests, check: Callable[[str], str | None], accepted: list, refused: list) -> None:
    """Check that texts are accepted, and others refused with a problem."""
    for text in accepted:
        with subtests.test(ascii(text)):
            assert check(text) is None
    for text, problem in refused:
        with subtests.test(ascii(text)):
            assert problem in (check(text) or "accepted")


# -- Names ---------------------------------------------------------------------------------------


def test_name_rules(subtests):
    accepted = [
        *("Ad", "Ada", "a" * 30, "7of9", "42", "ada-lovelace", "Ada L. King", "x_y", "A.b.C"),
        *("José", "Łukasz", "Ærø", "Zoë", "ẞa", "Ọ̀ṣun", "İpek", "x\u0323\u0304y"),
        *("Ада", "Ελένη", "Анна7", "שרה", "فاطمة", "علی۴", "मीरा", "สมชาย", "ქეთი", "Անի", "𐌰𐌳𐌰"),
        *("漢字かなカナ", "あだ", "アダー", "佐々木", "김하나", "한漢", "ㄅㄆ", "アダ7"),
        *("Modern", "Supporter", "Staffan", "Roots", "Admina", "rn", "いもうと", "ๆมา", "くノ"),
        *("player", "player one", "players7", "7player", "rooted", "None1"),
        # Plain ones after normal_name
        *("Ａｄａ", "𝒜𝒹𝒶", "ﬁne", "ｱﾀﾞ", "  Ada  ", "Ada\u00a0L", "Jose\u0301"),
    ]
    refused = [
        *rows("2 to 30", "", " ", "A", "李", "a" * 31, "ﷺ" * 2),
        *rows("2 to 30", "ada@home", "a/b", "a\\b", "a\x00b", "a\nb", "a\tb", "<b>", "a\u2028b"),
        *rows("2 to 30", "ada!", "a'b", "ada☃", "ada🙂", "a+b", "a½b", "\ue000b", "\ud800b"),
        # Format characters, letters and marks that show nothing
        *rows("2 to 30", *(f"a{each}da" for each in "\u00ad\u061c\u200b\u200d\u202e\u2066\ufeff")),
        *rows("2 to 30", *(f"a{each}da" for each in "\u115f\u1160\u3164\uffa0\u17b4\u17b5")),
        *rows("2 to 30", *(f"a{each}da" for each in "\u034f\u180b\ufe0f\U000e0061\U000e0100")),
        # Letters that are read as apostrophes and other signs
        *rows("2 to 30", "this site\u02bcs", "ka\u02bbiulani", "a\u02b9b", "a\ua78cb", "\u01c3ada"),
        *rows("2 to 30", "Ada\ua78f", "a\u02d0b", "a\u02eeb"),
        *rows("Start and end", "_ada", ".ada", "-ada", "ada_", "ada.", "ada-", "..", "\u0301ada"),
        *rows("one space", "a  b", "ada \u00a0b"),
        *rows("accents", "x\u0323\u0304\u0331y", "x\u0489\u0489\u0489"),
        *rows("accents", "ada \u0332x", "ada_\u0308", "a.\u0323b", "a\u00a8b"),
        *rows("one alphabet", "Аda", "pаypal", "Αda", "adaд", "ada李", "شada", "кomi", "李Ж"),
        *rows("one alphabet", "ᎪᎠa", "Ada٤", "Ada۴", "ada४", "علی४"),
        *rows("reserved", "admin", "Admin", "ADMINISTRATOR", "moderator", "root", "System"),
        *rows("reserved", "support", "staff", "None", "ａｄｍｉｎ", "ſtaff", "player7", "mod"),
        *rows("reserved", "PLAYER１２", "player0", "Player007", "administrators", "Admins"),
        *rows("reserved", "official"),
    ]
    judge(subtests, lambda name: check_name(normal_name(name)), accepted, refused)


def every_character() -> Iterator[str]:
    return map(chr, (*range(0xD800), *range(0xE000, 0x30000)))


# As their players write them: several marks on a letter, joiners, letters that NFKC replaces.
IN_OWN_SCRIPT = [
    *("အောင်ဆန်းစုကြည်", "သန်းရွှေ", "ကျော်စွာ", "ခွန်ထွန်းဦး", "ၵျေႃႇလႃႇ"),  # Burmese, Shan
    *("བསྟན་འཛིན་རྒྱ་མཚོ", "སྒྲོལ་མ", "རྡོ་རྗེ", "ཀརྨ་ཕྲིན་ལས", "རྟྟྲི"),  # Tibetan
    *("ច័ន្ទ", "ញ៉ាំ", "សុខា", "ᨻᩕᩮᩬᩥᨠ"),  # Khmer, Tai Tham
    # Thai and Lao with their one-letter vowel and digraphs
    *("ทองคำ", "น้ำฝน", "ຄຳແພງ", "ໜູນາ", "ໝອນ"),
    *("मोज़ांबिक", "ज़ोंगखा", "অ্যাঁ", "ਜ਼ੋਂਗਖਾ", "क्षत्रिय"),
    *("اللّٰه", "مُحَمَّدٌ", "שָּׁלוֹם"),  # with vowels
    *("فاطمه\u200cزهرا", "علی\u200cرضا", "گه\u200cلیكی"),  # Persian and Kurdish
    *("ශ්\u200dරී ලංකා", "චන්ද්\u200dරික", "অর্\u200cক", "ഫ്രാൻസ്\u200c", "రామ్\u200c"),
    *("അവന്\u200d", "अ\u200dॅलन"),
    *("Սևակ", "ㅋㅋㅋ", "ㅁㄴㅇ", "神田\ufa19", "\ufa1b田"),
]


def test_name_stays_as_its_script_writes_it(subtests):
    """Another form serves the key alone."""
    for name in IN_OWN_SCRIPT:
        with subtests.test(name):
            assert normal_name(name) == name
            assert check_name(name) is None
            assert unique_key(name) == unique_key(unicodedata.normalize("NFKD", name))
    for each in every_character():
        assert normal_name(normal_name(each)) == normal_name(each), ascii(each)


def test_letter_has_as_many_marks_as_its_script_puts_on_one(subtests):
    """More cover other lines; joiners between them change nothing."""
    refused = [
        *rows("accents on “x”", "x\u0323\u0304\u0331y", "xx\u0301\u0301\u0301"),
        *rows("accents on “က”", "ကာ" + "\u102f" * 5, "က" + "\u103b\u103c\u103d" * 2),
        *rows("accents on “ས”", "བས" + "\u0f92" * 6),
        *rows("accents on “ก”", "ก" + "\u0e47" * 4 + "ข"),
        *rows("accents on “ع”", "ع" + "\u064e\u200d" * 4, "ع\u064e\u0301\u0301ع"),
        *rows("accents on “अ”", "अ" + "\u0901\u200c" * 4 + "अ"),
    ]
    accepted = [each for each in IN_OWN_SCRIPT if len(each) > 1]
    for check in (check_name, check_client_name):
        judge(subtests, lambda name, check=check: check(normal_name(name)), accepted, refused)


def test_joiners_make_no_other_name(subtests):
    """They show nothing: each of these has the key of the name without them."""
    for name in IN_OWN_SCRIPT:
        joined = "\u200d".join(name)
        with subtests.test(name):
            assert unique_key(joined) == unique_key(f"{name}\u200c") == unique_key(name)
    refused = [
        *rows("U+200D (zero width joiner)", "a\u200dda", "é\u200dé", "Ад\u200dа", "\u200dعلی"),
        *rows("U+200D (zero width joiner)", "Ada\u200d"),
        *rows("U+200C (zero width non-joiner)", "ع\u200c\u200cلی", "日\u200c本", "عل \u200cی"),
        *rows("2 to 30", "ع\u200c", "ع" + "\u200cع" * 15),
    ]
    judge(subtests, check_name, [], refused)


def test_keys_of_names_of_earlier_versions_stay():
    """Records have them: another key would lose the player, as would one whose key is another."""
    for each in every_character():
        for name in (each, f"α{each}\u0301"):
            key, folded = unique_key(name), unicodedata.normalize("NFKC", name).casefold()
            # No earlier name had a joiner.
            assert each in "\u200c\u200d" or key == unicodedata.normalize("NFKC", folded).strip()
            assert unique_key(key) == key, ascii(each)
    for name in map(partial(unicodedata.normalize, "NFKC"), [*IN_OWN_SCRIPT, "Ａｄａ", "ﬁne", "ﷺ"]):
        assert normal_name(name) == name  # as it is stored


def test_message_names_the_character_that_is_refused(subtests):
    refused = [
        *rows("You can't use “!” in a name.", "ada!"),
        *rows("use “’” U+2019 (right single quotation mark) in a name.", "O’Hara"),
        *rows("use “🙂” U+1F642 (slightly smiling face) in a name.", "ada🙂"),
        *rows("use U+200B (zero width space) in a name.", "ada\u200b"),
        *rows("use U+202E (right-to-left override) in a name.", "a\u202eda"),
        *rows("use U+000A in a name.", "a\nb"),
        *rows("“А” is Cyrillic, “d” is Latin", "Аda"),
        *rows("“ع” is Arabic, “४” is Devanagari", "علی४"),
        *rows("not on “_”", "ada_\u0308x"),
    ]
    judge(subtests, check_name, [], refused)
    assert "U+200B (zero width space) can't be shown" in check_bio("a\u200bb")
    assert "U+0007 can't be shown" in check_report_text("a\x07")
    for name in ("Ａｄａ", "ﬁne", "Jose\u0301", " Ada"):
        assert "look like others" in check_name(name)


def test_texts_on_one_line(subtests):
    """Flairs, descriptions, reasons, notes, names of apps and passkeys, and the welcome."""
    accepted = [
        *(each for each in IN_OWN_SCRIPT if len(each) < 31),
        *("🏳️\u200d🌈 Pride", "👩🏽\u200d💻 dev", "❤\ufe0f\u200d🔥 hot", "1\ufe0f\u20e3 first"),
        "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f 1",
        "\U0001fae8 a\U0001fae9\U0001fabf",  # newer than some Pythons
        *("تیم می\u200cخواهم", "🇺🇦 7"),
    ]
    refused = [
        *rows("U+202E (right-to-left override)", "a\u202eb", "\u202eab"),
        *rows("U+2066", "a\u2066b"),
        *rows("U+200B (zero width space)", "a\u200bb", "\u200b"),
        *rows("U+200D (zero width joiner)", "Ad\u200dmin", "é\u200d\u200dé", "👩\u200d a"),
        *rows("U+200D (zero width joiner)", "👩\u200d"),
        *rows("U+200C (zero width non-joiner)", "foun\u200cder"),
        *rows("U+E0067", "🏴\U000e0067", "a\U000e0067\U000e007f"),
        *rows("U+000A", "a\nb"),
        *rows("U+D800", "a\ud800b"),
        *rows("U+E000", "\ue000b"),
        *rows("on one line", " ab", "ab "),
    ]
    checks = check_flair, check_short_text, check_note, check_passkey_name, check_client_name
    for check in checks:
        judge(subtests, check, accepted, refused)
    judge(subtests, check_welcome, accepted, refused)
    for text in (each for each, problem in refused if problem.startswith("U+")):
        for name in ("SITE_NAME", "WELCOME"):
            with pytest.raises(SettingError, match=f"{name} .*U\\+"):
                read_settings({name: text})


def test_name_that_looks_reserved_or_like_the_site_is_refused(subtests):
    """Compared by Unicode's confusables, in any case, without accents and separators."""
    for name in [
        *("ɑdmin", "admın", "ꭤdmin", "adrnin", "AdmIn", "ADMlN", "Admln", "adm1n", "r00t", "rοοt"),
        *("a.d.m.i.n", "Ad Min", "ad-min", "ádmin", "aḍmin", "ađmin", "ᴀᴅᴍɪɴ", "ᵃᵈᵐⁱⁿ", "𝖆𝖉𝖒𝖎𝖓"),
        *("ɱoderator", "rnoderator", "Mod.erator", "ѕtaff", "stɑff", "Ѕ", "0fficial", "sysτem"),
        *("pIayer7", "p1ayer7", "player 7", "Player_7", "plɑyer7", "playerl0", "playerO7"),
        *("Sysadmin", "security", "Sеcurity", "This site", "Deleted player", "Player id 7"),
    ]:
        with subtests.test(ascii(name)):
            assert check_name(normal_name(name)) is not None
    for name in ["ɑdmin", "admın", "ADMlN", "r00t", "ᴀᴅᴍɪɴ", "a.d.m.i.n", "pIayer7", "player 7"]:
        with subtests.test(ascii(name)):
            assert "reserved" in check_name(normal_name(name))
    for name in [
        *("Our games", "our_games", "OURGAMES", "0ur garnes", "Our gɑmes", "Oür Games"),
        *("Our games admin", "Our games Staff", "Support Our-Games", "moderators our games"),
        *("Our games Team", "fan of our games", "the 0urgames club"),
    ]:
        with subtests.test(ascii(name)):
            assert "reserved" in check_name(name, "Our Games!")
            assert "reserved" in check_client_name(name, "Our Games!")
            assert check_name(name) is None
    for name in ["Our", "Games", "Our gamer", "Hubert", "Hub fan", "くノ"]:
        with subtests.test(ascii(name)):
            for site in ("Our Games!", "Hub", "♞"):  # one without letters is like no other
                assert check_name(name, site) is None


def test_only_administrators_apps_may_look_official(subtests):
    for name in [
        *("Admin!", "«Our Games»", "Our Games ✔", "adm|n", "ⓢtaff", "Ad\u3164min", "(this site)"),
        *("OUR GAMES™", "Our Games®", "Our Games℠", "Our Games: Chess", "Verified by Our Games"),
    ]:
        with subtests.test(ascii(name)):
            assert "reserved" in check_client_name(name, "Our Games")
            assert check_client_name(name) is None
    for name in ("Hub™", "HUB ℠", "Hub Ⓡ"):
        assert "reserved" in check_client_name(name, "Hub")
    assert check_client_name("Chess Hub", "Hub") is None


def test_data_of_others_has_its_license():
    for path, owner in ((CONFUSABLES, "Unicode, Inc."), (COMMON_PASSWORDS, "Django Software")):
        assert owner in path.with_suffix(".LICENSE").read_text(encoding="utf-8")


# -- Email addresses, bios, passwords, names of clients ------------------------------------------


def test_email_rules(subtests):
    label = "b" * 63
    accepted = [
        *("", "ada@example.org", "ADA@EXAMPLE.ORG", "a@b", "ada+chess@example.org", "a@1.b.3d"),
        *("o'hara@example.org", "a.b.c@d.e.f", "ada@xn--bcher-kva.example", "ádá@bücher.example"),
        *("#$&'*+-/=^_`{|}~?@example.org", "bounce=ada@example.org", "a?=b@r3---x.example"),
        *("आदा@उदाहरण.example", "ada@straße.example", "ada@xn--strae-oqa.example"),
        *(f"{'a' * 64}@{label}.{label}.{'b' * 61}", "ada@نامه\u200cای.example"),
    ]
    refused = rows(
        "ada@example.org",
        *(" ", "ada", "@", "ada@", "@example.org", "a@b@c", "ada @example.org", "ada@exa mple.org"),
        *("ada@example.org\n", "a@b.example\r\nBcc: x@y.example", "a\x00@b.example"),
        *("<a@b.example>", '"a"@b.example', "a,b@c.example", "a;b@c.example", "a:b@c.example"),
        *("a\\@b.example", "a\u200b@b.example", "a\u202e@b.example", "a\u2028@b.example"),
        *("a\u00a0b@c.example", "\ud800@b.example", "a" * 65 + "@b.example", "a@" + "b" * 190),
        # What parsers make headers, other mailboxes, or addresses of other hosts of
        *("=?utf-8?q?a=0D=0ABcc=3Ax?=@b.example", "a=?b@c.example", "a[b]@c.example", "a@["),
        *("ada@example.org]1", "ada@[192.0.2.1]", "ada@192.0.2.1", "ada@[IPv6:::1]", "ada@1"),
        *("b.example!ada@example.org", "ada%b.example@example.org", "ada@a!b", "ada@a%b"),
        *("ada\uff20b.example@c.example", "ada\uff05b@c.example", "\uff1d?@c.example"),
        *("😀@b.example", "a\u3164@b.example", "a\ufe0f@b.example", "a\u034f@b.example"),
        # RFC 5321 4.1.2 and 4.5.3.1: dots, hyphens and lengths, also of the bytes of letters
        *(".a@b.example", "a.@b.example", "a..b@c.example", "a@.b", "a@b.", "a@b..c", "a@-b.c"),
        *("a@b-.c", "a@b_c.example", f"a@{'b' * 64}.example", f"a@{'.'.join([label] * 4)}"),
        *(f"{'ß' * 33}@b.example", f"a@{'ä' * 80}.example", "a@b\n", "ﬁ@b.example"),
        f"{'a' * 64}@{label}.{label}.{'b' * 62}",
        # IDNA 2008: symbols, joiners, mixed directions, marks in front, and what decodes to these
        *("a@i❤.example", "a@xn--n3h.example", "a@ex\u200dample.org", "a@exa\u00admple.org"),
        *("a@אa.example", "a@\u0301a.example", "a@xn--a.example", "a@xn--abc-.example"),
        *("a@example\uff0eorg", "a@bücher\u3002example", "a@ä-.example", "a@ä_b.example", "a@ä..b"),
        *("a@xn--maana-pta0000.example", "a@xn--.example", "a@\u212a.example", "a@x\ud800.example"),
    )
    judge(subtests, check_email, accepted, refused)


def test_spellings_of_an_address_have_one_form_or_none(subtests):
    """IDNA 2008, with the mapping of RFC 5895; no other mailbox has that form.

    What is typed stays a text that the rule refuses.
    """
    spellings = {
        "ada@xn--bcher-kva.example": (
            *("ada@bücher.example", " ada@BÜCHER.Example ", "ada@bu\u0308cher.example"),
            *("ada@XN--Bcher-KVA.example", "ada@bücher\u3002example", "ada@bücher\uff61example"),
            *("ada\uff20bücher\uff0eexample", "\uff41da@bücher.example"),
        ),
        "Ada@Example.org": ("Ada@Example\uff0eorg", "Ada@Example\u3002org", "Ada@Example.org "),
        "ada@xn--strae-oqa.example": ("ada@straße.example", "ada@STRAẞE.example"),
        "ada@strasse.example": ("ada@ſtraſſe.example",),
        "ada@xn--pxavbm.example": ("ada@οδος.example",),
        "ada@xn--pxavbq.example": ("ada@οδοσ.example", "ada@ΟΔΟΣ.example"),
    }
    for form, typed in spellings.items():
        for text in (form, *typed):
            with subtests.test(ascii(text)):
                assert normal_email(text) == ascii_email(form) == form
                assert login_key(text) == form.lower()
    for text in ("", "ada", "a@[", "a@ex\u200dample.org", "=?utf-8?q??=@b.example", "a" * 9999):
        with subtests.test(ascii(text[:30])):
            assert normal_email(text) == text and ascii_email(text) is None


def test_bio_rules(subtests):
    """`has_controls` and `drop_hidden` do not look for them in a printable text."""
    accepted = [
        *("", "Chess, mostly.", "two\nlines\tand a tab", "b" * 1000, "<b>🙂", "Zoë", "۝ 🏳️"),
        # Joiners in Persian and Hindi words and in emoji, and the tags of a flag
        *("می\u200cخواهم", "क\u094d\u200dष", "👨\u200d👩\u200d👧", "❤\ufe0f\u200d🔥"),
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    ]
    refused = rows(
        ".",
        *("b" * 1001, "a\x00b", "a\x1bb", "a\rb", "a\x7fb", "a\x85b", "\ud800"),
        # Turned text, and text that nobody sees
        *(f"a{each}b" for each in "\u202a\u202e\u2066\u2069\u200e\u200f\u061c"),
        *(f"a{each}b" for each in "\u00ad\u200b\u200c\u200d\u2060\u2063\ufeff\U000e0041"),
        *("é\u200d\u200dé", "é\u200c b", "\U0001f3f4\U000e0067", "\u200b"),
    )
    judge(subtests, check_bio, accepted, refused)
    text = "a\u202e\u200bb\u2066 é\u200d\u200dé\U000e0041 👨\u200d👩 می\u200cخ"
    assert drop_hidden(text) == "ab éé 👨\u200d👩 می\u200cخ"
    assert check_bio(drop_hidden(text)) is None
    assert drop_hidden("plain") == "plain"
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    found = CONTROL.findall(every) + [match[0] for match in HIDDEN.finditer(every)]
    assert [each for each in found if each.isprintable()] == []


def test_password_rules(subtests):
    accepted = [
        *("correct horse", "xy" * 6, "xy" * 512, " " * 12, "слово за слово", "🙂" * 12),
        *("dragon house", "monkeydragon", "password x7$kQ9z", "vT7-pA2_bXr0", "\ufdfa" * 12),
        *("한국어 비밀번호 열두글자", "ｖＴ７－ｐＡ２＿ｂＸｒ０"),
    ]
    refused = [
        *rows("12 or more", "", "x" * 11, "x" * 1025),
        # In the form that is hashed: of decomposed letters, and of those that stand for eighteen
        *rows("12 or more", "각" * 11, "e\u0301" * 11, "\ufdfa", "\ufdfa" * 1024),
        *rows("Leave your name", "my lovelace pw", "LOVELACE1234", "ｌｏｖｅｌａｃｅ1234"),
        *rows("Leave your name", "countess.ada 1", "xxCOUNTESS.ADAxx"),
        *rows("Leave your name", "four letters hill", "HILL station"),
        *rows("this site's name", "Our Games 2026", "ourgames2026", "at ID.Example.org"),
        *rows("Too common", "administrator", "justinbieber", "1q2w3e4r5t6y", "qazwsxedcrfv"),
        *rows("Too common", "password1234", "Password123!", "2024-Password", "my password 1"),
        *rows("Too common", "qwertyqwerty", "password" * 128, "пароль пароль", "!letmein!letmein!"),
        *rows("Too common", "123456789012", "000000000000", "qwertyuiopas", "ｐａｓｓｗｏｒｄ1234"),
    ]
    words = "Lovelace", "countess.ada@example.org", "Our games", "id.example.org", "Hill"
    judge(subtests, lambda password: check_password(password, *words), accepted, refused)
    # A name of three letters may be in a password.
    assert check_password("adamant and bobbing", "Ada", "bob@example.org") is None
    assert "Leave your name" in check_password("adamant and bobs", "Ada", "bobs@example.org")
    commons = COMMON_PASSWORDS.read_text(encoding="utf-8").splitlines()
    assert len(commons) == len(set(commons)) > 19_000
    for common in commons[:3000:10]:
        # A short one is looked at as well, where digits make it a longer one.
        problem = check_password(common.ljust(12, "7"), "", "")
        assert "common" in (problem or "") or len(common) < COMMON_LENGTH
    assert check_password("password kqz 1", "", "").startswith("Too common")
    assert check_password("password kqzx", "", "") is None
    # The shortest common password that counts has four letters.
    assert check_password("love 4/8/29!", "", "").startswith("Too common")
    assert check_password("sex 4/8/2/97!", "", "") is None


def test_client_name_is_visible_and_covers_nothing_else(subtests):
    accepted = ["C", "Chess", "Chess: the game!", "Schach ♟", "将棋", "c" * 60]
    refused = [
        *rows("one line", "", " ", " Chess", "Chess ", "c" * 61, "a\nb", "a\tb", "a\u202eb"),
        *rows("one line", "\u200b", "a\x00b"),
        *rows(".", "\u3164", "\u115f\u1160", "\u2800", "-", "…", "a" + "\u0301" * 3),
    ]
    judge(subtests, check_client_name, accepted, refused)


# -- Redirect URIs -------------------------------------------------------------------------------


def test_redirect_uri_rules(subtests):
    accepted = [
        *("https://a.example", "https://a.example/", "https://a.example/cb?x=1&y=2"),
        *("http://a.example/", "https://a.example:8443/cb", "https://sub.a-b.example/%7Eada/"),
        *("https://192.0.2.1/", "http://localhost:3000/cb", "http://127.0.0.1/cb"),
        *("http://127.0.0.1:80/cb", "http://[::1]/cb", "https://[2001:db8::1]:8443/cb"),
        *("https://a.example/;x=[1],(2)*!@", "https://xn--bcher-kva.example/"),
        "https://a.example/" + "x" * 1982,
    ]
    refused = [
        *rows("Start with", "", "/cb", "//a.example/", "a.example", "https:/a"),
        *rows("Start with", "https:a.example", "javascript:alert(1)"),
        *rows("Start with", "javascript://https://a.example/", "urn:a:b", "data:text/html,x"),
        *rows("Start with", "com.example.app:/cb", "ftp://a.example/", "HTTPS://a.example/"),
        *rows("without a user", "https://ada@a.example/", "https://ada:pw@a.example/"),
        *rows("without a user", "https://@a.example/", "https://a.example:80@evil.example/"),
        *rows("without a user", "http://127.0.0.1@evil.example/"),
        *rows("host name", "https://", "https:///cb", "https://?x", "https://:443/"),
        *rows("host name", "http://a;script-src", "https://a,b/", "https://*.example/"),
        *rows("host name", "https://a&b/", "https://a%2eexample/", "https://a_b/", "https://-a/"),
        *rows("host name", "https://a./"),
        *rows("#", "https://a.example/#x", "https://a.example/#", "https://a.example/?#"),
        *rows("plain ASCII", "https://bücher.example/", "https://a.example/é"),
        *rows("plain ASCII", "https://а.example/", "https://a.example/ x", " https://a.example/"),
        *rows("plain ASCII", "https://a.example/\n", "https://a\t.example/"),
        *rows("plain ASCII", "https://a.example/\x00", "https://a.example/\x7f"),
        *rows("plain ASCII", "https://a.example\\@evil.example/", "https:\\\\a.example/"),
        *rows("plain ASCII", "https://a/'", 'https://a/"', "https://a/<", "https://a/{x}"),
        *rows("plain ASCII", "https://a/^"),
        *rows("not a URL", "https://a:99999/", "https://a:b/", "https://a:80:80/", "https://a:-1/"),
        *rows("up to 2,000", "https://a.example/" + "x" * 1983),
    ]
    judge(subtests, check_redirect_uri, accepted, refused)


def test_new_redirect_uri_is_one_that_browsers_open(subtests):
    """WHATWG Fetch 2.10 (blocked ports) and URL 3.5 (hosts); nothing stands for other addresses."""
    accepted = [
        *("https://a.example:8443/cb", "http://127.0.0.1:3000", "http://127.1/cb", "https://a/"),
        *("http://[::1]:8000/", "https://xn--bcher-kva.example/", "https://xn--strae-oqa.example/"),
        *("https://a-b--c.example/", f"https://{'a' * 63}.example/", "https://1.example/"),
        *("https://a.example/;x=[1],(2)*!@", "https://a.example/?to=*", "https://0x.a.example/"),
        *("https://a.example/a;b=(c),$!*", "http://0x7f.1/"),
    ]
    refused = [
        *rows("port 0", "https://a.example:0/", "http://127.0.0.1:0/cb", "https://a.example:000/"),
        *rows("port 6000", "https://a.example:6000/", "http://[::1]:6000/"),
        *rows("Browsers don't open port", "http://a:22/", "https://a:25/", "http://a:10080/"),
        *rows("Browsers don't open port", "http://a:6669/", "http://a:4190/", "http://a:6679/"),
        *rows("this host", "https://a..b/", "https://a...b:80/", f"https://{'a' * 64}.example/"),
        *rows("this host", "https://xn--.a/", "https://xn--abc-.a/", "https://256.1.1.1/"),
        *rows("this host", "https://1.2.3.4.5/", "https://a.1/", "http://09/"),
        *rows("this host", f"https://{'a.' * 130}example/"),
        *rows("does not stand", "https://a.example/*", "https://a.example/*/cb", "https://a/cb*"),
        *rows("does not stand", "https://a/**", "https://a/x/*?y=1", "org.example.game:/*"),
        *rows("not a URL", "https://a.example:65536/", "https://a.example:*/"),
        *rows("Start with", "*"),
        *rows("host name", "https://*.a.example/", "https://.a.example/"),
    ]
    judge(subtests, lambda uri: check_new_uris([uri], public=uri[0] == "o"), accepted, refused)


def split_leniently(url: str) -> SplitResult:
    """Split as RFC 3986, appendix B, does: like urlsplit before Python 3.11.4."""
    form = r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?"
    return SplitResult(*(part or "" for part in re.fullmatch(form, url).groups()))


@pytest.mark.parametrize("split", [urlsplit, split_leniently])
def test_redirect_uri_with_a_bad_ipv6_address_is_refused(monkeypatch, subtests, split):
    """On every version of Python; the reason may be either of two."""
    monkeypatch.setattr("model.rules.urlsplit", split)
    assert check_redirect_uri("https://[2001:db8::1]:8443/cb") is None
    for uri in [
        *("https://[::1]x/", "https://x[::1]/", "https://[::1/", "https://::1]/", "https://[]/"),
        *("https://[x]/", "https://[a]/", "https://[127.0.0.1]/", "https://[1:2:3]/"),
        *("https://[::12345]/", "https://[v1.a]/", "https://[::1%25eth0]/", "https://[::1]:80]/"),
    ]:
        with subtests.test(uri):
            problem = check_redirect_uri(uri) or "accepted"
            assert "host name" in problem or "not a URL" in problem


REGISTERED = [
    *("https://a.example/cb", "https://a.example/?to=x", "http://localhost/cb"),
    *("http://127.0.0.1/cb", "http://[::1]:3000/cb", "http://127.0.0.1:3000"),
]
CHESS = Client("c" * 24, "Chess", "", REGISTERED)


def test_redirect_uri_has_any_loopback_port_and_nothing_else_differs(subtests):
    """RFC 9700 4.1.3."""
    accepted = [
        *REGISTERED,
        *("http://127.0.0.1:1/cb", "http://127.0.0.1:65535/cb", "http://127.0.0.1"),
        *("http://127.0.0.1:80", "http://[::1]/cb", "http://[::1]:9/cb"),
    ]
    refused = [
        *("", "cb", "https://a.example", "https://a.example//cb", "https://a.example/cb/x"),
        *("https://a.example/cb?x", "https://a.example/cb#", "https://a.example/CB"),
        *(f"https://a.example/cb{end}" for end in ("?", "#x", "x", " ", "\0", "\t", "%00", ";x")),
        *(f"https://a.example/cb/{up}/cb" for up in ("..", "%2e%2e", ".%2E", "..;", ".")),
        *("HTTPS://a.example/cb", "https://A.example/cb", "http://a.example/cb"),
        *("https://a.example:443/cb", "https://a.example./cb", "https://a.example/cb\n"),
        *(" https://a.example/cb", "https://a.example@evil.example/cb", "https://a.example/c"),
        *("https://a.example.evil.example/cb", "https://evil.example/https://a.example/cb"),
        *("https://a.example/x/../cb", "https://a.example/%2e%2e/cb", "https://a.example/%63b"),
        *("https://a.example\\/cb", "https://a.example/?to=y", "https://a.example/?to=x&to=y"),
        *("https://a.example/./cb", "https://a%2Eexample/cb", "https://a.example:8443/cb"),
        *("https://sub.a.example/cb", "https://evila.example/cb", "https://ada@a.example/cb"),
        *("https://evil.example\\@a.example/cb", "https://evil.example#@a.example/cb"),
        *("https://a.example\\.evil.example/cb", "//a.example/cb", "/cb", "\\\\a.example/cb"),
        *("javascript:alert(1)", "data:text/html,x", "https://a。example/cb"),
        "https://а.example/cb",  # a Cyrillic letter
        # localhost is a name that may lead elsewhere (RFC 8252 8.3)
        *("http://localhost:3000/cb", "http://localhost:80/cb", "http://localhost@evil.example/cb"),
        *("https://127.0.0.1/cb", "http://127.0.0.1/cb2", "http://127.0.0.1:80/"),
        *("http://127.0.0.1:65536/cb", "http://127.0.0.1:x/cb", "http://127.0.0.1:3000/cb?x=1"),
        *("http://127.0.0.1:3000/cb#x", "http://127.0.0.1:3000.evil.example/cb"),
        *("http://127.0.0.2/cb", "http://127.0.0.1:80@evil.example/"),
        *("http://127.0.0.1:80@evil.example/cb", "http://127.0.0.1@evil.example/cb"),
        *("http://127.0.0.1.evil.example/cb", "http://127.0.0.1:80\\@evil.example/cb"),
        *("http://127.0.0.1:80#@evil.example/cb", "http://127.0.0.1:/cb"),
        *("http://127.0.0.1:99999/cb", "http://127.0.0.1:-1/cb", "http://127.0.0.1:８０/cb"),
        *("http://127.0.0.1:80:80/cb", "http://127.0.0.1:80/cb\n", "http://127.1/cb"),
        *("http://2130706433/cb", "http://[::ffff:127.0.0.1]/cb", "http://[::1]evil.example/cb"),
        *("http://[::1]:3000@evil.example/cb", "http://[0::1]/cb"),
    ]
    for uri in accepted + refused:
        with subtests.test(ascii(uri)):
            assert CHESS.accepts_redirect_uri(uri) == (uri in accepted)
    for registered, others in OTHERS_BY_REGISTERED.items():
        client = Client("c" * 24, "Go", "", [registered], public=registered.startswith("org"))
        assert client.accepts_redirect_uri(registered)
        assert not any(map(client.accepts_redirect_uri, others)), registered
    for uri in ("", *REGISTERED):
        assert not Client("c" * 24, "A game", "", []).accepts_redirect_uri(uri)


OTHERS_BY_REGISTERED = {
    "http://127.0.0.1": ["http://127.0.0.1:3000@evil.example"],
    "http://localhost/cb": ["http://localhost:3000/cb"],
    "http://127.0.0.2/cb": ["http://127.0.0.2:3000/cb"],
    "https://a.example/cb": ["https://a.example:3000/cb"],
    "org.example.a:/cb": [
        *("org.example.a:/cb/", "org.example.a://cb", "org.example.a.evil:/cb"),
        "ORG.example.a:/cb",
    ],
}


def test_redirect_uri_rules_of_a_public_client(subtests):
    """RFC 8252 7: https, plain http on the player's own device, or a private-use scheme."""
    accepted = [
        *("https://chess.example/cb", "http://127.0.0.1/cb", "http://127.0.0.1:8000/cb"),
        *("http://[::1]/", "http://localhost:5173/", "http://game.localhost/"),
        *("org.example.game:/cb", "org.example.game:/cb?x=1", "a.b:/", "org.example.my-game:/"),
    ]
    refused = [
        *rows("Use https://. Plain http:// is only for", "http://chess.example/cb"),
        *rows("Use https://. Plain", "http://127.0.0.1.evil.example/", "http://10.0.0.1/"),
        *rows("Use https://. Plain", "http://localhost.evil.example/"),
        *rows("Start with https://", "mygame://cb", "org.example.Game:/cb", "ORG.example.game:/cb"),
        *rows("Start with https://", "org.example.game:cb", ".example:/cb", "org.example.game"),
        *rows("Start with https://", "javascript:/alert(1)", "data:/text"),
        *rows("Use one slash", "org.example.game://discord.com/cb"),
        *rows("Leave out the #", "org.example.game:/cb#x"),
        *rows("Use a full URL", "org.example.game:/c b", "org.example.gäme:/cb"),
        *rows("Use a full URL", "org.example.game:/\ncb"),
        *rows("Use up to 2,000", f"org.example.game:/{'x' * 2000}"),
    ]
    judge(subtests, lambda uri: check_redirect_uri(uri, public=True), accepted, refused)
    for uri in accepted:
        assert Client("c" * 24, "Chess", "", [uri], public=True).accepts_redirect_uri(uri)


def test_consent_is_remembered_for_proven_redirects(subtests):
    """RFC 8252 8.6."""
    on_the_web = "chess.example", "1.2.3.4", "128.0.0.1", "[2001:db8::1]", "[::ffff:1.2.3.4]"
    on_the_web += "127.example", "localhost.example", "ip6-localhost.example", "1.0x7f"
    on_this_device = "127.0.0.1", "127.0.0.9", "127.1", "0x7f.1", "0X7F000001", "2130706433"
    on_this_device += "0177.0.0.1", "017700000001", "0", "0.0.0.0", "[::]", "[::1]", "[0:0::0:1]"
    on_this_device += "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[::ffff:0:0]", "LocalHost"
    on_this_device += "game.localhost", "ip6-localhost", "localhost.localdomain", "localhost6"
    uris = {f"https://{host}:8443/cb": host in on_the_web for host in on_the_web + on_this_device}
    for uri, is_remembered in (uris | {"org.example.game:/cb": False}).items():
        with subtests.test(uri):
            client = Client("c" * 24, "Go", "", [uri], public=True)
            assert client.accepts_redirect_uri(uri)
            assert client.remembers_consent(uri) == is_remembered
            assert Client("c" * 24, "Go", "", [uri]).remembers_consent(uri)
