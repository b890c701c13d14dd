"""GET /pfp/<size>/<file>: the profile pictures, with the headers that nginx sends in production."""

import io
from email.utils import formatdate, parsedate_to_datetime

import pytest
from PIL import Image
from werkzeug.exceptions import NotFound

from pages import files
from storage.pictures import generate_picture
from storage.records import PICTURE_SIZES, User


@pytest.fixture
def address(ada) -> str:
    """The path of Ada's small picture."""
    return f"/pfp/small/{ada.id}-{ada.pfp_timestamp}.webp"


@pytest.fixture
def plain_address(store) -> str:
    """The path of the small picture of an imported account."""
    store.users.insert(User(7, "Grace", "grace@example.org", ""), generate_picture(7))
    return "/pfp/small/7.webp"


@pytest.mark.parametrize(("size", "side"), [("large", 256), ("medium", 64), ("small", 16)])
def test_new_account_has_a_webp_picture_in_each_size(anyone, ada, size, side):
    answer = anyone.get(f"/pfp/{size}/{ada.id}-{ada.pfp_timestamp}.webp")
    assert (answer.status_code, answer.content_type) == (200, "image/webp")
    assert int(answer.headers["Content-Length"]) == len(answer.data)
    image = Image.open(io.BytesIO(answer.data))
    assert (image.format, image.size) == ("WEBP", (side, side))


def test_account_without_timestamp_has_its_picture_at_the_plain_address(anyone, plain_address):
    answer = anyone.get(plain_address)
    assert (answer.status_code, answer.content_type) == (200, "image/webp")
    assert answer.data == generate_picture(7)["small"]


@pytest.mark.parametrize("size", PICTURE_SIZES)
def test_imported_account_without_picture_gets_a_generated_one(store, anyone, size):
    store.users.insert(User(7, "Grace", "grace@example.org", ""))
    answer = anyone.get(f"/pfp/{size}/7.webp")
    assert (answer.status_code, answer.content_type) == (200, "image/webp")
    assert answer.data == generate_picture(7)[size]
    assert answer.headers["Cache-Control"] == "no-cache"
    assert anyone.get(f"/pfp/{size}/8.webp").status_code == 404


def test_plain_address_of_an_account_with_timestamp_is_404(anyone, ada):
    assert anyone.get(f"/pfp/small/{ada.id}.webp").status_code == 404


def test_old_address_of_a_changed_picture_is_404(store, anyone, ada, address):
    timestamp = store.pictures.save(ada.id, generate_picture(99))
    assert timestamp > ada.pfp_timestamp
    assert anyone.get(address).status_code == 404
    answer = anyone.get(f"/pfp/small/{ada.id}-{timestamp}.webp")
    assert answer.data == generate_picture(99)["small"]


def test_picture_of_a_deleted_player_is_404(store, anyone, ada, address):
    assert anyone.get(address).status_code == 200
    store.users.delete(ada.id)
    assert [anyone.get(address.replace("small", s)).status_code for s in PICTURE_SIZES] == [404] * 3


# -- headers --------------------------------------------------------------------------------------


def test_timestamped_picture_is_cacheable_for_a_day(anyone, address):
    headers = anyone.get(address).headers
    assert headers["Cache-Control"] == "public, max-age=86400, immutable"


def test_plain_picture_is_no_cache_with_etag(anyone, plain_address):
    headers = anyone.get(plain_address).headers
    assert headers["Cache-Control"] == "no-cache"
    assert headers["ETag"]


@pytest.mark.parametrize("sent", [{}, {"Range": "bytes=0-9"}, {"If-None-Match": "*"}])
def test_picture_allows_cross_origin_use(anyone, address, sent):
    headers = anyone.get(address, headers={"Origin": "https://game.example", **sent}).headers
    assert headers["Access-Control-Allow-Origin"] == "*"
    assert headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_picture_response_has_no_set_cookie_and_no_vary(adas_browser, address):
    headers = adas_browser.get(address).headers
    assert not {"Set-Cookie", "Vary"} & set(headers.keys())


# -- HEAD, conditions and ranges (RFC 9110) -------------------------------------------------------


def test_head_has_the_same_headers_and_no_body(anyone, address):
    head, get = anyone.head(address), anyone.get(address)
    assert (head.status_code, head.data) == (200, b"")
    assert without_date(head) == without_date(get)


def without_date(answer) -> list[tuple[str, str]]:
    return sorted(header for header in answer.headers if header[0] != "Date")


@pytest.mark.parametrize("wrap", ["{}", "W/{}", '"other", {}', "*"])
def test_if_none_match_with_the_etag_is_304(anyone, plain_address, wrap):
    etag = anyone.get(plain_address).headers["ETag"]
    answer = anyone.get(plain_address, headers={"If-None-Match": wrap.format(etag)})
    assert (answer.status_code, answer.data) == (304, b"")
    assert answer.headers["ETag"] == etag
    assert answer.headers["Cache-Control"] == "no-cache"


def test_if_none_match_with_another_etag_is_200(anyone, address):
    whole = anyone.get(address)
    answer = anyone.get(address, headers={"If-None-Match": '"other"'})
    assert (answer.status_code, answer.data) == (200, whole.data)


