"""The administrators' page of invitations, and the commands."""

import errno

import fixtures
import pytest
from forms import edit, parse, sign_up, text_of
from test_home import register_game

from commands.invites import invite_record
from identity.acts import invitations as invitation_acts
from identity.acts.actors import COMMAND, Authority
from identity.acts.invitations import EndedBefore
from model.kind import DAY_MS
from model.records import ADMINISTRATOR, Suspension
from storage.flat_files import disk

PATH = "/admin/invitations"
boss = fixtures.boss


def create(browser, **fields):
    return browser.post(PATH, data={"uses": "1", "days": "7"} | fields)


def secret_in(page) -> str:
    [link] = parse(page).select(".done code")
    return link.text.partition("invite=")[2]


def listed(browser) -> list[str]:
    rows = parse(browser.get(PATH)).select(".rows li > div")
    return [" ".join(each.get_text(" ").split()) for each in rows]


def test_administrator_invites_and_sees_who_came(app, store, boss, open_browser):
    app.config["SIGN_UP"] = "invite"
    assert "No invitations yet" in text_of(boss.get(PATH))
    page = create(boss, uses="2", note="Discord <b>channel", flair="first ten")
    assert page.status_code == 201
    secret = secret_in(page)
    assert secret not in boss.get(PATH).text  # it was shown once
    [row] = listed(boss)
    assert row.startswith("Discord <b>channel not used Good until")
    assert "for 2 people" in row and "With the flair “ first ten ”" in row
    newcomer = open_browser()
    assert sign_up(newcomer, name="Grace", invite=secret).status_code == 303
    assert "first ten" in newcomer.get("/welcome/flair").text
    [row] = listed(boss)
    assert "1 of 2 used" in row and row.endswith("Used by Grace .")
    [line] = [line for line in store.audit.read() if line["act"] == "user sign-up"]
    grace = store.users.find_by_login("Grace")
    assert (line["user"], line["by"], line["invite"]) == (grace.id, grace.id, grace.invite)
    assert not any(secret in str(line) or "Discord" in str(line) for line in store.audit.read())


def test_invitation_of_a_sign_up_that_failed_is_open(app, store, boss, monkeypatch, open_browser):
    """The page says so, and offers to revoke it."""
    app.config["SIGN_UP"], commit = "invite", disk.commit
    secret = secret_in(create(boss))

    def fail(temporary: str, path: str) -> None:
        if "/users/" in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        commit(temporary, path)

    monkeypatch.setattr(disk, "commit", fail)
    assert sign_up(open_browser(), name="Grace", invite=secret).status_code == 507
    [row] = listed(boss)
    assert "not used Good until" in row and "Used by" not in row
    assert "Revoke and create the same again" in boss.get(PATH).text
    assert invite_record(*with_accounts(store))["usedBy"] == []
    monkeypatch.undo()
    assert sign_up(open_browser(), name="Grace", invite=secret).status_code == 303
    assert "used Good until" in listed(boss)[0] and listed(boss)[0].endswith("Used by Grace .")


def with_accounts(store) -> tuple:
    [invite] = store.invites.page("list", "all")
    return invite, store.invites.accounts_with(invite)


def test_revoked_invitation_is_refused(app, store, boss, open_browser):
    app.config["SIGN_UP"] = "invite"
    secret = secret_in(create(boss))
    [invite_id] = store.invites.ids()
    assert boss.post(f"{PATH}/revoke", data={"id": invite_id}).status_code == 303
    assert sign_up(open_browser(), invite=secret).status_code == 403
    assert "revoked" in listed(boss)[0]


def test_same_invitation_is_created_again(store, boss):
    old = secret_in(create(boss, uses="20", days="30", note="Class", flair="9b"))
    [old_id] = store.invites.ids()
    page = boss.post(f"{PATH}/revoke", data={"id": old_id, "again": "yes"})
    assert page.status_code == 201
    assert store.invites.find_unused(old) is None
    new = store.invites.find_unused(secret_in(page))
    assert (new.uses, new.note, new.flair) == (20, "Class", "9b")
    assert abs(new.good_until - new.created - 30 * DAY_MS) < 1000
    assert len(store.invites.ids()) == 2


def test_invitation_page_shows_what_waits_and_who_invites_if_they_like(
    app, store, boss, anyone, enter, subtests
):
    app.config |= {"SIGN_UP": "invite", "PLAYERS": "members", "WELCOME": "Board <games>."}
    for name in ("Ant", "Bee", "Cat", "Dog"):
        register_game(store, name)
    register_game(store, "Hidden", listed=False)
    inviter = store.users.find_by_login("Boss")

    def shown(secret: str):
        return parse(anyone.get(f"/sign-up?invite={secret}")).main

    named, plain = secret_in(create(boss, names_inviter="yes")), secret_in(create(boss))
    page = shown(named)
    assert "Boss invites you." in " ".join(page.text.split()) and "Board <games>." in page.text
    assert page.select_one(".game-name img")["sizes"] == "48px"  # for dense screens, too
    assert len(page.select(".covers img")) == 3 and "Hidden" not in page.text
    renew = {"id": store.invites.find_unused(named).id, "again": "yes"}
    for name, secret, fields in (
        ("not chosen", plain, {}),
        ("suspended", named, {"suspension": Suspension(by=None)}),
        ("not good", "x" * 43, {"suspension": None}),
        ("none", "", {}),
    ):
        with subtests.test(name):
            edit(store.users, inviter.id, **fields)
            assert "invites you" not in shown(secret).text
    assert "invites you" in shown(named).text and not shown("x").select(".covers")
    renewed = enter("Other", ADMINISTRATOR).post(f"{PATH}/revoke", data=renew)
    assert "invites you" not in shown(secret_in(renewed)).text  # who renewed it has not chosen that


def test_administrator_who_is_slower_makes_no_second_invitation(store, boss, monkeypatch):
    """Another one revokes it after the first look."""
    create(boss)
    [invite_id] = store.invites.ids()
    by = Authority(store, COMMAND)
    make = invitation_acts.create

    def create_late(*args: object) -> str:
        invitation_acts.revoke(by, invite_id)
        return make(*args)

    monkeypatch.setattr(invitation_acts, "create", create_late)
    with pytest.raises(EndedBefore):
        invitation_acts.renew(by, invite_id)
    assert store.invites.ids() == [invite_id]


def test_page_says_what_the_setting_means_and_cuts_the_list_of_who_came(app, store, boss):
    for mode, words in (("open", "nobody needs an invitation"), ("closed", "sign-up is closed")):
        app.config["SIGN_UP"] = mode
        assert words in text_of(boss.get(PATH))
    store.invites.issue(7, used_by=[1] * 900, uses=1000)
    assert "and 897 more" in boss.get(PATH).text
