"""Sign-ups: who gets in, who waits for a moderator, the proof of work, the hidden field, age."""

import hashlib
import itertools
import random
import re
from functools import partial

import fixtures
import pytest
from conftest import FREE_SIGN_UPS
from forms import from_address, parse, problems_of, race, sign_up, text_of

from identity.access import admission, proof_of_work
from identity.access.proof_of_work import solves
from identity.acts import accounts, applications
from identity.acts.actors import COMMAND, Authority
from identity.http.signing import serializer
from model.kinds import APPLICATIONS, LOOKS
from model.site_records import Look
from pages.entry import sign_up as sign_up_pages

app = fixtures.open_app
HOUR, SCHOOL = 3600, "192.0.2.1"


@pytest.fixture(autouse=True)
def easy_proofs(ada, clock, monkeypatch) -> None:
    assert proof_of_work.PUZZLES << proof_of_work.BITS == 2**19
    monkeypatch.setattr(admission, "FREE_SIGN_UPS", FREE_SIGN_UPS)
    monkeypatch.setattr(proof_of_work, "BITS", 4)


def solve(challenge: str) -> str:
    tests = (partial(solves, hashlib.sha256(challenge.encode()).digest(), n) for n in range(16))
    return " ".join(str(next(filter(each, itertools.count()))) for each in tests)


def challenge_in(page) -> str:
    return "".join(re.findall('name="challenge" value="([^"]+)"', page.text))


@pytest.fixture
def join(open_browser):
    """A function that opens the form in a new browser, and returns the answer to a sign-up."""
    numbers = itertools.count(1)

    def join(address: str | None = None, solves: bool = True, **fields: str):
        number = next(numbers)
        elsewhere = f"198.51.{number // 250}.{number % 250}"
        browser = from_address(open_browser(), address or elsewhere)
        challenge = challenge_in(browser.get("/sign-up", query_string=fields))
        proof = {"challenge": challenge, "nonces": solve(challenge) if solves and challenge else ""}
        own = {"name": f"New {number}", "email": f"n{number}@example.org"}
        return sign_up(browser, **own | proof | fields)

    return join


def outcome(answer) -> str:
    if answer.status_code != 303:
        return str(answer.status_code)
    return "waits" if answer.location == "/application" else "in"


def applied(store) -> list:
    waiting = store.records(APPLICATIONS)
    return [waiting.read(each) for each in waiting.ids()]


def test_first_of_an_hour_get_in_and_later_ones_wait(app, store, join, clock, browser):
    app.config |= {"SIGN_UPS_AN_HOUR": 5, "SMTP_URL": "smtp://localhost:1"}
    invite = store.invites.issue(7, uses=2)
    found = [outcome(join()) for _ in range(4)]
    assert "How did you find us?" not in browser.get("/sign-up").text
    assert outcome(join(invite=invite)) == "in"  # and counts for nothing
    found += [outcome(join(text=" A friend. ")) for _ in range(8)]
    assert found == ["in"] * 5 + ["waits"] * 7
    assert [each.text for each in applied(store)] == ["A friend."] * 7
    page = browser.get("/sign-up")
    assert parse(page).find(id="text") and "Ask to join" in text_of(page)
    assert outcome(join(invite=invite)) == "in"
    for _ in range(2):  # those who wait count as well
        clock.shift(HOUR / 2)
        assert [outcome(join()) for _ in range(5)] == ["waits"] * 5
    clock.shift(HOUR)
    assert outcome(join()) == "in"
    app.config["SMTP_URL"] = ""  # nobody can confirm an address
    assert outcome(join()) == "in"
    alone = [store.users.read(each).came_alone for each in store.users.ids()]
    # Ada, the invited, and who came without mail
    assert alone == [False] + [True] * 4 + [False, True, False, True, False]


def test_address_has_ten_a_day_then_waits_then_is_refused(app, store, join, monkeypatch):
    """Invitations have a limit of their own: one that leaked is no way to hash for ever."""
    assert admission.MOST_A_DAY == 60
    monkeypatch.setattr(admission, "MOST_A_DAY", 13)
    app.config["SIGN_UPS_AN_HOUR"] = 100
    invite = store.invites.issue(7, uses=99)
    assert outcome(join(SCHOOL, invite=invite)) == "in"
    found = [outcome(join(SCHOOL)) for _ in range(13)]
    with monkeypatch.context() as patch:
        patch.setattr(sign_up_pages, "hash_password", None)  # before a hash
        found.append(outcome(join(SCHOOL)))
    assert found == ["in"] * 10 + ["waits"] * 3 + ["429"]
    assert [outcome(join(SCHOOL, invite=invite)) for _ in range(13)] == ["in"] * 12 + ["429"]
    assert outcome(join()) == "in"


