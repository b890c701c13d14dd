"""/admin/docs and /developer/docs: pages of docs/. tests/live has them in Chromium."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from conftest import Browser
from documents import BLOCK, PAGES, read_blocks
from forms import parse, problems_of, signed_in

from identity.site.settings import ROOT
from pages.kit import documents
from pages.kit.documents import ADMINISTRATORS, DEVELOPERS, PICTURES, render

SITE = "https://games.site.test"
ADDRESS, GUIDE = DEVELOPERS.address, ADMINISTRATORS.address
DOCS = Path(ROOT, "docs")
# The pages of docs/ for contributors are on no shelf.
CONTRIBUTORS = {"reading", "storage", "exercises", "releasing", "security"}
CONTRIBUTORS |= {"security-accounts", "security-door", "security-operations", "translating"}
ROWS = [(shelf, name) for shelf in (ADMINISTRATORS, DEVELOPERS) for name in shelf.pages]

NO_PAGES = ("reading", "security", "README", "games.md", "engines/godot", "../README", "x")
NO_PAGES += ("..%2fsecurity", "%2e%2e/security", "engines%2fgodot", "\0", "Games", "")


def source_of(address: str) -> str:
    shelf = ADMINISTRATORS if address.startswith(GUIDE) else DEVELOPERS
    return (DOCS / shelf.pages[address.rpartition("/")[2]]).read_text(encoding="utf-8")


def check_page(browser, address: str) -> BeautifulSoup:
    """Return a page, whose title, anchors and summary for link previews must be good."""
    answer = browser.get(address)
    page = parse(answer)
    title = source_of(address).partition("\n")[0].removeprefix("# ")
    assert (answer.status_code, [each.text for each in page.select("h1")]) == (200, [title])
    assert answer.headers["Cache-Control"] == "no-store"
    assert page.title.text == f"{title} - Identity Server"
    ids = [each["id"] for each in page.select("[id]")]
    assert len(ids) == len({*ids})
    summary = page.select_one("[name=description]")["content"]
    assert 20 < len(summary) <= 200 and "\n" not in summary
    return page


@pytest.fixture(scope="module")
def pages() -> dict[str, BeautifulSoup]:
    """What is made of each page, by its address."""
    read = {f"{shelf.address}/{name}": shelf.read(name, SITE) for shelf, name in ROWS}
    return {each: BeautifulSoup(page["body"], "html.parser") for each, page in read.items()}


def test_every_page_is_on_its_shelf_and_in_the_index(anyone, enter):
    folders = {DOCS / name for name in ("games", "engines", "apps")}
    developers = {path for each in folders for path in each.glob("*.md")} | {DOCS / "grant.md"}
    others = {path for path in DOCS.glob("*.md") if path.stem not in CONTRIBUTORS | {"grant"}}
    moderator = enter("Mia", 1)
    for shelf, files, browser, indexes in (
        (DEVELOPERS, developers, anyone, (ADDRESS, f"{ADDRESS}/apps")),
        (ADMINISTRATORS, others, moderator, (GUIDE,)),
    ):
        assert {DOCS / path for path in shelf.pages.values()} == files
        assert len(shelf.pages) == len(files) > 8  # no two have one name
        linked = set()
        for address in indexes:
            linked |= {each["href"] for each in parse(browser.get(address)).select("main a[href]")}
        served = {f"{shelf.address}/{name}" for name in shelf.pages}
        assert {each for each in linked if each.startswith(f"{shelf.address}/")} == served
    assert parse(moderator.get("/admin")).select(f'main a[href="{GUIDE}"]')


def test_listed_pages_are_readable_without_an_account(anyone, subtests, adas_browser):
    for name in DEVELOPERS.pages:
        with subtests.test(name):
            check_page(anyone, f"{ADDRESS}/{name}")
    for name in [*NO_PAGES, "administrator", "performance.svg"]:
        for browser in (anyone, adas_browser):
            assert browser.get(f"{ADDRESS}/{name}").status_code == 404, name


def test_pages_of_administrators_are_for_moderators(anyone, adas_browser, enter, subtests):
    moderator = enter("Mia", 1)
    for name in ADMINISTRATORS.pages:
        with subtests.test(name):
            page = check_page(moderator, f"{GUIDE}/{name}")
            assert [each["content"] for each in page.select("[name=robots]")] == ["noindex"]
    for name in ("", "/everyday", *(f"/{picture}" for picture in PICTURES), "/nothing"):
        assert anyone.get(f"{GUIDE}{name}").location.startswith("/sign-in?")
        assert adas_browser.get(f"{GUIDE}{name}").status_code == 403
    for picture in PICTURES:
        assert moderator.get(f"{GUIDE}/{picture}").headers["Cache-Control"] == "no-store"
    for name in [*NO_PAGES, "grant", "performance.json", "..%2fstatic%2fdoor.svg"]:
        assert moderator.get(f"{GUIDE}/{name}").status_code == 404, name


def test_page_has_the_address_of_this_site(pages, make_app, enter):
    """In prose and in programs, where the name SITE stays."""
    for address, page in pages.items():
        assert "id.example.org" not in page.text
        prose = "".join(each.text for each in page.select(":not(pre) > code"))
        assert "SITE/" not in prose, address
    assert f'from "{SITE}/static/v1/identity.js"' in pages[f"{ADDRESS}/javascript"].text
    assert f'const SITE = "{SITE}"' in pages[f"{ADDRESS}/godot"].text
    assert f"POST {SITE}/api/oauth/token" in pages[f"{ADDRESS}/sites"].text
    assert "$SITE/api/oauth/token" in pages[f"{ADDRESS}/grant"].text
    assert "-d games.site.test " in pages[f"{GUIDE}/administrator"].text
    for base_url in (SITE, "https://other.test"):
        client = make_app(BASE_URL=base_url).test_client()
        page = client.get(f"{ADDRESS}/apps", base_url=base_url)
        assert f"{base_url}/oauth/authorize" in page.text


def test_guide_of_a_site_without_a_name_keeps_the_one_of_the_examples(make_app, ada, store):
    """Nobody can ask for a certificate for 127.0.0.1."""
    app = make_app(BASE_URL="http://127.0.0.1:8000")
    with store.users.edit(ada.id) as user:
        user.mod_level = 1
    browser = signed_in(Browser(app, app.response_class))
    for name in ("administrator", "settings"):
        assert "https://id.example.org" in parse(browser.get(f"{GUIDE}/{name}")).text
    assert "http://127.0.0.1:8000/oauth/authorize" in browser.get(f"{ADDRESS}/apps").text


def test_links_lead_to_served_pages_and_headings(pages, anyone, enter, subtests):
    moderator = enter("Mia", 1)
    for address, page in pages.items():
        for link in page.select("a[href]"):
            path, _, anchor = link["href"].partition("#")
            if path.startswith(("https://", "http://127.0.0.1:")):
                continue
            with subtests.test(f"{address}: {link['href']}"):
                assert not anchor or pages[path].find(id=anchor)
                assert path in pages
        for picture in page.select("img"):
            browser = moderator if address.startswith(GUIDE) else anyone
            assert browser.get(picture["src"]).content_type.startswith("image/")
            assert picture["alt"]


def test_link_to_a_file_that_is_not_served_is_its_path(monkeypatch):
    source = (
        "# T\n\n[limits](../deploy/nginx.conf), [`docs/storage.md`](storage.md#x), "
        "[parts](security.md#a) [tasks](everyday.md#b) [app](apps/README.md) [here](#c)\n"
    )
    monkeypatch.setattr(documents, "read_source", lambda path: source)
    page = BeautifulSoup(render.__wrapped__("mail.md", SITE)["body"], "html.parser")
    text = "limits (deploy/nginx.conf), docs/storage.md, parts (docs/security.md) tasks app here"
    assert page.text.strip() == text
    links = [each["href"] for each in page.select("a")]
    assert links == [f"{GUIDE}/everyday#b", f"{ADDRESS}/apps", f"{GUIDE}/mail#c"]


def test_navigation_replaces_the_list_of_headings_of_a_page(monkeypatch, pages):
    links = "- [One](#one)\n  - [`Two` of it](#two-of-it)\n"
    kept = "- [One](#one), and [games](games/README.md)\n- text\n"
    sections = f"## One\n\n### `Two` of it\n\n{links}\n## Three\n"
    source = f"# T\n\nIntroduction.\n\n{kept}\n\n***\n\n{links}\n{sections}"
    monkeypatch.setattr(documents, "read_source", lambda path: source)
    made = render.__wrapped__("mail.md", SITE)
    lists = BeautifulSoup(made["body"], "html.parser").select("ul:not(ul ul)")
    assert [each.text.split() for each in lists] == [
        ["One,", "and", "games", "text"],
        ["One", "Two", "of", "it"],
    ]
    two = {"anchor": "two-of-it", "text": "Two of it", "inner": []}
    one = {"anchor": "one", "text": "One", "inner": [two]}
    three = {"anchor": "three", "text": "Three", "inner": []}
    assert made["headings"] == [one, three]
    for address, page in pages.items():
        for link in page.select("li a"):
            is_heading = link["href"].startswith(f"{address}#") and not link.find_previous("h2")
            item = link.find_parent("li")  # a blank line does not end a list in Markdown
            assert not is_heading or item.text.strip() != link.text, f"{address}: {item}"


def test_navigation_has_the_pages_beside_this_one_and_its_headings(anyone):
    shown = parse(anyone.get(f"{ADDRESS}/godot"))
    wide, narrow = shown.select("main nav")
    assert [each["aria-label"] for each in (wide, narrow)] == ["Pages", "On this page"]
    assert [each["href"] for each in wide.select("[aria-current=page]")] == [f"{ADDRESS}/godot"]
    headings = {f"#{each['id']}" for each in shown.select("h2[id], h3[id]")}
    for nav in (wide, narrow):
        assert {each["href"] for each in nav.select("li li a, details a")} <= headings
        assert {each["href"] for each in nav.select('a[href^="#"]')} == headings
    linked = {each["href"].rpartition("/")[2] for each in wide.select('a[href^="/"]')}
    assert {"games", "grant", "apps", "godot", "unity"} <= linked
    assert not {"browser", "discourse"} & linked  # of other folders
    wide = parse(anyone.get(f"{ADDRESS}/discourse")).select_one("main nav")
    linked = {each["href"].rpartition("/")[2] for each in wide.select('a[href^="/"]')}
    assert linked == {"games", "engines", "grant", "apps", "discourse"}  # but not 40 others


def test_programs_are_shown_as_they_are(pages):
    """With all characters of the file; only the address differs."""
    for address, page in pages.items():
        source = source_of(address).replace("https://id.example.org", SITE)
        source = re.sub(r"id\.example\.org|YOUR\.NAME", SITE[len("https://") :], source)
        blocks = [textwrap.dedent(each["code"]) for each in BLOCK.finditer(source)]
        shown = [each.text for each in page.select("pre[dir=ltr] > code")]
        assert blocks == [each for each in shown if each in blocks], address
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
    source = "# T\n\n<script>x</script> [a](javascript:x) [b](//evil.example/x.md) <b>\n"
    monkeypatch.setattr(documents, "read_source", lambda path: source)
    for path in ("games/README.md", "mail.md"):
        body = render.__wrapped__(path, SITE)["body"]
        assert "&lt;script&gt;" in body and "&lt;b&gt;" in body
        assert BeautifulSoup(body, "html.parser").select("a") == []


@pytest.mark.live
def test_markdown_is_imported_by_the_first_page_alone():
    program = (
        "import sys, identity_server\n"
        "print('markdown_it' in sys.modules)\n"
        "from pages.kit.documents import render\n"
        "first = render('mail.md', 'https://a.test')\n"
        "print('markdown_it' in sys.modules, first is render('mail.md', 'https://a.test'))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


def test_forms_of_developers_lead_to_pages(make_app, store, ada, subtests):
    app = make_app(CLIENT_REGISTRATION="members")
    browser = signed_in(Browser(app, app.response_class))
    form = {"kind": "game", "name": "Chess", "address": "https://chess.example/"}
    assert browser.post("/developer", data=form).status_code == 303
    program = {"kind": "program", "program": "discourse", "address": "https://forum.example"}
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


OVERVIEW = "docs/engines/README.md"
GAME_SERVERS = {"docs/engines/servers.md", "docs/engines/dedicated.md"}
ENGINES = {each for each in PAGES if each.startswith("docs/engines/")} - {OVERVIEW, *GAME_SERVERS}


def test_program_is_short_and_has_both_values_to_set(subtests):
    for page in ENGINES:
        register = PAGES[page].partition("## Register\n")[2].partition("<!-- program: ")[0]
        assert "`https://id.example.org/developer`" in register  # which members can open
        assert "identity-server client add" not in PAGES[page]
        programs = read_blocks(page)
        assert programs
        for name, text in programs.items():
            with subtests.test(page, name=name):
                lines = text.splitlines()
                assert len(lines) <= 80
                assert max(map(len, lines)) <= 100
                if name != "join.gd":  # it extends the script that signs in
                    asks = "/api/tickets" if "joining" in page else "/api/oauth/whois?client_id="
                    assert (asks in text) == ("identity.js" not in text)
                    for value in ("https://id.example.org", "your client_id"):
                        assert text.count(value) == 1
                        assert f"| `{value}` |" in PAGES[OVERVIEW]


def test_game_server_is_short_and_has_limits(subtests):
    for page in GAME_SERVERS:
        for name, text in read_blocks(page).items():
            with subtests.test(name):
                lines = [each for each in text.splitlines() if each]
                # The mod is a client as well, and signs players in.
                assert 40 <= len(lines) <= (85 if name == "init.lua" else 70)
                assert max(map(len, lines)) <= 100
                assert f"| [`{name}`](#" in PAGES[page]
                assert "ANSWER_TIMEOUT" in text
