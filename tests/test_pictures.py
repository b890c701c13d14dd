"""GET /pfp/<size>/<file>: the profile pictures, with the headers that nginx sends in production."""

import io
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path

import pytest
from PIL import Image

from images import pictures
from images.pictures import generate_picture
from model.records import PICTURE_SIZES, User
from pages.kit import files


@pytest.fixture
def address(ada) -> str:
    return f"/pfp/small/{ada.picture_file}"


@pytest.fixture
def plain_address(store) -> str:
    store.users.insert(User(7, "Grace", "grace@example.org", ""), generate_picture(7))
    return "/pfp/small/7.webp"


def test_new_account_has_a_webp_picture_in_each_size(anyone, ada):
    for size, side in (("large", 256), ("medium", 64), ("small", 16)):
        answer = anyone.get(f"/pfp/{size}/{ada.id}-{ada.pfp_timestamp}.webp")
        assert (answer.status_code, answer.content_type) == (200, "image/webp")
        assert int(answer.headers["Content-Length"]) == len(answer.data)
        image = Image.open(io.BytesIO(answer.data))
        assert (image.format, image.size) == ("WEBP", (side, side))
    assert anyone.get(f"/pfp/small/{ada.id}.webp").status_code == 404


def test_imported_picture_has_the_plain_address(store, anyone, plain_address):
    """Without a picture it gets a generated one."""
    store.users.insert(User(8, "Linus", "linus@example.org", ""))
    for user_id, sizes in ((7, ["small"]), (8, PICTURE_SIZES)):
        for size in sizes:
            answer = anyone.get(f"/pfp/{size}/{user_id}.webp")
            assert (answer.status_code, answer.content_type) == (200, "image/webp")
            assert answer.data == generate_picture(user_id)[size]
            assert answer.headers["Cache-Control"] == "no-cache"
            assert answer.headers["ETag"]
    assert anyone.get("/pfp/small/9.webp").status_code == 404


# -- headers --------------------------------------------------------------------------------------


def test_timestamped_picture_is_cached_a_day_and_used_cross_origin(adas_browser, address):
    origin = {"Origin": "https://game.example", "Sec-Fetch-Site": "cross-site"}
    for sent in ({}, {"Range": "bytes=0-9"}, {"If-None-Match": "*"}):
        headers = adas_browser.get(address, headers=origin | sent).headers
        assert headers["Cache-Control"] == "public, max-age=86400, immutable"
        assert not {"Set-Cookie", "Vary"} & set(headers.keys())
        assert headers["Access-Control-Allow-Origin"] == "*"
        assert headers["Cross-Origin-Resource-Policy"] == "cross-origin"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "public, max-age=86400, immutable"
        assert not {"Set-Cookie", "Vary"} & set(headers.keys())


def test_if_none_match_with_the_etag_is_304(anyone, plain_address):
    whole = anyone.get(plain_address)
    etag = whole.headers["ETag"]
    for sent in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = anyone.get(plain_address, headers={"If-None-Match": sent})
        assert (answer.status_code, answer.data) == (304, b"")
        assert answer.headers["ETag"] == etag
        assert answer.headers["Cache-Control"] == "no-cache"
    answer = anyone.get(plain_address, headers={"If-None-Match": '"other"'})
    assert (answer.status_code, answer.data) == (200, whole.data)


def test_if_modified_since_is_304_if_unchanged(anyone, address):
    modified = anyone.get(address).headers["Last-Modified"]
    answer = anyone.get(address, headers={"If-Modified-Since": modified})
    assert (answer.status_code, answer.data) == (304, b"")
    earlier = formatdate(parsedate_to_datetime(modified).timestamp() - 1, usegmt=True)
    assert anyone.get(address, headers={"If-Modified-Since": earlier}).status_code == 200


def test_range_is_206_with_those_bytes(anyone, address):
    whole = anyone.get(address).data
    length = len(whole)
    last = length - 1
    ranges = (("bytes=0-9", 0, 9), ("bytes=5-", 5, last), ("bytes=-7", length - 7, last))
    for sent, start, end in ranges:
        answer = anyone.get(address, headers={"Range": sent})
        assert (answer.status_code, answer.data) == (206, whole[start : end + 1])
        assert answer.headers["Content-Range"] == f"bytes {start}-{end}/{length}"
        assert int(answer.headers["Content-Length"]) == end - start + 1
    answer = anyone.get(address, headers={"Range": f"bytes={length}-"})
    assert answer.status_code == 416
    assert answer.headers["Content-Range"] == f"bytes */{length}"


