"""Whatever players, programs and moderators do in whatever order, against what should be true then.

More of it by hand: pytest tests/attacks/test_model.py --hypothesis-profile=long
"""

import html
import io
import itertools
import re
from dataclasses import dataclass, field

import pytest
from conftest import Browser, Program, Visitor
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)
from PIL import Image

from identity.links import issue_first_account_link
from identity.sessions import SESSIONS_KEPT
from identity_server import APPROVAL_MAX_AGE, CODE_MAX_AGE, TOKEN_MAX_AGE
from storage import check_email, check_name, normal_name, open_storage, unique_key
from storage.flat_files.check import check

NAMES = ["Grace", "GRACE", "Ｇrace", "Linus", "linus ", "Zoë", "zoe\u0308", "Zoe", "x", "Adа"]
EMAILS = ["a@example.org", "A@Example.org ", "b@example.org", "c@example.org", "nobody"]
REDIRECT_URIS = ["https://one.example/", "https://two.example/?x=1"]
SCOPES = [set(), {"email"}]  # beside userinfo, which is always granted
STEPS = 40  # of one run


@dataclass(eq=False)
class Allowed:
    """A consent. What was given out under it ends with it; after a replay it is another one."""

    scope: set[str]


@dataclass(eq=False)
class Player:
    """What should be true of one account."""

    id: int
    name: str
    email: str
    password: str
    bio: str = ""
    suspended: bool = False
    deleted: bool = False
    pictures: list[int] = field(default_factory=list)  # timestamps; the last counts
    allowed: dict[str, Allowed] = field(default_factory=dict)  # by client id
    cookies: list["Cookie"] = field(default_factory=list)  # of the sessions there are


@dataclass(eq=False)
class Cookie:
    """A copy of a session cookie, as a thief has it."""

    player: Player
    value: str

    @property
    def alive(self) -> bool:
        return self in self.player.cookies


@dataclass(eq=False)
class Page:
    """A consent page that is open."""

    cookie: Cookie
    program: Program
    scope: set[str]
    signed: str
    shown: int  # by the clock's `ahead`


@dataclass(eq=False)
class Issued:
    """A code or a token, and what it stands for."""

    text: str
    player: Player
    program: Program
    allowed: Allowed
    scope: set[str]
    issued: int  # by the clock's `ahead`
    spent: bool = False

    @property
    def granted(self) -> bool:
        """True while the consent stands."""
        return self.player.allowed.get(self.program.id) is self.allowed


