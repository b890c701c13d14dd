"""Attacks on OpenID Connect: ID tokens that come back, signing out, and silent requests."""

import functools
import hmac
import json

import pytest
from conformance.relying_party import decode, encode
from conftest import FOREIGN_LINK, on_each_backend
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256, SHA512
from forms import edit, hidden_field, is_signed_in, led_to, parse, signed_in

from identity.http.signing import decode_base64
from identity.oauth.openid import add_key, signing_key
from model.records import ADMINISTRATOR, MODERATOR, PLAYER, Grant, Suspension

BYE = "https://forum.example/bye?from=here"
FRAME = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
SILENT = {"scope": "openid", "prompt": "none"}
GROUPS = ([], ["players", "moderators"], ["moderators"])  # of apps; Ada is in none of the last
REFUSED = ("invalid_request", 400)  # of a hint, by `send_hint`
ERROR_PAGE = (400, None)  # status and location

make_keys = {number: functools.cache(rsa.generate_private_key) for number in (1, 2)}
load_key = functools.cache(serialization.load_der_private_key)


@pytest.fixture
def app(make_app, monkeypatch):
    """An app with OpenID Connect; the first key of its ID tokens is made once for all tests."""
    monkeypatch.setattr(rsa, "generate_private_key", make_keys[1])
    return make_app(OPENID="on")


@pytest.fixture
def forum(register):
    return register("https://forum.example/in", post_logout_redirect_uris=[BYE])


@pytest.fixture
def bobs_browser(open_browser, bob):
    """A browser in which Bob is signed in."""
    return signed_in(open_browser(), "Bob")


def sign_in_to(program, browser, **parameters: str) -> tuple[str, str]:
    """Return the ID token and the access token of a sign-in."""
    code = browser.allow(program, **{"scope": "openid"} | parameters)
    tokens = program.exchange_standard(code).json
    return tokens["id_token"], tokens["access_token"]


def claims_of(id_token: str) -> dict:
    return json.loads(decode(id_token.split(".")[1]))


def by_rsa(key, hash_class=SHA256):
    private = load_key(decode_base64(key.private_key.encode()), None)
    return lambda text: private.sign(text, PKCS1v15(), hash_class())


def forge(claims: dict, key, signer=None, **header) -> str:
    """Return an ID token with these claims that names a key, which signs unless another does."""
    signed = encode({"alg": "RS256", "kid": key.id} | header, claims)
    signature = (signer or by_rsa(key))(signed.encode())
    return f"{signed}.{encode(signature)}"


def ask_silently(program, browser, **parameters: str) -> str | None:
    """Return the error of a request with prompt=none, None if it gave a code."""
    return program.read_callback(browser.get(program.link(**SILENT | parameters))).get("error")


def log_out(browser, **query: str) -> tuple[int, str | None]:
    answer = browser.get("/oauth/logout", query_string=query)
    return answer.status_code, answer.location


def send_hint(program, browser, hint: str) -> tuple[str | None, int]:
    """Return the error of a silent request with this hint, and the status of signing out by it."""
    error = ask_silently(program, browser, id_token_hint=hint)
    return error, log_out(browser, id_token_hint=hint)[0]


def statuses(program, token: str) -> tuple[int, int]:
    """Return the status of userinfo and of whois with this access token."""
    headers = {"Authorization": f"Bearer {token}"}
    answer = program.http.get("/oauth/userinfo", headers=headers)
    return answer.status_code, program.whois(token).status_code


# -- ID tokens that come back as hints ------------------------------------------------------------


@on_each_backend
def test_forged_hint_is_refused(store, forum, adas_browser, monkeypatch):
    """OpenID Connect Core 3.1.3.7: of another issuer. RFC 8725 3.1: by another algorithm or key."""
    claims, key = claims_of(sign_in_to(forum, adas_browser)[0]), signing_key(store)
    monkeypatch.setattr(rsa, "generate_private_key", make_keys[2])
    waiting = add_key(store, signs_from=10**14)
    public = load_key(decode_base64(key.private_key.encode()), None).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    secrets = [public.public_bytes(serialization.Encoding.PEM, form), key.modulus.encode(), b""]
    hmacs = [lambda text, key=each: hmac.digest(key, text, "sha256") for each in secrets]
    nothing, sha_512 = lambda text: b"", by_rsa(key, SHA512)
    issuers = ("https://evil.example", "http://localhost/", "HTTP://LOCALHOST", "", None)
    forged = [forge(claims | {"iss": each}, key) for each in issuers]
    forged += [forge(claims, key, nothing, alg=each) for each in ("none", "None", "", None)]
    forged += [forge(claims, key, each, alg="HS256") for each in hmacs]
    forged += [forge(claims, key, each) for each in (by_rsa(waiting), nothing, sha_512, *hmacs)]
    forged += [forge(claims, key, sha_512, alg="RS512"), forge(claims, key, alg=["RS256"])]
    forged += [forge(claims, waiting, by_rsa(key))]
    for hint in forged:
        assert send_hint(forum, adas_browser, hint) == REFUSED, decode_base64(hint.encode())
    assert is_signed_in(adas_browser)
    assert send_hint(forum, adas_browser, forge(claims, key)) == (None, 200)
    assert not is_signed_in(adas_browser)  # so nothing else was wrong with them


