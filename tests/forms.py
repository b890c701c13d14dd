"""Forms: sends them, and reads fields and errors from the pages."""

import html
import re
import threading
from concurrent.futures import ThreadPoolExecutor

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


def problems_of(page) -> dict[str, str]:
    """Return the form errors of a page, by the id of their field; check their markup."""
    found = re.findall(r'<p class="problem" id="([\w-]+)-problem"[^>]*>([^<]*)<', page.text)
    assert len(re.findall('class="problem"', page.text)) == len(found)
    for name, _ in found:
        tied = f'aria-invalid="true" aria-describedby="{name}-problem' in page.text
        assert tied or name == "form" or name.endswith("-form")
    assert page.text.count("autofocus") == 1  # on the first error, for screen readers
    return {name: html.unescape(problem) for name, problem in found}


def hidden_field(page, name: str) -> str:
    """Return the value of a hidden field."""
    return html.unescape(re.search(f'name="{name}" value="([^"]*)"', page.text)[1])


def value_of(page, field: str) -> str:
    """Return the value of an input field."""
    [tag] = re.findall(rf'<input id="{field}"[^>]*>', page.text)
    return html.unescape(re.search(' value="([^"]*)"', tag)[1])


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
