"""The look of the site: accent, logo, welcome text and contact."""

import io
import itertools
import re
from pathlib import Path

import fixtures
import pytest
from conftest import PASSWORD
from forms import edit, parse, problems_of, text_of
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from identity.access.passwords import hash_password
from identity.acts.look import DARK, LIGHT, contrast, parse_accent, read_look, shade
from model.errors import InvalidField
from model.kinds import LOGOS
from model.records import Suspension
from pages.kit.files import STATIC
from pages.kit.proof import PROOF_AGE

PATH = "/admin/look"
COLOUR = re.compile(r"--([a-z-]+): (#[0-9a-f]{6})")
boss = fixtures.boss


def save(browser, seen: int, **fields: str):
    form = {"welcome": "Hello.", "contact": "", "accent": ""}
    return browser.post(PATH, data=form | {"seen": seen} | fields)


def upload(browser, content: bytes, seen: int = 0):
    head = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}'
    fields = head.format("seen", f"{seen}\r\n") + head.format('logo"; filename="x', "")
    return browser.post(
        f"{PATH}/logo",
        data=fields.encode() + content + b"\r\n--x--\r\n",
        content_type="multipart/form-data; boundary=x",
    )


def png(size: tuple[int, int] = (300, 200), colour=(255, 0, 0, 0)) -> bytes:
    output = io.BytesIO()
    Image.new("RGBA", size, colour).save(output, "PNG")
    return output.getvalue()


@given(st.integers(0, 0xFFFFFF))
@example(0)
@example(0xFFFFFF)
@example(0x808080)
@example(0xFF0000)
@example(0xFFFF00)
@example(0x0000FF)
def test_every_colour_has_a_shade_that_can_be_read_in_each_theme(number):
    for theme in (LIGHT, DARK):
        found = shade(f"#{number:06x}", theme)
        for ground in (theme.card, theme.inset, theme.on_leaf):
            assert contrast(found.colour, ground) >= 4.5
        assert found.ratio == min(contrast(found.colour, each) for each in theme[:2])


def test_contrast_is_that_of_the_standard_and_the_hue_is_kept():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    accents = ("#c02020", "#20c020", "#2020c0")
    for (strongest, accent), theme in itertools.product(enumerate(accents), (LIGHT, DARK)):
        parts = bytes.fromhex(shade(accent, theme).colour[1:])
        assert parts.index(max(parts)) == strongest


def test_themes_are_those_of_the_style_sheet():
    sheet = Path(STATIC, "style.css").read_text("utf-8")
    blocks = re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)
    for block, theme in zip(blocks, (LIGHT, DARK), strict=True):
        colours = dict(COLOUR.findall(block))
        names = ("card", "inset", "on-leaf", "leaf")
        assert tuple(colours[each] for each in names) == theme[:4]
        name = "in-dark" if theme.is_dark else "in-light"
        preview = dict(COLOUR.findall(re.search(rf"\.{name} .*", sheet)[0]))
        assert preview.items() <= colours.items()


def test_only_colours_are_accents():
    accents = {"#7A3fb0": "#7a3fb0", "7a3": "#77aa33", " ": "", "#FFF": "#ffffff"}
    for text, expected in accents.items():
        assert parse_accent(text) == expected
    for text in ("purple", "#12345", "#1234567", "#12345g", "#٣٣٣", "url(x)", "#fff;}", "\x00"):
        with pytest.raises(InvalidField):
            parse_accent(text)


def test_look_is_saved_and_shown(app, store, boss, browser, open_browser):
    page = boss.get(PATH)
    assert app.config["WELCOME"] in page.text  # until another one is set
    assert "/look.css?v=" not in page.text
    fields = {"contact": "ada@example.org", "accent": "#7a3fb0"}
    assert save(boss, 0, welcome="We <b>are</b> friends.", **fields).status_code == 303
    home = browser.get("/")
    assert "We <b>are</b> friends." in text_of(home) and app.config["WELCOME"] not in home.text
    [link] = parse(home).select('footer a[href^="mailto:"]')
    assert link["href"] == "mailto:ada@example.org"
    changed = read_look(store).changed
    [sheet] = parse(home).select('link[href^="/look.css"]')
    assert sheet["href"] == f"/look.css?v={changed}"
    styles = browser.get(sheet["href"])
    assert styles.content_type == "text/css; charset=utf-8"
    assert "immutable" in styles.headers["Cache-Control"]
    light, dark = shade("#7a3fb0", LIGHT), shade("#7a3fb0", DARK)
    assert f"--leaf: {light.colour}; --on-leaf: #ffffff" in styles.text
    assert f"--leaf: {dark.colour}; --on-leaf: #0c2418" in styles.text
    for address in ("/look.css", "/look.css?v=5"):  # nobody makes a cache keep another version
        assert browser.get(address).headers["Cache-Control"] == "no-cache"
    player = store.users.register("Emi", "", hash_password(PASSWORD))
    edit(store.users, player.id, suspension=Suspension("command"))
    page = open_browser().sign_in("Emi")
    assert '<a href="mailto:ada@example.org">Write to us</a>' in page.text


