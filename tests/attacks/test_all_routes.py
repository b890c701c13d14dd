"""Requests to every route of the app, so that no route escapes a rule that holds for all."""

import re
import shutil
from collections.abc import Iterator
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from conftest import FOREIGN_LINK, PASSWORD, Browser
from flask import Flask
from forms import edit, from_address, hidden_field, signed_in
from test_rights_table import LATER, put_in

import identity_server
from identity.access.passwords import hash_password
from identity.acts import applications
from identity.acts import reports as report_acts
from identity.acts.actors import Actor, Authority
from identity.acts.chat import find_webhook
from identity.http.stamps import OUT_OF_DATE, TOO_QUICK
from identity.oauth.guards import MOST_STEPS
from identity.oauth.openid import published_keys
from identity.site.look import read_look
from identity.site.settings import ROOT
from model.door_records import NetworkBan, NetworkBans
from model.kinds import LOOKS, NETWORK_BANS, NOTES, OUTBOX, PASSKEYS, REPORTS, WEBHOOKS
from model.records import ADMINISTRATOR, Passkey
from model.site_records import Look, Message, Note, Webhook

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW")
# Routes that read no cookie.
OPEN_TO_ANY_ORIGIN = (
    *("/api/oauth/whois", "/api/users/info", "/api/users/batch"),
    *("/pfp/", "/covers/"),
    *("/.well-known/", "/openapi.json", "/static/v1/identity.js"),
    *("/oauth/userinfo", "/oauth/keys", "/oauth/device/qr", "/api/tickets"),
)
# Open to public clients' pages, but for the last.
TOKEN_PATHS = ("/api/oauth/token", "/oauth/token", "/oauth/device", "/oauth/revoke")
TOKEN_PATHS += ("/oauth/introspect",)
OPEN_POSTS = ("/oauth/userinfo", "/api/tickets", "/api/tickets/check")  # which read no cookie

ODD_VALUES = (
    *("1", "01", "٣", "9" * 400, "..", "%00", "%2f..%2f", "a" * 5000, "%ff", '"><script>'),
    *(".htaccess", "1-1.webp%0d%0aX-Planted:x", "large", "\u202e"),
)


def paths(app: Flask, part: str) -> Iterator[str]:
    """Yield the path of every route, with `part` for each variable of its rule."""
    for rule in app.url_map.iter_rules():
        sizes = re.sub("<any[^>]*>", "large", rule.rule)
        yield re.sub("<[^>]*>", part, sizes)


@pytest.fixture
def app(make_app):
    """An app with all its routes, and a key for ID tokens."""
    app = make_app(OPENID="on")
    published_keys(app.extensions["storage"])
    return app


@pytest.fixture
def administrator_browser(store, adas_browser, ada):
    """A browser that is signed in as an administrator."""
    edit(store.users, ada.id, mod_level=ADMINISTRATOR)
    return adas_browser


@pytest.fixture(params=["administrator", "guest"])
def visitor(request, administrator_browser):
    """A browser signed in as an administrator, and one that is signed out; both stay so."""
    if request.param == "guest":
        administrator_browser.delete_cookie("identity_session")
    yield administrator_browser
    seen = administrator_browser.get("/account").status_code
    assert seen == (200 if request.param == "administrator" else 303)


@pytest.fixture
def game(store):
    """A client with a game URL: its play page is /play/<client id>."""
    client, _ = store.clients.register("Game", [], None, game_url="https://game.example/")
    return client


@pytest.fixture
def report(store, bob, game):
    report_acts.report(Authority(store, Actor(bob.id)), game, "spam", "")
    [report_id] = store.records(REPORTS).ids()
    return store.records(REPORTS).read(report_id)


