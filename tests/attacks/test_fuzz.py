"""Property tests with generated input for everything that parses requests or files.

Many more examples: pytest tests/attacks/test_fuzz.py --hypothesis-profile=long
--hypothesis-show-statistics, which also prints the number of examples.
"""

import base64
import dataclasses
import html
import itertools
import json
import struct
import zlib
from urllib.parse import parse_qsl, quote, urlencode

import pytest
from forms import edit
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from test_uploads import encode as encode_picture
from test_uploads import exif, swapped_profile

from identity.http.fast_path import parse_parameters
from identity.oauth.refresh import REFRESH_TOKEN
from identity.oauth.server_addresses import normal_address
from identity.oauth.terms import InvalidRequest
from images.pictures import read_centre
from model import grant_records, records, site_records
from model.encoding import build_record, encode_values, record_as_dict
from model.errors import DamagedRecord, NotFound, PictureRefused
from model.grant_records import AuthorizationCode, DeviceRequest, Family
from model.kinds import LOGOS, LOOKS
from model.records import Client, Grant, Passkey, Session, Suspension, User
from model.site_records import Invite, Logo, Look, Message, Note, State, Webhook
from storage.flat_files.disk import read_record

REDIRECT_URI = "https://space.example/callback"
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # RFC 7636, appendix B
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LATIN_1 = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"))
HEADERS = LATIN_1.filter(lambda text: text == text.strip())  # values that a WSGI server passes on

pytestmark = pytest.mark.load


@pytest.fixture
def new_address_per_request(anyone) -> None:
    """Give each request an address of its own, so that no rate limit is reached."""
    numbers = itertools.count()
    send = anyone.open

    def open_from_new_address(*args, **options):
        number = next(numbers)
        anyone.environ_base["REMOTE_ADDR"] = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        return send(*args, **options)

    anyone.open = open_from_new_address


PARTS_OF_A_QUERY = [*"a=&;%+é ", "id", "&&", "%6", "%69", "%C3%A9", "%ff"]


@given(st.lists(st.sampled_from(PARTS_OF_A_QUERY) | st.text(max_size=3)).map("".join))
def test_parameters_are_those_of_parse_qsl(text):
    expected = parse_qsl(text, keep_blank_values=True)
    assert parse_parameters(text) == expected
    try:
        strict = parse_qsl(text, keep_blank_values=True, errors="strict")
    except ValueError:
        with pytest.raises(ValueError):
            parse_parameters(text, errors="strict")
    else:
        assert parse_parameters(text, errors="strict") == strict == expected


# -- the token request ----------------------------------------------------------------------------


@pytest.fixture
def issue_code(store, ada, program, new_address_per_request):
    """A function that issues a code of Ada's for the client, with this PKCE challenge."""
    edit(store.users, ada.id, grants={program.id: Grant("grant", ["userinfo"], 0)})
    numbers = itertools.count()

    def issue_code(challenge: str | None) -> str:
        grant = store.users.read(ada.id).grants[program.id]  # a replay gives it a new id
        ids = (program.id, ada.id, grant.id)
        code = f"code{next(numbers)}"
        store.codes.add(code, AuthorizationCode(*ids, grant.scope, REDIRECT_URI, challenge))
        return code

    return issue_code


PARAMETERS = ["grant_type", "code", "client_id", "client_secret", "redirect_uri", "code_verifier"]
PARAMETER_STATES = st.sampled_from(["right"] * 6 + ["absent", "blank", "wrong", "twice"])


def expected_status(states: dict[str, str], challenged: bool) -> int:
    """Return the status that RFC 6749 4.1.3 and 5.2 require, checked in the documented order."""
    sent = {name: way for name, way in states.items() if way not in ("absent", "blank")}
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
    states=st.fixed_dictionaries(dict.fromkeys(PARAMETERS, PARAMETER_STATES)),
    challenged=st.booleans(),
    wrong=st.text(min_size=1),
    others=st.lists(st.tuples(st.text(), st.text())),
    order=st.randoms(use_true_random=False),
)
def test_token_request_fails_unless_valid_and_keeps_the_code(
    program, issue_code, states, challenged, wrong, others, order
):
    code = issue_code(CHALLENGE if challenged else None)
    values = ("authorization_code", code, program.id, program.secret, REDIRECT_URI, VERIFIER)
    fields = [(name, value) for name, value in others if name not in PARAMETERS]
    for name, value in zip(PARAMETERS, values, strict=True):
        sent = {"right": [value], "blank": [""], "wrong": [wrong + value], "twice": [value] * 2}
        fields += [(name, each) for each in sent.get(states[name], [])]
    order.shuffle(fields)
    answer = program.http.post("/api/oauth/token", data=urlencode(fields), headers=FORM)
    assert answer.status_code == expected_status(states, challenged)
    retry = program.exchange(code, code_verifier=VERIFIER if challenged else None)
    assert retry.status_code == (400 if answer.status_code == 200 else 200)