def test_modified_hint_is_refused(forum, adas_browser, bob):
    good, _ = sign_in_to(forum, adas_browser)
    other, _ = sign_in_to(forum, adas_browser, nonce="another")
    header, payload, signature = good.split(".")
    as_bob = encode(claims_of(good) | {"sub": str(bob.id)})
    for hint in (
        *(f"{header}.{as_bob}.{signature}", f"{header}.{payload}.{other.rpartition('.')[2]}"),
        *(f"{header}.{payload}.", f"{header}.{payload}", f"{header}.{payload}.x{signature}"),
        *(f"{header}..{signature}", f".{payload}.{signature}", f"{good}.{signature}", f"{good}."),
        *(good[1:], f"x{good}", f"é{good}", f"W10.{payload}.{signature}", "..", "." * 5000, "x"),
    ):
        assert send_hint(forum, adas_browser, hint) == REFUSED, hint
    assert is_signed_in(adas_browser)


@on_each_backend
def test_hint_of_an_unknown_key_counts_as_none(store, forum, adas_browser):
    """The key may have been lost, or replaced long ago."""
    claims, key = claims_of(sign_in_to(forum, adas_browser)[0]), signing_key(store)
    odd = ("x" * 43, f"../openid_keys/{key.id}", f"{key.id}.json", "\0" * 43, "\ud800", "é", "")
    for kid in (*odd, "x" * 4000, None, 5, True, [key.id], {"kid": key.id}):
        assert send_hint(forum, adas_browser, forge(claims, key, kid=kid)) == (None, 200), kid
    assert is_signed_in(adas_browser)


def test_id_token_has_the_nonce_of_its_own_request(forum, adas_browser, bobs_browser):
    """RFC 9700 4.5.3: a replayed code gives none, and an injected one that of its session."""
    for browser, nonce in ((adas_browser, "adas"), (bobs_browser, "bobs"), (adas_browser, None)):
        code = browser.allow(forum, scope="openid", nonce=nonce)
        id_token = forum.exchange_standard(code, nonce="planted").json["id_token"]
        assert claims_of(id_token).get("nonce") == nonce
        assert forum.exchange_standard(code).json["error"] == "invalid_grant"


def test_token_is_valid_for_its_own_client_and_purpose(forum, register, adas_browser):
    """RFC 9700 2.3: an ID token gives no access, and is no hint of another client."""
    id_token, access_token = sign_in_to(forum, adas_browser)
    assert statuses(forum, id_token) == (401, 401)
    assert forum.exchange_standard(id_token).json["error"] == "invalid_grant"
    assert send_hint(forum, adas_browser, access_token) == REFUSED
    adas_browser.allow(wiki := register("https://wiki.example/in"), scope="openid")
    assert ask_silently(wiki, adas_browser, id_token_hint=id_token) == "invalid_request"
    assert log_out(adas_browser, id_token_hint=id_token, client_id=wiki.id) == ERROR_PAGE
    assert is_signed_in(adas_browser)


# -- signing out because a program asks -----------------------------------------------------------


