"""The administrators' page of the audit log."""

import json
import re
from pathlib import Path

import fixtures
import pytest
from forms import parse, problems_of, text_of
from test_accounts import LOGGED, USER_ACTS
from test_rights_table import ACTS

from identity.acts.audit_words import GROUPS, SENTENCES
from storage.flat_files import disk

PATH = "/admin/log"
ROOT = Path(__file__).parent.parent
DAY_MS = 86_400_000
MONDAY = 1_763_942_400_000  # 24 November 2025, 00:00 UTC
boss = fixtures.boss


@pytest.fixture
def write(store):
    """A function that adds a line of a time."""

    def write(time: int, act: str, by: int | str, **ids: object) -> None:
        line = {"time": time, "act": act, "by": by, **ids}
        store.audit.add_line(json.dumps(line).encode())

    return write


def sentences(browser, query: str = "") -> list[str]:
    page = browser.get(f"{PATH}?{query}")
    assert page.status_code == 200
    parts = parse(page).select(".log p")
    return [re.sub(r"\s+([.:,”])", r"\1", text_of_part(each)) for each in parts]


def text_of_part(part) -> str:
    return " ".join(part.get_text(" ").split())


def test_lines_are_sentences_by_day(store, boss, write, add_players):
    [emi] = add_players("Emi")
    chess, _ = store.clients.register("Chess", [], None)
    secret = store.invites.issue(7, note="Class <9b>")
    invite = store.invites.find_unused(secret)
    for time, act, by, ids in (
        (MONDAY, "invite", 1, {"invite": invite.id, "days": 7}),
        (MONDAY + 60_000, "user sign-up", emi.id, {"user": emi.id, "invite": invite.id}),
        (MONDAY + DAY_MS, "user suspend", 1, {"user": emi.id, "days": 1}),
        (MONDAY + DAY_MS + 1, "client disable", "command", {"client": chess.id}),
        (MONDAY + DAY_MS + 2, "user delete", 99, {"user": 98}),
        (MONDAY + DAY_MS + 3, "something <new>", 1, {"x": 5}),
    ):
        write(time, act, by, **ids)
    assert sentences(boss) == [
        *("Boss: something <new>.", "Player 99 (left) deleted Player 98 (left)."),
        *("The command disabled the app Chess.", "Boss suspended Emi for 1 day."),
        "Emi created an account with the invitation “ Class <9b>”.",
        "Boss created the invitation “ Class <9b>” for 7 days.",
    ]
    page = parse(boss.get(PATH))
    days = [each.text for each in page.select("h3.day")]
    assert days == ["Tuesday, 25 November 2025", "Monday, 24 November 2025"]
    assert [each.text for each in page.select(".log time")][-2:] == ["00:01", "00:00"]


def test_filters_by_player_act_and_day(store, boss, write, add_players, subtests):
    emi, bob = add_players("Emi", "Bob")
    write(MONDAY, "user suspend", 1, user=emi.id)
    write(MONDAY + 1, "user suspend", 1, user=bob.id)
    write(MONDAY + DAY_MS, "invite", emi.id, invite="x", days=1)
    for query, number in {
        "player=emi": 2,
        f"player={bob.id}": 1,
        "player=77": 0,
        "act=Suspensions": 2,
        "act=Invitations&player=Emi": 1,
        "act=nothing": 3,
        "day=2025-11-24": 2,
        "day=2025-11-23": 0,
        "day=2025-11-25": 3,
        "before=0": 0,
        "before=-5": 0,
        f"before={9**18}": 3,
        "before=x": 3,
    }.items():
        with subtests.test(query):
            assert len(sentences(boss, query)) == number
    store.users.rename(emi.id, "Emilia")
    assert len(sentences(boss, "player=emi")) == 2  # a former name
    bad = {"player=nobody": "player", "day=soon": "day", "day=2025-13-01": "day"}
    for query, field in bad.items():
        page = boss.get(f"{PATH}?{query}")
        assert (list(problems_of(page)), parse(page).select(".log")) == ([field], [])


def test_page_reads_a_part_of_a_long_log(boss, write, monkeypatch):
    """What the page asks of the disk is counted where the file is read."""
    line = json.dumps({"time": MONDAY, "act": "user suspend", "by": 1, "user": 7}).encode()
    boss.get("/")  # no line of the sign-in comes later
    store = boss.application.extensions["storage"]
    Path(store.audit.place).write_bytes((line + b"\n") * 40_000)  # 2.6 MB
    read, open_log = [], disk.open_log

    class Counted:
        def __init__(self, file) -> None:
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *args: object) -> None:
            self.file.close()

        def read(self, size: int = -1) -> bytes:
            read.append(size)
            return self.file.read(size)

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

    monkeypatch.setattr(disk, "open_log", lambda path: Counted(open_log(path)))
    assert len(sentences(boss)) == 100
    assert sum(read) <= 2**17
    del read[:]
    assert sentences(boss, "player=99") == []
    assert 2**19 < sum(read) <= 2**20
    assert "Go on to older lines" in text_of(boss.get(f"{PATH}?player=99"))


def test_lines_that_a_person_edited_do_not_break_the_page(store, boss):
    for line in (
        '{"time": "x", "act": "user suspend", "by": [1], "user": {"a": 1}}',
        '{"act": ["x"], "by": null}',
        '{"time": 1e400, "act": "invite", "by": true, "invite": 5, "days": "many"}',
        '{"time": -5, "act": "client owner", "by": 1, "client": []}',
        '{"time": 99999999999999999, "act": "user mod-level", "by": 1, "user": 1, "mod_level": 7}',
        '{"act": "user mod-level", "by": 1, "user": 1, "mod_level": [1]}',
        '{"act": "user reset bio", "by": 1' + "0" * 300 + ', "user": -1}',
        '{"act": "flair grant", "by": "\\ud800", "flair": "\\ud800<b>"}',
        "{damaged",
        '["no object"]',
    ):
        store.audit.add_line(line.encode())
    assert len(sentences(boss)) == 8


def test_every_act_of_the_program_has_a_sentence_and_a_group():
    found = set()
    for folder in ("identity", "storage", "commands", "pages"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text("utf-8")
            for call in re.findall(r"(?:audit|audited|audit\.write)\(([^)]*)", text):
                found.update(re.findall(r'"([a-z]+(?: [a-z-]+)*)"', call))
    found &= {each for each in found if " " in each or each in SENTENCES}
    assert found and found - {"user reset"} <= SENTENCES.keys()
    starts = tuple(start for acts in GROUPS.values() for start in acts)
    assert all(act.startswith(starts) for act in SENTENCES)


def test_every_act_is_in_a_table_that_has_its_line():
    """Or is done to a whole installation, in a letter, at sign-up or by the command."""
    acts = {line.partition(":")[0] for rows in ACTS.values() for row in rows for line in row[2:]}
    others = {"backup", "restore", "export", "export passwords", "import", "user recovery-link"}
    others |= {"user new-password", "user sign-up", "user unconfirmed", "client add"}
    others |= {"key rotate", "key drop-old", "key openid-now"}
    assert acts | LOGGED.keys() | USER_ACTS.keys() | others == SENTENCES.keys()