@given(
    body=st.binary() | st.dictionaries(st.text(), st.text()).map(lambda f: urlencode(f).encode()),
    content_type=HEADERS | st.sampled_from(["application/json", "text/plain", "multipart/x"]),
)
@example(body=b"%", content_type="")
@example(body=b"a=%ff&b=%C0%80&grant_type=%00", content_type="")
def test_any_token_request_body_is_400_or_401(anyone, new_address_per_request, body, content_type):
    for path in ("/api/oauth/token", "/api/tickets/check", "/oauth/revoke", "/oauth/introspect"):
        answer = anyone.post(path, data=body, headers={"Content-Type": content_type})
        assert answer.status_code in (400, 401)


@given(st.text(min_size=1) | st.from_regex(REFRESH_TOKEN, fullmatch=True))
def test_any_text_is_no_token(program, text):
    form = {"client_id": program.id, "client_secret": program.secret, "token": text}
    answers = [program.http.post(f"/oauth/{each}", data=form) for each in ("revoke", "introspect")]
    assert [(each.status_code, each.json) for each in answers] == [
        (200, {}),
        (200, {"active": False}),
    ]


@given(st.text() | st.from_regex(r"[a-zA-Z0-9.:\[\]%x_-]+", fullmatch=True))
@example("١:1")
def test_any_server_address_has_one_form_or_is_refused(text):
    try:
        form = normal_address(text)
    except InvalidRequest:
        return
    assert normal_address(form) == form == form.lower() and form.isascii()


SCHEMES = st.sampled_from(["Basic ", "Bearer ", "basic  ", "BEARER\t", "Digest ", ""])
BASE64 = st.binary().map(lambda content: base64.b64encode(content).decode())


@given(scheme=SCHEMES, credentials=HEADERS | BASE64, body=st.booleans())
def test_any_authorization_is_refused(anyone, new_address_per_request, scheme, credentials, body):
    headers = {"Authorization": scheme + credentials}
    form = {"grant_type": "authorization_code", "code": "x"}
    answer = anyone.post("/api/oauth/token", data=form if body else {}, headers=headers)
    assert answer.status_code in (400, 401)
    answer = anyone.get("/api/oauth/whois", headers=headers)
    assert answer.status_code in (400, 401)
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


TOO_FAR = "Thu, 99999999999999999999 Jan 2022 00:00:00 GMT"
REQUEST_HEADERS = ("Range", "If-Range", "If-None-Match", "If-Match", "If-Modified-Since")
REQUEST_HEADERS += ("If-Unmodified-Since", "Accept", "Accept-Language", "Accept-Encoding")
REQUEST_HEADERS += ("Cookie", "Authorization", "Origin", "Referer", "Sec-Fetch-Mode")
ODD_HEADERS = ("x=1-2", "bytes=9-1", "bytes=0-0,1-1", f"bytes={'9' * 5000}-", '"', 'W/"', TOO_FAR)
ODD_HEADERS += ("*;q=", "a;q=nan", f"a;q={'9' * 400}", "Basic =", 'session="', "=;=", "9" * 5000)


@pytest.fixture
def kinds_of_pages(store, ada, program) -> list[str]:
    """An address of each kind of response to GET."""
    store.records(LOGOS).add(Logo(1, base64.b64encode(b"logo").decode()))
    store.records(LOOKS).put(Look("site", 1, "", "", "#7a3fb0", 1))
    files = [f"/pfp/large/{ada.picture_file}", f"/covers/large/{program.id}.webp"]
    files += [
        "/look/logo-1.webp",
        "/look/logo-1.png",
        "/look.css",
        "/static/style.css",
        "/static/v1/identity.js",
    ]
    return [*files, "/", "/sign-in", "/account", "/nowhere", "/openapi.json", "/users/1/picture"]


