"""POST /api/tickets and /api/tickets/check: a game server learns who joins."""

import re
from datetime import UTC, datetime

import pytest
from conftest import on_each_backend
from documents import PAGES
from forms import edit

from identity.oauth.clients import FORM_TYPE
from identity.oauth.server_addresses import normal_address
from identity.oauth.terms import InvalidRequest
from model.kind import DAY_MS
from model.records import MODERATOR, Suspension, now_ms

SERVER = "play.example.org:30000"
NONCE = "f3a0"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def token(adas_browser, program) -> str:
    return program.token_for(adas_browser.allow(program, scope="join"))


@pytest.fixture
def issue(anyone, token):
    """A function that returns a ticket of Ada's for a server and a nonce."""

    def issue(server: str = SERVER, nonce: str = NONCE) -> str:
        form = {"server": server, "nonce": nonce}
        answer = anyone.post("/api/tickets", data=form, headers=bearer(token))
        assert answer.status_code == 200
        assert answer.json.keys() == {"ticket", "expires_in"} and answer.json["expires_in"] == 60
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.json["ticket"]

    return issue


@pytest.fixture
def check(anyone):
    """A function that checks a ticket, as a server with these addresses that made this nonce."""

    def check(ticket: str, server: str = SERVER, nonce: str | None = NONCE):
        form = {"ticket": ticket, "server": server} | ({} if nonce is None else {"nonce": nonce})
        return anyone.post("/api/tickets/check", data=form)

    return check


def refusal(answer) -> str:
    assert answer.status_code == 401
    return answer.json["message"]


LONGEST = ".".join(["x" * 61] * 4) + ":30000", '"' * 128  # a server, and a nonce to escape


@on_each_backend
def test_server_learns_who_joins_by_which_app(anyone, program, issue, check, ada):
    answer = check(issue())
    info = anyone.get(f"/api/users/info?id={ada.id}")
    joined = {"joined": datetime.now(UTC).strftime("%Y-%m-%d")}
    user = info.json["user"] | joined
    assert answer.json == {"message": "yes", "user": user, "client_id": program.id}
    assert answer.data.startswith(info.data[:-2])
    assert answer.headers["Cache-Control"] == "no-store"
    assert len(issue()) < 170
    assert 600 < len(issue(*LONGEST)) < 2000


def test_ticket_is_for_one_server_and_one_nonce(issue, check, program, anyone):
    """A player's program or another server may have sent it with more than a ticket."""
    ticket = issue("Play.Example.ORG.:30000")
    assert check(ticket).status_code == 200
    assert check(ticket, f"192.0.2.1:30000,{SERVER.upper()}").status_code == 200
    for other in ("play.example.org:30001", "example.org:30000", "192.0.2.1:30000", program.id):
        assert refusal(check(ticket, other)) == "this ticket is for another server"
    assert check(issue(program.id), program.id).status_code == 200
    assert refusal(check(issue(program.id))) == "this ticket is for another server"
    evil = issue("evil.example:1")
    sent = f"ticket={evil}&server=evil.example:1&server={SERVER}&nonce={NONCE}"
    answer = anyone.post("/api/tickets/check", data=sent, content_type=FORM_TYPE)
    assert (answer.status_code, answer.json) == (400, {"message": "server is repeated"})
    assert refusal(check(issue(), nonce="f3a1")) == "this ticket has another nonce"
    for ticket, nonce in ((issue(), None), (issue(), ""), (issue(nonce=""), NONCE)):
        assert refusal(check(ticket, nonce=nonce)) == "ticket or request has no nonce"
    assert check(issue(nonce=""), nonce=None).status_code == 200


def test_ticket_ends_after_a_minute_or_with_the_grant(clock, issue, check, store, ada, program):
    ticket = issue()
    clock.shift(60)
    assert check(ticket).status_code == 200
    clock.shift(1)
    assert refusal(check(ticket)) == "this ticket is older than 60 seconds"
    ticket = issue()
    edit(store.users, ada.id, suspension=Suspension("command"))
    assert refusal(check(ticket)) == "this player is suspended"
    edit(store.users, ada.id, suspension=None)
    assert check(ticket).status_code == 200
    with store.users.edit(ada.id) as user:
        user.grants[program.id].end_tokens()
    assert refusal(check(ticket)) == "the player's app lost its access"
    store.users.delete(ada.id)
    assert refusal(check(ticket)) == "this account was deleted"


@pytest.mark.parametrize("days, words", {1: "1 day", 3: "3 days"}.items())
def test_account_younger_than_the_setting_gets_no_place(
    app, store, ada, issue, check, anyone, token, days, words
):
    """Neither by a ticket that is checked here nor by a JWT, about which no server asks."""
    app.config.update(TICKET_DAYS=days, OPENID="on")
    form = {"server": SERVER, "format": "jwt"}
    for age, is_young in ((days * DAY_MS - 60_000, True), (days * DAY_MS, False)):
        edit(store.users, ada.id, created=now_ms() - age)
        jwt = anyone.post("/api/tickets", data=form, headers=bearer(token))
        answers = check(issue()), jwt
        told = [(each.status_code, each.json["message"]) for each in answers if is_young]
        young = f"this account is younger than {words}"
        assert told == ([(401, young), (403, young)] if is_young else [])
        assert is_young or [each.status_code for each in answers] == [200, 200]