@pytest.fixture
def things(store, ada, bob, game, report):
    """The ids that stand for the parts of a rule, and for values of a form."""
    for letter in "01":
        one = Passkey(letter * 64, ada.id, "handle", letter, "key", "localhost", "Phone", 5)
        store.records(PASSKEYS).add(one)
    invite = store.invites.find_unused(store.invites.issue(7))
    note = Note("0" * 15 + "-00000000", bob.id, 1, "Hello", 5)
    store.records(NOTES).add(note)
    ids = {"user_id": bob.id, "client_id": game.id, "report_id": report.id}
    ids |= {"owner_id": game.owner_id or "", "passkey_id": "0" * 64}
    ids |= {"note_id": note.id, "invite_id": invite.id}
    fields = {"name": "Eve", "email": "eve@x.example", "password_hash": hash_password(PASSWORD)}
    ids |= {"application_id": applications.apply(store, True, **fields).id}
    return {f"<{name}>": str(each) for name, each in ids.items()}


SIGN_OUT_PATHS = ("/sign-out", "/oauth/logout/confirm")


def request_every_path(
    app: Flask, visitor, parts: tuple[str, ...], methods: tuple[str, ...] = METHODS, **options
) -> Iterator:
    """Yield the response to each method at every path; requests that sign out are left out."""
    every_path = dict.fromkeys(each for part in parts for each in paths(app, part))
    for address in every_path:
        for method in methods:
            if method != "POST" or address not in SIGN_OUT_PATHS:
                yield visitor.open(address, method=method, **options)


QUERY_PARAMETERS = (
    *("after", "before", "unlisted_after", "q", "name", "next", "invite", "link", "id", "ids"),
    *("client_id", "redirect_uri", "scope", "state", "code_challenge"),
)


@pytest.mark.load
def test_odd_address_causes_no_server_error_or_injection(app, administrator_browser, game):
    """No value is reflected in a header or as markup. PostgreSQL refuses texts with a NUL."""
    query = "&".join(f"{name}=%00" for name in QUERY_PARAMETERS)
    parts, methods = (game.id, *ODD_VALUES), ("GET", "POST")
    for answer in request_every_path(
        app, administrator_browser, parts, methods, query_string=query
    ):
        assert answer.status_code < 500, answer.request
        assert "X-Planted" not in answer.headers
        assert b'"><script>' not in answer.data


def test_every_response_has_security_headers(app, visitor, game):
    """RFC 9700 4.16: no page can be framed; error pages and redirects included."""
    for answer in request_every_path(app, visitor, (game.id, "1")):
        assert answer.status_code < 500
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        if answer.content_type.startswith("text/html"):
            policy = answer.headers["Content-Security-Policy"]
            assert "frame-ancestors 'none'" in policy
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy and "*" not in policy
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["Referrer-Policy"] == "same-origin"
        for cookie in answer.headers.getlist("Set-Cookie"):
            assert "HttpOnly" in cookie and "Domain" not in cookie


@pytest.mark.load
def test_no_cors_on_responses_that_depend_on_the_session(app, visitor, game):
    """RFC 9700 2.6: in particular no CORS on the authorization endpoint."""
    cors_request = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    for headers in (cors_request, {"Origin": "null"}):
        for answer in request_every_path(app, visitor, (game.id,), METHODS[:4], headers=headers):
            assert "Access-Control-Allow-Credentials" not in answer.headers
            allowed_origin = answer.headers.get("Access-Control-Allow-Origin")
            assert allowed_origin in (None, "*")  # never the Origin of the request
            # Only public clients get more than a preflight: tests/test_public_clients.py
            is_preflight = answer.request.method == "OPTIONS" and answer.status_code == 204
            path = answer.request.path
            if allowed_origin and not (is_preflight and path in TOKEN_PATHS):
                is_picture = re.fullmatch("/users/.*/picture", path)
                assert path.startswith(OPEN_TO_ANY_ORIGIN) or is_picture
                assert "Vary" not in answer.headers and "Set-Cookie" not in answer.headers


WINDOWS = (  # that a page of another site could open, with the address of another page
    *("{}?next={}", "/sign-up?next={}", "/welcome?next={}", "/welcome/picture?next={}"),
    *("/sign-in?next=/sign-up%3Fnext%3D{}", "/sign-in?next=/account&next={}"),
    *("/account?next={}", "/sign-in?next={}/signed-in", "/sign-in?next={}%3Fnext%3D/oauth"),
)


