"""The table of docs/everyday.md says who can do what: each level tries each act."""

import itertools
import re
from datetime import date, timedelta

import pytest
from conftest import PASSWORD
from documents import PAGES
from forms import parse, problems_of, text_of
from werkzeug.datastructures import MultiDict

from identity.acts import apps as app_acts
from identity.acts import chat as chat_acts
from identity.acts import invitations as invitation_acts
from identity.acts import reports as report_acts
from identity.acts.actors import Actor, Authority, NotAllowed
from identity.acts.applications import Decided, apply
from identity.acts.invitations import EndedBefore
from identity.acts.reports import AnsweredBefore
from identity.site.look import read_look
from model.door_records import NetworkBan, NetworkBans
from model.errors import ChangedBefore
from model.kind import DAY_MS
from model.kinds import NETWORK_BANS, NOTES, REPORTS, WEBHOOKS
from model.records import MODERATOR, Suspension, now_ms
from model.site_records import Note, Webhook
from pages.kit.proof import PROOF_AGE
from storage.repositories import new_time_id

USER, OUT, APP = "/users/<user_id>", "/users/<out_id>", "/developer/<client_id>"
YOUNG = "/users/<young_id>"
CHAT, LISTED = "/admin/chat", "/play/<client_id>/listed"
INVITATIONS, ANNOUNCEMENT = "/admin/invitations", "/admin/announcement"
NETWORKS = "/admin/networks"
BAN = {"network": "192.0.2.7/24", "days": "1", "reach": "0", "reason": "Bots."}
DOOR = "/admin/door"
LATER = str(date.today() + timedelta(days=30))
JOINING = "/admin/applications"
# By row of the table: what is requested, a form of a post or None for a page, and the audit lines
# of the form: each act, and what it names (`user` is `user=<user_id>`).
ACTS = {
    "see at `/admin` what waits": [("/admin", None)],
    "see the numbers there": [("/admin", "Numbers")],
    "see the players at `/admin/players`": [("/admin/players", None)],
    "see who asks to join, approve or decline": [
        (JOINING, None),
        (
            *(JOINING, {"application": "<first_id>", "act": "approve", "seen": "9999999999999"}),
            *(
                "application approve: user=<new_user>",
                "user sign-up: user=<new_user> by=<new_user>",
            ),
        ),
        (
            JOINING,
            {
                **{"application": "<second_id>", "act": "decline", "seen": "9999999999999"},
                "reason": "Spam",
            },
            "application decline",
        ),
    ],
    "read the guide at `/admin/docs`": [("/admin/docs", None), ("/admin/docs/everyday", None)],
    "read and answer a report": [
        ("/admin/reports/<report_id>", None),
        ("/admin/reports/<report_id>", {"answer": "Done."}, "report answer: report"),
    ],
    "suspend a player": [(f"{USER}/suspend", {"length": "1 day"}, "user suspend: user days=1")],
    "suspend a reported player and close the report": [
        (
            *("/admin/reports/<report_id>", {"answer": "Suspended.", "length": "1 week"}),
            *("user suspend: user days=7", "report answer: report"),
        )
    ],
    "unsuspend a player, change a suspension": [
        (
            f"{OUT}/suspend",
            {"length": "1 day", "reason": "x"},
            "user suspend: user=<out_id> days=1",
        ),
        (f"{OUT}/unsuspend", {}, "user unsuspend: user=<out_id>"),
    ],
    "mark a player as younger": [(f"{USER}/underage", {"underage": "yes"}, "user underage: user")],
    "remove that mark": [
        (f"{YOUNG}/underage", {"underage": "no"}, "user not-underage: user=<young_id>")
    ],
    "reset a name, a picture or a text": [
        (f"{USER}/reset", {"what": what}, f"user reset {what}: user")
        for what in ("name", "picture", "bio")
    ],
    "create a sign-in link for a player": [(f"{USER}/sign-in-link", {}, "user sign-in-link: user")],
    "read and write notes about a player": [
        (USER, "Only moderators see these."),
        (f"{USER}/notes", {"text": "A note."}, "note add: user note=<new_note>"),
    ],
    "warn a player": [(f"{USER}/warn", {"warning": "Be kind."}, "note warn: user note=<new_note>")],
    "see accounts from the networks of a suspended player": [(f"{OUT}/networks", {"preview": ""})],
    "see and ban networks": [
        (NETWORKS, None),
        (NETWORKS, BAN | {"preview": "yes"}),
        (NETWORKS, BAN, "network ban: address=192.0.2.0/24"),
    ],
    "lift the ban of a network": [
        (f"{NETWORKS}/lift", {"network": "<banned>"}, "network unban: address=<banned>")
    ],
    "delete a note or a warning of somebody else": [
        (f"{USER}/notes/delete", {"note": "<note_id>"}, "note delete: user note")
    ],
    "list a game, unlist it, leave it unlisted": [
        (LISTED, {"listed": listed, "game_url": "<game_url>"}, f"client {act}: client")
        for listed, act in (("no", "declined"), ("yes", "listed"), ("no", "unlisted"))
    ],
    "change a level": [
        (f"{USER}/mod-level", {"mod_level": "<level>"}, "user mod-level: user mod_level=<level>")
    ],
    "grant flairs": [(f"{USER}/flairs/grant", {"flair": "New"}, "flair grant: user flair=New")],
    "revoke flairs": [(f"{USER}/flairs/revoke", {"flair": "Old"}, "flair revoke: user flair=Old")],
    "delete a player": [(f"{USER}/delete", {}, "user delete: user")],
    "create and renew invitations": [
        (
            *(INVITATIONS, {"uses": "2", "days": "5", "note": "A <b> & two"}),
            "invite: invite=<new_invite> days=5 uses=2",
        ),
        (
            *(f"{INVITATIONS}/revoke", {"id": "<invite_id>", "again": "yes"}),
            *("invite: invite=<new_invite> days=7 uses=1", "invite revoke: invite"),
        ),
    ],
    "see and revoke invitations": [
        (INVITATIONS, None),
        (f"{INVITATIONS}/revoke", {"id": "<invite_id>"}, "invite revoke: invite"),
    ],
    "see, rename, describe, disable and delete the apps of others, remove their covers": [
        (APP, None),
        (APP, {"name": "Chess", "game_url": "<game_url>", "description": "For two."}),
        (f"{APP}/disable", {}, "client disable: client"),
        (f"{APP}/cover/remove", {}),
        (f"{APP}/delete", {}, "client delete: client"),
    ],
    "change the rest of the apps of others, enable them, create secrets for them": [
        (APP, {"name": "Chess", "redirect_uris": "https://a.example/\r\nhttps://b.example/"}),
        ("/developer/<disabled_id>/enable", {}, "client enable: client=<disabled_id>"),
        (f"{APP}/secret", {}, "client new-secret: client"),
        (f"{APP}/cover", {}),
    ],
    "hand an app over": [
        (f"{APP}/owner", {"owner": "<name>", "seen": "<owner_id>"}, "client owner: client user"),
        (f"{APP}/owner", {"owner": "", "seen": "<user_id>"}, "client owner: client"),
    ],
    "see the apps and the log": [("/admin/apps", None), ("/admin/log", None)],
    "change the appearance and what the chat is told, create a key, announce something": [
        ("/admin/look", {"accent": "#7a3fb0", "seen": "<look_seen>"}, "look"),
        ("/admin/look/logo", {}),
        ("/admin/look/logo/remove", {"seen": "<look_seen>"}, "look"),
        (CHAT, {"format": "json", "events": ["player", "game"], "seen": "5"}, "chat"),
        (f"{CHAT}/key", {"seen": "<chat_seen>"}, "chat"),
        (f"{CHAT}/remove", {"seen": "<chat_seen>"}, "chat"),
        (ANNOUNCEMENT, {"text": "Hi.", "days": "1", "seen": "<look_seen>"}, "announcement"),
    ],
    "decide who may join": [
        ("/admin/door", None),
        ("/admin/door", {"minimum_age": "13", "seen": "<look_seen>"}, "door"),
        ("/admin/door/allowed", {"list": "a.example", "seen": "<look_seen>"}, "door"),
        ("/admin/door/refused", {"list": "b.example", "seen": "<look_seen>"}, "door"),
    ],
    "change the terms and the page about privacy": [
        (f"{DOOR}/terms", {"text": "Be kind.", "day": LATER, "seen": "<look_seen>"}, "terms"),
        (f"{DOOR}/privacy", {"text": "We keep little.", "seen": "<look_seen>"}, "privacy"),
    ],
    "see and end the announcement": [
        (ANNOUNCEMENT, None),
        (f"{ANNOUNCEMENT}/end", {"seen": "<look_seen>"}, "announcement end"),
    ],
    "preview the appearance, test the chat, send its messages again": [
        ("/admin/look", None),
        ("/admin/look", {"accent": "#7a3fb0", "preview": "yes"}),
        (CHAT, None),
        (f"{CHAT}/test", {}),
        (f"{CHAT}/given-up", {}, "chat"),
    ],
    "hide the first steps, send oneself a test letter": [
        ("/admin/checklist/hide", {}, "checklist hide"),
        ("/admin/mail/test", {}),
    ],
}
# Forms that are refused once another moderator was faster, and what the page says then.
OUTDATED = {
    JOINING: Decided,
    "/admin/reports/<report_id>": AnsweredBefore,
    f"{INVITATIONS}/revoke": EndedBefore,
}
OUTDATED |= dict.fromkeys((f"{APP}/owner", "/admin/look", "/admin/look/logo/remove"), ChangedBefore)
OUTDATED |= dict.fromkeys((DOOR, f"{DOOR}/allowed", f"{DOOR}/refused"), ChangedBefore)
OUTDATED |= dict.fromkeys((ANNOUNCEMENT, f"{ANNOUNCEMENT}/end"), ChangedBefore)
OUTDATED |= dict.fromkeys((f"{DOOR}/terms", f"{DOOR}/privacy"), ChangedBefore)
OUTDATED |= dict.fromkeys((CHAT, f"{CHAT}/key", f"{CHAT}/remove"), ChangedBefore)
UPLOADS = {f"{APP}/cover", "/admin/look/logo"}  # without a file: 400 for those who may
ELSEWHERE = {f"{APP}/try", f"{APP}/try/token"}  # a test of one's own app
ELSEWHERE |= {f"{APP}/try/device", f"{APP}/try/device/token"}
FOR_EVERYBODY = {f"{USER}/report", "/play/<client_id>/authorize"}