def test_invalid_range_or_date_is_ignored(anyone, address, subtests):
    """RFC 9110 13.1.3, 13.1.5 and 14.2"""
    dates = [f"Mon, 01 Jan {year} 00:00:00 +{zone}" for year, zone in ((2020, 9**20), (9**20, 0))]
    for path in (address, "/static/style.css"):
        with anyone.get(path) as answer:
            whole = answer.data
        for headers in (
            *({"Range": sent} for sent in ("items=0-1", "bytes=0-1,3-4", "", "bytes")),
            *({"If-Modified-Since": sent} for sent in dates),
            *({"Range": "bytes=0-1", "If-Range": sent} for sent in dates),
        ):
            with subtests.test(path, headers=headers), anyone.get(path, headers=headers) as answer:
                assert (answer.status_code, answer.data) == (200, whole)


# -- other paths ----------------------------------------------------------------------------------


def test_invalid_picture_path_or_method_is_refused(store, folders, anyone, subtests):
    """Nothing but pictures is served, neither temporary files nor what is outside the folder."""
    picture = dict.fromkeys(PICTURE_SIZES, b"RIFF")
    store.users.insert(User(1, "Grace", "grace@example.org", ""), picture)
    assert anyone.get("/pfp/small/1.webp").status_code == 200
    temporary = (".1.webp", ".1.webp.0a1b2c3d", "1.webp.0a1b2c3d", ".7-1700.webp.0a1b2c3d.old")
    for name in ("secret.webp", "../secret.webp", *(f"small/{each}" for each in temporary)):
        (Path(folders[1]) / name).write_bytes(b"secret")
    for method in ("POST", "PUT", "DELETE"):
        assert anyone.open("/pfp/small/1.webp", method=method).status_code == 405
    for path in (
        *("", "small", "small/", "huge/1.webp", "./small/1.webp"),
        *("small/0.webp", "small/01.webp", "small/1.png", "small/1"),
        *("small/1-.webp", "small/1-0.webp", "small/1-1-1.webp", "small/.webp"),
        *("small/1.webp.webp", "small/1.webp%0A", "small/1.webp%00"),
        *("small/%D9%A1.webp", "small/-1.webp", "small/1.WEBP", "SMALL/1.webp"),
        *(f"small/{'1' * digits}.webp" for digits in (16, 4400)),
        *("small/../secret.webp", "small/%2e%2e/secret.webp", "small/..%2fsecret.webp"),
        *("small/%2e%2e%2fsecret.webp", "%2e%2e/secret.webp", "../secret.webp"),
        *("small/..%5csecret.webp", "small//secret.webp", "small/%2fetc%2fpasswd"),
        *("small/..%252fsecret.webp", "small/../../instance/secret_key"),
        *("small/%2e%2e/%2e%2e/instance/secret_key", *(f"small/{each}" for each in temporary)),
    ):
        with subtests.test(path):
            assert anyone.get(f"/pfp/{path}").status_code == 404


def test_static_route_serves_only_visible_files_of_its_folder(anyone, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "RESOURCES", str(tmp_path))
    (tmp_path / "static" / "pfp").mkdir(parents=True)
    for file in ("static/style.css", "static/.style.css", "style.css"):
        (tmp_path / file).touch()
    with anyone.get("/static/style.css") as answer:
        assert answer.status_code == 200
    for name in ("pfp", ".", "..", ".style.css", "..%2fstyle.css", ""):
        assert anyone.get(f"/static/{name}").status_code == 404


def decode(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content), formats=("WEBP",))


def test_generated_picture_is_one_small_square_that_no_other_id_has(monkeypatch):
    """The decoded pixels are compared, at 16 x 16."""
    for user_id in (1, 2, 1000, 10**6, 10**15 - 1):
        images = generate_picture(user_id)
        assert images == generate_picture(user_id)
        small = decode(images["small"]).convert("RGB")
        for size, side in PICTURE_SIZES.items():
            assert decode(images[size]).size == (side, side)
            seen = decode(images[size]).convert("RGB")
            assert seen.resize(small.size, Image.Resampling.NEAREST) == small
            assert len(images[size]) < 2000
            known = {"loop", "background", "timestamp"}  # no metadata
            assert decode(images[size]).info.keys() <= known
    monkeypatch.setattr(pictures, "PICTURE_SIZES", {"small": PICTURE_SIZES["small"]})  # for speed
    pixels = {
        decode(generate_picture(number)["small"]).convert("RGB").tobytes()
        for number in range(1, 1001)
    }
    assert len(pixels) == 1000