def test_if_modified_since_is_304_if_unchanged(anyone, address):
    modified = anyone.get(address).headers["Last-Modified"]
    answer = anyone.get(address, headers={"If-Modified-Since": modified})
    assert (answer.status_code, answer.data) == (304, b"")
    earlier = formatdate(parsedate_to_datetime(modified).timestamp() - 1, usegmt=True)
    assert anyone.get(address, headers={"If-Modified-Since": earlier}).status_code == 200


@pytest.mark.parametrize(
    ("sent", "first", "last"), [("bytes=0-9", 0, 9), ("bytes=5-", 5, None), ("bytes=-7", -7, None)]
)
def test_range_is_206_with_those_bytes(anyone, address, sent, first, last):
    whole = anyone.get(address).data
    wanted = whole[first:] if last is None else whole[first : last + 1]
    answer = anyone.get(address, headers={"Range": sent})
    assert (answer.status_code, answer.data) == (206, wanted)
    start = whole.index(wanted)
    end = start + len(wanted) - 1
    assert answer.headers["Content-Range"] == f"bytes {start}-{end}/{len(whole)}"
    assert int(answer.headers["Content-Length"]) == len(wanted)


INVALID_DATES = [
    f"Mon, 01 Jan {year} 00:00:00 +{zone}" for year, zone in ((2020, 9**20), (9**20, 0))
]


@pytest.mark.parametrize(
    "headers",
    [
        *({"Range": sent} for sent in ("items=0-1", "bytes=0-1,3-4", "", "bytes")),
        *({"If-Modified-Since": sent} for sent in INVALID_DATES),
        *({"Range": "bytes=0-1", "If-Range": sent} for sent in INVALID_DATES),
    ],
    ids=str,
)
def test_invalid_range_or_date_is_ignored(anyone, address, headers):
    """RFC 9110 13.1.3, 13.1.5 and 14.2"""
    for path in (address, "/static/style.css"):
        with anyone.get(path) as whole, anyone.get(path, headers=headers) as answer:
            assert (answer.status_code, answer.data) == (200, whole.data)


def test_range_past_the_end_is_416_with_the_length(anyone, address):
    length = len(anyone.get(address).data)
    answer = anyone.get(address, headers={"Range": f"bytes={length}-"})
    assert answer.status_code == 416
    assert answer.headers["Content-Range"] == f"bytes */{length}"


def test_if_range_with_another_etag_returns_the_whole_picture(anyone, address):
    whole = anyone.get(address)
    headers = {"Range": "bytes=0-9", "If-Range": whole.headers["ETag"]}
    assert anyone.get(address, headers=headers).status_code == 206
    answer = anyone.get(address, headers=headers | {"If-Range": '"other"'})
    assert (answer.status_code, answer.data) == (200, whole.data)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_other_method_is_405(anyone, address, method):
    assert anyone.open(address, method=method).status_code == 405


# -- other paths ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        *("/pfp/", "/pfp/small", "/pfp/small/", "/pfp/huge/1.webp", "/pfp/./small/1.webp"),
        *("/pfp/small/0.webp", "/pfp/small/01.webp", "/pfp/small/1.png", "/pfp/small/1"),
        *("/pfp/small/1-.webp", "/pfp/small/1-0.webp", "/pfp/small/1-1-1.webp", "/pfp/small/.webp"),
        *("/pfp/small/1.webp.webp", "/pfp/small/1.webp%0A", "/pfp/small/1.webp%00"),
        *("/pfp/small/%D9%A1.webp", "/pfp/small/-1.webp", "/pfp/small/1.WEBP", "/pfp/SMALL/1.webp"),
        f"/pfp/small/{'1' * 16}.webp",
        f"/pfp/small/{'1' * 4400}.webp",
    ],
)
def test_invalid_picture_path_is_404(store, anyone, address):
    picture = dict.fromkeys(PICTURE_SIZES, b"RIFF")
    store.users.insert(User(1, "Grace", "grace@example.org", ""), picture)
    assert anyone.get("/pfp/small/1.webp").status_code == 200
    assert anyone.get(address).status_code == 404


@pytest.mark.parametrize(
    "address",
    ["/static/pfp/small/1.webp", "/static/pfp/small", "/static/pfp/", "/static/pfp/1.webp"],
)
def test_static_route_does_not_serve_pictures(app, address):
    # static/pfp is the default picture folder; the tests use another one.
    with pytest.raises(NotFound):
        app.url_map.bind("localhost").match(address)


@pytest.mark.parametrize("name", ["pfp", ".", "..", ".style.css", "..%2fstyle.css", ""])
def test_static_route_serves_only_visible_files_of_its_folder(anyone, tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "RESOURCES", str(tmp_path))
    (tmp_path / "static" / "pfp").mkdir(parents=True)
    for file in ("static/style.css", "static/.style.css", "style.css"):
        (tmp_path / file).touch()
    with anyone.get("/static/style.css") as answer:
        assert answer.status_code == 200
    assert anyone.get(f"/static/{name}").status_code == 404
