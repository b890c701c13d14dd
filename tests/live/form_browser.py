"""A browser without JavaScript: opens pages, fills in forms and sends them with `requests`."""

import time
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qs, urljoin, urlsplit

import requests

from identity.stamps import MINIMUM_AGE

from .running import ANSWER_TIMEOUT, PASSWORD


@dataclass
class Form:
    """A form of a page: its action, hidden fields and buttons."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: dict[str, dict[str, str]] = field(default_factory=dict)  # by label


class FormReader(HTMLParser):
    """A parser that collects the `forms` of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._button: dict[str, str] | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        named = {values["name"]: values.get("value", "")} if "name" in values else {}
        if tag == "form":
            assert values["method"] == "post"
            self.forms.append(Form(values["action"]))
        elif tag == "input":
            self.forms[-1].fields |= named
        elif tag == "button":
            self._button = named

    def handle_data(self, text: str) -> None:
        if self._button is not None:
            self.forms[-1].buttons[text.strip()] = self._button
            self._button = None


@dataclass
class Page:
    """A response of the server, or the address (without text) of a redirect to another site."""

    address: str
    status: int
    text: str = ""
    opened: float = field(default_factory=time.monotonic)  # seconds

    def form_with(self, button: str) -> Form | None:
        """Return the form with this button, or None."""
        reader = FormReader()
        reader.feed(self.text)
        return next((form for form in reader.forms if button in form.buttons), None)

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
        self.session.cookies.set("session", value, domain="127.0.0.1")

    def open(self, address: str) -> Page:
        """Open a page, and follow redirects within the server."""
        return self._go("GET", urljoin(self.server_address, address))

    def press(self, page: Page, button: str, **typed: str) -> Page:
        """Fill in the form with this button, and submit it when the press counts."""
        form = page.form_with(button)
        assert form, f"no form has the button {button!r}: {page}"
        if "request" in form.fields or "stamp" in form.fields:
            time.sleep(max(0, page.opened + MINIMUM_AGE / 1000 - time.monotonic()))
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