def seen_by_opener(browser: Browser, address: str) -> str:
    """Return what the page that opens a window at an address sees of it, redirects included."""
    while address.startswith("/"):
        answer = browser.get(address, headers=FOREIGN_LINK)
        policy = answer.headers.get("Cross-Origin-Opener-Policy", "unsafe-none")
        if policy != "unsafe-none":
            assert policy in ("same-origin", "same-origin-allow-popups")
            return "closed"
        address = answer.location or ""
    return f"{answer.text.count('<iframe')} frames"


def test_way_of_a_popup_has_few_steps(visitor):
    """Each is parsed from the rest of the address: the work would grow with its square."""
    for steps, is_popup in ((MOST_STEPS, True), (MOST_STEPS + 1, False)):
        answer = visitor.get("/sign-in?then=" * steps + "/oauth/authorize")
        assert ("Cross-Origin-Opener-Policy" not in answer.headers) is is_popup


def test_opener_of_another_site_sees_the_same_for_all_visitors(
    app, administrator_browser, open_browser, program, game, subtests
):
    """Neither frames nor a window that closes tell who is signed in; popups of apps stay open."""
    play = f"/play/{game.id}"
    pages = [*dict.fromkeys(paths(app, game.id)), "/users/1", program.link(), play]
    addresses = [f"/sign-in?next={quote(each)}" for each in pages]
    addresses += [way.format(*[quote(each)] * 2) for each in pages[-2:] for way in WINDOWS]
    for address in [*pages, *addresses]:
        with subtests.test(address):
            seen = seen_by_opener(open_browser(), address)
            assert seen_by_opener(administrator_browser, address) == seen
    next_to_page = [f"/{each}?next={{}}" for each in ("sign-in", "sign-up", "welcome")]
    for way in ("{}", *next_to_page, "/sign-in?then={}"):
        for page in (program.link(), f"{play}/signed-in", f"/games/{game.id}"):
            address = way.format(quote(page) if "next" in way else page)
            assert seen_by_opener(administrator_browser, address) == "0 frames", address
    # Negative control: the play page has a frame to count.
    assert "<iframe" in administrator_browser.get(play).text


REFUSALS = ("This form came from another site.", "Only pages of this site may load this address.")
NOT_PAGES = ("/api/", "/pfp/", "/static/", "/.well-known/", "/openapi.json", "/healthz")
NOT_PAGES += (*TOKEN_PATHS, "/oauth/userinfo", "/oauth/keys")


def fetched(site: str, *more: str) -> dict[str, str]:
    names = ("Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest")
    return dict(zip(names, (site, *more), strict=False))


FOREIGN_LOADS = [
    fetched("same-site", "no-cors", "image"),
    fetched("cross-site", "cors", "empty"),
    fetched("same-site", "navigate", "iframe"),
    fetched("cross-site", "no-cors", "document"),
    fetched("same-site"),
    fetched("nonsense"),
    # What Chromium sends to prefetch for a sibling subdomain, and for its WebSocket behind nginx.
    fetched("none", "navigate", "document") | {"Sec-Purpose": "prefetch"},
    {"Origin": "https://game.example"},
]


@pytest.fixture
def foreign_visitor(visitor):
    """A visitor whose browser sends requests for pages of other sites."""
    own_site = visitor.environ_base.pop("HTTP_SEC_FETCH_SITE")
    yield visitor
    visitor.environ_base["HTTP_SEC_FETCH_SITE"] = own_site