def rows_of_the_table() -> dict[str, list[str]]:
    """Return what players, moderators and administrators may do, and if it needs a proof."""
    section = PAGES["docs/everyday.md"].partition("## What moderators can do")[2]
    rows = re.findall(
        r"^\| (.*) \| (.*) \| (.*) \| (.*) \|$", section.partition("\n## ")[0], re.MULTILINE
    )
    return {what: ["no", *levels] for what, *levels in rows[1:]}


ROWS = rows_of_the_table()


def test_each_row_of_the_table_is_tried_and_each_form_is_in_it(app):
    assert ROWS.keys() == ACTS.keys()
    posts = {rule.rule for rule in app.url_map.iter_rules() if "POST" in rule.methods}
    posts = {each for each in posts if re.match("/(admin|users|play|developer)/", each)}
    tried = {path for acts in ACTS.values() for path, form, *_ in acts if isinstance(form, dict)}
    tried = {
        path.replace("out_", "user_").replace("young_", "user_").replace("disabled_", "client_")
        for path in tried
    }
    assert posts - ELSEWHERE - FOR_EVERYBODY == tried


@pytest.fixture
def actors(enter):
    """The browsers of a player, a moderator and an administrator, whose ids are 1, 2 and 3."""
    browsers = [enter(f"Actor {level}", level) for level in range(3)]
    for browser in browsers:
        browser.environ_base["REMOTE_ADDR"] = "2001:db8::7"
    return browsers