def test_preview_saves_nothing(store, boss):
    """Without an accent it is what the site uses."""
    page = boss.get("/admin/look")
    assert "/look.css?accent" not in page.text  # the style sheet has the colours of both themes
    for theme in (LIGHT, DARK):
        ratio = min(contrast(theme.leaf, theme.card), contrast(theme.leaf, theme.inset))
        assert f"{theme.leaf}, {ratio:.1f} to 1" in text_of(page)
    page = save(boss, 0, preview="yes", welcome="New words.", accent="#c02020")
    assert (page.status_code, "New words." in page.text) == (200, True)
    light = shade("#c02020", LIGHT)
    assert f"{light.colour}, {light.ratio:.1f} to 1" in text_of(page)
    assert '<link rel="stylesheet" href="/look.css?accent=c02020">' in page.text
    assert f".in-light {{ --leaf: {light.colour}; }}" in boss.get("/look.css?accent=c02020").text
    assert boss.get("/look.css?accent=}body{").status_code == 404
    assert read_look(store).changed == 0


@pytest.mark.live
def test_logo_takes_the_place_of_the_door(store, boss, browser):
    assert "door.svg" in browser.get("/").text
    assert upload(boss, png()).status_code == 303
    kept = read_look(store)
    address = f"/look/logo-{kept.logo}.webp"
    home = browser.get("/")
    assert home.text.count(address) == 2 and "door.svg" not in home.text
    served = browser.get(address)
    image = Image.open(io.BytesIO(served.data))
    assert (image.format, image.size, image.mode) == ("WEBP", (256, 256), "RGBA")
    assert image.getextrema()[3] == (0, 0)  # it stays transparent
    assert "immutable" in served.headers["Cache-Control"]
    assert upload(boss, png(colour=(0, 0, 255, 255)), kept.changed).status_code == 303
    assert browser.get(address).status_code == 404
    assert len(store.records(LOGOS).ids()) == 1
    form = {"seen": read_look(store).changed}
    assert boss.post(f"{PATH}/logo/remove", data=form).status_code == 303
    assert "door.svg" in browser.get("/").text and store.records(LOGOS).ids() == []


@pytest.mark.live
def test_logo_needs_a_proof_and_is_chosen_again(store, boss, clock):
    """No page can give a file back to a browser; all other fields are kept."""
    clock.shift(PROOF_AGE)
    page = upload(boss, png())
    assert page.status_code == 403 and read_look(store).logo is None
    form = parse(page).select_one("#proof").find_parent("form")
    assert (form["action"], form["enctype"]) == (f"{PATH}/logo", "multipart/form-data")
    assert form.select("input[type=file][name=logo]") and form.select('input[name=seen][value="0"]')
    files = {"logo": (io.BytesIO(png()), "x.png")}
    wrong = boss.post(f"{PATH}/logo", data={"seen": "0", "password": "wrong"} | files)
    assert list(problems_of(wrong)) == ["proof"]
    files = {"logo": (io.BytesIO(png()), "x.png")}
    done = boss.post(f"{PATH}/logo", data={"seen": "0", "password": PASSWORD} | files)
    assert done.status_code == 303 and read_look(store).logo


@pytest.mark.live
def test_logo_that_is_not_set_is_removed(store, boss, monkeypatch):
    assert save(boss, 0).status_code == 303
    page = upload(boss, png(), seen=0)
    assert (page.status_code, "Another administrator" in text_of(page)) == (409, True)
    assert store.records(LOGOS).ids() == []
    monkeypatch.setattr("identity.acts.actors.MODERATORS_ACTS_AN_HOUR", 1)
    assert upload(boss, png(), seen=read_look(store).changed).status_code == 429
    assert store.records(LOGOS).ids() == []