def test_unregistered_post_logout_address_is_not_used(store, forum, register, adas_browser):
    """RFC 9700 4.1.3: it matches exactly, and is the client's own. The player signs out even so."""
    wiki = register("https://wiki.example/in", post_logout_redirect_uris=["https://wiki.example/"])
    (hint, _), (of_wiki, _) = (sign_in_to(each, adas_browser) for each in (forum, wiki))
    others = (f"{BYE}&more", f"{BYE}#", f" {BYE}", BYE[:-1], BYE[6:], "/", "x")
    others += (forum.redirect_uri, BYE.replace("/bye", ".evil.example/"), "https://wiki.example/")
    others += ("javascript:alert(1)", "https://forum.example\n/bye")

    def check_signed_out(*asked: dict) -> None:
        for query in asked:
            page = adas_browser.get("/oauth/logout", query_string=query)
            if "id_token_hint" not in query:
                assert (page.status_code, page.location, is_signed_in(adas_browser)) == still
                page = adas_browser.post("/oauth/logout/confirm", data=query)
            assert (page.status_code, page.location, is_signed_in(adas_browser)) == gone, query
            assert [each["href"] for each in parse(page).select("main a")] == ["/"]
            assert page.headers["Content-Security-Policy"].endswith("form-action 'self'")
            adas_browser.sign_in()

    still, gone = (200, None, True), (200, None, False)
    own, by_hint = {"post_logout_redirect_uri": BYE}, {"id_token_hint": hint}
    check_signed_out(own | {"client_id": wiki.id}, own | {"id_token_hint": of_wiki})
    wrong = [{"post_logout_redirect_uri": each} for each in others]
    check_signed_out(*(each | by_hint for each in wrong))
    check_signed_out(*(each | {"client_id": forum.id} for each in wrong))
    malformed = [own | by_hint | {"client_id": each} for each in (wiki.id, "x")]
    malformed += [{"post_logout_redirect_uri": [BYE, BYE]} | by_hint]
    assert {log_out(adas_browser, **each) for each in malformed} == {ERROR_PAGE}
    edit(store.clients, forum.id, disabled=True)
    check_signed_out(own | by_hint, own | {"client_id": forum.id}, own)


def test_address_of_one_client_alone_is_a_link(store, forum, register, adas_browser, open_browser):
    """RFC 9700 4.11.2. Programs that send nothing else (Grafana) get a link, and no redirect."""
    query = {"post_logout_redirect_uri": BYE, "state": "s&t"}
    page = adas_browser.get("/oauth/logout", query_string=query)
    form = {each["name"]: each["value"] for each in parse(page).select("main form input")}
    assert (page.status_code, form.items() >= query.items()) == (200, True)

    def link_of(browser) -> list[str]:
        page = browser.post("/oauth/logout/confirm", data=form)
        assert (page.status_code, page.location, is_signed_in(browser)) == (200, None, False)
        return [each["href"] for each in parse(page).select("main a")]

    assert link_of(adas_browser) == link_of(open_browser()) == [f"{BYE}&state=s%26t"]
    twin = register("https://twin.example/in", post_logout_redirect_uris=["https://x.y/", BYE])
    assert link_of(open_browser()) == ["/"]
    edit(store.clients, twin.id, disabled=True)
    assert link_of(open_browser()) == [f"{BYE}&state=s%26t"]
    edit(store.clients, forum.id, post_logout_redirect_uris=["https://x.y/"])
    assert link_of(open_browser()) == ["/"]


def test_unregistered_address_is_shown_to_those_who_manage_the_app(store, forum, adas_browser, ada):
    query = {"post_logout_redirect_uri": f"{BYE}<b>", "client_id": forum.id}
    by_hint = query | {"id_token_hint": sign_in_to(forum, adas_browser)[0]}
    for level, uris in ((PLAYER, []), (ADMINISTRATOR, [f"{BYE}<b>", BYE])):
        edit(store.users, ada.id, mod_level=level)
        pages = [
            adas_browser.get("/oauth/logout", query_string=query),
            adas_browser.post("/oauth/logout/confirm", data=query),
            adas_browser.sign_in() and adas_browser.get("/oauth/logout", query_string=by_hint),
        ]
        for page in pages:
            assert [each.text for each in parse(page).select("main code")] == uris
        adas_browser.sign_in()


def test_link_or_head_request_signs_nobody_out(forum, adas_browser, bobs_browser, open_browser):
    """RFC 9700 4.11.2: nor does it redirect, which it could to any address of a member.

    RFC 9110 9.2.1: HEAD with Ada's own hint.
    """
    query = {"client_id": forum.id, "post_logout_redirect_uri": BYE, "state": "s&t"}
    bobs = {"id_token_hint": sign_in_to(forum, bobs_browser)[0]}
    for browser, more in ((open_browser(), {}), (adas_browser, bobs), (adas_browser, {})):
        page = browser.get("/oauth/logout", query_string=query | more)
        assert (page.status_code, page.location) == (200, None)
    own = {"id_token_hint": sign_in_to(forum, adas_browser)[0]}
    adas_browser.head("/oauth/logout", query_string=own)
    assert is_signed_in(adas_browser)
    form = {each["name"]: each["value"] for each in parse(page).select("main form input")}
    assert led_to(adas_browser.post("/oauth/logout/confirm", data=form)) == f"{BYE}&state=s%26t"
    assert is_signed_in(bobs_browser) and not is_signed_in(adas_browser)