class Community(RuleBasedStateMachine):
    """A server on real files, and who uses it."""

    cookies, pages = Bundle("cookies"), Bundle("pages")

    # -- how it begins, and what is always true ---------------------------------------------------

    def start(self) -> tuple:
        """The app of one run, and the clock that it sees."""
        raise NotImplementedError

    @initialize(target=cookies)
    def begin(self):
        self.app, self.clock = self.start()
        self.anyone = Visitor(self.app, self.app.response_class, use_cookies=False)
        self.numbers = itertools.count()
        self.everybody: list[Player] = []
        self.known_cookies: list[Cookie] = []
        self.codes: list[Issued] = []
        self.tokens: list[Issued] = []
        store = self.app.extensions["storage"]
        self.programs = []
        for uri in REDIRECT_URIS:
            client, secret = store.add_client("Space Game", [uri], None)
            self.programs.append(Program(self.anyone, client.id, secret, uri))
        with self.app.app_context():
            _, _, invite = issue_first_account_link(store, "").partition("invite=")
        self.boss = self.browser()
        fields = {
            "name": "Boss",
            "email": "boss@example.org",
            "password": "whoever runs all of this",
        }
        assert self.boss.post("/sign-up", data=fields | {"invite": invite}).status_code == 303
        ada, bob = self.sign_up("Ada", "ada@example.org"), self.sign_up("Bob", "bob@example.org")
        self.ask_and_allow(ada, 0, {"email"})
        self.exchange(self.codes[0], own=True)
        return multiple(ada, bob)

    def browser(self, cookie: Cookie | None = None) -> Browser:
        """A browser somewhere else in the world: tries are counted by address."""
        browser = Browser(self.app, self.app.response_class)
        number = next(self.numbers)
        browser.environ_base["REMOTE_ADDR"] = f"10.0.{number >> 8}.{number & 255}"
        if cookie:
            browser.set_cookie("session", cookie.value)
        return browser

    def keep_cookie(self, browser: Browser, player: Player) -> Cookie:
        """What a thief copies of a browser that was just signed in."""
        cookie = Cookie(player, browser.get_cookie("session").value)
        self.known_cookies.append(cookie)
        player.cookies = [*player.cookies, cookie][-SESSIONS_KEPT:]
        return cookie

    def since(self, moment: int) -> int:
        """The seconds since then."""
        return self.clock.ahead - moment

    @rule()
    def look_at_everything(self) -> None:
        for player in self.everybody:
            answer = self.anyone.get(f"/api/users/info?id={player.id}")
            assert answer.status_code == (404 if player.deleted else 200)
            if not player.deleted:
                told = answer.json["user"]
                assert (told["name"], told["bio"]) == (player.name, player.bio)
                assert told["pfpTimestamp"] == player.pictures[-1]
            for timestamp in player.pictures:
                seen = self.anyone.get(f"/pfp/small/{player.id}-{timestamp}.webp").status_code
                there = timestamp == player.pictures[-1] and not player.deleted
                assert seen == (200 if there else 404)
        for cookie in self.known_cookies:
            answer = self.browser(cookie).get("/account")
            assert answer.status_code == (200 if cookie.alive else 303)
        for token in self.tokens:
            answer = token.program.whois(token.text)
            good = token.granted and self.since(token.issued) < TOKEN_MAX_AGE
            assert answer.status_code == (200 if good and not token.player.suspended else 401)
            if answer.status_code == 200:
                assert answer.json["id"] == token.player.id
                told = {"email": token.player.email} if "email" in token.scope else {}
                assert {k: v for k, v in answer.json.items() if k == "email"} == told

    def teardown(self) -> None:
        if not hasattr(self, "app"):
            return
        self.look_at_everything()
        problems = list(check(self.app.config["DATA_DIR"], self.app.config["PICTURE_DIR"]))
        assert problems == []

    # -- players ----------------------------------------------------------------------------------

    @rule(target=cookies, name=st.sampled_from(NAMES), email=st.sampled_from(EMAILS))
    def ask_for_an_account(self, name, email):
        return self.sign_up(name, email) or multiple()

    def sign_up(self, name: str, email: str) -> Cookie | None:
        browser, number = self.browser(), next(self.numbers)
        fields = {"name": name, "email": email, "password": f"the secret of number {number}"}
        answer = browser.post("/sign-up", data=fields)
        if check_name(normal_name(name)) or check_email(email.strip()):
            assert answer.status_code == 400
            return None
        if self.is_taken(name=name) or self.is_taken(email=email):
            assert answer.status_code == 409
            return None
        assert answer.status_code == 303
        ids = self.app.extensions["storage"].user_ids()
        player = Player(ids[-1], normal_name(name), email.strip(), fields["password"])
        assert player.id not in [each.id for each in self.everybody]
        player.pictures.append(self.told_timestamp(player))
        self.everybody.append(player)
        return self.keep_cookie(browser, player)

    def is_taken(self, but: Player | None = None, **field: str) -> bool:
        """True where somebody else has this name, or this email."""
        [(kind, text)] = field.items()
        others = (each for each in self.everybody if each is not but and not each.deleted)
        return unique_key(text) in [unique_key(getattr(each, kind)) for each in others]

    def told_timestamp(self, player: Player) -> int:
        answer = self.anyone.get(f"/api/users/info?id={player.id}")
        return answer.json["user"]["pfpTimestamp"]

    @rule(target=cookies, cookie=cookies, by=st.sampled_from(["name", "email"]), slip=st.booleans())
    def sign_in(self, cookie, by, slip):
        player, browser = cookie.player, self.browser()
        password = player.password + ("x" if slip else "")
        answer = browser.sign_in(getattr(player, by), password)
        if slip or player.deleted or player.suspended:
            assert answer.status_code == 403
            return multiple()
        assert answer.status_code == 303
        return self.keep_cookie(browser, player)

    @rule(cookie=cookies)
    def sign_out(self, cookie):
        assert self.browser(cookie).post("/sign-out").status_code == 303
        if cookie.alive:
            cookie.player.cookies.remove(cookie)

    @rule(cookie=cookies)
    def sign_out_everywhere(self, cookie):
        assert self.browser(cookie).post("/account/sign-out-everywhere").status_code == 303
        if cookie.alive:
            cookie.player.cookies = []

    @rule(target=cookies, cookie=cookies, slip=st.booleans())
    def change_password(self, cookie, slip):
        browser, player = self.browser(cookie), cookie.player
        new = f"another secret, number {next(self.numbers)}"
        typed = {"current_password": player.password + "x" * slip, "new_password": new}
        answer = browser.post("/account/password", data=typed)
        if not cookie.alive or slip:
            assert answer.status_code == (403 if cookie.alive else 303)
            return multiple()
        player.password, player.cookies = new, []
        return self.keep_cookie(browser, player)

    @rule(cookie=cookies, name=st.sampled_from(NAMES), bio=st.text(max_size=3))
    def edit(self, cookie, name, bio):
        """Both are saved, or neither."""
        answer = self.browser(cookie).post("/account", data={"name": name, "bio": bio})
        kept = bio.replace("\r\n", "\n")
        if not cookie.alive or answer.status_code == 400:
            odd_bio = any(ord(c) < 32 and c not in "\n\t" or 127 <= ord(c) < 160 for c in kept)
            same = normal_name(name) == cookie.player.name
            assert not cookie.alive or odd_bio or (not same and check_name(normal_name(name)))
        elif self.is_taken(cookie.player, name=name):
            assert answer.status_code == 409
        else:
            assert answer.status_code == 303
            cookie.player.name, cookie.player.bio = normal_name(name), kept

    @rule(cookie=cookies, upload=st.booleans())
    def change_picture(self, cookie, upload):
        browser, player = self.browser(cookie), cookie.player
        if upload and cookie.alive and len(player.pictures) == 1:  # once: it takes a process
            output = io.BytesIO()
            Image.new("RGB", (3, 2), "red").save(output, "PNG")
            file = {"picture": (io.BytesIO(output.getvalue()), "a.png")}
            assert browser.post("/account/picture", data=file).status_code == 303
        else:
            assert browser.post("/account/picture/remove").status_code == 303
        if cookie.alive:
            player.pictures.append(self.told_timestamp(player))
            assert player.pictures == sorted(set(player.pictures))

    @rule(cookie=cookies, slip=st.booleans())
    def delete(self, cookie, slip):
        player = cookie.player
        typed = {"password": player.password + "x" * slip}
        answer = self.browser(cookie).post("/account/delete", data=typed)
        if cookie.alive and slip:
            assert answer.status_code == 403
        elif cookie.alive:
            assert (answer.status_code, answer.location) == (303, "/")
            player.deleted, player.cookies, player.allowed = True, [], {}

    # -- moderators and time ----------------------------------------------------------------------

    @rule(cookie=cookies, act=st.sampled_from(["suspend", "restore"]))
    def moderate(self, cookie, act):
        player = cookie.player
        answer = self.boss.post(f"/users/{player.id}/{act}")
        assert answer.status_code == (404 if player.deleted else 303)
        if not player.deleted:
            player.suspended = act == "suspend"
        if act == "suspend":  # sessions and tokens end, the consent stands
            player.cookies = []
            player.allowed = {each: Allowed(player.allowed[each].scope) for each in player.allowed}

    @rule(seconds=st.sampled_from([CODE_MAX_AGE + 1, TOKEN_MAX_AGE + 1]))
    def wait(self, seconds):
        self.clock.ahead += seconds

    # -- programs ---------------------------------------------------------------------------------

    @rule(target=pages, cookie=cookies, number=st.integers(0, 1), scope=st.sampled_from(SCOPES))
    def ask(self, cookie, number, scope):
        """A program sends a player here; who allowed that much before is not asked."""
        program = self.programs[number]
        answer = self.browser(cookie).get(program.link(scope=" ".join(scope)))
        allowed = cookie.player.allowed.get(program.id)
        if not cookie.alive:
            assert answer.location.startswith("/sign-in?")
        elif allowed and scope <= allowed.scope:
            self.keep_code(program.read_callback(answer), cookie.player, program, scope)
        else:
            assert answer.status_code == 200
            signed = html.unescape(re.search('name="request" value="([^"]*)"', answer.text)[1])
            return Page(cookie, program, scope, signed, self.clock.ahead)
        return multiple()

    @rule(cookie=cookies, number=st.integers(0, 1), scope=st.sampled_from(SCOPES))
    def ask_and_allow(self, cookie, number, scope):
        page = self.ask(cookie, number, scope)
        if isinstance(page, Page):
            self.answer_page(page, cookie, own=True, decision="allow")

    def keep_code(self, answer: dict, player: Player, program: Program, scope: set[str]) -> None:
        allowed = player.allowed[program.id]
        code = Issued(answer["code"], player, program, allowed, scope, self.clock.ahead)
        self.codes.append(code)

    @rule(
        page=pages, cookie=cookies, own=st.booleans(), decision=st.sampled_from(["allow", "deny"])
    )
    def answer_page(self, page, cookie, own, decision):
        """In the browser that shows the page, or in any other."""
        cookie = page.cookie if own else cookie
        form = {"request": page.signed, "decision": decision}
        answer = self.browser(cookie).post("/oauth/authorize", data=form)
        if not cookie.alive:
            assert answer.status_code == 403
        elif cookie is not page.cookie or self.since(page.shown) >= APPROVAL_MAX_AGE:
            assert answer.status_code == 400
        elif decision == "deny":
            assert page.program.read_callback(answer)["error"] == "access_denied"
        else:
            allowed = cookie.player.allowed.setdefault(page.program.id, Allowed(set()))
            allowed.scope |= page.scope
            told = page.program.read_callback(answer)
            self.keep_code(told, cookie.player, page.program, page.scope)

    @rule(data=st.data(), own=st.booleans())
    def exchange_a_code(self, data, own):
        self.exchange(data.draw(st.sampled_from(self.codes[-3:])), own)

    def exchange(self, code: Issued, own: bool) -> None:
        """By the program that it was issued to, or by the other one."""
        program = next(each for each in self.programs if (each is code.program) == own)
        answer = program.exchange(code.text)
        good = code.granted and not code.player.suspended
        if program is not code.program:
            assert answer.status_code == 400
        elif code.spent:
            assert answer.status_code == 400
            if code.granted:  # one of the two stole it: the tokens end, the consent stands
                code.player.allowed[program.id] = Allowed(code.allowed.scope)
        elif not good or self.since(code.issued) > CODE_MAX_AGE:
            assert answer.status_code == 400
        else:
            assert answer.status_code == 200
            code.spent = True
            token = answer.json["access_token"]
            self.tokens.append(
                Issued(token, code.player, program, code.allowed, code.scope, self.clock.ahead)
            )

    @rule(cookie=cookies, number=st.integers(0, 1))
    def withdraw(self, cookie, number):
        client_id = self.programs[number].id
        form = {"client_id": client_id}
        answer = self.browser(cookie).post("/account/apps/withdraw", data=form)
        assert answer.status_code == 303
        if cookie.alive:
            cookie.player.allowed.pop(client_id, None)


