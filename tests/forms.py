"""Forms: what a player sends, and what the page that comes back says."""

import html
import re
import threading
from concurrent.futures import ThreadPoolExecutor

from conftest import PASSWORD
from waiting import PATIENCE

ANOTHER = "a wholly different phrase"


def sign_up(browser, **changes: str):
    """Send the sign-up form."""
    fields = {"name": "Grace", "email": "grace@example.org", "password": PASSWORD}
    return browser.post("/sign-up", data=fields | changes)


def save(browser, **changes: str):
    """Send the profile form."""
    return browser.post("/account", data=changes)


def is_signed_in(browser) -> bool:
    """True where the account page is shown."""
    return browser.get("/account").status_code == 200


def problems_of(page) -> dict[str, str]:
    """What the page says is wrong, by the id of the field that it is tied to."""
    found = re.findall(r'<p class="problem" id="([\w-]+)-problem"[^>]*>([^<]*)<', page.text)
    assert len(re.findall('class="problem"', page.text)) == len(found)
    for name, _ in found:
        tied = f'aria-invalid="true" aria-describedby="{name}-problem' in page.text
        assert tied or name == "form" or name.endswith("-form")
    assert page.text.count("autofocus") == 1  # the first of them is announced
    return {name: html.unescape(problem) for name, problem in found}


def hidden_field(page, name: str) -> str:
    """What a hidden field of a page sends."""
    return html.unescape(re.search(f'name="{name}" value="([^"]*)"', page.text)[1])


def value_of(page, field: str) -> str:
    """What a field of the page holds."""
    [tag] = re.findall(rf'<input id="{field}"[^>]*>', page.text)
    return html.unescape(re.search(' value="([^"]*)"', tag)[1])


def from_address(browser, address: str):
    """The browser, as it comes from there."""
    browser.environ_base["REMOTE_ADDR"] = address
    return browser


def race(*calls) -> list:
    """What the calls return, made at once."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait(timeout=PATIENCE)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
