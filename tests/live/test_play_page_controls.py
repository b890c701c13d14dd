"""Negative controls of test_play_page.py: its tests fail if the play page lacks a check."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Frame, Page, Route, TimeoutError, expect

from . import test_browser, test_play_page

pytestmark = [pytest.mark.live, pytest.mark.browser]
chromium, playwright = test_browser.chromium, test_browser.playwright
game, unmodified_browse = test_browser.game, test_browser.browse
adas_cookies, add_game = test_play_page.adas_cookies, test_play_page.add_game
play, page = test_play_page.play, test_play_page.page
spy, requesting_frame = test_play_page.spy, test_play_page.requesting_frame
SHORT_TIMEOUT = 10_000  # milliseconds: many failures are timeouts
PLAY_PAGE = re.compile(r"/play/\w+$|/(play|hold)\.js")  # and its scripts


@dataclass(frozen=True)
class Mutation:
    """A text in the play page, its headers or its scripts, and its replacement."""

    text: str
    replacement: str
    detected_by: str  # the test's name without test_
    failure: str  # what its failure matches
    parameters: dict[str, str] = field(default_factory=dict)  # of the test

    @property
    def test(self) -> Callable:
        return getattr(test_play_page, f"test_{self.detected_by}")


SOURCE_CHECK = "source !== frame.contentWindow || "
REQUEST_ACCEPTED = "to be hidden|already_requested"  # the dialog opened early, or late
CURRENT_REQUEST = '(await (await fetch(location)).text()).match(/data-request="([^"]*)/)[1]'
MUTATIONS = {
    "whose window asks, and it is one inside the game": Mutation(
        SOURCE_CHECK,
        "",
        "nested_frame_gets_no_code",
        REQUEST_ACCEPTED,
        {"_": "", "site_name": "game"},
    ),
    "whose window asks, and the game opened it": Mutation(
        SOURCE_CHECK, "", "popup_of_the_game_gets_no_code", REQUEST_ACCEPTED
    ),
    "which site asks": Mutation(
        " || sender !== origin",
        "",
        "request_from_another_origin_in_the_frame_is_ignored",
        REQUEST_ACCEPTED,
    ),
    "for which site an answer is": Mutation(
        "postMessage(answer, origin)",
        'postMessage(answer, "*")',
        "navigated_frame_gets_no_code_without_frame_src",
        "console",
    ),
    "where the frame may go": Mutation(
        "frame-src ", "frame-src * ", "frame_navigated_before_the_answer_gets_no_code", "console"
    ),
    "who may frame the page": Mutation(
        "frame-ancestors 'none'", "frame-ancestors *", "play_page_cannot_be_framed", "chrome-error"
    ),
    "when Allow came": Mutation(
        "FIRST_SECOND = 1000",
        "FIRST_SECOND = 0",
        "allow_ignores_clicks_for_its_first_second",
        "aria-disabled",
    ),
    "when an early press came": Mutation(
        "if (isDead() && !target",
        "if (isDead() && false && !target",
        "fast_presses_anywhere_get_no_press_of_allow_through",
        "to be visible",
    ),
    "for whose session it was made": Mutation(
        "request: frame.dataset.request",
        f"request: {CURRENT_REQUEST}",
        "request_signed_for_another_session_is_no_account",
        "no_account",
    ),
}


@pytest.fixture(params=MUTATIONS.values(), ids=MUTATIONS)
def mutation(request: pytest.FixtureRequest) -> Mutation:
    return request.param


@pytest.fixture
def console_errors() -> list[str]:
    """Messages from browser consoles, which are ignored here."""
    return []


@pytest.fixture
def browse(
    unmodified_browse, mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Page]]:
    """A function that opens a page for which the play page is mutated."""
    changed = []

    def change(route: Route) -> None:
        answer = route.fetch()
        texts = {"": answer.text(), **answer.headers}
        changed.extend(name for name in texts if mutation.text in texts[name])
        texts = {
            name: text.replace(mutation.text, mutation.replacement) for name, text in texts.items()
        }
        route.fulfill(response=answer, body=texts.pop(""), headers=texts)

    def browse(**options) -> Page:
        page = unmodified_browse(**options)
        page.context.route(PLAY_PAGE, change)
        # Chromium treats a fulfilled page as remote, and the game's address as local.
        page.context.grant_permissions(["local-network-access"])
        return page

    unmodified_open = test_play_page.Play.open

    def open_with_short_timeout(play: test_play_page.Play, page: Page) -> Frame:
        frame = unmodified_open(play, page)
        page.context.set_default_timeout(SHORT_TIMEOUT)
        expect.set_options(timeout=SHORT_TIMEOUT)
        return frame

    monkeypatch.setattr(test_play_page.Play, "open", open_with_short_timeout)
    yield browse
    expect.set_options(timeout=test_browser.PATIENCE)
    assert changed


def test_missing_play_page_check_is_detected(request: pytest.FixtureRequest, mutation: Mutation):
    names = inspect.signature(mutation.test).parameters.keys() - mutation.parameters.keys()
    fixtures = {name: request.getfixturevalue(name) for name in names}
    with pytest.raises((AssertionError, TimeoutError), match=mutation.failure):
        mutation.test(**fixtures, **mutation.parameters)
