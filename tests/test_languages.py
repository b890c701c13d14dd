"""Which language a page has, the page where it is chosen, and catalogues that cannot be used."""

import pickle

import pytest
from forms import edit, hidden_field, led_to, parse
from markupsafe import Markup, escape
from pseudo import catalogue_in

from identity.site import languages
from identity.site.catalogues import LANGUAGES
from identity.site.formatting import format_ago, format_duration, format_time, join_words
from identity.site.languages import find_preferred
from model.words import dump_words, load_words, plain, say, say_in, say_number

# The header, and what it prefers of the languages here: RFC 9110 12.5.4, RFC 4647 3.4.
PREFERENCES = {
    "": None,
    "de": "de",
    "de-AT": "de",
    "de-CH-1996, en;q=0.8": "de",
    "en-GB,de;q=0.5": "en",  # a longer range before another language
    "nl, fr;q=0.9, de;q=0.95": "de",
    "fr;q=0.5,de;q=0.5": "fr",  # of equal ones the first
    "pt": "pt-BR",
    "pt-PT": "pt-BR",
    "PT-br": "pt-BR",
    "*": None,
    "*;q=0": None,
    "de;q=0": None,
    "de;q=0.0, fr;q=0.001": "fr",
    "*, de": None,
    "nl;q=1, *;q=0.5, de;q=0.1": None,
    "de;q=2": None,
    "de;q=x, fr": "fr",
    "de; q=0.7 , fr;q = 0.6": "de",
    "-": None,
    ",;,=": None,
    "de" * 5000: None,
    f"{'xx,' * 2700}de": None,  # 8 kB, of which the first thousand characters count
    "日本語": None,
}


@pytest.mark.parametrize("header", PREFERENCES)
def test_preferred_language_of_a_header(header):
    assert find_preferred(header) == PREFERENCES[header]


def language_of(page) -> str:
    """Return the language of a page, which its header and its markup say."""
    assert page.headers["Content-Language"] == parse(page).html["lang"]
    return page.headers["Content-Language"]


def test_language_is_the_players_then_the_browsers_choice_then_its_preference(
    app, adas_browser, store, ada
):
    browser, app.config["LANGUAGE"] = adas_browser, "fr"
    assert language_of(browser.get("/")) == "fr"
    browser.environ_base["HTTP_ACCEPT_LANGUAGE"] = "de"
    assert language_of(browser.get("/")) == "de"
    assert language_of(browser.get("/nowhere")) == "de"
    browser.set_cookie("language", "ja")
    assert language_of(browser.get("/")) == "ja"
    for stored, shown in (("pl", "pl"), ("tlh", "ja"), ("", "ja")):  # of another version: tlh
        edit(store.users, ada.id, language=stored)
        assert language_of(browser.get("/account")) == shown
    for gone in ("tlh", "DE", "../de", ""):
        browser.set_cookie("language", gone)
        assert language_of(browser.get("/")) == "de"


ASKED = {  # the query, and the language that it asks for
    "ui_locales=de": "de",
    "a=b&ui_locales=x-none+de%20fr": "de",
    "next=%2Foauth%2Fauthorize%3Fui_locales%3Dpt-BR%2520de%26state%3Dja": "pt-BR",
    "next=%2Fsign-in%3Fnext%3D%252Foauth%253Fa%253Db%2526ui_locales%253Dde%2526b%253Dc": "de",
    "then=/oauth/authorize?ui_locales=ja": "ja",
    "my_ui_locales=de": "en",
    "ui_locales=": "en",
    "ui_locales=%": "en",
    "ui_locales=%ff%00": "en",
    f"ui_locales=xx&a={'%25' * 2000}&ui_locales=de": "en",
}


@pytest.mark.parametrize("query", ASKED)
def test_app_asks_for_a_language(browser, query):
    assert language_of(browser.get(f"/language?{query}")) == ASKED[query]


def test_pages_for_developers_are_wholly_in_english(browser):
    for address in ("/developer/docs", "/developer/docs/grant", "/developer"):
        page = browser.get(address, headers={"Accept-Language": "de"}, follow_redirects=True)
        assert language_of(page) == ("de" if page.request.path == "/sign-in" else "en")


