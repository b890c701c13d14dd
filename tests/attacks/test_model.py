"""Model-based test: random actions of players, clients and moderators against the expected state.

A longer run: pytest tests/attacks/test_model.py --hypothesis-profile=long
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from conftest import PASSWORD, Browser, CheckedClient, Program
from forms import hidden_field, sign_up
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

from identity.access import passwords
from identity.access.links import issue_first_account_link
from identity.acts.sessions import SESSIONS_KEPT
from identity_server import APPROVAL_MAX_AGE, CODE_MAX_AGE, TOKEN_MAX_AGE
from model.addresses import check_email, normal_email
from model.names import check_name, normal_name, unique_key
from storage import open_storage
from storage.flat_files.check import check

NAMES = ["Grace", "GRACE", "Ｇrace", "Linus", "linus ", "Zoë", "zoe\u0308", "Zoe", "x", "Adа"]
NAMES += ["Kat", "Mary", "Tim", "Ole"]  # nobody gets one that somebody gave up
EMAILS = ["a@example.org", "A@Example.org ", "b@example.org", "c@example.org", "nobody"]
REDIRECT_URIS = ["https://one.example/", "https://two.example/?x=1"]
SCOPES = [set(), {"email"}]  # beside userinfo, which is always granted
STEPS = 40  # actions in one run


@dataclass(eq=False)
class Consent:
    """A consent. Its codes and tokens end with it; a replayed code replaces it by a new one."""

    scope: set[str]


@dataclass(eq=False)
class Player:
    """The expected state of one account."""

    id: int
    name: str
    email: str
    password: str
    bio: str = ""
    suspended: bool = False
    deleted: bool = False
    former: set[str] = field(default_factory=set)  # keys of names, kept for this player
    allowed: dict[str, Consent] = field(default_factory=dict)  # by client id
    cookies: list["Cookie"] = field(default_factory=list)  # of the current sessions


@dataclass(eq=False)
class Cookie:
    """A copy of a session cookie, as a thief may have one."""

    player: Player
    value: str

    @property
    def alive(self) -> bool:
        return self in self.player.cookies


@dataclass(eq=False)
class Page:
    """An open consent page."""

    cookie: Cookie
    program: Program
    scope: set[str]
    signed: str
    shown: int  # seconds


@dataclass(eq=False)
class Credential:
    """A code or an access token, and what was granted with it."""

    text: str
    player: Player
    program: Program
    allowed: Consent
    scope: set[str]
    issued: int  # seconds
    spent: bool = False

    @property
    def consent_valid(self) -> bool:
        return self.player.allowed.get(self.program.id) is self.allowed


def now() -> int:
    """Return the time in seconds, which the test stops and moves."""
    return round(time.time())


class ServerModel(RuleBasedStateMachine):
    """A server on real files, and the expected state of its users and clients."""

    cookies, pages = Bundle("cookies"), Bundle("pages")

    # -- setup and invariants ---------------------------------------------------------------------

    start: Callable[[], tuple]  # returns the app of one run, and its clock

    @initialize(target=cookies)
    def set_up(self):
        self.app, self.clock = self.start()
        self.anyone = CheckedClient(self.app, self.app.response_class, use_cookies=False)
        self.numbers = itertools.count()
        self.players: list[Player] = []
        self.all_cookies: list[Cookie] = []
        self.codes: list[Credential] = []
        self.tokens: list[Credential] = []
        store = self.app.extensions["storage"]
        self.clients = []
        for uri in REDIRECT_URIS:
            client, secret = store.clients.register("Space Game", [uri], None)
            self.clients.append(Program(self.anyone, client.id, secret, uri))
        with self.app.app_context():
            _, _, invite = issue_first_account_link(store, "").partition("invite=")
        self.admin = self.browser()
        assert sign_up(self.admin, name="Boss", invite=invite).status_code == 303
        ada, bob = self.sign_up("Ada", "ada@example.org"), self.sign_up("Bob", "bob@example.org")
        self.request_and_allow(ada, 0, {"email"})
        self.exchange(self.codes[0], own=True)
        return multiple(ada, bob)

    def browser(self, cookie: Cookie | None = None) -> Browser:
        """Return a browser with an address of its own, because attempts are counted by address."""
        browser = Browser(self.app, self.app.response_class)
        number = next(self.numbers)
        browser.environ_base["REMOTE_ADDR"] = f"10.0.{number >> 8}.{number & 255}"
        if cookie:
            browser.set_cookie("identity_session", cookie.value)
        return browser

    def save_cookie(self, browser: Browser, player: Player) -> Cookie:
        """Record the session cookie of a browser that has just signed in."""
        cookie = Cookie(player, browser.get_cookie("identity_session").value)
        self.all_cookies.append(cookie)
        player.cookies = [*player.cookies, cookie][-SESSIONS_KEPT:]
        return cookie

    @rule()
    def check_state(self) -> None:
        for player in self.players:
            answer = self.anyone.get(f"/api/users/info?id={player.id}")
            assert answer.status_code == (404 if player.deleted else 200)
            if not player.deleted:
                shown = answer.json["user"]
                assert (shown["name"], shown["bio"]) == (player.name, player.bio)
        for cookie in self.all_cookies:
            answer = self.browser(cookie).get("/account")
            assert answer.status_code == (200 if cookie.alive else 303)
        for token in self.tokens:
            answer = token.program.whois(token.text)
            good = token.consent_valid and now() - token.issued < TOKEN_MAX_AGE
            assert answer.status_code == (200 if good and not token.player.suspended else 401)
            if answer.status_code == 200:
                assert answer.json["id"] == token.player.id
                expected = {"email": token.player.email} if "email" in token.scope else {}
                assert {k: v for k, v in answer.json.items() if k == "email"} == expected

    def teardown(self) -> None:
        if not hasattr(self, "app"):
            return
        self.check_state()
        assert list(check(self.app.config["DATA_DIR"], self.app.config["PICTURE_DIR"])) == []

    # -- players ----------------------------------------------------------------------------------

    @rule(target=cookies, name=st.sampled_from(NAMES), email=st.sampled_from(EMAILS))
    def register_player(self, name, email):
        return self.sign_up(name, email) or multiple()

    def sign_up(self, name: str, email: str) -> Cookie | None:
        browser, number = self.browser(), next(self.numbers)
        password = f"the secret of number {number}"
        answer = sign_up(browser, name=name, email=email, password=password)
        if check_name(normal_name(name)) or check_email(normal_email(email)):
            assert answer.status_code == 400
            return None
        if self.is_taken(name=name) or self.is_taken(email=email):
            assert answer.status_code == 409
            return None
        assert answer.status_code == 303
        ids = self.app.extensions["storage"].users.ids()
        player = Player(ids[-1], normal_name(name), normal_email(email), password)
        assert player.id not in [each.id for each in self.players]
        self.players.append(player)
        return self.save_cookie(browser, player)

    def is_taken(self, but: Player | None = None, **field: str) -> bool:
        """Return whether another player has this name, or had it, or this email."""
        [(kind, text)] = field.items()
        others = [each for each in self.players if each is not but]
        if kind == "name" and any(unique_key(text) in each.former for each in others):
            return True
        present = [unique_key(getattr(each, kind)) for each in others if not each.deleted]
        return unique_key(text) in present

    @rule(
        target=cookies,
        cookie=cookies,
        by=st.sampled_from(["name", "email", "former"]),
        wrong=st.booleans(),
    )
    def sign_in(self, cookie, by, wrong):
        player, browser = cookie.player, self.browser()
        login = min(player.former, default=player.name) if by == "former" else getattr(player, by)
        answer = browser.sign_in(login, player.password + "x" * wrong)
        if wrong or player.deleted or player.suspended:
            assert answer.status_code == 403
            return multiple()
        assert answer.status_code == 303
        return self.save_cookie(browser, player)

    @rule(cookie=cookies, others=st.booleans())
    def sign_out(self, cookie, others):
        path = "/account/sign-out-others" if others else "/sign-out"
        assert self.browser(cookie).post(path).status_code == 303
        if cookie.alive:
            kept = [each for each in cookie.player.cookies if (each is cookie) == others]
            cookie.player.cookies = kept

    @rule(target=cookies, cookie=cookies, mistyped=st.booleans())
    def change_password(self, cookie, mistyped):
        browser, player = self.browser(cookie), cookie.player
        new = f"another secret, number {next(self.numbers)}"
        typed = {"current_password": player.password + "x" * mistyped, "new_password": new}
        answer = browser.post("/account/password", data=typed)
        if not cookie.alive or mistyped:
            assert answer.status_code == (403 if cookie.alive else 303)
            return multiple()
        player.password, player.cookies = new, []
        return self.save_cookie(browser, player)

    @rule(cookie=cookies, name=st.sampled_from(NAMES))
    def edit(self, cookie, name):
        """Name and bio are saved, or neither."""
        answer = self.browser(cookie).post("/account", data={"name": name, "bio": name})
        player, new_name = cookie.player, normal_name(name)
        if cookie.alive and new_name != player.name and check_name(new_name):
            assert answer.status_code == 400
        elif cookie.alive and self.is_taken(player, name=name):
            assert answer.status_code == 409
        else:
            assert answer.status_code == 303
            if cookie.alive:
                if unique_key(new_name) != unique_key(player.name):
                    player.former.add(unique_key(player.name))
                player.name, player.bio = new_name, name

    @rule(cookie=cookies, mistyped=st.booleans())
    def delete(self, cookie, mistyped):
        player = cookie.player
        typed = {"password": player.password + "x" * mistyped}
        answer = self.browser(cookie).post("/account/delete", data=typed)
        if cookie.alive and mistyped:
            assert answer.status_code == 403
        elif cookie.alive:
            assert (answer.status_code, answer.location) == (303, "/")
            player.deleted, player.cookies, player.allowed = True, [], {}
            player.former.add(unique_key(player.name))

    # -- moderators and time ----------------------------------------------------------------------

    @rule(cookie=cookies, act=st.sampled_from(["suspend", "unsuspend"]))
    def moderate(self, cookie, act):
        player = cookie.player
        answer = self.admin.post(f"/users/{player.id}/{act}")
        if answer.status_code == 403:  # the page of a proof
            answer = self.admin.post(f"/users/{player.id}/{act}", data={"password": PASSWORD})
        assert answer.status_code == (404 if player.deleted else 303)
        if not player.deleted:
            player.suspended = act == "suspend"
        if act == "suspend":  # sessions and tokens end, the consent stays
            player.cookies = []
            player.allowed = {each: Consent(player.allowed[each].scope) for each in player.allowed}

    @rule(seconds=st.sampled_from([CODE_MAX_AGE + 1, TOKEN_MAX_AGE + 1]))
    def wait(self, seconds):
        self.clock.shift(seconds)

    # -- clients ----------------------------------------------------------------------------------

    @rule(target=pages, cookie=cookies, number=st.integers(0, 1), scope=st.sampled_from(SCOPES))
    def request_authorization(self, cookie, number, scope):
        """Open an authorization request; a sufficient earlier consent issues a code at once."""
        program = self.clients[number]
        answer = self.browser(cookie).get(program.link(scope=" ".join(scope)))
        allowed = cookie.player.allowed.get(program.id)
        if not cookie.alive:
            assert answer.location.startswith("/sign-in?")
        elif allowed and scope <= allowed.scope:
            self.save_code(program.read_callback(answer), cookie.player, program, scope)
        else:
            assert answer.status_code == 200
            return Page(cookie, program, scope, hidden_field(answer, "request"), now())
        return multiple()

    @rule(cookie=cookies, number=st.integers(0, 1), scope=st.sampled_from(SCOPES))
    def request_and_allow(self, cookie, number, scope):
        page = self.request_authorization(cookie, number, scope)
        if isinstance(page, Page):
            self.submit_consent(page, cookie, own=True, decision="allow")

    def save_code(self, answer: dict, player: Player, program: Program, scope: set[str]) -> None:
        allowed = player.allowed[program.id]
        code = Credential(answer["code"], player, program, allowed, scope, now())
        self.codes.append(code)

    @rule(
        page=pages, cookie=cookies, own=st.booleans(), decision=st.sampled_from(["allow", "deny"])
    )
    def submit_consent(self, page, cookie, own, decision):
        """Submit the consent page in its own browser, or in another one."""
        cookie = page.cookie if own else cookie
        form = {"request": page.signed, "decision": decision}
        answer = self.browser(cookie).post("/oauth/authorize", data=form)
        if not cookie.alive:
            assert answer.status_code == 403
        elif cookie is not page.cookie or now() - page.shown >= APPROVAL_MAX_AGE:
            assert answer.status_code == 400
        elif decision == "deny":
            assert page.program.read_callback(answer)["error"] == "access_denied"
        else:
            allowed = cookie.player.allowed.setdefault(page.program.id, Consent(set()))
            allowed.scope |= page.scope
            callback = page.program.read_callback(answer)
            self.save_code(callback, cookie.player, page.program, page.scope)

    @rule(data=st.data(), own=st.booleans())
    def exchange_code(self, data, own):
        self.exchange(data.draw(st.sampled_from(self.codes[-3:])), own)

    def exchange(self, code: Credential, own: bool) -> None:
        """Exchange a code as the client that it was issued to, or as the other one."""
        program = next(each for each in self.clients if (each is code.program) == own)
        answer = program.exchange(code.text)
        good = code.consent_valid and not code.player.suspended
        if program is not code.program:
            assert answer.status_code == 400
        elif code.spent:
            assert answer.status_code == 400
            if code.consent_valid:  # a replay: the tokens end, the consent stays
                code.player.allowed[program.id] = Consent(code.allowed.scope)
        elif not good or now() - code.issued > CODE_MAX_AGE:
            assert answer.status_code == 400
        else:
            assert answer.status_code == 200
            code.spent = True
            token = answer.json["access_token"]
            self.tokens.append(
                Credential(token, code.player, program, code.allowed, code.scope, now())
            )

    @rule(cookie=cookies, number=st.integers(0, 1))
    def withdraw(self, cookie, number):
        client_id = self.clients[number].id
        form = {"client_id": client_id}
        assert self.browser(cookie).post("/account/apps/withdraw", data=form).status_code == 303
        if cookie.alive:
            cookie.player.allowed.pop(client_id, None)


@pytest.fixture
def machine(make_app, clock, tmp_path, monkeypatch) -> type[ServerModel]:
    """The state machine; each run has folders of its own and shares one app."""
    monkeypatch.setattr(passwords, "CONFIRMATIONS", STEPS)  # the model counts none
    app, numbers = make_app(SIGN_UP="open"), itertools.count()

    def start() -> tuple:
        folder = tmp_path / str(next(numbers))
        folders = {"DATA_DIR": str(folder / "data"), "PICTURE_DIR": str(folder / "pictures")}
        app.config.update(folders)
        app.extensions["storage"] = open_storage(*folders.values())
        return app, clock

    monkeypatch.setattr(ServerModel, "start", staticmethod(start), raising=False)
    return ServerModel


RUNS = settings(max_examples=settings.default.max_examples // 5, stateful_step_count=STEPS)


def test_random_actions_match_the_model(machine):
    run_state_machine_as_test(machine, settings=RUNS)


UNTIL_FAILURE = settings(RUNS, max_examples=200, phases=[Phase.generate])


@pytest.mark.load
def test_model_detects_a_broken_server(machine, monkeypatch):
    """Negative control: a code is valid for any client, forever."""
    accept = lambda store, code, *_: store.users.read(code.user_id)  # noqa: E731
    monkeypatch.setattr("identity_server.require_good_code", accept)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=UNTIL_FAILURE)
