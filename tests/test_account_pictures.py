"""Uploads from the account page: `pages.account.profile`."""

import io

import pytest
from forms import problems_of
from PIL import Image

from model.records import PICTURE_SIZES, User


def encode(image: Image.Image, format_: str = "PNG") -> bytes:
    content = io.BytesIO()
    image.save(content, format_)
    return content.getvalue()


RED = encode(Image.new("RGB", (40, 30), (255, 0, 0)))
REFUSED_UPLOADS = {
    "no field": (None, 400),
    "empty": (b"", 400),
    "truncated": (RED[:-30], 400),
    "text": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415),
    "pdf": (b"%PDF-1.7\n", 415),
    "too many pixels": (encode(Image.new("1", (5001, 5000))), 422),
    "one byte over the limit": (RED + bytes(8 * 2**20 + 1 - len(RED)), 413),
    "a mebibyte over the limit": (RED + bytes(9 * 2**20), 413),
}


def upload(browser, content: bytes | None, name: str = "me.png", path: str = "/account/picture"):
    """Submit the form of a picture, or at another path of a cover, with or without a file."""
    field_name = path.rpartition("/")[2]
    named = f'name="{field_name}"; filename="{name}"'
    head = f"--x\r\nContent-Disposition: form-data; {named}\r\n\r\n"
    field = b"" if content is None else head.encode() + content + b"\r\n"
    form_type = "multipart/form-data; boundary=x"
    return browser.post(path, data=field + b"--x--\r\n", content_type=form_type)


def expected_files(user: User) -> set[str]:
    """Return the paths of the three files of a user's picture."""
    return {f"{size}/{user.picture_file}" for size in PICTURE_SIZES}


@pytest.mark.live
def test_picture_can_be_removed_where_there_is_one(adas_browser):
    """Not the one that is drawn."""
    words = "Remove my picture"
    assert words not in adas_browser.get("/account").text
    upload(adas_browser, RED)
    assert words in adas_browser.get("/account").text
    adas_browser.post("/account/picture/remove")
    assert words not in adas_browser.get("/account").text


@pytest.mark.live
def test_upload_and_removal_replace_every_size(store, adas_browser, ada, anyone, faults):
    generated = anyone.get(f"/pfp/large/{ada.picture_file}").data
    answer = upload(adas_browser, RED, "../../x.html")
    assert (answer.status_code, answer.location) == (303, "/account")
    user = store.users.read(ada.id)
    assert user.pfp_timestamp > ada.pfp_timestamp
    assert faults.stored("pictures").keys() == expected_files(user)
    for size, side in (("large", 256), ("medium", 64), ("small", 16)):
        assert anyone.get(f"/pfp/{size}/{ada.picture_file}").status_code == 404
        shown = anyone.get(f"/pfp/{size}/{user.picture_file}")
        image = Image.open(io.BytesIO(shown.data), formats=["WEBP"]).convert("RGB")
        assert image.size == (side, side)
        assert image.getpixel((side // 2, side // 2))[0] > 240
    assert f"/pfp/large/{user.picture_file}" in adas_browser.get("/account").text

    assert adas_browser.post("/account/picture/remove").status_code == 303
    removed = store.users.read(ada.id)
    assert removed.pfp_timestamp > user.pfp_timestamp
    assert not faults.stored("pictures")
    assert anyone.get(f"/pfp/large/{removed.picture_file}").data == generated


@pytest.mark.live
def test_refused_upload_shows_an_error_and_changes_nothing(adas_browser, faults, subtests):
    before = faults.stored("users", "pictures")
    for kind, (content, status) in REFUSED_UPLOADS.items():
        with subtests.test(kind):
            page = upload(adas_browser, content)
            assert (page.status_code, list(problems_of(page))) == (status, ["picture"])
            assert faults.stored("users", "pictures") == before
