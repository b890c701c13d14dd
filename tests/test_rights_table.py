"""The table of docs/administrator.md says who can do what: each level tries each act."""

import itertools
import re
from pathlib import Path

import pytest
from conftest import PASSWORD

from identity.actors import Actor
from identity.look import read_look
from identity.reports import ReportActs
from storage.kinds import NOTES, REPORTS, WEBHOOKS
from storage.records import now_ms
from storage.repositories import new_time_id
from storage.site_records import Note, Webhook

PAGE = Path(__file__).parent.parent / "docs" / "administrator.md"
USER, APP, CHAT = "/users/<user_id>", "/developer/<client_id>", "/admin/chat"
# By row of the table: what is requested, a form of a post or None for a page.
ACTS = {
    "see at `/admin` what waits": [("/admin", None)],
    "see the numbers there": [("/admin", "Numbers")],
    "see the players at `/admin/players`": [("/admin/players", None)],
    "read and answer a report": [
        ("/admin/reports/<report_id>", None),
        ("/admin/reports/<report_id>", {"answer": "Done."}),
    ],
    "suspend and unsuspend a player": [
        (f"{USER}/suspend", {"length": "1 day"}),
        (f"{USER}/unsuspend", {}),
    ],
    "reset a name, a picture or a text": [(f"{USER}/reset", {"what": "name"})],
    "create a sign-in link for a player": [(f"{USER}/sign-in-link", {})],
    "read and write notes about a player": [
        (USER, "Only moderators see these."),
        (f"{USER}/notes", {"text": "A note."}),
    ],
    "delete a note of somebody else": [(f"{USER}/notes/delete", {"note": "<note_id>"})],
    "list a game, unlist it, leave it unlisted": [
        ("/play/<client_id>/listed", {"listed": "yes", "game_url": "<game_url>"}),
        ("/play/<client_id>/listed", {"listed": "no", "game_url": "<game_url>"}),
    ],
    "change a level": [(f"{USER}/mod-level", {"mod_level": "<other_level>"})],
    "grant and revoke flairs": [
        (f"{USER}/flairs/grant", {"flair": "New"}),
        (f"{USER}/flairs/revoke", {"flair": "Old"}),
    ],
    "delete a player": [(f"{USER}/delete", {"password": PASSWORD})],
    "create, renew and revoke invitations": [
        ("/admin/invitations", None),
        ("/admin/invitations", {"uses": "1", "days": "7"}),
        ("/admin/invitations/revoke", {"id": "<invite_id>"}),
    ],
    "change, disable, enable and delete the apps of others": [
        (APP, None),
        (APP, {"name": "Chess", "redirect_uris": "https://chess.example/"}),
        (f"{APP}/disable", {}),
        (f"{APP}/enable", {}),
        (f"{APP}/delete", {}),
    ],
    "create secrets and covers for the apps of others": [
        (f"{APP}/secret", {}),
        (f"{APP}/cover/remove", {}),
    ],
    "hand an app over": [(f"{APP}/owner", {"owner": "", "seen": "<owner_id>"})],
    "see the apps and the log": [("/admin/apps", None), ("/admin/log", None)],
    "change the look and what the chat is told": [
        ("/admin/look", None),
        ("/admin/look", {"accent": "#7a3fb0", "seen": "<look_seen>"}),
        ("/admin/look/logo/remove", {"seen": "<look_seen>"}),
        (CHAT, None),
        (CHAT, {"format": "json", "events": "player", "seen": "5"}),
        (f"{CHAT}/test", {}),
        (f"{CHAT}/given-up", {}),
        (f"{CHAT}/key", {"seen": "<chat_seen>"}),
        (f"{CHAT}/remove", {"seen": "<chat_seen>"}),
    ],
}
# Uploads, which tests/test_covers.py and tests/test_look.py try; a test of one's own app.
ELSEWHERE = {f"{APP}/cover", "/admin/look/logo", f"{APP}/try", f"{APP}/try/token"}
ELSEWHERE |= {f"{APP}/try/device", f"{APP}/try/device/token"}
FOR_EVERYBODY = {f"{USER}/report", "/play/<client_id>/authorize"}