def test_of_racing_sign_ups_as_many_get_in_as_may(app):
    def admit(number: int) -> bool:
        with app.test_request_context(environ_base={"REMOTE_ADDR": f"192.0.2.{number}"}):
            return admission.admit(must_wait=False, invited=False)[1]

    assert sum(race(*(partial(admit, number) for number in range(24)))) == 15


def test_full_queue_is_429_before_a_hash(app, store, join, monkeypatch):
    """It has more room with a proof. An invitation skips it."""
    app.config["SIGN_UP"] = "approval"
    monkeypatch.setattr(applications, "QUEUE", 4)
    monkeypatch.setattr(applications, "QUEUE_WITH_PROOF", 5)
    assert [outcome(join(SCHOOL)) for _ in range(4)] == ["waits"] * 4
    assert outcome(join(SCHOOL, solves=False, wait="yes")) == "429"
    assert outcome(join(SCHOOL)) == "waits"
    assert outcome(join(SCHOOL, invite=store.invites.issue(7))) == "in"
    monkeypatch.setattr(sign_up_pages, "hash_password", None)
    monkeypatch.setattr(admission, "MOST_A_DAY", 6)
    for _ in range(3):  # each is given back
        page = join(SCHOOL, name="Last one")
        assert (page.status_code, 'value="Last one"' in page.text) == (429, True)
        assert problems_of(page) == {"form": applications.QueueFull.problem}


BAD_PROOFS = {  # how the fields of a good form change
    "none": lambda form: {"nonces": ""},
    "of another form": lambda form: {"challenge": form["other"]},
    "old": lambda form: {"later": 901},
    "twice": lambda form: {"twice": True},
    "of another purpose": lambda form: {"challenge": form["other purpose"]},
    "forged bits": lambda form: {"nonces": " ".join("0" * 16), "bits": "0", "puzzles": "0"},
    "in another order": lambda form: {"nonces": " ".join(form["nonces"].split()[::-1])},
    "one too few": lambda form: {"nonces": form["nonces"].rpartition(" ")[0]},
    "100,000 digits": lambda form: {"nonces": "1" * 100_000, "limit": 2**20},
    "Arabic digits": lambda form: {
        "nonces": re.sub("[0-9]", lambda digit: chr(0x660 + int(digit[0])), form["nonces"])
    },
    "five bytes": lambda form: {
        "nonces": re.sub(r"^\d+", lambda n: str(2**32 + int(n[0])), form["nonces"])
    },
    "60,000 bytes": lambda form: {"challenge": "a" * 60_000},
}


@pytest.mark.parametrize("what", BAD_PROOFS)
def test_bad_proof_is_403_before_a_hash_and_may_wait(
    app, store, join, browser, clock, monkeypatch, what
):
    assert [outcome(join(solves=False)) for _ in range(FREE_SIGN_UPS)] == ["in"] * FREE_SIGN_UPS
    challenge, other = (challenge_in(browser.get("/sign-up")) for _ in range(2))
    form = {"challenge": challenge, "nonces": solve(challenge), "other": other}
    with app.app_context():
        form["other purpose"] = serializer("stamp").dumps("x" * 16)
    bad = BAD_PROOFS[what](form)
    app.config["MAX_CONTENT_LENGTH"] = bad.pop("limit", app.config["MAX_CONTENT_LENGTH"])
    if bad.pop("twice", False):
        assert outcome(sign_up(browser, name="First", email="", **form)) == "in"
    clock.shift(bad.pop("later", 0))
    with monkeypatch.context() as context:
        context.setattr(sign_up_pages, "hash_password", None)
        page = sign_up(browser, **form | bad)
    assert (page.status_code, list(problems_of(page))) == (403, ["proof-form"])
    assert 'value="Grace"' in page.text and challenge_in(page) not in ("", challenge)
    assert parse(page).select_one("form > div:not([hidden]) > [name=wait]")
    assert parse(page).find(id="text")
    assert outcome(sign_up(browser, wait="yes", text="Me", **form | bad)) == "waits"
    assert [each.text for each in applied(store)] == ["Me"]


def test_forms_fetched_beforehand_are_asked_for_a_proof(open_browser):
    browsers = [from_address(open_browser(), f"192.0.2.{n}") for n in range(30)]
    assert not any(challenge_in(each.get("/sign-up")) for each in browsers)
    found = [outcome(sign_up(each, name=f"N {n}", email="")) for n, each in enumerate(browsers)]
    assert found == ["in"] * FREE_SIGN_UPS + ["403"] * 27