@pytest.mark.load
def test_no_page_can_be_loaded_by_another_site(app, foreign_visitor, game, faults):
    """The same 403 for all visitors, before anything is counted; a link works."""
    safe, before = ("GET", "HEAD", "OPTIONS"), faults.stored()
    for headers in FOREIGN_LOADS:
        methods = safe if headers is FOREIGN_LOADS[0] else ("GET",)
        for answer in request_every_path(
            app, foreign_visitor, (game.id,), methods, headers=headers
        ):
            assert not {"Vary", "Set-Cookie"} & set(answer.headers.keys()), answer.request.path
            path = answer.request.path
            if not (path.startswith(NOT_PAGES) or re.fullmatch("/users/.*/picture", path)):
                assert (answer.status_code, answer.content_type) == (403, "text/plain")
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
            else:
                assert answer.status_code != 403
    assert faults.stored() == before
    followed = request_every_path(app, foreign_visitor, (game.id,), safe, headers=FOREIGN_LINK)
    refused = {each.request.path for each in followed if each.status_code == 403}
    assert refused == {"/account/export"}  # a download leaves the page that starts it where it is


def test_foreign_loads_use_up_no_codes_and_no_exports(adas_browser, program, faults):
    adas_browser.allow(program)
    before = faults.stored("codes", "attempts")
    own_site = adas_browser.environ_base.pop("HTTP_SEC_FETCH_SITE")
    for headers in FOREIGN_LOADS:
        adas_browser.get(program.link(), headers=headers)
        adas_browser.get("/account/export", headers=headers)
    assert faults.stored("codes", "attempts") == before
    adas_browser.environ_base["HTTP_SEC_FETCH_SITE"] = own_site
    # Negative control: links and pages of this site.
    assert program.read_callback(adas_browser.get(program.link(), headers=FOREIGN_LINK))["code"]
    assert adas_browser.get("/account/export").status_code == 200
    codes, attempts = faults.stored("codes"), faults.stored("attempts")
    assert codes.items() - before.items() and attempts.items() - before.items()


def test_no_form_can_be_sent_by_another_site(app, visitor, game, ada, faults):
    """Nor any other method that may change something, but for clients at the token endpoint."""
    before = faults.stored()
    for path in dict.fromkeys(each for part in (game.id, str(ada.id)) for each in paths(app, part)):
        others = [(method, "same-site") for method in ("PUT", "PATCH", "DELETE")]
        for method, site in [("POST", "cross-site"), ("POST", "same-site"), *others]:
            headers = FOREIGN_LINK | {"Sec-Fetch-Site": site}
            answer = visitor.open(path, method=method, headers=headers)
            if path in TOKEN_PATHS:
                assert answer.status_code in (400, 405)
            elif path in OPEN_POSTS:
                assert answer.status_code in (400, 401, 405)
            elif path == "/oauth/logout":  # the request of a program, which is asked for by GET
                assert answer.status_code in (303, 405)
            else:
                assert answer.status_code == 403
                assert any(each in answer.text for each in REFUSALS), path
    assert faults.stored() == before


def test_no_template_is_read_after_the_start(tmp_path, folders, environment, new_process, unsynced):
    """Between the two commands of an upgrade the disk has the templates of another version."""
    resources = tmp_path / "resources"
    shutil.copytree(f"{ROOT}/templates", resources / "templates")
    environment.setattr(identity_server, "RESOURCES", str(resources))
    settings = dict(zip(("DATA_DIR", "PICTURE_DIR"), folders, strict=True))
    settings |= {"BASE_URL": "http://localhost", "OPENID": "on"}
    app = identity_server.create_app(settings)
    shutil.rmtree(resources)
    store = app.extensions["storage"]
    user = store.users.register("Ada", "", hash_password(PASSWORD), mod_level=ADMINISTRATOR)
    client, _ = store.clients.register("Game", [], user.id, game_url="https://game.example/")
    browser = Browser(app)
    assert browser.sign_in().status_code == 303
    for answer in request_every_path(app, browser, (client.id, str(user.id)), ("GET",)):
        assert answer.status_code < 500, answer.request.path
    assert "Page not found" in browser.get("/nowhere").text


def test_next_widens_form_action_of_guest_pages_only(app, administrator_browser, program, game):
    """A form on any other page must not lead to the site of a member's client."""
    query = {"next": program.link()}
    widened = set()
    for path in {each for part in (game.id, "1") for each in paths(app, part)}:
        for browser in (administrator_browser, app.test_client()):
            for answer in (browser.get(path, query_string=query), browser.post(path, data=query)):
                if "space.example" in answer.headers.get("Content-Security-Policy", ""):
                    widened.add(path)
    assert widened <= {"/sign-in", "/sign-up"}


