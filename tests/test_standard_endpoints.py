"""The endpoints of the standards beside the contract: /oauth/token and /oauth/userinfo."""

import itertools

import pytest
from conftest import PASSWORD, Browser, Program
from forms import edit, signed_in

from identity.access.passwords import hash_password
from model.records import ADMINISTRATOR, MODERATOR, Grant, sha256

CALLBACK = "https://forum.example/callback"
SITE = "http://localhost"
OTHER_GRANT, UNSUPPORTED = {"grant_type": "password"}, "unsupported_grant_type"


@pytest.fixture(params=["off", "on"])
def app(make_app, request):
    """An app with OpenID Connect off, and on: it changes nothing without the scope `openid`."""
    return make_app(OPENID=request.param)


@pytest.fixture
def forum(register) -> Program:
    return register(CALLBACK, name="The Forum")


def userinfo(program: Program, token: str) -> dict:
    headers = {"Authorization": f"Bearer {token}"}
    return program.http.get("/oauth/userinfo", headers=headers).json


def claims_of(program: Program, browser: Browser, scope: str) -> dict:
    token = program.exchange_standard(browser.allow(program, scope=scope)).json["access_token"]
    return userinfo(program, token)


@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        ({"code": None}, 400, "invalid_request"),
        ({"code": ["a", "b"]}, 400, "invalid_request"),
        ({"grant_type": None}, 400, "invalid_request"),
        (OTHER_GRANT, 400, UNSUPPORTED),
        ({"client_secret": None}, 400, "invalid_client"),
        ({"client_secret": "wrong"}, 401, "invalid_client"),
        ({"code": "unknown"}, 400, "invalid_grant"),
        ({"redirect_uri": "https://other.example/"}, 400, "invalid_grant"),
        ({"code_verifier": "v" * 43}, 400, "invalid_grant"),
        ({"more": "x" * 16384}, 413, "invalid_request"),
    ],
)
def test_error_has_its_name_and_the_contracts_text(forum, adas_browser, changes, status, error):
    """RFC 6749 5.2. It is that of /api/oauth/token, but for its grants, and uses up no code."""
    code = adas_browser.allow(forum)
    answer = forum.exchange_standard(code, **changes)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (status, "no-store")
    same = forum.exchange(code, **changes)
    assert same.status_code == status and same.json.keys() == {"message"}
    words = same.json["message"] + " or refresh_token" * (error == UNSUPPORTED)
    assert answer.json == {"error": error, "error_description": words}
    assert forum.exchange_standard(code).status_code == 200


def test_method_media_type_and_grant_type_errors_are_json(anyone, forum):
    answer = anyone.get("/oauth/token")
    assert (answer.status_code, answer.allow) == (405, {"OPTIONS", "POST"})
    assert answer.json["error"] == "invalid_request"
    assert anyone.post("/oauth/token", json={}).json["error"] == "invalid_request"
    wrong = {"client_secret": "wrong", "redirect_uri": ["a", "b"]}  # is not told first
    assert forum.exchange_standard(None, **OTHER_GRANT, **wrong).json["error"] == UNSUPPORTED


def test_scope_is_returned_only_if_fewer_were_granted(app, forum, adas_browser):
    """RFC 6749 5.1. oauthlib refuses a response whose scope differs from that of the request."""
    openid = app.config["OPENID"] == "on"
    for asked, returned in {
        None: None,
        "": None,
        "email": None,
        "userinfo email": None,
        "profile email groups": None,
        "openid profile": None if openid else "profile",
        "email x": "email",
        "x": "userinfo",
    }.items():
        answer = forum.exchange_standard(adas_browser.allow(forum, scope=asked))
        assert answer.json.get("scope") == returned, asked
        members = {"access_token", "token_type", "expires_in"}
        members |= {"id_token"} if openid and "openid" in (asked or "") else set()
        assert answer.json.keys() - {"scope"} == members
    answer = forum.exchange(adas_browser.allow(forum, scope="openid profile groups x"))
    assert [*answer.json] == ["access_token", "token_type", "expires_in"]
    assert [*forum.whois(answer.json["access_token"]).json] == ["id", "name", "pfpTimestamp"]


def test_iss_is_in_the_responses_to_openid_requests_only(app, forum, adas_browser):
    """RFC 9207. Libraries that were told no issuer refuse it."""
    adas_browser.allow(forum, scope="openid email")
    for scope, more in itertools.product(("openid", "email"), ({}, {"response_type": "x"})):
        answer = forum.read_callback(adas_browser.get(forum.link(scope=scope, **more)))
        expected = SITE if scope == "openid" and app.config["OPENID"] == "on" else None
        assert answer.get("iss") == expected
        assert ("error" in answer) == bool(more)


