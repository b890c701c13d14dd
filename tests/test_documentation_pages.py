"""/developer/docs: the pages of docs/ for developers. tests/live has them in Chromium."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from conftest import Browser
from forms import parse, problems_of, signed_in

from identity.site.settings import ROOT
from pages.developer.documentation import ADDRESS, find_pages, render

SITE = "https://games.site.test"


def source_of(name: str) -> str:
    return Path(ROOT, find_pages()[name]).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages() -> dict[str, BeautifulSoup]:
    return {name: BeautifulSoup(render(name, SITE)["body"], "html.parser") for name in find_pages()}


def test_every_page_for_developers_is_served(anyone):
    folders = {
        name: {*Path(ROOT, "docs", name).glob("*.md")} for name in ("games", "engines", "apps")
    }
    files = {path for found in folders.values() for path in found}
    files |= {Path(ROOT, "docs/grant.md")}
    assert {Path(ROOT, path) for path in find_pages().values()} == files
    assert len(find_pages()) == len(files) > 30  # no two have one name
    linked = set()
    for address in (ADDRESS, f"{ADDRESS}/apps"):
        linked |= {each["href"] for each in parse(anyone.get(address)).select("main a[href]")}
    assert {f"{ADDRESS}/{name}" for name in find_pages()} <= linked


def test_listed_pages_are_readable_without_an_account(anyone, subtests, adas_browser):
    for name in find_pages():
        with subtests.test(name):
            answer = anyone.get(f"{ADDRESS}/{name}")
            page = parse(answer)
            title = source_of(name).partition("\n")[0].removeprefix("# ")
            assert (answer.status_code, [each.text for each in page.select("h1")]) == (200, [title])
            assert page.title.text == f"{title} - Identity Server"
            ids = [each["id"] for each in page.select("[id]")]
            assert len(ids) == len({*ids})
            summary = page.select_one("[name=description]")["content"]
            assert 20 < len(summary) <= 200 and "\n" not in summary
    names = ["administrator", "security", "README", "games.md", "engines/godot", "../README", "x"]
    for name in [*names, "..%2fsecurity", "%2e%2e/security", "engines%2fgodot", "\0", "Games", ""]:
        for browser in (anyone, adas_browser):
            assert browser.get(f"{ADDRESS}/{name}").status_code == 404, name


def test_page_has_the_address_of_this_site(pages, make_app):
    """In prose and in programs, where the name SITE stays."""
    for name, page in pages.items():
        assert "id.example.org" not in page.text
        prose = "".join(each.text for each in page.select(":not(pre) > code"))
        assert "SITE/" not in prose, name
    assert f'from "{SITE}/static/v1/identity.js"' in pages["javascript"].text
    assert f'const SITE = "{SITE}"' in pages["godot"].text
    assert f"POST {SITE}/api/oauth/token" in pages["sites"].text
    assert "$SITE/api/oauth/token" in pages["grant"].text
    for base_url in (SITE, "https://other.test"):
        client = make_app(BASE_URL=base_url).test_client()
        page = client.get(f"{ADDRESS}/apps", base_url=base_url)
        assert f"{base_url}/oauth/authorize" in page.text


def test_links_lead_to_served_pages_and_headings(pages, anyone, subtests):
    for name, page in pages.items():
        for link in page.select("a[href]"):
            path, _, anchor = link["href"].partition("#")
            if path.startswith("https://github.com/"):
                continue
            with subtests.test(f"{name}: {link['href']}"):
                assert path.rpartition("/")[0] in ("", ADDRESS)
                linked = pages[path.rpartition("/")[2] or name]
                assert not anchor or linked.find(id=anchor)
        for picture in page.select("img"):
            assert anyone.get(picture["src"]).content_type.startswith("image/")
            assert picture["alt"]


def test_programs_are_shown_as_they_are(pages):
    """With all characters of the file; only the address differs."""
    for name, page in pages.items():
        source = source_of(name).replace("https://id.example.org", SITE)
        blocks = re.findall(r"^```\w*\n(.*?)^```$", source, re.MULTILINE | re.DOTALL)
        shown = [each.text for each in page.select("pre[dir=ltr] > code")]
        assert blocks == [each for each in shown if each in blocks], name
        labels = [each["data-copy"] for each in page.select("pre")]
        assert len({*labels}) == len(labels) == len(shown)


def test_page_has_no_html_of_its_own_and_wide_blocks_scroll_by_keys(pages):
    for page in pages.values():
        assert "<!-- " not in re.sub(r"<pre.*?</pre>", "", str(page), flags=re.DOTALL)
        assert "&lt;!-- " not in str(page).replace("&lt;!-- the", "")
        assert page.select("script, style, [style], iframe") == []
    for page in pages.values():
        for block in page.select("table, img"):
            box = block.find_parent(class_="scroll")
            assert (box["tabindex"], box["role"], bool(box["aria-label"])) == ("0", "group", True)
        assert all(each.text for each in page.select("th"))


def test_html_and_dangerous_links_are_text(monkeypatch):
    """The pages are the project's own. Should one have markup, the policy would break it."""
    source = "# T\n\n<script>x</script> [a](javascript:x) [b](security.md) <b>\n"
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: source)
    body = render.__wrapped__("games", SITE)["body"]
    assert "&lt;script&gt;" in body and "&lt;b&gt;" in body
    links = [each["href"] for each in BeautifulSoup(body, "html.parser").select("a")]
    assert links == [f"{ADDRESS}/security"]  # which is no page


