"""Inputs that hypothesis makes up, for all that reads what strangers send or disks damage.

More of them by hand: pytest tests/attacks/test_fuzz.py --hypothesis-profile=long
--hypothesis-show-statistics, which also says how many were tried.
"""

import base64
import html
import inspect
import itertools
import json
import re
from urllib.parse import parse_qsl, quote, urlencode

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_uploads import SAMPLES, with_right_checksums

from identity.fast_path import ApiRequest
from identity.settings import ROOT
from storage import (
    PICTURE_SIZES,
    RECORD_TYPES,
    USER_ID,
    AuthorizationCode,
    Client,
    DamagedRecord,
    Grant,
    Invite,
    NotFound,
    PictureRefused,
    Session,
    StorageError,
    User,
    build_record,
    open_storage,
    record_as_dict,
)
from storage.flat_files.disk import read_record
from storage.pictures import make_picture
from storage.records import encode

REDIRECT_URI = "https://space.example/callback"
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # RFC 7636, appendix B
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LATIN_1 = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"))
HEADERS = LATIN_1.filter(lambda text: text == text.strip())  # what a server hands on


def fewer(times: int) -> settings:
    """For a test whose examples take so many times as long."""
    return settings(max_examples=settings.default.max_examples // times)


@pytest.fixture
def from_anywhere(anyone) -> None:
    """Each request comes from an address of its own: failures are counted."""
    numbers = itertools.count()
    send = anyone.open

    def open_from_elsewhere(*args, **options):
        number = next(numbers)
        anyone.environ_base["REMOTE_ADDR"] = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        return send(*args, **options)

    anyone.open = open_from_elsewhere


# -- the token request ----------------------------------------------------------------------------


@pytest.fixture
def issue(store, ada, program, from_anywhere):
    """Issues a code of Ada's for the program, with this challenge."""
    with store.edit_user(ada.id) as user:
        user.grants[program.id] = Grant("grant", ["userinfo"], 0)
    numbers = itertools.count()

    def issue(challenge: str | None) -> str:
        grant = store.read_user(ada.id).grants[program.id]  # with a new id after each replay
        record = AuthorizationCode(
            program.id, ada.id, grant.id, grant.scope, REDIRECT_URI, challenge
        )
        code = f"code{next(numbers)}"
        store.add_code(code, record)
        return code

    return issue


PARAMETERS = ["grant_type", "code", "client_id", "client_secret", "redirect_uri", "code_verifier"]
WAYS = st.sampled_from(["right"] * 6 + ["absent", "blank", "wrong", "twice"])


def expected_status(ways: dict[str, str], challenged: bool) -> int:
    """What section 3.1 of the design says of a token request, in its order."""
    sent = {name: way for name, way in ways.items() if way not in ("absent", "blank")}
    if "twice" in sent.values() or sent.get("grant_type") != "right":
        return 400
    if not {"code", "client_id", "client_secret"} <= sent.keys():
        return 400
    if "wrong" in (sent["client_id"], sent["client_secret"]):
        return 401
    if "wrong" in (sent["code"], sent.get("redirect_uri")):
        return 400
    return 200 if sent.get("code_verifier") == ("right" if challenged else None) else 400


@given(
    ways=st.fixed_dictionaries(dict.fromkeys(PARAMETERS, WAYS)),
    challenged=st.booleans(),
    wrong=st.text(min_size=1),
    others=st.lists(st.tuples(st.text(), st.text())),
    order=st.randoms(use_true_random=False),
)
def test_a_code_is_exchanged_where_all_is_right_and_burned_nowhere_else(
    program, issue, ways, challenged, wrong, others, order
):
    right = {
        "grant_type": "authorization_code",
        "code": issue(CHALLENGE if challenged else None),
        "client_id": program.id,
        "client_secret": program.secret,
        "redirect_uri": REDIRECT_URI,
        "code_verifier": VERIFIER,
    }
    fields = [(name, value) for name, value in others if name not in right]
    for name, value in right.items():
        made = {"right": [value], "blank": [""], "wrong": [wrong + value], "twice": [value] * 2}
        fields += [(name, each) for each in made.get(ways[name], [])]
    order.shuffle(fields)
    answer = program.http.post("/api/oauth/token", data=urlencode(fields), headers=FORM)
    assert answer.status_code == expected_status(ways, challenged)
    again = program.exchange(right["code"], code_verifier=VERIFIER if challenged else None)
    assert again.status_code == (400 if answer.status_code == 200 else 200)


@given(
    body=st.binary() | st.dictionaries(st.text(), st.text()).map(lambda f: urlencode(f).encode()),
    content_type=HEADERS | st.sampled_from(["application/json", "text/plain", "multipart/x"]),
)
@example(body=b"%", content_type="")
@example(body=b"a=%ff&b=%C0%80&grant_type=%00", content_type="")
def test_no_body_breaks_the_token_endpoint(anyone, from_anywhere, body, content_type):
    answer = anyone.post("/api/oauth/token", data=body, headers={"Content-Type": content_type})
    assert answer.status_code in (400, 401)


SCHEMES = st.sampled_from(["Basic ", "Bearer ", "basic  ", "BEARER\t", "Digest ", ""])
BASE64 = st.binary().map(lambda content: base64.b64encode(content).decode())


@given(scheme=SCHEMES, credentials=HEADERS | BASE64, body=st.booleans())
def test_no_authorization_header_breaks_or_opens_anything(
    anyone, from_anywhere, scheme, credentials, body
):
    headers = {"Authorization": scheme + credentials}
    form = {"grant_type": "authorization_code", "code": "x"}
    answer = anyone.post("/api/oauth/token", data=form if body else {}, headers=headers)
    assert answer.status_code in (400, 401)
    answer = anyone.get("/api/oauth/whois", headers=headers)
    assert answer.status_code in (400, 401)
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.fixture
def token(adas_browser, program) -> str:
    """A good access token."""
    return program.token_for(adas_browser.allow(program))


@given(where=st.floats(0, 1, exclude_max=True), gone=st.integers(0, 3), new=HEADERS)
def test_a_changed_token_is_nobodys(program, token, ada, where, gone, new):
    """Or still the same person's: the last character of a signature says less than it could."""
    at = int(where * len(token))
    answer = program.whois(token[:at] + new + token[at + gone :])
    if answer.status_code == 200:
        assert answer.json["id"] == ada.id
    else:
        assert answer.status_code in (400, 401)


# -- look-ups and links ---------------------------------------------------------------------------


@given(st.text() | st.integers().map(str) | st.text("0123456789٣²-+. _eE"))
@example("1" * 5000)
@example("\ufdfa")
def test_an_id_is_a_number_of_15_digits_or_400(anyone, ada, text):
    answer = anyone.get(f"/api/users/info?id={quote(text, safe='&=')}")
    if answer.status_code == 400:
        assert not USER_ID.fullmatch(text)
    else:
        number = text.partition("&")[0]
        assert USER_ID.fullmatch(number)
        assert answer.status_code == (200 if int(number) == ada.id else 404)


@given(st.text() | HEADERS.map(lambda text: f"{text}.x.y") | st.text("._-AZaz09="))
@pytest.mark.parametrize("address", ["/sign-up?invite=", "/new-password?link=", "/sign-in?next="])
def test_what_stands_in_a_link_breaks_no_page(browser, ada, address, text):
    answer = browser.get(address + quote(text))
    assert answer.status_code == 200
    assert f'value="{text}"' not in answer.text or html.escape(text) == text


@given(name=st.text(), password=st.text())
def test_what_is_typed_at_the_sign_in_page_breaks_nothing(
    browser, from_anywhere, ada, name, password
):
    assert browser.sign_in(name, password).status_code in (403, 429)


@given(fields=st.dictionaries(st.sampled_from(["request", "decision", "state"]), st.text()))
def test_a_made_up_answer_is_no_consent(adas_browser, store, ada, fields):
    assert adas_browser.post("/oauth/authorize", data=fields).status_code == 400
    assert store.read_user(ada.id).grants == {}


# -- what stands on the disk ----------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
USER = User(
    **{"id": 1, "name": "Ada", "email": "ada@example.org", "password_hash": "scrypt$x$y"},
    bio="Früh 🙂\n\ttab",
    flairs=["none", "founder"],
    pfp_timestamp=1,
    grants={"a" * 24: Grant("id", ["userinfo", "email"], 2)},
    sessions=[Session("id", 3, "Firefox on Linux")],
)
RECORDS = {
    **{User: USER, Grant: USER.grants["a" * 24], Session: USER.sessions[0], Invite: Invite(5)},
    Client: Client("a" * 24, "Space Game", "0" * 64, [REDIRECT_URI], owner_id=1),
    AuthorizationCode: AuthorizationCode("a" * 24, 1, "id", ["userinfo"], None, None),
}


def test_every_type_of_record_is_tried():
    assert set(RECORDS) == set(RECORD_TYPES)


@given(data=st.data(), record_type=st.sampled_from(list(RECORDS)))
def test_what_is_read_as_a_record_is_one(data, record_type):
    """Whatever JSON it was: what it says comes out, and can be written and read again."""
    values = record_as_dict(RECORDS[record_type])
    for _ in range(data.draw(st.integers(0, 3))):
        name = data.draw(st.sampled_from([*values, "other"]) | st.text())
        if data.draw(st.booleans()):
            values[name] = data.draw(JSON)
        else:
            values.pop(name, None)
    try:
        record = build_record(record_type, json.loads(json.dumps(values)))
    except (TypeError, ValueError):
        return
    said = record_as_dict(record)
    assert values.items() <= said.items()
    assert build_record(record_type, json.loads(encode(said))) == record


CHANGES = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),  # where
        st.integers(0, 8),  # so many bytes go
        st.binary(max_size=4) | st.sampled_from([b'"', b"\\ud800", b"\xed\xa0\x80", b"9" * 400]),
    ),
    max_size=4,
)