def test_pages_of_public_clients_may_read_responses_and_errors(anyone, register, adas_browser):
    public = register("https://board.example/", public=True)
    for client_id, allowed in ((public.id, "*"), ("unknown", None)):
        answer = anyone.post("/oauth/token", data={"client_id": client_id, "code": "x"})
        assert answer.headers.get("Access-Control-Allow-Origin") == allowed
    answer = anyone.preflight("/oauth/token", "POST", "content-type")
    assert answer.headers["Access-Control-Allow-Methods"] == "POST"


def test_handle_stays_when_the_player_is_renamed(store, forum, open_browser, adas_browser, ada):
    """A newcomer with the old name has another: JupyterHub and pgAdmin key accounts on it."""
    assert claims_of(forum, adas_browser, "")["preferred_username"] == "ada"
    store.users.rename(ada.id, "Countess")
    store.users.former_names.delete(sha256("ada"))  # as 90 days do
    store.users.register("Ada", "new@example.org", hash_password(PASSWORD))
    newcomer = signed_in(open_browser(), "Ada")
    known = [claims_of(forum, each, "") for each in (adas_browser, newcomer)]
    assert [each["preferred_username"] for each in known] == ["ada", "player2"]
    assert [each["name"] for each in known] == ["Countess", "Ada"]


def test_userinfo_takes_the_token_once_in_the_header_or_in_the_form(forum, adas_browser, anyone):
    """RFC 9700 4.3.2, RFC 6750 2.1, 2.2 and 3.1."""
    token = forum.exchange_standard(adas_browser.allow(forum)).json["access_token"]
    header, form = {"Authorization": f"Bearer {token}"}, {"access_token": token}
    wrong = {"Authorization": "Bearer x"}
    claims = anyone.get("/oauth/userinfo", headers=header).json
    assert anyone.post("/oauth/userinfo", headers=header).json == claims
    assert anyone.post("/oauth/userinfo", data=form).json == claims
    for answer, status, error in (
        (anyone.get("/oauth/userinfo"), 401, None),
        (anyone.get("/oauth/userinfo", query_string=form), 401, None),
        (anyone.post("/oauth/userinfo"), 401, None),
        (anyone.post("/oauth/userinfo", data={"access_token": [token, token]}), 400, "request"),
        (anyone.post("/oauth/userinfo", data=form, headers=header), 400, "request"),
        (anyone.post("/oauth/userinfo", json=form), 401, None),
        (anyone.post("/oauth/userinfo", data={"access_token": "x"}), 401, "token"),
        (anyone.post("/oauth/userinfo", data={"access_token": f"{token}\0"}), 401, "token"),
        (anyone.get("/oauth/userinfo", query_string=form, headers=header), 400, "request"),
        (
            anyone.post("/oauth/userinfo", query_string=form, data={"access_token": "x"}),
            401,
            "token",
        ),
        (anyone.post("/oauth/userinfo", data=form, headers=wrong), 400, "request"),
        (anyone.get("/oauth/userinfo", data=form), 401, None),
        (anyone.get("/oauth/userinfo", headers={"Authorization": "Bearer é"}), 400, "request"),
    ):
        challenge = f'Bearer error="invalid_{error}"' if error else "Bearer"
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (status, challenge)
        assert answer.json.get("error") == (error and f"invalid_{error}")
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert answer.headers["Cache-Control"] == "no-store"
    answer = anyone.preflight("/oauth/userinfo", "POST", "authorization")
    assert answer.headers["Access-Control-Allow-Methods"] == "POST, GET, HEAD"


def test_token_of_another_client_is_refused_if_asked(forum, adas_browser, anyone):
    token = forum.token_for(adas_browser.allow(forum))
    headers = {"Authorization": f"Bearer {token}"}
    for query, status in (
        *(("", 200), (f"client_id={forum.id}", 200), ("client_id=other", 401), ("client_id=", 401)),
        (f"client_id={forum.id}&client_id={forum.id}", 401),
    ):
        answer = anyone.get(f"/api/oauth/whois?{query}", headers=headers)
        assert answer.status_code == status, query
        assert anyone.get(f"/oauth/userinfo?{query}", headers=headers).status_code == status, query
        by_form = anyone.post(f"/oauth/userinfo?{query}", data={"access_token": token})
        assert by_form.status_code == status, query
        named = [each.partition("=")[2] for each in query.split("&") if each]
        in_form = {"access_token": token, "client_id": named}
        assert anyone.post("/oauth/userinfo", data=in_form).status_code == status, query
    refused = anyone.get("/oauth/userinfo?client_id=other", headers=headers)
    assert (refused.json["error"], "another client" in refused.text) == ("invalid_token", True)


