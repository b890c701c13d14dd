"""Forms: sends them, and reads fields and errors from the pages."""

import html
import re
import threading
from concurrent.futures import ThreadPoolExecutor

from bs4 import BeautifulSoup
from conftest import PASSWORD
from waiting import PATIENCE

ANOTHER = "a wholly different phrase"


def sign_up(browser, **changes: str):
    """Submit the sign-up form."""
    fields = {"name": "Grace", "email": "grace@example.org", "password": PASSWORD}
    return browser.post("/sign-up", data=fields | changes)


def save(browser, **changes: str):
    """Submit the profile form."""
    return browser.post("/account", data=changes)


def is_signed_in(browser) -> bool:
    """Return whether the account page can be opened."""
    return browser.get("/account").status_code == 200


def parse(page) -> BeautifulSoup:
    """Return the elements of a page."""
    return BeautifulSoup(page.text, "html.parser")


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