@pytest.fixture
def machine(make_app, clock, tmp_path) -> type[Community]:
    """A community in folders of its own for each run, on one app: no run changes that."""
    app, numbers = make_app(SIGN_UP="open"), itertools.count()

    class Here(Community):
        def start(self) -> tuple:
            clock.ahead = 0
            folder = tmp_path / str(next(numbers))
            folders = {"DATA_DIR": str(folder / "data"), "PICTURE_DIR": str(folder / "pictures")}
            app.config.update(folders)
            app.extensions["storage"] = open_storage(*folders.values())
            return app, clock

    return Here


RUNS = settings(
    max_examples=settings.default.max_examples // 5,
    stateful_step_count=STEPS,
)


@pytest.mark.live
def test_whatever_is_done_in_whatever_order_is_as_it_should_be(machine):
    run_state_machine_as_test(machine, settings=RUNS)


UNTIL_FOUND = settings(RUNS, max_examples=200, phases=[Phase.generate])
BROKEN = {  # and what is done instead
    "identity.sessions.drop_session": lambda *_: None,  # only the browser forgets its cookie
    "identity_server.refuse_bad_code": lambda *_: None,  # a code is good for any client, for ever
    "identity_server.end_replayed_grant": lambda *_: None,
}


@pytest.mark.load
@pytest.mark.parametrize("broken", BROKEN)
def test_a_server_that_forgets_a_step_would_be_found_out(machine, monkeypatch, broken):
    """The negative controls."""
    monkeypatch.setattr(broken, BROKEN[broken])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=UNTIL_FOUND)