def test_page_has_nothing_that_is_not_asked(store, browser, join):
    def traces(invite: str = "") -> list[str]:
        page = browser.get("/sign-up", query_string={"invite": invite}).text
        return [each for each in ("proof", "nonces", "topic", "wait", '"age"') if each in page]

    assert traces() == ["topic"]
    assert {outcome(join()) for _ in range(FREE_SIGN_UPS)} == {"in"}
    assert traces() == ["proof", "nonces", "topic", "wait"]
    assert traces(store.invites.issue(7)) == []


def test_hidden_field_that_is_filled_in_comes_back_to_be_seen(browser):
    form = parse(browser.get("/sign-up"))
    trap, names = form.find(id="topic"), [each["name"] for each in form.select("[name]")]
    assert (trap.parent["class"], trap["autocomplete"], trap["tabindex"]) == (["trap"], "off", "-1")
    assert names.index("topic") > names.index("password")
    page = sign_up(browser, topic="Buy")
    assert (page.status_code, list(problems_of(page))) == (400, ["topic"])
    shown = parse(page).find(id="topic")
    assert not shown.parent.has_attr("class") and not shown.get("value")
    assert outcome(sign_up(browser, topic="")) == "in"


@pytest.mark.parametrize("sign_up_is", ["open", "approval"])
@pytest.mark.parametrize(
    "admits, age, expected",
    [
        *((False, "16", {"terms 3", "age 16"}), (False, "younger", 403), (False, "", 400)),
        *((True, "younger", {"terms 3"}), (True, "13", 400), (True, "１６", 400)),
    ],
)
def test_age_is_a_flag_and_never_a_birthday(app, store, browser, sign_up_is, admits, age, expected):
    app.config["SIGN_UP"] = sign_up_is
    store.records(LOOKS).put(Look("site", 1, terms=3, minimum_age=16, admits_younger=admits))
    answer = sign_up(browser, age=age, terms="yes")
    made = [*applied(store), *filter(None, [store.users.find_by_login("Grace")])]
    if expected == 400:
        assert list(problems_of(answer)) == ["age"]
        assert list(problems_of(sign_up(browser, age="16"))) == ["terms"]
    if isinstance(expected, int):
        assert (answer.status_code, made) == (expected, [])
        assert "16 years old" in text_of(answer)
    else:
        assert [({*each.agreed}, each.underage) for each in made] == [(expected, age != "16")]


def test_no_app_learns_of_a_younger_player(app, store, adas_browser, ada, register, program):
    """A game is told why. What apps had ends: tests/test_families.py."""
    app.config["OPENID"] = "on"
    code = adas_browser.allow(program)
    path = f"/play/{store.clients.register('Go', [], None, game_url='https://a.example/')[0].id}"
    signed = parse(adas_browser.get(path)).select_one("[data-request]")["data-request"]
    television = register("http://127.0.0.1/", public=True, device=True)
    asked = adas_browser.post("/oauth/device", data={"client_id": television.id}).json
    accounts.set_underage(Authority(store, COMMAND), ada.id, True)
    assert program.exchange(code).status_code == 400
    page = adas_browser.get(program.link())
    assert (page.status_code, "younger player" in text_of(page)) == (403, True)
    assert adas_browser.post("/device", data=asked).status_code == 403
    silent = program.read_callback(adas_browser.get(program.link(prompt="none", scope="openid")))
    assert silent["error"] == "access_denied"
    for decision in ({}, {"decision": "allow"}):
        answer = adas_browser.post(f"{path}/authorize", data={"request": signed, **decision})
        assert (answer.status_code, answer.json["message"]) == (403, "underage_user")
    accounts.set_underage(Authority(store, COMMAND), ada.id, False)
    assert program.whois(program.token_for(adas_browser.allow(program))).status_code == 200


FULL_HOUR = pytest.param(500, 200, 30, marks=pytest.mark.slow)


@pytest.mark.parametrize("bots, addresses, people", [(60, 24, 8), FULL_HOUR])
@pytest.mark.parametrize("solve", [False, True])
def test_of_many_bots_few_get_in_and_no_person_is_refused(
    join, clock, solve, bots, addresses, people
):
    """People of one school, and as many from addresses of their own, join in the same hour."""
    sign_ups = [("bot", f"203.0.113.{n % addresses}", solve) for n in range(bots)]
    sign_ups += [("person", address, True) for address in (SCHOOL, None) for _ in range(people)]
    random.Random(54).shuffle(sign_ups)
    found = {"bot": [], "person": []}
    for who, address, can_solve in sign_ups:
        found[who].append(outcome(join(address, can_solve)))
        clock.shift(HOUR / len(sign_ups))
    assert {*found["person"]} <= {"in", "waits"}
    assert ({*found["bot"]} <= {"in", "waits"}) == solve
    assert found["bot"].count("in") < 20 and "in" in found["person"]