def test_calls_of_programs_read_no_catalogue(anyone, ada):
    languages.language_of.cache_clear()
    german = {"Accept-Language": "de"}
    assert anyone.get(f"/api/users/info?id={ada.id}", headers=german).status_code == 200
    assert anyone.get("/api/oauth/whois", headers=german).status_code == 401
    assert anyone.get("/api/nothing", headers=german).json["message"].startswith("there is nothing")
    assert languages.language_of.cache_info().currsize == 0


# -- the page where it is chosen ----------------------------------------------------------------


def test_each_language_stands_in_its_own_words_and_is_kept_in_the_browser(browser):
    page = browser.get("/language")
    shown = {each["value"]: each.text for each in parse(page).select("button[name=language]")}
    assert shown == LANGUAGES
    answer = browser.post("/language", data={"language": "de", "next": "/players"})
    assert led_to(answer) == "/players"
    assert language_of(browser.get("/")) == "de"
    [cookie] = answer.headers.getlist("Set-Cookie")
    assert cookie.startswith("language=de;")
    assert {"HttpOnly", "SameSite=Lax", "Max-Age=34560000"} <= {*cookie.split("; ")}


def test_cookie_of_an_https_site_is_of_its_host_alone(make_app):
    app = make_app(BASE_URL="https://localhost")
    form = {"language": "de"}
    answer = app.test_client().post("/language", data=form, base_url="https://localhost")
    [cookie] = answer.headers.getlist("Set-Cookie")
    assert cookie.startswith("__Host-language=de;")
    assert {"Secure", "Path=/"} <= {*cookie.split("; ")}


def test_unknown_language_is_400_and_changes_nothing(adas_browser, store, ada):
    for code in ("xx", "DE", "", "de\0"):
        answer = adas_browser.post("/language", data={"language": code})
        assert (answer.status_code, answer.headers.getlist("Set-Cookie")) == (400, [])
    assert adas_browser.post("/language").status_code == 400
    assert store.users.read(ada.id).language == ""


def test_language_of_a_player_is_kept_in_the_account(
    adas_browser, store, ada, open_browser, monkeypatch
):
    told = []
    monkeypatch.setattr(
        "pages.kit.forms.notify",
        lambda before, _, language: told.append((before.language, language)),
    )
    for _ in range(2):
        assert led_to(adas_browser.post("/language", data={"language": "pl"})) == "/"
    assert store.users.read(ada.id).language == "pl"
    assert told == [("", "pl")]
    other = open_browser()
    other.sign_in()
    assert language_of(other.get("/account")) == "pl"


@pytest.mark.parametrize(
    ("address", "led"),
    [
        ("http://localhost/sign-up?invite=a&next=%2F", "/sign-up?invite=a&next=%2F"),
        ("http://localhost/account/password", "/"),  # which takes forms alone
        ("http://localhost/language", "/"),
        ("http://localhost.example/", "/"),
        ("https://x.example/?http://localhost/account", "/"),
        ("http://localhost//x.example/", "/"),
        ("http://localhost/[", "/"),
        ("", "/"),
    ],
)
def test_page_leads_back_to_where_its_link_was(browser, address, led):
    page = browser.get("/language", headers={"Referer": address})
    assert hidden_field(page, "next") == led


def test_link_to_the_languages_has_nothing_of_the_address(browser):
    """Else the secrets of an address would be in each page."""
    page = browser.get("/sign-up?invite=secret&next=%2Faccount")
    assert [each["href"] for each in parse(page).select("footer a[href*=language]")] == [
        "/language"
    ]


# -- catalogues that cannot be used -------------------------------------------------------------