def damaged(content: bytes, changes, kept: float = 1.0) -> bytes:
    """The content of a file after these changes, cut off."""
    for where, gone, new in changes:
        at = int(where * len(content))
        content = content[:at] + new + content[at + gone :]
    return content[: round(kept * len(content))]


@given(
    record_type=st.sampled_from(list(RECORDS)), changes=CHANGES, kept=st.just(1.0) | st.floats(0, 1)
)
@example(User, [(0.75, 0, b"\\ud800")], 1.0)  # half a character
@example(User, [(0.75, 0, b"\xed\xa0\x80")], 1.0)
def test_a_damaged_file_is_a_record_or_called_damaged(tmp_path, record_type, changes, kept):
    path = tmp_path / "1.json"
    path.write_bytes(damaged(encode(record_as_dict(RECORDS[record_type])), changes, kept))
    try:
        record = read_record(str(path), record_type, NotFound())
    except DamagedRecord:
        return
    # A page that shows it, and an edit that writes it, do not fall over it.
    assert build_record(record_type, json.loads(encode(record_as_dict(record)))) == record


@fewer(4)
@given(name=st.sampled_from(["format", "secret_key", "next_user_id"]), changes=CHANGES)
def test_a_damaged_installation_says_so_or_goes_on(tmp_path_factory, unsynced, name, changes):
    folder = tmp_path_factory.mktemp("damaged")
    folders = str(folder / "data"), str(folder / "pictures")
    open_storage(*folders).add_user("Ada", "ada@example.org", "")
    path = folder / "data" / name
    path.write_bytes(damaged(path.read_bytes(), changes))
    try:
        bob = open_storage(*folders).add_user("Bob", "bob@example.org", "")
    except StorageError:  # which is told
        return
    assert bob.id > 1