@pytest.fixture
def make_things(store, add_players):
    """A function that makes something new of everything that an act is about."""
    numbers = itertools.count(1)

    def make_things(target_level: int) -> dict[str, str]:
        number = next(numbers)
        flairs = {"flairs": ["none", "Old"], "bio": "Chess."}
        [target] = add_players(f"Target {number}", mod_level=target_level, **flairs)
        [owner] = add_players(f"Owner {number}")
        suspension = Suspension(owner.id)
        [suspended] = add_players(f"Out {number}", mod_level=target_level, suspension=suspension)
        [young] = add_players(f"Young {number}", mod_level=target_level, underage=True)
        url = f"https://game{number}.example/"
        fields = {"game_url": url, "cover": 1, "disabled": False}
        game, _ = store.clients.register(f"Game {number}", [], owner.id, **fields)
        disabled, _ = store.clients.register(f"Disabled {number}", [], owner.id, disabled=True)
        note = Note(new_time_id(now_ms()), target.id, owner.id, "Of another one.", now_ms())
        store.records(NOTES).add(note)
        report_acts.report(Authority(store, Actor(owner.id)), target, "spam", "")
        [report] = store.records(REPORTS).page("by", str(owner.id))
        store.records(WEBHOOKS).put(Webhook("chat", 5, "https://x.example/", "json", ["game"], "k"))
        invite = store.invites.find_unused(store.invites.issue(7))
        banned = NetworkBan("198.51.100.0/24", now_ms(), now_ms() + DAY_MS, owner.id)
        store.records(NETWORK_BANS).put(NetworkBans("site", [banned]))
        fields = {"email": "", "password_hash": "", "address": "2001:db8::"}
        first, second = (apply(store, True, name=f"{n} {number}", **fields) for n in ("Ivy", "Kai"))
        return {
            "<first_id>": first.id,
            "<second_id>": second.id,
            "<user_id>": str(target.id),
            "<out_id>": str(suspended.id),
            "<young_id>": str(young.id),
            "<level>": str((target_level + 1) % 3),
            "<client_id>": game.id,
            "<disabled_id>": disabled.id,
            "<game_url>": url,
            "<owner_id>": str(owner.id),
            "<name>": target.name,
            "<note_id>": note.id,
            "<report_id>": report.id,
            "<invite_id>": invite.id,
            "<banned>": banned.network,
        }

    return make_things