@given(st.sampled_from(REQUEST_HEADERS), HEADERS | st.sampled_from(ODD_HEADERS))
@example("If-Range", TOO_FAR)
@example("If-Modified-Since", TOO_FAR)
@example("Range", "x=1-2")
def test_any_request_header_causes_no_server_error(anyone, kinds_of_pages, name, value):
    for address in kinds_of_pages:
        answer = anyone.get(address, headers={"Range": "bytes=0-1", name: value})
        assert answer.status_code < 500, address
        # RFC 9110 14.2: a server ignores a range of another unit.
        assert answer.status_code != 416 or name != "Range" or value.startswith("bytes"), address


@given(st.text() | HEADERS.map(lambda text: f"{text}.x.y") | st.text("._-AZaz09="))
@pytest.mark.parametrize(
    "address",
    [
        *("/sign-up?invite=", "/recover?link=", "/sign-in?next="),
        *("/players?q=", "/players?after=", "/players?before="),
    ],
)
def test_any_query_value_is_escaped_on_the_page(browser, ada, address, text):
    answer = browser.get(address + quote(text))
    assert answer.status_code == 200
    assert f'value="{text}"' not in answer.text or html.escape(text) == text


# -- files on disk --------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
USER = User(
    **{"id": 1, "name": "Ada", "email": "ada@example.org", "password_hash": "scrypt$x$y"},
    suspension=Suspension("command", 4, "Insults", 5),
    bio="Früh 🙂\n\ttab",
    flairs=["none", "founder"],
    pfp_timestamp=1,
    grants={"a" * 24: Grant("id", ["userinfo", "email"], 2)},
    sessions=[Session("id", 3, "Firefox on Linux")],
    notices=[records.Notice("A sentence.", 4)],
)
RECORDS = {
    type(each): each
    for each in (
        *(USER, USER.grants["a" * 24], USER.sessions[0], USER.suspension, USER.notices[0]),
        Invite("0" * 64, 5, used_by=[1]),
        records.Handle("ada", 1),
        site_records.OpenIdKey("k" * 43, "modulus", "key", 5, 6),
        records.FormerName("0" * 64, 1, 5),
        records.FormerEmail("0" * 64, 1, 5, 4),
        Passkey("0" * 64, 1, "h", "c", "k", "id.example.org", "Phone", 5, transports=["usb"]),
        records.RecoveryCodes(1, ["0" * 64], 5),
        records.Cover(f"{'a' * 24}-5", "a" * 24, "", ""),
        site_records.Report("0" * 15 + "-00000000", 1, "user:2", "spam", "", 5, 6),
        Note("0" * 15 + "-00000000", 1, 2, "Hello", 5),
        Look("site", 5, "Welcome", None, "#7a3fb0"),
        Logo(5, ""),
        Webhook("chat", 5, "https://chat.example/1", "json", ["player"], "key"),
        Message("0" * 15 + "-00000000", "chat", "player", "{}", 5, 6),
        State("backup", 5),
        Client("a" * 24, "Space Game", "0" * 64, [REDIRECT_URI], owner_id=1),
        AuthorizationCode("a" * 24, 1, "id", ["userinfo"], None, None),
        DeviceRequest("a" * 24, ["userinfo"], "id", "192.0.2.1"),
        Family("f" * 16, 1, "a" * 24, "", ["userinfo"], "", 5, 6, "salt", "0" * 64),
    )
}


def test_every_record_type_is_fuzzed():
    modules = (records, grant_records, site_records)
    values = (each for module in modules for each in vars(module).values())
    declared = {each for each in values if dataclasses.is_dataclass(each)}
    assert set(RECORDS) == declared - {records.Attempt}


@given(data=st.data(), record_type=st.sampled_from(list(RECORDS)))
def test_any_json_is_a_valid_record_or_refused(data, record_type):
    """A valid record keeps every value, and survives writing and reading."""
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
    written = record_as_dict(record)
    assert values.items() <= written.items()
    assert build_record(record_type, json.loads(encode_values(written))) == record