@pytest.mark.parametrize("end", ["group taken away", "suspended", "deleted"])
def test_lost_access_gives_nothing(store, register, adas_browser, bobs_browser, ada, bob, end):
    """RFC 9700 2.3: between consent and exchange, and before each later use."""
    staff = register("https://staff.example/in", only_groups=["moderators"])
    edit(store.users, ada.id, mod_level=MODERATOR)
    page, (hint, token) = adas_browser.get(staff.link()), sign_in_to(staff, adas_browser)
    code = adas_browser.allow(staff, scope="openid")
    assert statuses(staff, token) == (200, 200)
    with store.users.edit(ada.id) as user:
        user.mod_level = PLAYER if end == "group taken away" else MODERATOR
        user.suspension = Suspension(bob.id) if end == "suspended" else None
    if end == "deleted":
        store.users.delete(ada.id)
    assert staff.exchange_standard(code).json["error"] == "invalid_grant"
    assert (staff.exchange(code).status_code, statuses(staff, token)) == (400, (401, 401))
    assert adas_browser.decide(page).status_code == 403
    error = "access_denied" if end == "group taken away" else "login_required"
    assert ask_silently(staff, adas_browser) == error
    asked = bobs_browser.get(staff.link(scope="openid", id_token_hint=hint))
    assert asked.status_code == (303 if end == "group taken away" else 400)  # sign in, or an error
    assert send_hint(staff, bobs_browser, hint) == ("login_required", 200)
    assert send_hint(staff, adas_browser, hint) == (error, 200)


def test_app_learns_no_group_before_consent(store, register, adas_browser, ada, subtests):
    """RFC 9700 2.3: with `prompt=none`, at the top level, in a popup and for a wider scope."""
    apps = [register(f"https://{len(groups)}.example/in", only_groups=groups) for groups in GROUPS]

    def ask(scope: str, **more: str) -> list[str]:
        return [ask_silently(each, adas_browser, scope=scope, **more) for each in apps]

    def set_consent(*scope: str) -> None:
        with store.users.edit(ada.id) as user:
            user.grants = {each.id: Grant("a grant", list(scope), 1) for each in apps if scope}

    same, told = ["consent_required"] * 3, [None, None, "access_denied"]
    for given, asked, errors in (
        *(([], "openid", same), (["userinfo"], "openid email", same)),
        *((["email"], "openid", same), (["userinfo"], "openid groups", same)),
        *((["userinfo"], "openid", told), (["userinfo", "groups"], "openid groups", told)),
    ):
        set_consent(*given)
        with subtests.test(given=given, asked=asked):
            assert ask(asked) == ask(asked, max_age="999") == errors
    set_consent()
    popups = [each.link(**SILENT, response_mode="web_message") for each in apps]
    for page in map(adas_browser.get, popups):
        assert "consent_required" in page.text and "access_denied" not in page.text


# -- prompt=none, prompt=login, and requests by POST ----------------------------------------------


def test_silent_frame_gets_nothing(forum, adas_browser, bobs_browser, open_browser, faults):
    """RFC 9700 4.16: sibling sites would spend the player's codes, or see who is signed in."""
    hint, _ = sign_in_to(forum, adas_browser)
    visitors = [adas_browser, bobs_browser, open_browser()]  # Bob has not allowed it
    silent, before = forum.link(**SILENT), faults.stored("codes", "attempts")
    for more in (
        *("", "state=s", f"id_token_hint={hint}", "max_age=0", "response_mode=web_message"),
        *("max_age=-1", "id_token_hint=x", "request=x", "nonce=%00", "code_challenge=x"),
        *("prompt=login", "prompt=none", "prompt=", "scope=userinfo", "scope=openid+email"),
        *("response_type=token", "response_mode=form_post", "client_id=x", "redirect_uri=x"),
        *("scope=userinfo&scope=openid", "prompt=login&prompt=none", "max_age=1&max_age=1"),
    ):
        answers = [each.get(f"{silent}&{more}", headers=FRAME) for each in visitors]
        [(status, location)] = {(each.status_code, each.location) for each in answers}
        assert status in (400, 403) or "error=interaction_required" in location, more
    assert location  # of the last ones
    for changed in ({"prompt": "none "}, {"prompt": "NONE"}, {"scope": "email"}, {"prompt": None}):
        for each in visitors:
            assert each.get(forum.link(**SILENT | changed), headers=FRAME).status_code == 403
    for headers in ({"Sec-Purpose": "prefetch"}, {"Sec-Fetch-Mode": "no-cors"}):
        assert adas_browser.get(silent, headers=FRAME | headers).status_code == 403
    assert faults.stored("codes", "attempts") == before
    assert ask_silently(forum, adas_browser) is None


