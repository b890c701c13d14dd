"""The look of the site: accent, logo, welcome text and contact."""

import colorsys
import gettext
import io

import fixtures
import pytest
from conftest import PASSWORD
from forms import edit, parse, problems_of, text_of
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from identity.access.passwords import hash_password
from identity.acts.look import parse_accent
from identity.site import languages
from identity.site.languages import Language
from identity.site.look import UNTURNED, colours_of, contrast, contrast_on, read_look, read_themes
from model.errors import InvalidField
from model.kinds import LOGOS, LOOKS
from model.records import Suspension
from model.site_records import Look
from pages.kit.proof import PROOF_AGE

PATH = "/admin/look"
# Pairs of colours of the style sheet, by the contrast that they need (WCAG 2.2, 1.4.3 and 1.4.11).
TEXTS = dict.fromkeys(("ink", "soft", "link"), ("sky", "card", "inset"))
TEXTS |= {"on-leaf": ("leaf",), "leaf": ("card", "inset"), "on-ground": ("ground",)}
TEXTS |= {"on-problem": ("card", "inset", "problem")}
SHAPES = {"edge": ("card",), "focus": ("sky", "card", "inset")}
boss = fixtures.boss


def save(browser, seen: int, **fields: str):
    form = {"name": "", "welcome": "Hello.", "contact": "", "accent": ""}
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
@example(0xFF8800)
@example(0xFFF3B0)
def test_every_accent_gives_colours_that_can_be_read_in_each_theme(number):
    for theme in colours_of(f"#{number:06x}"):
        for pairs, least in ((TEXTS, 4.5), (SHAPES, 3)):
            for colour, ground in ((one, each) for one in pairs for each in pairs[one]):
                assert contrast(theme[colour], theme[ground]) >= least, (colour, ground)


def hue_of(colour: str) -> tuple[float, float]:
    """Return the hue in degrees, and the saturation."""
    hue, _, saturation = colorsys.rgb_to_hls(*(each / 255 for each in bytes.fromhex(colour[1:])))
    return hue * 360, saturation


def test_contrast_is_that_of_the_standard_and_the_hue_is_kept():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    strong = ("leaf", "link", "frame", "edge", "ground", "grass")
    for accent in ("#c02020", "#20c020", "#2020c0", "#7a3fb0", "#ff8800"):
        for theme, own in zip(colours_of(accent), read_themes(), strict=True):
            for name in strong:
                ratios = [contrast(each[name], "#000000") for each in (theme, own)]
                assert name == "leaf" or ratios[0] == pytest.approx(ratios[1], rel=0.03)
                turned = (hue_of(theme[name])[0] - hue_of(accent)[0] + 180) % 360 - 180
                assert abs(turned) < 3, (accent, name, theme[name])
            assert {name: theme[name] for name in UNTURNED - {"leaf"}}.items() <= own.items()
    assert {hue_of(each)[1] for each in map(colours_of("#000000")[0].get, strong)} == {0}


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
    for theme in colours_of("#7a3fb0"):
        assert all(f"--{name}: {colour};" in styles.text for name, colour in theme.items())
    for address in ("/look.css", "/look.css?v=5"):  # nobody makes a cache keep another version
        assert browser.get(address).headers["Cache-Control"] == "no-cache"
    player = store.users.register("Emi", "", hash_password(PASSWORD))
    edit(store.users, player.id, suspension=Suspension("command"))
    page = open_browser().sign_in("Emi")
    assert '<a href="mailto:ada@example.org">A mistake? Write to us.</a>' in page.text


def test_welcome_as_it_is_shown_stays_the_setting(app, store, boss, monkeypatch):
    """The setting's own text is in the language of each page, which a saved one is not."""
    english, german = Language("en"), Language("en")
    known = {app.config["WELCOME"]: "Ein Konto."}
    german.catalogue = gettext.NullTranslations()
    german.catalogue.gettext = lambda text: known.get(text, text)
    for language, shown in ((english, app.config["WELCOME"]), (german, "Ein Konto.")):
        monkeypatch.setattr(languages, "language_of", lambda _, found=language: found)
        assert f">{shown}</textarea>" in boss.get(PATH).text
        save(boss, read_look(store).changed, welcome=shown)
        assert read_look(store).welcome is None


def test_preview_saves_nothing(store, boss):
    """Without an accent it is what the site uses."""
    page = boss.get(PATH)
    assert '<link rel="stylesheet" href="/look.css?accent=">' in page.text
    for theme in read_themes():
        ratio = contrast_on(theme, theme["leaf"])
        assert f"{theme['leaf']}, {ratio:.1f} to 1" in text_of(page)
        own = f"--leaf: {theme['leaf']};"
        assert own in boss.get("/look.css?accent=").text and own in boss.get("/look.css").text
    page = save(boss, 0, preview="yes", welcome="New words.", accent="#c02020")
    assert (page.status_code, "New words." in page.text) == (200, True)
    light, _ = colours_of("#c02020")
    assert f"{light['leaf']}, {contrast_on(light, light['leaf']):.1f} to 1" in text_of(page)
    assert '<link rel="stylesheet" href="/look.css?accent=c02020">' in page.text
    preview = boss.get("/look.css?accent=c02020").text
    assert preview.startswith(".in-light {") and f"--leaf: {light['leaf']};" in preview
    assert boss.get("/look.css?accent=}body{").status_code == 404
    assert read_look(store).changed == 0