def test_only_tickets_are_tickets(issue, check, token, store, subtests, program):
    """No token is taken for one, and no ticket for a token."""
    ticket = issue()
    for each in ("", "x", token, ticket[:-1], ticket + "=", ticket.replace("W", "w", 1), "é"):
        with subtests.test(each):
            assert refusal(check(each)) == "this is not a ticket of this site"
    assert program.whois(ticket).status_code == 401
    store.keys.rotate(drop_old=True)
    assert refusal(check(ticket)) == "this is not a ticket of this site"


def test_ticket_of_app_for_a_group_ends_with_it(store, ada, adas_browser, register, check):
    staff = register("https://staff.example/", only_groups=["moderators"])
    edit(store.users, ada.id, mod_level=MODERATOR)
    token = staff.token_for(adas_browser.allow(staff, scope="join"))
    answer = staff.http.post("/api/tickets", data={"server": SERVER}, headers=bearer(token))
    ticket = answer.json["ticket"]
    assert check(ticket, nonce=None).status_code == 200
    edit(store.users, ada.id, mod_level=0)
    assert refusal(check(ticket, nonce=None)) == "the player's app is not for this player"


def test_scope_is_shown_before_it_is_given_and_needed(store, program, adas_browser, ada, anyone):
    """RFC 9700 2.3. A consent to less does not cover it.

    RFC 6750 3.1. Any app that Ada ever allowed could play as her.
    """
    adas_browser.allow(program, scope="userinfo email")
    page = adas_browser.get(program.link(scope="join"))
    assert page.status_code == 200 and "join game servers as you" in page.text
    assert store.users.read(ada.id).grants[program.id].scope == ["userinfo", "email"]
    adas_browser.decide(page)
    assert "Can join game servers as you" in adas_browser.get("/account/apps").text
    assert adas_browser.get(program.link(scope="join")).status_code == 303
    assert "join game servers" not in adas_browser.get(program.link(prompt="consent")).text
    adas_browser.allow(program, scope="join")
    token = program.token_for(adas_browser.allow(program, scope="email groups"))
    answer = anyone.post("/api/tickets", data={"server": SERVER}, headers=bearer(token))
    assert answer.status_code == 403
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope"'
    assert anyone.post("/api/tickets", data={"server": SERVER}).status_code == 401
    sent = {"server": SERVER, "access_token": token}
    assert anyone.post("/api/tickets", data=sent).status_code == 401


def test_bad_request_is_400(anyone, token, issue, check, program, subtests):
    for form in (
        *({}, {"server": ""}, {"server": [SERVER, SERVER]}, {"server": program.id[:-1]}),
        *({"server": program.id[::-1]}, {"server": SERVER, "nonce": "a b"}),
        *({"server": SERVER, "nonce": "x" * 129}, {"server": SERVER, "nonce": "é"}),
        {"server": SERVER, "nonce": ["a", "b"]},
        {"server": SERVER, "format": "jwt"},  # OpenID Connect is off
    ):
        with subtests.test(str(form)):
            answer = anyone.post("/api/tickets", data=form, headers=bearer(token))
            assert answer.status_code == 400
    ticket = issue()
    for server in ("", ",", f"{SERVER},x", ",".join([SERVER] * 11), program.id[:9]):
        assert check(ticket, server).status_code == 400
    assert check([ticket, ticket]).status_code == 400
    assert check(ticket, nonce=[NONCE, NONCE]).status_code == 400
    assert check(ticket + "x" * 16384).status_code == 413
    json = anyone.post("/api/tickets/check", json={"ticket": ticket, "server": SERVER})
    assert json.status_code == 400


def test_pages_of_other_origins_get_and_check_tickets(anyone, token, check):
    """By Flask's way, too, which a Host with another port takes."""
    page = {"Origin": "https://game.example", "Sec-Fetch-Site": "cross-site"}
    for host in ("localhost", "localhost:8123"):
        sent = page | {"Host": host}
        form = {"server": SERVER}
        answer = anyone.post("/api/tickets", data=form, headers=sent | bearer(token))
        checked = form | {"ticket": answer.json["ticket"]}
        for each in (answer, anyone.post("/api/tickets/check", data=checked, headers=sent)):
            assert each.status_code == 200
            assert each.headers["Access-Control-Allow-Origin"] == "*"
    allowed = anyone.preflight("/api/tickets", "POST", "authorization").headers
    assert allowed["Access-Control-Allow-Headers"] == "Authorization"


def test_nothing_is_stored(faults, issue, check):
    issue()
    before = faults.stored()
    for number in range(50):
        check(issue(f"a:{number + 1}"))
        check("x")
    assert faults.stored() == before