TARGETS = ("<user_id>", "<suspended_id>", "<young_id>")  # the players whose level matters


def is_allowed(word: str, level: int, target_level: int) -> bool:
    return {"no": False, "yes": True, "all": True, "below": target_level < level}[word]


def records(faults) -> dict[str, bytes]:
    """Return what is stored, but for counted attempts."""
    return {name: each for name, each in faults.stored().items() if "attempts/" not in name}


def put_in(text: str, things: dict[str, str]) -> str:
    for name, value in things.items():
        text = text.replace(name, value)
    return text


def fill_in(form: dict, things: dict[str, str]) -> dict:
    return {
        name: put_in(value, things) if isinstance(value, str) else value
        for name, value in form.items()
    }


def note_changes(store, things: dict[str, str]) -> None:
    """Note when the look and the chat were changed last, and what was made last."""
    webhook = store.records(WEBHOOKS).find("chat")
    things["<look_seen>"] = str(read_look(store).changed)
    things["<chat_seen>"] = str(webhook.changed if webhook else 0)
    things["<new_note>"] = max(store.records(NOTES).ids(), default="")
    things["<new_invite>"] = max(store.invites.ids())
    things["<new_user>"] = str(max(store.users.ids()))


def audit_lines(store) -> list[dict[str, str]]:
    """Return the lines of the audit log as text, without their times."""
    lines = store.audit.read()
    return [{name: str(line[name]) for name in line if name != "time"} for line in lines]


def read_line(line: str, things: dict[str, str], by: int) -> dict[str, str]:
    """Return the audit line that a row of ACTS describes."""
    act, _, names = line.partition(": ")
    pairs = [each if "=" in each else f"{each}=<{each}_id>" for each in names.split()]
    ids = dict(put_in(each, things).split("=") for each in pairs)
    return {"act": act, "by": str(by), "address": "2001:db8::", **ids}  # the /64


