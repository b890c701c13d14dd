"""The proof of work of the sign-up form in Chromium: static/proof.js and its worker."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import requests
from playwright.sync_api import Page, Playwright, expect

from identity.access.admission import FREE_SIGN_UPS
from identity.acts.actors import HALF_AN_HOUR
from model.kinds import APPLICATIONS, LOOKS, USERS
from model.site_records import Look

from .page_checks import CHROMIUM, check_page
from .running import PASSWORD, RunningServer, running_server
from .test_browser import PATIENCE

pytestmark = [pytest.mark.live, pytest.mark.browser]
WORK = 2**19  # hashes on average; one in a billion browsers needs three times as many
WORKER = "**/static/proof-worker.js"


class OnTheLan(RunningServer):
    """A server at a name without https, where browsers have no crypto.subtle."""

    is_quick = False  # asks for the real work

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(folder, **settings)
        self.settings |= {"BASE_URL": f"http://lan.test:{self._port}", "SIGN_UP": "open"}

    def _answers(self) -> bool:
        self.address, host = self.settings["BASE_URL"], f"lan.test:{self._port}"
        with contextlib.suppress(requests.ConnectionError):
            local = f"http://127.0.0.1:{self._port}/"
            return requests.get(local, headers={"Host": host}, timeout=60).ok
        return False


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(OnTheLan) as server:
        server.add_user("ada")
        store = server.open_storage()
        for _ in range(FREE_SIGN_UPS):
            store.attempts.count("sign-ups", "all", 10, HALF_AN_HOUR)
        yield server


@pytest.fixture
def open_form(playwright: Playwright, server: RunningServer):
    """A function that opens the sign-up form, with options of the context, and fills it in."""
    rule = "--host-resolver-rules=MAP lan.test 127.0.0.1"
    chromium = playwright.chromium.launch(
        executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", rule]
    )

    def open_form(name: str, worker: str | None = None, **options: bool) -> Page:
        page = chromium.new_context(**options).new_page()
        page.set_default_timeout(PATIENCE)
        page.clock.install()
        if worker is not None:
            page.route(
                WORKER, lambda route: route.fulfill(body=worker, content_type="text/javascript")
            )
        page.goto(f"{server.address}/sign-up")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("Password", exact=True).fill(PASSWORD)
        return page

    yield open_form
    chromium.close()


def names_of(server: RunningServer, kind) -> set[str]:
    records = server.open_storage().records(kind)
    return {records.read(each).name for each in records.ids()}


def test_sign_up_brings_the_proof_over_http(server: RunningServer, open_form):
    """A press before the work is done waits for it. The nonces tell how many hashes there were."""
    page = open_form("Grace")
    assert not page.evaluate("isSecureContext")
    with page.expect_request(lambda request: request.method == "POST") as sent:
        page.get_by_role("button", name="Create account").click()
    [nonces] = parse_qs(sent.value.post_data)["nonces"]
    page.wait_for_url("**/welcome**")
    hashes = sum(int(each) + 1 for each in nonces.split())
    assert WORK / 3 < hashes < 3 * WORK
    assert "Grace" in names_of(server, USERS)


def test_who_gets_no_proof_may_wait(server: RunningServer, open_form):
    """After ten seconds, or at once without a worker; without JavaScript the answer offers it."""
    slow = open_form("Slow", worker="")
    slow.get_by_role("button", name="Create account").click()
    expect(slow.get_by_role("status")).to_contain_text("Your browser solves a puzzle")
    wait = "Wait for approval"
    expect(slow.get_by_role("button", name=wait)).to_be_hidden()
    slow.clock.run_for(10_000)
    broken = open_form("Broken", worker="throw 1")
    unscripted = open_form("Unscripted", java_script_enabled=False)
    expect(unscripted.get_by_role("button", name=wait)).to_be_visible()
    unscripted.get_by_role("button", name="Create account").click()
    expect(unscripted.locator(".problem")).to_contain_text("did not solve")
    expect(unscripted.get_by_label("Name", exact=True)).to_have_value("Unscripted")
    unscripted.get_by_label("Password", exact=True).fill(PASSWORD)
    for page in (slow, broken, unscripted):
        with page.expect_response("**/sign-up"):
            page.get_by_role("button", name=wait).click()
    assert names_of(server, APPLICATIONS) == {"Slow", "Broken", "Unscripted"}


def test_form_with_everything_fits(server: RunningServer, open_form):
    store = server.open_storage()
    store.records(LOOKS).put(Look("site", 1, terms=1, minimum_age=16))
    page = open_form("Grace2")
    page.get_by_label("I agree").check()
    page.get_by_label("I am at least 16").check()
    page.evaluate("document.querySelector('#topic').value = 'x'")
    expect(page.locator("#topic")).to_be_hidden()
    page.get_by_role("button", name="Create account").click()
    expect(page.locator("#topic")).to_be_visible()
    check_page(page, has_problem=True)