def test_silent_request_redirects_to_registered_addresses_only(store, forum, browser):
    """RFC 9700 4.11.2. Malformed ones, and those without `openid`, show a page as before."""
    own = forum.redirect_uri
    wrong = [{"redirect_uri": each} for each in ("https://evil.example/", f"{own}/x", [own, own])]
    for changed in (*wrong, {"client_id": "x"}, {"client_id": None}):
        answer = browser.get(forum.link(**SILENT | changed))
        assert (answer.status_code, answer.location) == ERROR_PAGE, changed
    for changed in ({"scope": "email"}, {"max_age": "-1"}, {"request": "x"}):
        assert browser.get(forum.link(**SILENT | changed)).location.startswith("/sign-in?")
    assert ask_silently(forum, browser) == "login_required"
    edit(store.clients, forum.id, disabled=True)
    assert browser.get(forum.link(**SILENT)).status_code == 400


def ask_again(program, browser, **parameters: str) -> str:
    asked = browser.get(program.link(scope="openid", **parameters or {"prompt": "login"}))
    return hidden_field(browser.get(asked.location), "next")


def is_asked(browser, address: str) -> bool:
    """Return whether the response to a request leads to the sign-in page, and that has a form."""
    leads_to = browser.get(address).location or ""
    return leads_to.startswith("/sign-in?") and browser.get(leads_to).status_code == 200


def test_other_session_does_not_satisfy_prompt_login(
    forum, register, adas_browser, bobs_browser, open_browser, clock
):
    """OpenID Connect Core 3.1.2.1: nor with the signed value that others were asked with."""
    for program in (forum, wiki := register("https://wiki.example/in")):
        adas_browser.allow(program, scope="openid")
    clock.shift(100)
    own, bobs = ask_again(forum, adas_browser), ask_again(forum, bobs_browser)
    request, _, value = own.partition("&asked=")
    _, _, of_wiki = ask_again(wiki, adas_browser).partition("&asked=")
    for address in (own, ask_again(forum, open_browser()), f"{request}&{value}"):
        assert is_asked(adas_browser, address)
    adas_browser.sign_in()
    new = ask_again(forum, adas_browser)
    for address in (new, bobs, f"{request}&asked={of_wiki}", f"{request}&asked=x{value}", request):
        assert is_asked(adas_browser, address)
    assert not is_asked(adas_browser, own)
    clock.shift(601)
    assert is_asked(adas_browser, own)


def test_what_another_browser_was_asked_satisfies_nothing(
    forum, adas_browser, bobs_browser, open_browser, clock, subtests
):
    """OpenID Connect Core 3.1.2.1: a session in a browser that was left open asks once more."""
    guest, adas_other = open_browser(), open_browser()
    hint, _ = sign_in_to(forum, adas_browser)
    adas_other.sign_in()
    clock.shift(100)
    for asked in ({"prompt": "login"}, {"max_age": "0"}, {"id_token_hint": hint, "max_age": "1"}):
        own = ask_again(forum, adas_browser, **asked)
        others = [ask_again(forum, each, **asked) for each in (guest, bobs_browser, adas_other)]
        clock.shift(5)
        assert adas_browser.get(adas_browser.sign_in(next=own).location).status_code == 303
        clock.shift(5)
        with subtests.test(list(asked)):
            for address in others:
                assert is_asked(adas_browser, address), address
                page = adas_browser.get("/sign-in", query_string={"next": address})
                assert page.status_code == 303  # it names nobody who was asked elsewhere
            assert not is_asked(adas_browser, own)


def test_request_by_post_is_a_redirect_and_never_a_decision(forum, adas_browser):
    def post(form: dict, headers: dict = FOREIGN_LINK, path: str = "/oauth/authorize") -> int:
        return adas_browser.post(path, data=form, headers=headers).status_code

    own = {"request": hidden_field(adas_browser.get(forum.link()), "request"), "decision": "allow"}
    asked = {"client_id": forum.id, "scope": "openid"}
    assert post(asked) == 303
    for form in (own, own | asked, {"request": own["request"]}, {}):
        assert post(form) == 403
    for headers in (FRAME, {"Sec-Fetch-Site": "cross-site", "Origin": "null"}):
        assert post(asked, headers) == post(asked, headers, "/oauth/logout") == 403
    assert [post(asked | {"state": "s" * size}) for size in (7000, 8000)] == [303, 400]
    assert post(asked, path="/oauth") == 405
    assert adas_browser.get(forum.link()).status_code == 200  # nothing was allowed