@pytest.mark.live
def test_markdown_is_imported_by_the_first_page_alone():
    program = (
        "import sys, identity_server\n"
        "print('markdown_it' in sys.modules)\n"
        "from pages.developer.documentation import render\n"
        "first = render('games', 'https://a.test')\n"
        "print('markdown_it' in sys.modules, first is render('games', 'https://a.test'))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


def test_forms_of_developers_lead_to_pages(make_app, store, ada, subtests):
    app = make_app(CLIENT_REGISTRATION="members")
    browser = signed_in(Browser(app, app.response_class))
    form = {"kind": "public", "name": "Chess", "game_url": "https://chess.example/"}
    assert browser.post("/developer", data=form).status_code == 303
    program = {"program": "discourse", "address": "https://forum.example"}
    assert browser.post("/developer", data=program).status_code == 201
    refused = browser.post("/developer", data=form | {"name": ""})
    assert problems_of(refused)
    chess, forum = sorted(store.clients.of_owner(ada.id), key=lambda each: each.name)
    pages = {each.id: parse(browser.get(f"/developer/{each.id}")) for each in (chess, forum)}
    pages |= {"list": parse(browser.get("/developer")), "refused": parse(refused)}
    for name, page in pages.items():
        with subtests.test(name):
            links = page.select(f'main a[href^="{ADDRESS}"]')
            assert len(links) >= 3
            for link in links:
                path, _, anchor = link["href"].partition("#")
                assert not anchor or parse(browser.get(path)).find(id=anchor), link
                # What was typed stays in its tab.
                assert not link.find_parent("form") or link["target"] == "_blank"
    assert len(pages[forum.id].select(f'main a[href="{ADDRESS}/discourse"]')) == 1


ENGINES = Path(__file__).parent.parent / "docs" / "engines"
OVERVIEW = (ENGINES / "README.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^<!-- program: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(ENGINES.glob("*.md"))}


GAME_SERVERS = ("servers.md", "dedicated.md")


def test_program_is_short_and_has_both_values_to_set(subtests):
    for page in PAGES.keys() - {"README.md", *GAME_SERVERS}:
        register = PAGES[page].partition("## Register\n")[2].partition("<!-- program: ")[0]
        assert "`https://id.example.org/developer`" in register  # which members can open
        assert "identity-server client add" not in PAGES[page]
        programs = PROGRAM.findall(PAGES[page])
        assert programs
        for name, text in programs:
            with subtests.test(page, name=name):
                lines = text.splitlines()
                assert len(lines) <= 80
                assert max(map(len, lines)) <= 100
                if name != "join.gd":  # it extends the script that signs in
                    asks = "/api/tickets" if page == "joining.md" else "/api/oauth/whois?client_id="
                    assert (asks in text) == ("identity.js" not in text)
                    for value in ("https://id.example.org", "your client_id"):
                        assert text.count(value) == 1
                        assert f"| `{value}` |" in OVERVIEW


def test_game_server_is_short_and_has_limits(subtests):
    for page in GAME_SERVERS:
        for name, text in PROGRAM.findall(PAGES[page]):
            with subtests.test(name):
                lines = [each for each in text.splitlines() if each]
                # The mod is a client as well, and signs players in.
                assert 40 <= len(lines) <= (85 if name == "init.lua" else 70)
                assert max(map(len, lines)) <= 100
                assert f"| [`{name}`](#" in PAGES[page]
                assert "ANSWER_TIMEOUT" in text
