"""The administrators' page of who may come in, and the domains of email addresses."""

import sys

import fixtures
import pytest
from conftest import PASSWORD, on_each_backend
from forms import change_email, parse, problems_of, sign_up, text_of

from identity.acts import door as door_acts
from identity.acts.actors import COMMAND, Authority
from identity.site import domains
from identity.site.domains import INSTALL, check_domain, hash_domains, tidy_list
from identity.site.door import read_door, read_text
from model.errors import InvalidField
from pages.kit.proof import PROOF_AGE
from storage.whole.archive import backup, restore

PATH = "/admin/door"
boss = fixtures.boss
app = fixtures.open_app
NOT_TAKEN = "This site does not take email addresses of this domain. Use another one."
SOME = "This site takes only email addresses of some domains. Use one of those."


@pytest.fixture
def save(store, boss):
    """A function that sends the form of the rules, or that of a `list`."""

    def save(text_id: str = "", **fields: str):
        seen = {"seen": str(read_door(store).changed)}
        form = {"minimum_age": "0"} | seen | fields
        answer = boss.post(f"{PATH}/{text_id}".rstrip("/"), data=form)
        if answer.status_code == 303:
            boss.get(answer.location)  # shows the notice
        return answer

    return save


def taken(store, email: str) -> bool:
    return check_domain(store, email) is None


def test_allowed_domains_win_over_refused_ones_in_every_spelling(store, save, open_browser):
    for email in ("ada@mailinator.com", "ada@bad.example", ""):
        assert taken(store, email)
    assert save("refused", list="bad.example\nmüller.example # spam").status_code == 303
    assert save("allowed", list="good.bad.example\nus.to").status_code == 303
    assert save(refuses_throwaway="yes").status_code == 303
    refused = ("mailinator.com", "mailinator.com.", "mailinator\u3002com", "a.MAILINATOR.com")
    refused += ("bad.example", "BAD\uff0eexample\uff61", "x.y.bad.example", "xn--mller-kva.example")
    refused += ("MÜLLER.example", "bad..example", "ood.bad.example", "mooo.com")
    for each in refused:
        assert not taken(store, f"ada@{each}"), each
    kept = ("good.bad.example", "x.Good.bad.example", "me.us.to", "notbad.example", "gmail.com")
    for each in kept:
        assert taken(store, f"ada@{each}"), each
    page = sign_up(open_browser(), email="grace@x.bad.example")
    assert (page.status_code, problems_of(page)) == (400, {"email": NOT_TAKEN})
    save(only_allowed="yes")
    for email in ("ada@gmail.com", "ada@bad.example", ""):
        assert not taken(store, email)
    assert taken(store, "ada@x.good.bad.example")


def test_taken_domains_hold_for_a_new_address_of_a_player(store, save, adas_browser):
    save("refused", list="bad.example")
    page = change_email(adas_browser, "ada@x.bad.example")
    assert (page.status_code, problems_of(page)) == (400, {"email": NOT_TAKEN})
    assert change_email(adas_browser, "ada@good.example").status_code == 303


@pytest.mark.parametrize(
    ("typed", "kept"),
    {
        " Bad.Example. ": "bad.example",
        "@bad.example": "bad.example",
        "*.bad.example": "bad.example",
        "ada@bad.example": "bad.example",
        "https://bad.example:8443/a?b": "bad.example",
        "müller\u3002example # ü": "xn--mller-kva.example # ü",
        "a.example\t# b # c": "a.example # b # c",
        "# only words": "# only words",
        "\r\na.example\r\n\r\nb.example\n": "a.example\n\nb.example",
    }.items(),
)
def test_pasted_lines_become_domains(typed, kept):
    assert tidy_list(typed) == kept == tidy_list(kept)


@pytest.mark.parametrize(
    "line",
    ["<b>a.example</b>", "com", "a..example", "a b.example", "192.0.2.1", "a.example,b.example"]
    + [
        "a.example\x00",
        "a.example # \u202e",
        "-a.example",
        f"# {'x' * 300}",
        "[::1]",
        "a@b@c.example",
    ],
)
def test_line_that_is_no_domain_is_refused_by_its_number(line):
    with pytest.raises(InvalidField, match="Line 3 is no domain"):
        tidy_list(f"a.example\n\n{line}\nb.example")