# -- pictures -------------------------------------------------------------------------------------


@pytest.mark.live
@fewer(6)
@given(sample=st.sampled_from(SAMPLES), changes=CHANGES, kept=st.just(1.0) | st.floats(0, 1))
def test_a_damaged_picture_is_refused_or_becomes_three(sample, changes, kept):
    """In the process of its own that decodes it; more of the same without one: test_uploads.py."""
    upload = damaged(sample, changes, kept)
    if upload.startswith(b"\x89PNG"):
        upload = with_right_checksums(upload)
    try:
        pictures = make_picture(upload)
    except PictureRefused as error:
        assert "memory or time" not in str(error)  # the process did not die of it
    else:
        assert pictures.keys() == PICTURE_SIZES.keys()
        assert all(each.startswith(b"RIFF") for each in pictures.values())


# -- the tests above can fail ---------------------------------------------------------------------


def read_token_form(api_request: ApiRequest) -> dict[str, str]:
    """A form that is believed to be one, and in UTF-8."""
    return dict(parse_qsl(api_request.environ["wsgi.input"].read().decode()))


BROKEN = {  # and what is done instead, and the test that finds it out
    "identity_server.refuse_bad_code": (
        lambda *_: None,
        test_a_code_is_exchanged_where_all_is_right_and_burned_nowhere_else,
    ),
    "identity_server.read_token_form": (
        read_token_form,
        test_no_body_breaks_the_token_endpoint,
    ),
    "identity_server.read_bearer_token": (
        lambda api_request: api_request.headers["Authorization"].split()[1],
        test_no_authorization_header_breaks_or_opens_anything,
    ),
    "itsdangerous.TimestampSigner.verify_signature": (
        lambda *_: True,
        test_a_changed_token_is_nobodys,
    ),
    "storage.USER_ID": (
        re.compile("[0-9]{1,15}"),
        test_an_id_is_a_number_of_15_digits_or_400,
    ),
    "identity_server.read_approved_request": (
        json.loads,
        test_a_made_up_answer_is_no_consent,
    ),
    "storage.records.encode": (
        lambda values: b"",
        test_a_damaged_file_is_a_record_or_called_damaged,
    ),
}


@pytest.mark.load
@pytest.mark.parametrize("broken", BROKEN)
def test_a_reader_that_is_careless_would_be_found_out(request, monkeypatch, broken):
    """The negative controls."""
    instead, test = BROKEN[broken]
    fixtures = {name: request.getfixturevalue(name) for name in inspect.signature(test).parameters}
    monkeypatch.setattr(broken, instead)
    with pytest.raises((AssertionError, ValueError, TypeError)):
        test(**fixtures)


# Every Python imports it when it starts, that of the process which decodes a picture too.
ENDING = """
import os
import storage

storage.BrokenPicture.__init__ = lambda *_: os._exit(1)
"""


@pytest.mark.load
def test_a_process_that_ends_of_a_damaged_picture_would_be_found_out(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(ENDING)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    with pytest.raises(AssertionError, match="memory or time"):
        test_a_damaged_picture_is_refused_or_becomes_three()