def test_addresses_have_one_form_or_are_refused(subtests):
    row = r"^\| `(.*?)` \| (?:`(.*?)` \||refused)"
    table = re.findall(row, PAGES["docs/games/tickets.md"], re.MULTILINE)
    table = table[next(n for n, row in enumerate(table) if row[0] == SERVER) :][:13]
    assert sum(not form for _, form in table) == 6
    for sent, form in table:
        with subtests.test(sent):
            if form:
                assert normal_address(sent) == normal_address(form) == form
            else:
                with pytest.raises(InvalidRequest):
                    normal_address(sent)
    for text in ("A_b.c-d:1", "127.0.0.1.:1", "[::]:65535", "[::FFFF:0:0]:2", "[1:0:0:2::]:3"):
        assert normal_address(normal_address(text)) == normal_address(text)
    assert normal_address("127.0.0.1.:1") == "127.0.0.1:1"
    for text in (
        *("", ":", ":1", "a:", "a:0", "a:65536", "a:-1", "a:+1", "a:１", "a:1 ", " a:1", "a b:1"),
        *("http://a:1", "a:1/", "a/b:1", "u@a:1", "a..b:1", ".a:1", ".:1", "-a:1", "a-:1"),
        *(f"{'a' * 64}:1", f"{'a.' * 127}a:1", "a:1\n", "a\n:1", "a:1:2", "a%41:1", "*.a:1"),
        *("127.0.0.1.:1:1", "1:1", "0x7f.1:1", "0x:1", "1.2.3:1", "1.2.3.4.5:1", "256.1.1.1:1"),
        *("010.0.0.1:1", "a.1:1", "a.0x1:1", "[]:1", "[1.2.3.4]:1", "[::1:1", "::1]:1", "[::1]1"),
        *("[::1].x:1", "[::g]:1", "[::1%25lo]:1", "[a]:1", "faẞ.de:1", "a。b:1", "a\u200d:1"),
    ):
        with subtests.test(ascii(text)), pytest.raises(InvalidRequest):
            normal_address(text)


@on_each_backend
def test_batch_says_who_is_suspended_now(store, anyone, ada, bob, clock):
    """A suspension ends without a change of the record."""

    def suspended() -> list[bool | None]:
        answer = anyone.get(f"/api/users/batch?ids={ada.id},{bob.id}")
        return [each.get("suspended") for each in answer.json["users"]]

    assert suspended() == [None, None]
    edit(store.users, ada.id, suspension=Suspension("command", until=now_ms() + 60_000))
    edit(store.users, bob.id, suspension=Suspension("command"))
    assert suspended() == [True, True]
    assert "suspended" not in anyone.get(f"/api/users/info?id={ada.id}").json["user"]
    clock.shift(60)
    assert suspended() == [None, True]


class TestJwt:
    """With OpenID Connect, a server can check a ticket with the keys of this site."""

    @pytest.fixture
    def app(self, make_app):
        return make_app(OPENID="on")

    def test_server_checks_it_offline(self, anyone, token, program, ada, clock):
        from joserfc import jwk, jwt

        form = {"server": "PLAY.example.org:30000", "nonce": NONCE, "format": "jwt"}
        answer = anyone.post("/api/tickets", data=form, headers=bearer(token))
        keys = jwk.KeySet.import_key_set(anyone.get("/oauth/keys").json)
        decoded = jwt.decode(answer.json["ticket"], keys, algorithms=["RS256"])
        assert decoded.header["typ"] == "join+jwt"
        now = now_ms() // 1000
        times = {"iat": now, "exp": now + 60}
        assert decoded.claims == times | {
            "iss": "http://localhost",
            "sub": str(ada.id),
            "aud": SERVER,
            "client_id": program.id,
            "name": "Ada",
            "nonce": NONCE,
        }
        form |= {"server": LONGEST[0], "nonce": LONGEST[1]}
        answer = anyone.post("/api/tickets", data=form, headers=bearer(token))
        assert 1000 < len(answer.json["ticket"]) < 2000

    def test_it_is_taken_for_nothing_else(
        self, anyone, token, program, adas_browser, check, subtests
    ):
        """RFC 8725 3.12: neither for an ID token of a client, nor for a hint or a ticket."""
        form = {"server": SERVER, "format": "jwt"}
        jwt = anyone.post("/api/tickets", data=form, headers=bearer(token)).json["ticket"]
        assert refusal(check(jwt, nonce=None)) == "this is not a ticket of this site"
        link = program.link(scope="openid", id_token_hint=jwt)
        error = program.read_callback(adas_browser.get(link))
        assert error["error_description"] == "id_token_hint is not an ID token"
        for bad in ({"server": program.id, "format": "jwt"}, {"server": SERVER, "format": "x"}):
            answer = anyone.post("/api/tickets", data=bad, headers=bearer(token))
            assert answer.status_code == 400