CANARY = "canary.example"
REQUEST_HEADERS = (
    *("X-Forwarded-Host", "X-Forwarded-Server", "X-Forwarded-Port", "X-Forwarded-Prefix"),
    *("X-Forwarded-Proto", "X-Original-URL", "X-Rewrite-URL", "X-Host", "Forwarded", "Via"),
    *("Referer", "User-Agent", "Accept-Language", "From", "True-Client-IP", "X-Real-IP"),
    *("X-HTTP-Method-Override", "X-Method-Override", "X-Wap-Profile", "Content-Location"),
)


def test_request_headers_are_not_reflected(make_app):
    """Cache poisoning: no value of a request header appears in the response."""
    for proxies in ("0", "1"):
        app = make_app(PROXIES=proxies)
        client = app.test_client()
        for address in paths(app, "1"):
            answer = client.get(address, headers=dict.fromkeys(REQUEST_HEADERS, CANARY))
            assert CANARY not in f"{answer.headers}{answer.text}"


def stored_records(faults) -> dict[str, bytes]:
    stored = faults.stored().items()
    return {place: content for place, content in stored if not place.startswith("attempts/")}


@pytest.mark.load
def test_who_waits_is_a_guest_everywhere(app, open_browser, things, game, adas_browser, faults):
    """Status, place and what is stored are as for a guest, also with the fields of each form."""
    applicant, asked = open_browser(), 0
    applicant.sign_in("Eve")
    assert applicant.get("/sign-up").location == "/application"
    cookie, stamp = applicant.get_cookie("identity_session").value, applicant.issue_stamp()

    def ask(address: str, method: str, fields: dict | None, cookie: str | None) -> tuple:
        before = stored_records(faults)
        browser = from_address(open_browser(), f"10.0.{asked // 200}.{asked % 200}")
        if cookie:
            browser.set_cookie("identity_session", cookie)
        answer, after = browser.open(address, method=method, data=fields), stored_records(faults)
        stored = [each for each in after if after[each] != before.get(each)]
        return answer.status_code, answer.location, len(stored), before.keys() - after.keys()

    typed = {"password": PASSWORD, "code": "123456", "link": "x", "user": "1", "name": "A"}
    for rule in {each.rule for each in app.url_map.iter_rules()} - {"/application"}:
        address = re.sub("<[^>]*>", game.id, put_in(re.sub("<any[^>]*>", "large", rule), things))
        form = {name: put_in(each, things) for name, each in STAMPED.get(rule, typed).items()}
        for method, fields in (("GET", None), ("POST", {}), ("POST", form)):
            sent = None if fields is None else {"stamp": stamp} | fields
            if (rule, method) != ("/sign-up", "GET"):
                asked += 1
                answers = [ask(address, method, sent, each) for each in (None, cookie)]
                assert answers[0] == answers[1], (method, address)
    assert asked > 300
    # Negative control: a player is no guest.
    player = adas_browser.get_cookie("identity_session").value
    assert ask("/account", "GET", None, player) != ask("/account", "GET", None, None)


def test_safe_methods_change_nothing(app, administrator_browser, ada, program, game, faults):
    """Another site can send a browser to any address, so safe methods must change nothing.

    The one exception is an authorization request that the player allowed before: it issues a code.
    """
    fields = "&name=x&bio=x&what=bio&mod_level=0&flair=x&client_id=x&session=x&listed=yes&confirm=1"
    before = stored_records(faults)
    every_path = {each for part in (str(ada.id), game.id) for each in paths(app, part)}
    for method in ("GET", "HEAD", "OPTIONS"):
        for address in every_path:
            administrator_browser.open(f"{address}?decision=allow{fields}", method=method)
        administrator_browser.open(program.link(decision="allow"), method=method)
    assert stored_records(faults) == before