def many(number: int) -> str:
    return "\n".join(f"domain-of-spam-{each:06}.example" for each in range(number))


def test_list_of_100000_domains_is_kept_and_one_of_200000_is_refused(store, save, clock):
    """The page of a proof keeps it, and no worker needs more than a mebibyte for it."""
    page, long = save("allowed", list=many(200_000)), many(100_000)
    assert page.status_code == 400
    assert "Use up to 100,000 lines and 4 MB. You sent 200,000 lines." in page.text
    clock.shift(PROOF_AGE)
    page = save("refused", list=long)
    assert (page.status_code, f'name="list" value="{long}"' in page.text) == (403, True)
    assert save("refused", list=long, password=PASSWORD).status_code == 303
    assert sys.getsizeof(hash_domains(long)) <= 2**20
    assert not taken(store, "a@domain-of-spam-099999.example")
    for status, too_long in (400, f"{'x' * 60}.example\n" * 70_000), (413, "a" * 9 * 2**20):
        assert save("refused", list=too_long).status_code == status
    assert read_text(store, "refused").text == long


@on_each_backend
def test_list_is_read_once_for_each_change_and_is_in_a_backup(
    storage, backend, tmp_path, monkeypatch
):
    by, read = Authority(storage, COMMAND), []
    read_once = lambda *args: read.append(args[1]) or read_text(*args)  # noqa: E731
    monkeypatch.setattr(domains, "read_text", read_once)
    assert taken(storage, "a@bad.example") and read == []
    door_acts.change_list(by, 0, "refused", "bad.example")
    for _ in range(3):
        assert not taken(storage, "a@bad.example")
    assert sorted(read) == ["allowed", "refused"]
    door_acts.change_list(by, read_door(storage).changed, "refused", f'{many(99_999)}\n# ü"')
    assert taken(storage, "a@bad.example") and not taken(storage, "a@domain-of-spam-000000.example")
    storage.users.register("Ada", "", "")
    backup(storage, str(tmp_path / "backup.tar.gz"), "command")
    other = backend.open(str(tmp_path / "other"), str(tmp_path / "pictures"))
    restore(other, str(tmp_path / "backup.tar.gz"), "command")
    assert not taken(other, "a@domain-of-spam-000000.example")


def test_nobody_is_shut_out_by_mistake(store, save):
    """By an empty list, or by a library that is not there."""
    alone = "Nobody could join: write an allowed domain first."
    assert problems_of(save(only_allowed="yes")) == {"only_allowed": alone}
    save("allowed", list="good.example")
    assert save(only_allowed="yes").status_code == 303
    assert problems_of(save("allowed", list="# none")) == {"allowed": alone}
    assert read_text(store, "allowed").text == "good.example"


def test_library_that_is_not_installed_cannot_be_chosen(store, save, boss, monkeypatch, caplog):
    assert INSTALL not in boss.get(PATH).text
    assert save(refuses_throwaway="yes").status_code == 303
    name = "disposable_email_domains"
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda each: None if each == name else 1)
    assert taken(store, "a@mailinator.com")  # it was removed since
    assert f"no list is installed: {INSTALL}" in caplog.text
    page = save(refuses_throwaway="yes")
    assert problems_of(page) == {"refuses_throwaway": f"The list is not installed: {INSTALL}"}
    assert INSTALL in text_of(boss.get(PATH))


@pytest.mark.parametrize(
    ("age", "is_saved"),
    [("13", True), ("18", True), ("12", False), ("19", False), ("", False), ("٣", False)],
)
def test_minimum_age_is_none_or_13_to_18(store, save, age, is_saved):
    page = save(minimum_age=age, admits_younger="yes")
    door = read_door(store)
    assert (page.status_code == 303) == is_saved
    assert (door.minimum_age, door.admits_younger) == ((int(age), True) if is_saved else (0, False))
    if not is_saved:
        assert list(problems_of(page)) == ["minimum_age"]
        assert parse(page).select_one("[name=admits_younger][checked]")