# A position in the text of a bio, as a fraction of the length.
STORED_USER = encode_values(record_as_dict(USER))
IN_BIO = (STORED_USER.index("Früh".encode()) + 0.5) / len(STORED_USER)
CHANGES = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),  # position, as a fraction of the length
        st.integers(0, 8),  # number of bytes removed
        st.binary(max_size=4) | st.sampled_from([b'"', b"\\ud800", b"\xed\xa0\x80", b"9" * 400]),
    ),
    max_size=4,
)


def damage(content: bytes, changes, kept: float = 1.0) -> bytes:
    """Return the content after these changes, truncated to the fraction `kept`."""
    for where, removed, new in changes:
        position = int(where * len(content))
        content = content[:position] + new + content[position + removed :]
    return content[: round(kept * len(content))]


@given(
    record_type=st.sampled_from(list(RECORDS)), changes=CHANGES, kept=st.just(1.0) | st.floats(0, 1)
)
@example(User, [(IN_BIO, 0, b"\\ud800")], 1.0)  # half a character
@example(User, [(IN_BIO, 0, b"\xed\xa0\x80")], 1.0)
def test_damaged_file_is_a_valid_record_or_raises(tmp_path, record_type, changes, kept):
    path = tmp_path / "1.json"
    path.write_bytes(damage(encode_values(record_as_dict(RECORDS[record_type])), changes, kept))
    try:
        record = read_record(str(path), record_type, NotFound())
    except DamagedRecord:
        return
    # It can be shown on a page and written back by an edit.
    assert build_record(record_type, json.loads(encode_values(record_as_dict(record)))) == record


def samples() -> list[bytes]:
    """Return a small file of every supported kind."""
    noise = Image.effect_noise((23, 17), 60)
    colours = Image.merge("RGB", [noise, noise.rotate(180), noise.transpose(0)])
    alpha = colours.copy()
    alpha.putalpha(noise)
    palette = colours.quantize(16)
    metadata = {"exif": b"Exif\0\0" + exif(6), "icc_profile": swapped_profile()}
    frames = {"save_all": True, "append_images": [alpha.rotate(180)]}
    kinds = [
        *((alpha.convert(mode), "PNG", {}) for mode in ("1", "LA", "RGB")),
        (palette, "PNG", {"transparency": bytes(range(16))}),
        (noise.convert("I").convert("I;16"), "PNG", {}),
        (alpha, "PNG", metadata | frames),
        (colours.convert("CMYK"), "JPEG", {}),
        (colours, "JPEG", {"progressive": True, "restart_marker_blocks": 2} | metadata),
        (alpha, "WEBP", metadata),
        (alpha, "WEBP", {"lossless": True} | frames),
        (palette, "GIF", {"transparency": 3, "comment": b"hello"}),
    ]
    return [encode_picture(image, kind, **options) for image, kind, options in kinds]


SAMPLES = samples()


def with_right_checksums(png: bytes) -> bytes:
    """Return a changed PNG file with correct checksums."""
    fixed, at = bytearray(png), 8
    while at + 12 <= len(png):
        end = at + 8 + int.from_bytes(png[at : at + 4])
        if end + 4 > len(png):
            break
        fixed[end : end + 4] = struct.pack(">I", zlib.crc32(png[at + 4 : end]))
        at = end + 4
    return bytes(fixed)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow, as in the decoder's process
@settings(max_examples=max(400, settings.default.max_examples))
@given(sample=st.sampled_from(SAMPLES), changes=CHANGES, kept=st.just(1.0) | st.floats(0, 1))
def test_damaged_picture_is_refused_or_converted(sample, changes, kept):
    """By the decoder's function, without a child process for each."""
    upload = damage(sample, changes, kept)
    if upload.startswith(b"\x89PNG"):
        upload = with_right_checksums(upload)
    try:
        square = read_centre(upload)
    except PictureRefused as error:
        assert str(error)
    else:
        assert square.width == square.height


def test_fuzzing_detects_broken_validation(program, issue_code, monkeypatch):
    """A code is valid for any client, forever."""
    accept = lambda store, code, *_: store.users.read(code.user_id)  # noqa: E731
    monkeypatch.setattr("identity_server.require_good_code", accept)
    test = test_token_request_fails_unless_valid_and_keeps_the_code
    with pytest.raises(AssertionError):
        test(program=program, issue_code=issue_code)