# What guests may ask for below the addresses of members; /account/email needs a mail server.
FOR_GUESTS = {
    *("/users/<user_id>", "/users/<user_id>/picture", "/games/<client_id>", "/play/<client_id>"),
    *("/developer/docs", "/developer/docs/<name>"),
}
REFUSED_TO_GUESTS = {  # to their scripts, and by the addresses of letters
    *("/account/passkeys/options", "/play/<client_id>/authorize"),
    *("/account/email/confirm", "/account/email/letters"),
}
MEMBERS_ONLY = re.compile("/(account|admin|developer|device|games|play|unsent|users|welcome)(/|$)")


def test_guest_is_asked_to_sign_in_and_comes_back(app, open_browser, things, faults):
    """A form cannot be sent again; what was typed in a report comes back with its page."""
    guest, before = open_browser(), faults.stored()
    things["<any(picture, flair, game):step>"] = "game"
    seen = {True: set(), False: set()}
    for rule in app.url_map.iter_rules():
        path = put_in(rule.rule, things)
        for method in {"GET", "POST"} & rule.methods if MEMBERS_ONLY.match(path) else ():
            answer = guest.open(f"{path}?q=a%20b", method=method)
            asked = urlsplit(answer.location or "")
            seen[asked.path == "/sign-in"].add(rule.rule)
            if asked.path == "/sign-in":
                is_form = method == "POST" and not path.endswith("/report")
                back = dict(parse_qsl(asked.query))["next"]
                assert answer.status_code == 303
                assert back in (["/account"] if is_form else [path, f"{path}?q=a%20b"]), path
            elif rule.rule in REFUSED_TO_GUESTS:
                assert answer.status_code in (403, 404)
    assert seen[False] == FOR_GUESTS | REFUSED_TO_GUESTS
    assert faults.stored() == before


