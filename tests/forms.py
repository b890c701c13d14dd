"""Forms: sends them, and reads fields and errors from the pages."""

import functools
import html
import io
import re
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

from bs4 import BeautifulSoup
from conftest import PASSWORD
from PIL import Image
from waiting import PATIENCE

ANOTHER = "a wholly different phrase"


def sign_up(browser, **changes: str):
    """Submit the sign-up form."""
    fields = {"name": "Grace", "email": "grace@example.org", "password": PASSWORD}
    return browser.post("/sign-up", data=fields | changes)


def save(browser, **changes: str):
    """Submit the profile form."""
    return browser.post("/account", data=changes)


def signed_in(browser, name: str = "Ada"):
    """Sign a player in; return the browser."""
    assert browser.sign_in(name).status_code == 303
    return browser


def change_email(browser, email: str = "new@example.org"):
    return browser.post("/account/email", data={"email": email, "current_password": PASSWORD})


def change_password(browser, new_password: str = ANOTHER):
    data = {"current_password": PASSWORD, "new_password": new_password}
    return browser.post("/account/password", data=data)


def set_by_link(browser, address: str, new_password: str = ANOTHER):
    """Submit the form of a sign-in link."""
    form = {"link": address.partition("#")[2], "new_password": new_password}
    return browser.post("/recover/password", data=form)


def is_signed_in(browser) -> bool:
    """Return whether the account page can be opened."""
    return browser.get("/account").status_code == 200


def edit(repository, record_id: int | str, **fields: object) -> None:
    """Set fields of a record."""
    with repository.edit(record_id) as record:
        for name, value in fields.items():
            setattr(record, name, value)


def led_to(answer) -> str:
    """Return where a response redirects a browser after a form."""
    assert answer.status_code == 303
    return answer.location


def parse(page) -> BeautifulSoup:
    """Return the elements of a page, which the caller must not change."""
    return _parse(page.text)


@functools.lru_cache(maxsize=16)
def _parse(text: str) -> BeautifulSoup:
    return BeautifulSoup(text, "html.parser")


def problems_of(page) -> dict[str, str]:
    """Return the form errors of a page, by the id of their field; check their markup."""
    soup = parse(page)
    found = {each["id"].removesuffix("-problem"): each.text for each in soup.select(".problem")}
    for name in found:
        tied = soup.select(f'[aria-invalid="true"][aria-describedby^="{name}-problem"]')
        assert tied or name == "form" or name.endswith("-form")
    assert soup.title.text.startswith("Problem: ") == bool(found)
    assert len(soup.select("[autofocus]")) == 1  # on the first error, for screen readers
    return found


def text_of(page) -> str:
    """Return the text of the main part of a page."""
    text = re.sub(r"<[^>]+>", " ", page.text.partition("<main")[2])
    return " ".join(html.unescape(text).split())


def hidden_field(page, name: str) -> str:
    """Return the value of a hidden field."""
    return parse(page).find(attrs={"name": name})["value"]


def value_of(page, field: str) -> str:
    """Return the value of an input field."""
    [tag] = parse(page).select(f"input[id={field}]")
    return tag["value"]


def sent_by(form) -> dict[str, list[str]]:
    """Return the values of a form's fields by their names, as a browser sends them."""
    sent = defaultdict(list)
    for each in form.select("input[name], textarea, select"):
        if each.name == "select":
            sent[each["name"]].append((each.select_one("[selected]") or each.option)["value"])
        elif each.name == "textarea":
            sent[each["name"]].append(each.text.removeprefix("\n"))
        elif each.get("type") not in ("checkbox", "radio") or each.has_attr("checked"):
            sent[each["name"]].append(each.get("value", ""))
    return sent


def from_address(browser, address: str):
    """Let the browser connect from this address; return it."""
    browser.environ_base["REMOTE_ADDR"] = address
    return browser


def race(*calls) -> list:
    """Make the calls at the same time; return their results."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait(timeout=PATIENCE)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


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


def upload(
    browser, content: bytes | None = RED, name: str = "me.png", path: str = "/account/picture"
):
    """Submit the form of a picture, or at another path of a cover, with or without a file."""
    field_name = path.partition("?")[0].rpartition("/")[2]
    named = f'name="{field_name}"; filename="{name}"'
    head = f"--x\r\nContent-Disposition: form-data; {named}\r\n\r\n"
    field = b"" if content is None else head.encode() + content + b"\r\n"
    form_type = "multipart/form-data; boundary=x"
    return browser.post(path, data=field + b"--x--\r\n", content_type=form_type)
