"""A German player and a Japanese one on the same site, and a site that is German: no English.

English that is left on a page or in a letter is found by its words: those of the sentences in
`messages.pot` that no translation of the language has.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from email.message import EmailMessage

import pytest
import requests
from bs4 import BeautifulSoup
from mail_server import MailServer, link_in, text_of_letter
from playwright.sync_api import Page, expect
from pseudo import TEMPLATE, texts_of
from waiting import wait_until

from identity.site.catalogues import forms_of, parse_entries
from identity.site.languages import file_of, language_of

from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer, running_server
from .test_browser import Game, wait_a_second
from .test_play_page import GAME, game_on

pytestmark = [pytest.mark.live, pytest.mark.browser]
DATABASE = pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.slow])
on_each_backend = pytest.mark.parametrize("backend", ["flat files", DATABASE], indirect=True)
SITE, GAME_NAME = "Ludovia", "Zorbu"  # no English words
NEW_PASSWORD = "drei andere gute Wörter"
PLACES = re.compile(r"%\(\w+\)s|<[^>]*>|&\w+;|https?://\S+|\S+@\S+")
WORD = re.compile(r"[^\W\d_]{2,}")


def words_of(*texts: str) -> set[str]:
    """Return the words of texts without places, tags and addresses, in lower case."""
    return {word.lower() for text in texts for word in WORD.findall(PLACES.sub(" ", text))}


@functools.cache
def english_words(code: str) -> set[str]:
    """Return the words of the English sentences that no translation into this language has."""
    _, *sources = parse_entries(TEMPLATE.read_text(encoding="utf-8"))
    _, *entries = parse_entries(file_of(code).read_text(encoding="utf-8"))
    english = words_of(
        *(entry.get(key, "") for entry in sources for key in ("msgid", "msgid_plural"))
    )
    return english - words_of(*(form for entry in entries for form in forms_of(entry)))


def english_in(texts: Iterable[str], code: str) -> set[str]:
    """Return the texts with an English word that a page in this language cannot have."""
    return {text for text in texts if words_of(text) & english_words(code)}


def check_html(html: str, code: str) -> None:
    """Check that a page or the HTML of a letter says that it is in a language, and is in it."""
    soup = BeautifulSoup(html, "html.parser")
    assert soup.html["lang"] == code
    times = [each.text for each in soup.select("time")]  # a script writes them anew
    assert english_in([*texts_of(html), *times], code) == set()


def check_letter(letter: EmailMessage, code: str) -> None:
    assert english_in([letter["Subject"], letter["From"], text_of_letter(letter)], code) == set()
    check_html(letter.get_body(("html",)).get_content(), code)


class Player:
    """A player with a browser of one language, who reads each page that comes."""

    def __init__(self, page: Page, code: str, name: str, email: str, mail: MailServer) -> None:
        self.page, self.code, self.name, self.email, self.mail = page, code, name, email, mail

    def say(self, sentence: str, **values: str) -> str:
        """Return a sentence in the player's language."""
        return language_of(self.code).sentence(sentence, **values).unescape()

    def read(self, path: str) -> None:
        """Wait until the page with this path is shown, and check it."""
        expect(self.page).to_have_url(re.compile(rf"//[^/]+{path}([?#].*)?$"))
        check_html(self.page.content(), self.code)

    def open(self, address: str) -> None:
        self.page.goto(address)
        check_html(self.page.content(), self.code)

    def fill(self, field: str, value: str) -> None:
        self.page.locator(f"[name={field}]:visible").fill(value)

    def press(self, name: str, role: str = "button") -> None:
        self.page.get_by_role(role, name=self.say(name), exact=True).first.click()

    def read_letter(self, subject: str) -> str:
        """Wait for the letter with this subject, check it, and return its text."""
        subject = self.say(subject, site=SITE)

        def arrived() -> list[EmailMessage]:
            mine = [each for each in self.mail.letters if each["To"] == self.email]
            return [each for each in mine if each["Subject"] == subject]

        wait_until(arrived)
        check_letter(arrived()[-1], self.code)
        return text_of_letter(arrived()[-1])


def sign_up(player: Player, address: str) -> None:
    player.open(address)
    player.fill("name", player.name)
    player.fill("email", player.email)
    player.fill("password", PASSWORD)
    player.press("Create account")
    player.read("/welcome")


def be_welcomed(player: Player, game: str) -> None:
    player.press("Skip", "link")
    player.read("/welcome/game")
    player.press("Play", "link")
    player.read(f"/play/{game}")


def allow_the_game(player: Player, game: str) -> None:
    frame = game_on(player.page)
    request = {"client_id": game, "scopes": ["userinfo"], "code_challenge": "x" * 43}
    frame.evaluate("each => ask(each)", request | {"code_challenge_method": "S256"})
    wait_a_second(player.page)
    check_html(player.page.content(), player.code)  # with the question
    player.press("Allow")
    expect(frame.locator("output")).to_contain_text('"error":false')