HEADER = 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
SIGN_IN = 'msgid "Sign in"\nmsgstr "Anmelden"\n'
UNUSABLE = {
    "half written": f'{HEADER}{SIGN_IN}\nmsgid "Players"\nmsgstr "Spie',
    "cut off behind the source": f'{HEADER}{SIGN_IN}\nmsgid "Players"\n',
    "another encoding": f"{HEADER}# Spieler für\n{SIGN_IN}".encode("latin-1"),
    "UTF-16": f"{HEADER}{SIGN_IN}".encode("utf-16"),
    "unknown plural": f"{HEADER.replace('(n != 1)', 'system(n)')}{SIGN_IN}",
    "no rule": f"{HEADER.replace('plural=(n != 1)', 'plural')}{SIGN_IN}",
    "rule that fails for one": f"{HEADER.replace('(n != 1)', '1/(n-1)')}{SIGN_IN}",
    "header with forms": f"{HEADER.replace('msgstr', 'msgstr[0]')}{SIGN_IN}",
    "no plural": f"{HEADER.replace('Plural-Forms', 'X')}{SIGN_IN}",
    "too many forms": f"{HEADER.replace('=2', '=99')}{SIGN_IN}",
    "no header": SIGN_IN,
    "no catalogue": "<html>",
    "NUL": f'{HEADER}msgid "a\0b\0c"\nmsgstr "a"\n\n{SIGN_IN}',
    "10 MB": HEADER + SIGN_IN + "\n# more" * 1_500_000,
    "empty": "",
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_catalogue_that_cannot_be_used_is_english_and_a_line_in_the_log(
    browser, tmp_path, caplog, case
):
    content = UNUSABLE[case]
    content = content if isinstance(content, bytes) else content.encode()
    with catalogue_in(tmp_path, "de", content):
        for _ in range(2):
            page = browser.get("/", headers={"Accept-Language": "de"})
            assert (page.status_code, "Sign in" in page.text) == (200, True)
    assert [each.message.partition(",")[0] for each in caplog.records] == ["de.po is not used"]


PEOPLE = 'msgid "%(number)s minute"\nmsgid_plural "%(number)s minutes"\n'
WRONG = {  # one sentence each
    "wrong place": 'msgid "By %(player)s"\nmsgstr "Von %(spieler)s"',
    "reaches into a value": 'msgid "By %(player)s"\nmsgstr "Von %(player.name)s"',
    "a number's place": 'msgid "By %(player)s"\nmsgstr "Von %(player)d"',
    "place too many": 'msgid "By %(player)s"\nmsgstr "Von %(player)s und %(player)s"',
    "percent": 'msgid "By %(player)s"\nmsgstr "Zu 5 % von %(player)s"',
    "markup": 'msgid "Skip to content"\nmsgstr "<b>Zum Inhalt</b>"',
    "out of an attribute": 'msgid "Site"\nmsgstr "Seite\\" onclick=\\"x"',
    "link that goes on": 'msgid "<a>Write</a> now"\nmsgstr "</a>Schreib jetzt<a>"',
    "a page for a word": f'msgid "Home"\nmsgstr "{"Start " * 30}"',
    "end of a line": 'msgid "Home"\nmsgstr "Start\u2028Seite"',
    "text from right to left": 'msgid "Home"\nmsgstr "Start\u202e"',
    "two forms without a plural": 'msgid "Home"\nmsgstr[0] "Start"\nmsgstr[1] "Seite"',
    "plural forms": f'{PEOPLE}msgstr[0] "%(number)s Minute"',
    "plural form without a text": f'{PEOPLE}msgstr[0] ""\nmsgstr[1] "%(number)s Minuten"',
    "number left out for many": f'{PEOPLE}msgstr[0] "eine Minute"\nmsgstr[1] "Minuten"',
    "third plural form": f'{PEOPLE}msgstr[0] "a"\nmsgstr[1] "%(number)s"\nmsgstr[2] "%(number)s"',
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_translation_of_a_sentence_stays_english_alone(browser, tmp_path, caplog, case):
    with catalogue_in(tmp_path, "de", f"{HEADER}{WRONG[case]}\n\n{SIGN_IN}".encode()):
        german = languages.language_of("de")
        page = browser.get("/", headers={"Accept-Language": "de"})
        assert german.sentence("Sign in") == "Anmelden"
        assert german.text(say("By %(player)s", player="Bob")) == "By Bob"
        assert german.text(format_duration(300)) == "5 minutes"
        assert german.missing == 1
    assert ("Skip to content" in page.text, "onclick" in page.text) == (True, False)
    assert [each.message.partition(":")[0] for each in caplog.records] == ["de.po"]


def test_fuzzy_and_missing_translations_are_english(tmp_path):
    content = f'{HEADER}#, fuzzy\n{SIGN_IN}\nmsgid "Players"\nmsgstr ""\n\n#~ msgid "Old"\n'
    with catalogue_in(tmp_path, "de", content.encode()):
        german = languages.language_of("de")
        assert (german.sentence("Sign in"), german.sentence("Players")) == ("Sign in", "Players")


def test_plural_rule_that_fails_for_a_number_is_english(tmp_path):
    header = HEADER.replace("(n != 1)", "1/(n-7)")
    forms = f'{PEOPLE}msgstr[0] "%(number)s Minute"\nmsgstr[1] "%(number)s Minuten"\n'
    with catalogue_in(tmp_path, "de", f"{header}{forms}".encode()):
        assert languages.language_of("de").text(format_duration(420)) == "7 minutes"


# -- words --------------------------------------------------------------------------------------


def test_words_are_their_english_text_and_translated_with_their_values(tmp_path):
    content = f"""{HEADER}
msgid "%(a)s and <b>"
msgstr "%(a)s und <b>"

msgctxt "number"
msgid ","
msgstr "."

{PEOPLE}msgstr[0] "%(number)s Minute"
msgstr[1] "%(number)s Minuten"
"""
    words = say("%(a)s and <b>", a=say_number("%(number)s minute", "%(number)s minutes", 2000))
    assert words == "2,000 minutes and <b>"
    with catalogue_in(tmp_path, "de", content.encode()), languages.speaking("de") as german:
        assert german.text(words) == "2.000 Minuten und <b>"
        assert escape(words) == "2.000 Minuten und &lt;b&gt;"
        named = say("%(a)s and <b>", a=Markup("<i>x</i>")), say("%(a)s and <b>", a="<i>")
        assert [escape(each) for each in named] == [
            "<i>x</i> und &lt;b&gt;",
            "&lt;i&gt; und &lt;b&gt;",
        ]
        assert escape(say("Not in it")) == "Not in it"
        assert german.text(say("")) == ""  # the header of the catalogue has no other source


def test_words_survive_an_error_a_pickle_and_a_record():
    words = say("By %(player)s", player=say_in("tag", "Action"))
    assert str(ValueError(words)).template == pickle.loads(pickle.dumps(words)).template
    assert (type(plain(words)), plain(words)) == (str, "By Action")
    kept = load_words(dump_words(words), "By Action")
    assert (kept.values["player"].context, kept) == ("tag", "By Action")
    assert dump_words("text") == ""


NESTED = '["%(a)s", {"a": "x"}, "", "", 1]'
for _ in range(300):
    NESTED = f'["%(a)s", {{"a": {NESTED}}}, "", "", 1]'
NO_WORDS = {  # what somebody may write into a record
    "no number": '["%(number)s hour", {"number": 1}, "", "%(number)s hours", "many"]',
    "a template that is none": '[["a", {}, "", "", 1], {}, "", "", 1]',
    "half of a character": '["\\ud800", {}, "", "", 1]',
    "a wide place": '["%(a)9999999999999d", {"a": 1}, "", "", 1]',
    "words in words": NESTED,
    "much text": f'["{"%(a)s" * 900}", {{"a": "{"x" * 900}"}}, "", "", 1]',
    "no values": '["%(x)s", {}]',
    "another value": '["%(a)s", {"b": 1}, "", "", 1]',
    "nothing": "",
    "no JSON": "{",
    "an empty list": "[]",
    "a number": "5",
    "many lists": "[" * 9999,
}


@pytest.mark.parametrize("case", NO_WORDS)
def test_text_of_a_record_is_shown_where_its_words_cannot_be(case):
    assert load_words(NO_WORDS[case], "text") == "text"


def test_time_that_no_calendar_has_is_shown():
    for milliseconds in (-(10**23), 10**23):
        assert format_ago(milliseconds) in ("in January 1970", "now")
        assert format_time(milliseconds)


def test_long_list_is_shown():
    words = join_words([str(each) for each in range(3000)])
    assert words.startswith("0, 1, 2") and words.endswith("2998 and 2999")
    with languages.speaking("de") as german:
        assert german.text(words).endswith("2998 und 2999")