def rows_of_the_table() -> dict[str, list[str]]:
    """Return what players, moderators and administrators may do, by row."""
    section = PAGE.read_text("utf-8").partition("### What moderators can do")[2]
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \|$", section.partition("\n### ")[0], re.MULTILINE)
    return {what: ["no", *levels] for what, *levels in rows[1:]}


ROWS = rows_of_the_table()


def test_each_row_of_the_table_is_tried_and_each_form_is_in_it(app):
    assert ROWS.keys() == ACTS.keys()
    posts = {rule.rule for rule in app.url_map.iter_rules() if "POST" in rule.methods}
    posts = {each for each in posts if re.match("/(admin|users|play|developer)/", each)}
    tried = {path for acts in ACTS.values() for path, form in acts if isinstance(form, dict)}
    assert posts - ELSEWHERE - FOR_EVERYBODY == tried


@pytest.fixture
def actors(enter):
    """The browsers of a player, a moderator and an administrator."""
    return [enter(f"Actor {level}", level) for level in range(3)]


@pytest.fixture
def make_things(store, add_players):
    """A function that makes something new of everything that an act is about."""
    numbers = itertools.count(1)

    def make_things(target_level: int) -> dict[str, str]:
        number = next(numbers)
        flairs = {"flairs": ["none", "Old"], "bio": "Chess."}
        [target] = add_players(f"Target {number}", mod_level=target_level, **flairs)
        [owner] = add_players(f"Owner {number}")
        url = f"https://game{number}.example/"
        fields = {"game_url": url, "cover": 1, "disabled": False}
        game, _ = store.clients.register(f"Game {number}", [], owner.id, **fields)
        note = Note(new_time_id(now_ms()), target.id, owner.id, "Of another one.", now_ms())
        store.records(NOTES).add(note)
        ReportActs(store, Actor(owner.id)).report(target, "spam", "")
        [report] = store.records(REPORTS).page("by", str(owner.id))
        store.records(WEBHOOKS).put(Webhook("chat", 5, "https://x.example/", "json", ["game"], "k"))
        invite = store.invites.find_unused(store.invites.issue(7))
        return {
            "<user_id>": str(target.id),
            "<other_level>": str((target_level + 1) % 3),
            "<client_id>": game.id,
            "<game_url>": url,
            "<owner_id>": str(owner.id),
            "<note_id>": note.id,
            "<report_id>": report.id,
            "<invite_id>": invite.id,
        }

    return make_things


def is_allowed(word: str, level: int, target_level: int) -> bool:
    return {"no": False, "yes": True, "all": True, "below": target_level < level}[word]


def records(faults) -> dict[str, bytes]:
    """Return what is stored, but for counted attempts."""
    return {name: each for name, each in faults.stored().items() if "attempts/" not in name}


def put_in(text: str, things: dict[str, str]) -> str:
    for name, value in things.items():
        text = text.replace(name, value)
    return text


@pytest.mark.parametrize("what", ACTS)
def test_level_may_do_what_the_table_says(app, store, actors, make_things, faults, subtests, what):
    app.config["CLIENT_REGISTRATION"] = "members"  # so that rights to an app decide
    for level, target_level in itertools.product(range(3), range(3)):
        things = make_things(target_level)
        for path, form in ACTS[what]:
            things["<look_seen>"] = str(read_look(store).changed)
            webhook = store.records(WEBHOOKS).find("chat")
            things["<chat_seen>"] = str(webhook.changed if webhook else 0)
            allowed = is_allowed(ROWS[what][level], level, target_level)
            before = records(faults)
            with subtests.test(path, level=level, target_level=target_level):
                if isinstance(form, dict):
                    fields = {name: put_in(value, things) for name, value in form.items()}
                    answer = actors[level].post(put_in(path, things), data=fields)
                    assert (answer.status_code in (201, 303)) == allowed, answer.text
                    assert allowed or answer.status_code in (403, 404)
                    assert allowed or records(faults) == before
                else:
                    answer = actors[level].get(put_in(path, things))
                    is_shown = answer.status_code == 200 and (form or "") in answer.text
                    assert is_shown == allowed
            actors[level].get("/")  # shows the notice