@pytest.mark.parametrize("what", ACTS)
def test_level_may_do_what_the_table_says(
    app, store, enter, actors, make_things, faults, subtests, what
):
    """A form writes its audit lines; an administrator who sends it from an older page is told."""
    late = enter("Late", 2)
    app.config["CLIENT_REGISTRATION"] = "members"  # so that rights to an app decide
    is_about_player = any(each in path for path, *_ in ACTS[what] for each in TARGETS)
    for level, target_level in itertools.product(range(3), range(3 if is_about_player else 1)):
        things = make_things(target_level)
        for path, form, *lines in ACTS[what]:
            note_changes(store, things)
            allowed = is_allowed(ROWS[what][level], level, target_level)
            before, logged = records(faults), len(audit_lines(store))
            with subtests.test(path, level=level, target_level=target_level):
                if isinstance(form, dict):
                    done = [400] if path in UPLOADS else [200] if "preview" in form else [201, 303]
                    sent = fill_in(form, things)
                    answer = actors[level].post(put_in(path, things), data=sent)
                    assert (answer.status_code in done) == allowed, answer.text
                    assert allowed or answer.status_code in (403, 404)
                    assert allowed or records(faults) == before
                    note_changes(store, things)
                    assert audit_lines(store)[logged:] == [
                        read_line(each, things, level + 1) for each in lines if allowed
                    ]
                    if allowed and path in OUTDATED and "preview" not in form:
                        before = records(faults)
                        page = late.post(put_in(path, things), data=sent)
                        told = OUTDATED[path].problem in text_of(page)
                        assert (page.status_code, told) == (409, True)
                        assert records(faults) == before
                else:
                    answer = actors[level].get(put_in(path, things))
                    is_shown = answer.status_code == 200 and (form or "") in answer.text
                    assert is_shown == allowed
            actors[level].get("/")  # shows the notice


def form_of_proof(page) -> tuple[str, MultiDict] | None:
    """Return the address and the fields of the form that asks for a proof, None without one."""
    proof = parse(page).select_one("input[id=proof]")
    if proof is None:
        return None
    form = proof.find_parent("form")
    return form["action"], MultiDict(
        (each["name"], each.get("value", "")) for each in form.select("input")
    )


@pytest.mark.load
def test_acts_ask_for_a_proof(app, store, actors, make_things, faults, clock, subtests):
    """What was typed comes back, with a field for the password, and is done with it."""
    app.config["CLIENT_REGISTRATION"] = "members"
    for what, level in itertools.product(ACTS, (1, 2)):
        if not is_allowed(ROWS[what][level], level, 0):
            continue
        things, actor = make_things(0), actors[level]
        for path, form, *_ in ACTS[what]:
            if not isinstance(form, dict) or path in UPLOADS:
                continue
            note_changes(store, things)
            clock.shift(PROOF_AGE)
            actor.get("/")  # shows the notice, and notes the use of the session
            before, fields = records(faults), fill_in(form, things)
            with subtests.test(what, path=path, level=level):
                page = actor.post(put_in(path, things), data=fields)
                asked = form_of_proof(page)
                assert (asked is not None) == (ROWS[what][3] == "yes"), page.text
                if asked is None:
                    assert page.status_code in (200, 201, 303)
                    continue
                assert page.status_code == 403 and records(faults) == before
                assert parse(page).select("input[id=proof][autofocus]")
                address, typed = asked
                for name, value in fields.items():
                    expected = value if isinstance(value, list) else [value]
                    assert typed.getlist(name) == expected
                sent = dict(typed.lists())
                page = actor.post(address, data=sent | {"password": "wrong" if level == 2 else ""})
                assert page.status_code == 403 and form_of_proof(page) == asked
                assert list(problems_of(page)) == ["proof"] and records(faults) == before
                done = actor.post(address, data=sent | {"password": PASSWORD})
                assert done.status_code in (201, 303), done.text


def test_acts_of_a_demoted_administrator_are_refused(store, add_players, faults, subtests):
    """A page that was opened before has passed the check of the page."""
    demoted, owner = add_players("Demoted", mod_level=MODERATOR) + add_players("Owner")
    client, _ = store.clients.register("Chess", [], owner.id)
    store.records(WEBHOOKS).put(Webhook("chat", 5, "https://x.example/", "json", ["game"], "k"))
    invite = store.invites.find_unused(store.invites.issue(7))
    before = records(faults)
    by, owners = (Authority(store, Actor(each.id)) for each in (demoted, owner))
    for name, act in {
        "hand over": lambda: app_acts.hand_over(by, client.id, demoted.id, owner.id),
        "hand over by the owner": lambda: app_acts.hand_over(
            owners, client.id, demoted.id, owner.id
        ),
        "send again": lambda: chat_acts.send_again(by),
        "discard": lambda: chat_acts.discard(by),
        "remove webhook": lambda: chat_acts.remove(by, 5),
        "invite": lambda: invitation_acts.create(by, 7),
        "revoke": lambda: invitation_acts.revoke(by, invite.id),
    }.items():
        with subtests.test(name), pytest.raises(NotAllowed):
            act()
    assert records(faults) == before