def test_picked_colour_replaces_the_text_if_it_was_picked(store, boss):
    page = save(boss, 0, picked="url(x)")
    assert (page.status_code, list(problems_of(page))) == (400, ["accent"])
    [field] = parse(boss.get(PATH)).select("input[type=color]")
    before = {"picked": field["value"], "unpicked": field["value"]}
    assert before["picked"] == read_themes()[0]["leaf"]
    page = save(boss, 0, preview="yes", **before | {"picked": "#7a3fb0"})
    form = {each["name"]: each.get("value") for each in parse(page).select("form input[name]")}
    assert [form[each] for each in ("accent", "picked", "unpicked")] == ["#7a3fb0"] * 3
    for fields, accent in (
        (before | {"picked": "#7a3fb0"}, "#7a3fb0"),
        ({"picked": "#7a3fb0", "unpicked": "#7a3fb0", "accent": "#c02020"}, "#c02020"),
        ({"picked": "#c02020", "unpicked": "#c02020", "accent": ""}, ""),
    ):
        assert save(boss, read_look(store).changed, **fields).status_code == 303
        assert read_look(store).accent == accent


def test_name_of_the_look_takes_the_place_of_the_setting(app, store, boss, browser):
    name = "Zoë's <b>Games</b>"
    assert save(boss, 0, name=f" {name} ").status_code == 303
    home = parse(browser.get("/"))
    assert home.title.text == home.select_one("h1 bdi").text == name
    assert {each.text for each in home.select(".site bdi, footer bdi")} == {name}
    assert home.select_one("[property='og:site_name']")["content"] == name
    assert parse(boss.get(PATH)).select_one("#name")["value"] == name
    assert browser.get("/openapi.json").json["info"]["title"] == name
    store.clients.register("Pong", [], None, game_url="https://pong.example/", listed=True)
    assert f"By {name}" in text_of(browser.get("/"))  # a macro, which sees no values of the page
    app.config["SIGN_UP"] = "open"
    form = {"email": "", "password": "short"}
    for name, is_refused in (("Chess Friends", True), (app.config["SITE_NAME"], False)):
        assert save(boss, read_look(store).changed, name=name).status_code == 303
        problems = problems_of(browser.post("/sign-up", data=form | {"name": "ChessFriends"}))
        assert ("reserved" in problems.get("name", "")) == is_refused
    # The setting counts again, and can still change the name.
    for typed in (app.config["SITE_NAME"], ""):
        assert save(boss, read_look(store).changed, name=typed).status_code == 303
        assert read_look(store).name == ""
    app.config["SITE_NAME"] = "Another"
    assert parse(browser.get("/")).title.text == "Another"


@pytest.mark.live
def test_logo_takes_the_place_of_the_door(store, boss, browser):
    assert "door.svg" in browser.get("/").text
    assert upload(boss, png()).status_code == 303
    kept = read_look(store)
    address = f"/look/logo-{kept.logo}.webp"
    home = browser.get("/")
    assert home.text.count(address) == 3 and "door.svg" not in home.text
    png_address = address.replace("webp", "png")
    icons = {each["rel"][0]: each["href"] for each in parse(home).select("link[rel*=icon]")}
    assert icons == {"icon": address, "apple-touch-icon": png_address}
    assert parse(home).select_one("[property='og:image']")["content"].endswith(png_address)
    served = browser.get(address)
    image = Image.open(io.BytesIO(served.data))
    assert (image.format, image.size, image.mode) == ("WEBP", (256, 256), "RGBA")
    assert image.getextrema()[3] == (0, 0)  # it stays transparent
    assert "immutable" in served.headers["Cache-Control"]
    served = browser.get(png_address)
    image = Image.open(io.BytesIO(served.data))
    assert (served.content_type, image.format, image.size) == ("image/png", "PNG", (256, 256))
    assert image.convert("RGB").getextrema() == ((255, 255),) * 3  # a home screen shows no black
    assert upload(boss, png(colour=(0, 0, 255, 255)), kept.changed).status_code == 303
    assert {browser.get(each).status_code for each in (address, png_address)} == {404}
    assert len(store.records(LOGOS).ids()) == 1
    form = {"seen": read_look(store).changed}
    assert boss.post(f"{PATH}/logo/remove", data=form).status_code == 303
    assert "door.svg" in browser.get("/").text and store.records(LOGOS).ids() == []


def test_logo_that_is_not_there_is_404(store, browser):
    for logo in (None, 7):  # 7 has no record
        store.records(LOOKS).put(Look("site", 1, logo=logo))
        for ending in ("webp", "png"):
            assert browser.get(f"/look/logo-{logo}.{ending}").status_code == 404, (logo, ending)


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
