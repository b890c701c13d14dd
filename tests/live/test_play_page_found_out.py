"""The negative controls of test_play_page.py: a play page that forgets a check is found out."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Frame, Page, Route, TimeoutError, expect

from . import test_browser, test_play_page

pytestmark = [pytest.mark.live, pytest.mark.browser]
chromium, playwright = test_browser.chromium, test_browser.playwright
game, sound_browse = test_browser.game, test_browser.browse
adas_cookies, add_game = test_play_page.adas_cookies, test_play_page.add_game
play, page = test_play_page.play, test_play_page.page
spy, asked = test_play_page.spy, test_play_page.asked
SHORT_PATIENCE = 10_000  # milliseconds: what is found out is often that something does not happen
PLAY_PAGE = re.compile(r"/play/\w+$|/(play|hold)\.js")  # and its scripts


@dataclass(frozen=True)
class Forgotten:
    """What stands in the play page, its headers or its scripts, and what takes its place."""

    text: str
    instead: str
    found_out_by: str  # test_ and this
    told: str  # by its failure
    parameters: dict[str, str] = field(default_factory=dict)  # of the test

    @property
    def test(self) -> Callable:
        return getattr(test_play_page, f"test_{self.found_out_by}")


SOURCE = "source !== frame.contentWindow || "
HEARD = "to be hidden|already_requested"  # the dialog was there in time to be seen, or later
FRESH = '(await (await fetch(location)).text()).match(/data-request="([^"]*)/)[1]'
FORGOTTEN = {
    "whose window asks, and it is one inside the game": Forgotten(
        SOURCE,
        "",
        "a_page_inside_the_game_gets_nothing",
        HEARD,
        {"_": "", "whose": "game"},
    ),
    "whose window asks, and the game opened it": Forgotten(
        SOURCE,
        "",
        "a_window_that_the_game_opens_gets_nothing",
        HEARD,
    ),
    "which site asks": Forgotten(
        " || sender !== origin",
        "",
        "another_page_in_the_frame_is_not_heard",
        HEARD,
    ),
    "for which site an answer is": Forgotten(
        "postMessage(answer, origin)",
        'postMessage(answer, "*")',
        "not_even_where_the_browser_lets_it_go_there",
        "console",
    ),
    "where the frame may go": Forgotten(
        "frame-src ",
        "frame-src * ",
        "a_frame_that_went_elsewhere_before_the_answer_gets_nothing",
        "console",
    ),
    "who may frame the page": Forgotten(
        "frame-ancestors 'none'",
        "frame-ancestors *",
        "a_page_that_frames_the_play_page_shows_nothing_of_it",
        "chrome-error",
    ),
    "when Allow came": Forgotten(
        "DEAD_TIME = 1000",
        "DEAD_TIME = 0",
        "allow_ignores_clicks_for_its_first_second",
        "aria-disabled",
    ),
    "for whose session it was made": Forgotten(
        "request: frame.dataset.request",
        f"request: {FRESH}",
        "a_page_that_was_opened_as_another_player_gives_that_player_nothing",
        "no_account",
    ),
}


@pytest.fixture(params=FORGOTTEN.values(), ids=FORGOTTEN)
def forgotten(request: pytest.FixtureRequest) -> Forgotten:
    return request.param


@pytest.fixture
def complaints() -> list[str]:
    """What consoles say, which nobody looks at here."""
    return []


@pytest.fixture
def browse(
    sound_browse, forgotten: Forgotten, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Page]]:
    """Opens a window to which the play page comes changed."""
    changed = []

    def change(route: Route) -> None:
        answer = route.fetch()
        texts = {"": answer.text(), **answer.headers}
        changed.extend(name for name in texts if forgotten.text in texts[name])
        texts = {
            name: text.replace(forgotten.text, forgotten.instead) for name, text in texts.items()
        }
        route.fulfill(response=answer, body=texts.pop(""), headers=texts)

    def browse(**options) -> Page:
        page = sound_browse(**options)
        page.context.route(PLAY_PAGE, change)
        # To Chromium a page that was changed on its way is from anywhere, and the game from here.
        page.context.grant_permissions(["local-network-access"])
        return page

    sound_open = test_play_page.Play.open

    def open_and_lose_patience(play: test_play_page.Play, page: Page) -> Frame:
        frame = sound_open(play, page)
        page.context.set_default_timeout(SHORT_PATIENCE)
        expect.set_options(timeout=SHORT_PATIENCE)
        return frame

    monkeypatch.setattr(test_play_page.Play, "open", open_and_lose_patience)
    yield browse
    expect.set_options(timeout=test_browser.PATIENCE)
    assert changed


def test_a_play_page_that_forgets_a_check_would_be_found_out(
    request: pytest.FixtureRequest, forgotten: Forgotten
):
    names = inspect.signature(forgotten.test).parameters.keys() - forgotten.parameters.keys()
    fixtures = {name: request.getfixturevalue(name) for name in names}
    with pytest.raises((AssertionError, TimeoutError), match=forgotten.told):
        forgotten.test(**fixtures, **forgotten.parameters)
