"""A browser without JavaScript: opens pages, fills in forms and sends them with `requests`."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urljoin, urlsplit

import requests
from bs4 import BeautifulSoup, Tag

from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer


@dataclass
class Form:
    """A form of a page: its action, hidden fields and buttons."""

    action: str
    fields: dict[str, str]
    buttons: dict[str, dict[str, str]]  # by label


def named_values(tags: list[Tag]) -> dict[str, str]:
    """Return what these tags add to a form that is sent."""
    return {each["name"]: each.get("value", "") for each in tags if each.has_attr("name")}


@dataclass
class Page:
    """A response of the server, or the address (without text) of a redirect to another site."""

    address: str
    status: int
    text: str = ""

    def form_with(self, button: str) -> Form | None:
        """Return the form with this button, or None."""
        for form in BeautifulSoup(self.text, "html.parser").find_all("form"):
            buttons = {each.text.strip(): named_values([each]) for each in form("button")}
            if button in buttons:
                assert form["method"] == "post"
                return Form(form["action"], named_values(form("input")), buttons)
        return None

    @property
    def answer(self) -> dict[str, str]:
        """The query parameters of the address: code, state, error."""
        query = parse_qs(urlsplit(self.address).query, strict_parsing=True)
        return {name: value for name, [value] in query.items()}


class FromAddress(requests.adapters.HTTPAdapter):
    """A transport adapter that connects from this loopback address."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *arguments, **options) -> None:
        super().init_poolmanager(*arguments, source_address=(self._address, 0), **options)


class FormBrowser:
    """A browser for the server at this address, with cookies of its own and without JavaScript."""

    def __init__(self, server_address: str, own_address: str = "127.0.0.1") -> None:
        self.server_address = server_address
        self.session = requests.Session()
        self.session.mount("http://", FromAddress(own_address))
        # Unlike a browser, `requests` does not retry on a keep-alive connection that was closed.
        self.session.headers["Connection"] = "close"

    def close(self) -> None:
        """Close the browser."""
        self.session.close()

    def set_session_cookie(self, value: str) -> None:
        """Use this session cookie from the next page on."""
        self.session.cookies.set("identity_session", value, domain="127.0.0.1")

    def open(self, address: str) -> Page:
        """Open a page, and follow redirects within the server."""
        return self._go("GET", urljoin(self.server_address, address))

    def press(self, page: Page, button: str, **typed: str) -> Page:
        """Fill in the form with this button, and submit it at once: to a quick server."""
        form = page.form_with(button)
        assert form, f"no form has the button {button!r}: {page}"
        sent = {**form.fields, **form.buttons[button], **typed}
        return self._go("POST", urljoin(page.address, form.action), data=sent)

    def sign_in(self, name: str, password: str = PASSWORD) -> Page:
        """Sign in, and return the page that follows."""
        return self.press(self.open("/sign-in"), "Sign in", name=name, password=password)

    def allow(self, link: str, name: str) -> Page:
        """Complete a client's authorization request: sign in as `name` and allow, if asked."""
        page = self.open(link)
        if page.form_with("Sign in"):
            page = self.press(page, "Sign in", name=name, password=PASSWORD)
        if page.form_with("Allow"):
            page = self.press(page, "Allow")
        return page

    def _go(self, method: str, address: str, **options) -> Page:
        for _ in range(5):
            answer = self.session.request(
                method, address, allow_redirects=False, timeout=ANSWER_TIMEOUT, **options
            )
            if not answer.is_redirect:
                return Page(address, answer.status_code, answer.text)
            address = urljoin(address, answer.headers["Location"])
            if not address.startswith(f"{self.server_address}/"):
                return Page(address, answer.status_code)
            method, options = "GET", {}
        raise AssertionError(f"redirected five times, last to {address}")


@contextlib.contextmanager
def signed_in_browser(server: RunningServer, name: str) -> Iterator[FormBrowser]:
    """Open a form browser in which a player is signed in."""
    form_browser = FormBrowser(server.address)
    form_browser.set_session_cookie(server.start_session(name))
    yield form_browser
    form_browser.close()