def test_picture_has_an_address_that_stays(store, anyone, ada):
    """Some programs follow no redirect. The pictures are of one size, and saved in one second."""
    address, seen = "/users/1/picture", {}
    for content in (None, b"1", b"2"):
        if content:
            store.pictures.save(ada.id, dict.fromkeys(("large", "medium", "small"), content))
        answer = anyone.get(address, headers={"Sec-Fetch-Site": "cross-site"})
        timestamp = store.users.read(ada.id).pfp_timestamp
        assert (answer.status_code, answer.mimetype) == (200, "image/webp")
        assert answer.data == anyone.get(f"/pfp/large/1-{timestamp}.webp").data
        assert answer.data == content or content is None
        assert answer.headers["Cache-Control"] == "public, max-age=300"
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        for etag in (*seen, answer.headers["ETag"]):
            again = anyone.get(address, headers={"If-None-Match": etag})
            assert (again.status_code, again.data) == (
                (200, answer.data) if etag in seen else (304, b"")
            )
        seen[answer.headers["ETag"]] = content
        assert "Last-Modified" not in answer.headers
    assert anyone.get(address, headers={"Range": "bytes=0-0"}).status_code == 206
    assert anyone.head(address).data == b""
    store.users.delete(ada.id)
    for user_id in ("1", "2", "01", "٣", "9" * 400, "1-2", "../1", "1.webp", "%2e%2e", "1%00"):
        assert anyone.get(f"/users/{user_id}/picture").status_code == 404


def test_program_for_a_group_is_refused_to_others(store, register, open_browser, ada, bob):
    """A page says so, and a game's page and a code that was issued before are refused."""
    groups = {"only_groups": ["moderators", "flair:Founder"]}
    wiki = register(CALLBACK, name="Wiki", **groups)
    browser = signed_in(open_browser())
    page = browser.get(wiki.link())
    assert page.status_code == 403
    assert "Wiki is only for moderators and owners of the flair Founder." in page.text
    for level, flairs in ((MODERATOR, []), (ADMINISTRATOR, []), (0, ["Founder"])):
        edit(store.users, ada.id, mod_level=level, flairs=["none", *flairs])
        code = browser.allow(wiki)
        edit(store.users, ada.id, mod_level=0, flairs=["none"])
        answer = wiki.exchange_standard(code)
        assert (answer.status_code, answer.json["error"]) == (400, "invalid_grant")
    page = browser.get(wiki.link())
    assert (page.status_code, page.location) == (403, None)  # also after consent


def test_player_of_no_group_is_let_in_to_no_game(store, adas_browser, ada):
    """RFC 9700 2.3: the dialog comes first. The game is told the same as after *Cancel*."""
    client, _ = store.clients.register(
        "Chess", [], None, game_url="https://chess.example/", only_groups=["moderators"]
    )

    def ask(**fields: str) -> tuple[int, str]:
        page = adas_browser.get(f"/play/{client.id}")
        signed = page.text.partition('data-request="')[2].partition('"')[0]
        form = {"request": signed, **fields}
        answer = adas_browser.post(f"/play/{client.id}/authorize", data=form)
        return answer.status_code, answer.json["message"]

    assert ask() == ask(decision="deny") == ask(scope="userinfo join") == (200, "consent_required")
    assert ask(decision="allow") == (403, "access_denied")
    assert store.users.read(ada.id).grants == {}
    for scope, answer in ((["userinfo"], (403, "access_denied")), ([], (200, "consent_required"))):
        edit(store.users, ada.id, grants={client.id: Grant("a grant", scope, 1)})
        assert ask() == answer
        assert ask(scope="userinfo join") == (200, "consent_required")


def test_consent_page_and_userinfo_have_what_was_granted(store, forum, adas_browser, ada):
    edit(store.users, ada.id, flairs=["none", "Founder"])
    page = adas_browser.get(forum.link(scope="groups"))
    assert "your role and flairs" in page.text and ">players and Founder<" in page.text
    adas_browser.decide(page)
    assert adas_browser.get(forum.link(scope="groups profile")).status_code == 303  # remembered
    assert "your role and flairs" not in adas_browser.get(forum.link(scope="email")).text
    public = {"sub": "1", "id": 1, "name": "Ada", "nickname": "Ada"}
    public |= {"username": "ada", "preferred_username": "ada"}
    public |= {"picture": f"{SITE}/users/1/picture", "profile": f"{SITE}/users/1"}
    assert claims_of(forum, adas_browser, "") == public
    email = {"email": "ada@example.org", "email_verified": False}
    assert claims_of(forum, adas_browser, "profile email") == public | email
    edit(store.users, ada.id, mod_level=MODERATOR, flairs=["none", "Founder", "none of them"])
    groups = ["players", "moderators", "flair:Founder", "flair:none of them"]
    assert claims_of(forum, adas_browser, "groups") == public | {"groups": groups}