# Every route with a form: one that it accepts besides its stamp, or why it needs no stamp.
STAMPED = {
    "/admin/applications": {
        **{"application": "<application_id>", "seen": "9999999999999"},
        **{"act": "decline", "reason": "Spam"},
    },
    "/users/<user_id>/report": {"reason": "spam"},
    "/games/<client_id>/report": {"reason": "spam"},
    "/admin/reports/<report_id>": {"answer": "Done."},
    "/admin/look": {"accent": "#7a3fb0", "seen": "<seen>"},
    "/admin/look/logo/remove": {"seen": "<seen>"},
    "/admin/door": {"minimum_age": "13", "seen": "<seen>"},
    "/admin/door/allowed": {"list": "a.example", "seen": "<seen>"},
    "/admin/door/refused": {"list": "b.example", "seen": "<seen>"},
    "/admin/chat": {"format": "json", "events": "player", "seen": "<chat_seen>"},
    "/admin/chat/test": {},
    "/admin/chat/given-up": {},
    "/admin/chat/key": {"seen": "<chat_seen>"},
    "/admin/chat/remove": {"seen": "<chat_seen>"},
    "/admin/announcement": {"text": "Hello.", "days": "1", "seen": "<seen>"},
    "/admin/announcement/end": {"seen": "<seen>"},
    "/admin/door/terms": {"text": "Be kind.", "day": LATER, "asks": "yes", "seen": "<seen>"},
    "/terms": {"version": "1"},
    "/admin/door/privacy": {"text": "We keep little.", "seen": "<seen>"},
    "/admin/mail/test": {},
    "/admin/checklist/hide": {},
    "/admin/invitations": {"days": "7", "uses": "1"},
    "/admin/invitations/revoke": {"id": "<invite_id>"},
    "/admin/networks": {"network": "192.0.2.7", "days": "1", "reach": "0", "reason": "Bots."},
    "/admin/networks/lift": {"network": "192.0.2.7/32"},
    "/play/<client_id>/listed": {"listed": "no", "game_url": "https://game.example/"},
    "/users/<user_id>/suspend": {},
    "/users/<user_id>/unsuspend": {},
    "/users/<user_id>/underage": {"underage": "no"},
    "/users/<user_id>/reset": {"what": "name"},
    "/users/<user_id>/flairs/grant": {"flair": "Champion"},
    "/users/<user_id>/flairs/revoke": {"flair": "Champion"},
    "/users/<user_id>/notes": {"text": "Said sorry."},
    "/users/<user_id>/warn": {"warning": "Be kind."},
    "/users/<user_id>/notes/delete": {"note": "<note_id>"},
    "/users/<user_id>/sign-in-link": {},
    "/users/<user_id>/mod-level": {"mod_level": "1"},
    "/developer/<client_id>/secret": {},
    "/developer/<client_id>/cover/remove": {},
    "/developer/<client_id>/disable": {},
    "/developer/<client_id>/enable": {},
    "/developer/<client_id>/owner": {"owner": "", "seen": "<owner_id>"},
    "/developer/<client_id>/delete": {},
    "/account/picture/remove": {},
    "/users/<user_id>/delete": {"password": PASSWORD},
    "/account/passkeys/remove": {"id": "<passkey_id>"},
    "/account/recovery-codes": {},
    "/account/password/remove": {},
    "/account/delete": {"password": PASSWORD},
}
# They act on nobody else, and a new picture replaces what was removed.
NOT_HELD = {"/account/picture/remove", "/developer/<client_id>/cover/remove"}
NOT_STAMPED = {
    "/language": "another press undoes it, and a letter tells who has an account",
    "/oauth/authorize": "the signed request has the time: tests/test_authorize.py",
    "/application": "of who is signed in as nobody: tests/test_applications.py",
    "/device": "shows the page that asks, and is limited: tests/test_device.py",
    "/users/<user_id>/networks": "shows a page, and is limited: tests/test_network_bans.py",
    "/device/decision": "the signed request has the time: tests/test_device.py",
    "/play/<client_id>/authorize": "sent by a script: tests/live/test_play_page.py",
    "/api/users/heartbeat": "sent by a script, without a press",
    "/developer/<client_id>/try": "leads to the consent page, which counts no press that early",
    "/account/passkeys": "the browser asks the player: tests/live/test_passkeys_browser.py",
    "/account/passkeys/options": "sent by a script, and changes nothing",
    "/sign-in/passkey": "the browser asks the player: tests/live/test_passkeys_browser.py",
    "/sign-in/passkey/options": "sent by a script, and changes nothing",
    "/developer/<client_id>/try/token": "ends a test that the player started and allowed",
    "/developer/<client_id>/try/device": "shows a code; the device page counts no press that early",
    "/developer/<client_id>/try/device/token": "ends a test that the player started and allowed",
    "/account/warning": "counts no press that early, and the page has no other problem to show",
} | dict.fromkeys(
    (
        *("/sign-in", "/sign-up", "/recover", "/recover/password", "/confirm", "/account"),
        *("/account/picture", "/account/email/confirm", "/account/email/letters"),
        *("/account/email", "/account/password", "/developer", "/developer/<client_id>"),
        *("/developer/<client_id>/cover", "/admin/look/logo", "/welcome/picture", "/welcome/flair"),
        *("/sign-out", "/account/apps/withdraw", "/account/sessions/end"),
        *("/account/sign-out-others", "/oauth/logout", "/oauth/logout/confirm"),
        *("/account/apps/shown", "/announcement/dismiss"),
    ),
    "a press without typing changes nothing, or a further press or a sign-in undoes it",
)