def confirm_the_email(player: Player, address: str) -> None:
    text = player.read_letter("Confirm your email for %(site)s")
    player.open(link_in(text))
    player.press("Continue")
    expect(player.page.get_by_role("status")).to_contain_text(player.say("Email confirmed."))
    player.read("/.*")


def look_around(player: Player, address: str) -> None:
    """Pages on the way, at which a player stops: an account, a profile, a mistake."""
    for path in ("", "account", "account/apps", "account/data", "users/1", "players", "nowhere"):
        player.open(f"{address}/{path}")
        expect(player.page.locator(".menu .name")).to_have_text(player.name)  # signed in


def sign_out(player: Player, address: str) -> None:
    player.open(address)
    player.page.locator("details.menu summary").click()
    player.press("Sign out")
    player.read("/")


def lose_the_password(player: Player, address: str) -> None:
    player.press("Sign in", "link")
    player.read("/sign-in")
    player.fill("name", player.name)
    player.fill("password", "falsch, ganz und gar")
    player.press("Sign in")
    expect(player.page.get_by_role("alert")).to_be_visible()
    player.read("/sign-in")
    player.page.locator("a[href='/recover']").click()
    player.read("/recover")
    player.fill("email", player.email)
    player.press("Send the link")
    expect(player.page.locator("[name=code]")).to_be_visible()
    player.read("/recover")


def set_another(player: Player, address: str) -> None:
    player.open(link_in(player.read_letter("Set a new password for %(site)s")))
    player.press("Continue")
    player.read("/recover/password")
    player.fill("new_password", NEW_PASSWORD)
    player.press("Set password")
    done = player.say("Password set. You are signed in.")
    expect(player.page.get_by_role("status").first).to_have_text(done)
    player.read("/account")
    player.read_letter("Your password was changed (%(site)s)")


@pytest.fixture
def mail() -> Iterator[MailServer]:
    mail = MailServer()
    yield mail
    mail.close()


@pytest.fixture
def start(backend, mail: MailServer, tmp_path) -> Iterator[Callable[..., RunningServer]]:
    """A function that starts a site with these settings, and a mail server."""
    settings = {"SITE_NAME": SITE, "SMTP_URL": mail.url(), "MAIL_FROM": "post@ludovia.de"}
    settings["STORAGE"] = backend.setting(str(tmp_path))
    with contextlib.ExitStack() as stack:
        yield lambda **more: stack.enter_context(running_server(**settings | more))


@on_each_backend
def test_german_and_japanese_player_lose_their_passwords(start, mail, game: Game, browse):
    game.pages["/"] = GAME
    server = start(SIGN_UP="open")
    server.add_user("Ada")
    app, _ = server.open_storage().clients.register(
        GAME_NAME, [], None, game_url=f"{game.origin()}/", listed=True, public=True
    )
    players = [
        Player(browse(locale="de-DE"), "de", "Jürgen", "j@ludovia.de", mail),
        Player(browse(locale="ja-JP"), "ja", "ハナコ", "h@ludovia.de", mail),
    ]
    for step, value in (
        (sign_up, f"{server.address}/sign-up"),
        (be_welcomed, app.id),
        (allow_the_game, app.id),
        (confirm_the_email, ""),
        (sign_out, server.address),
        (lose_the_password, ""),
        (set_another, ""),
        (look_around, server.address),
    ):
        for player in players:
            step(player, value)
    english = requests.get(f"{server.address}/sign-up", timeout=ANSWER_TIMEOUT).text
    for code in ("de", "ja"):  # the check finds English where there is some
        assert len(english_words(code)) > 500
        assert {"Create account", "Show: {}"} <= english_in(texts_of(english), code)


@on_each_backend
def test_site_in_german_is_german_from_the_first_link_on(start, mail, browse):
    server = start(LANGUAGE="de")
    [link] = re.findall(r"http\S+/sign-up\?invite=\S+", server.access_log.read_text())
    check_html(
        requests.get(link, timeout=ANSWER_TIMEOUT).text, "de"
    )  # for who asks for no language
    boss = Player(browse(locale="nl-NL"), "de", "Boss", "boss@ludovia.de", mail)
    sign_up(boss, link)
    confirm_the_email(boss, "")
    pages = ("", "/players", "/apps", "/invitations", "/log", "/look", "/chat", "/announcement")
    for page in pages:
        boss.open(f"{server.address}/admin{page}")
    # Otto has no language; who signs in as Otto may be a thief, whose browser asks for Japanese.
    user = server.add_user("Otto", "otto@ludovia.de")
    server.open_storage().users.change_email(user["id"], "otto@ludovia.de", verified=True)
    otto = Player(browse(locale="ja-JP"), "ja", "Otto", "otto@ludovia.de", mail)
    otto.open(f"{server.address}/sign-in")
    otto.fill("name", "Otto")
    otto.fill("password", PASSWORD)
    otto.press("Sign in")
    otto.read("/")
    otto.code = "de"
    otto.read_letter("New sign-in (%(site)s)")