def test_press_in_the_first_second_does_not_count(
    app,
    store,
    clock,
    real_minimum_age,
    administrator_browser,
    open_browser,
    add_players,
    things,
    ada,
    faults,
):
    """RFC 9700 4.16: a double click. Nor does a press without a stamp of this session."""
    posts = {rule.rule for rule in app.url_map.iter_rules() if "POST" in rule.methods}
    assert {*STAMPED, *NOT_STAMPED} == posts - {*TOKEN_PATHS, *OPEN_POSTS}
    add_players("Another administrator", mod_level=2)
    store.pictures.save(ada.id, {"large": b"1", "medium": b"1", "small": b"1"})
    store.records(WEBHOOKS).add(Webhook("chat", 1, "https://x.example/", "json", ["player"], "k"))
    bobs_browser = signed_in(open_browser(), "Bob")
    signed = administrator_browser.issue_stamp()
    foreign = ("", "x", signed[:-10], f"x{signed}", bobs_browser.issue_stamp())
    clock.shift(0.999)
    for rule, fields in STAMPED.items():
        things["<chat_seen>"] = str(getattr(find_webhook(store), "changed", 0))
        things["<seen>"] = str(read_look(store).changed)
        path = put_in(rule, things)
        form = {name: put_in(value, things) for name, value in fields.items()}
        young = administrator_browser.issue_stamp()
        clock.shift(0.999)
        before = stored_records(faults)
        for stamp in (*foreign, young):
            problem = TOO_QUICK if stamp is young else OUT_OF_DATE
            page = administrator_browser.post(path, data=form | {"stamp": stamp})
            assert (page.status_code, problem in page.text) == (400, True), rule
        assert stored_records(faults) == before, rule
        again = hidden_field(page, "stamp")
        clock.shift(1)
        answer = administrator_browser.post(path, data=form | {"stamp": again})
        if rule == "/account/password/remove":  # the other passkey would be the last way in
            assert answer.status_code == 409
        else:
            assert answer.status_code in (201, 303), rule
            administrator_browser.get(answer.location)  # shows its notice


def test_stamped_routes_have_a_stamp(
    app, store, administrator_browser, ada, bob, game, report, things
):
    """The page also loads the script that holds back their buttons, those for deletion too."""
    store.pictures.save(ada.id, {"large": b"1", "medium": b"1", "small": b"1"})
    with store.users.edit(bob.id) as user:
        user.flairs.append("Champion")
    edit(store.clients, game.id, cover=1)
    store.records(WEBHOOKS).add(Webhook("chat", 1, "https://x.example/", "json", ["player"], "k"))
    given_up = Message("0" * 15 + "-00000000", "chat", "player", "{}", 1, 2**45, given_up=5)
    store.records(OUTBOX).add(given_up)
    announced = {"announcement": "Hi.", "announced_until": 2**45}
    terms = {"terms": 1, "terms_from": 2**45, "terms_asked": 1}
    store.records(LOOKS).put(Look("site", 1, logo=1, **announced, **terms))
    profile, client_page = f"/users/{bob.id}", f"/developer/{game.id}"
    shown = [
        *("/", "/account", "/account/security", "/account/data", profile, client_page),
        f"{profile}/report",
    ]
    shown += [
        *(f"/games/{game.id}/report", f"/admin/reports/{report.id}", "/admin/invitations"),
        *("/admin", "/admin/applications", "/admin/look", "/admin/announcement", "/admin/chat"),
        *("/admin/door", "/admin/networks", "/terms"),
    ]
    ban = NetworkBan("192.0.2.0/24", 1, 2**45, bob.id)
    store.records(NETWORK_BANS).put(NetworkBans("site", [ban]))
    app.config["SMTP_URL"] = "smtp://localhost:1"
    pages = list(map(administrator_browser.get, shown))
    for act in (f"{profile}/suspend", f"{client_page}/disable"):
        administrator_browser.post(act)
    pages += map(administrator_browser.get, (profile, client_page))
    found = set()
    for page in pages:
        forms = re.findall('<form method="post" action="([^"]*)"(.*?)</form>', page.text, re.DOTALL)
        for action, fields in forms:
            rule = action.replace(f"/{bob.id}/", "/<user_id>/").replace(game.id, "<client_id>")
            rule = rule.replace(report.id, "<report_id>")
            if rule in STAMPED:
                found.add(rule)
                [held] = re.findall('name="stamp" value="[^"]{40,}"( data-hold)?>', fields)
                assert bool(held) == (rule not in NOT_HELD), rule
                assert "hold.js" in page.text
    assert found == STAMPED.keys()
