"""The programs of docs/apps: their pages, `client add --for`, and the form on /developer."""

import ast
import html
import json
import re
import tomllib
from pathlib import Path

import fixtures
import pytest
from click.testing import CliRunner
from conftest import Browser, all_clients
from forms import parse, problems_of, signed_in

from identity.oauth.programs import BLOCK, find_program_pages, program_of, read_page, split_settings
from identity.site.settings import ROOT
from identity_admin import identity_server_command
from model.records import Client
from model.rules import check_redirect_uris

APPS = Path(ROOT, "docs", "apps")
SITE, FORUM = "https://id.site.test", "https://forum.site.test/talk"
ISSUED = {"base_url": SITE, "client_id": "5f0c9d", "secret": "s3cret"}
NAMES = {"site_name": "Our Games", "handle": "ada.l"}
MAIL = {"SMTP_URL": "smtp://127.0.0.1:25", "MAIL_FROM": "players@site.test"}
UNVERIFIED = "If this program recognises people by their email, anybody can become anybody there."
TRICKY = """Ada's "Café" \\n $HOME `id` #1; 50% <b>&amp;"""
READERS = {  # of text in a file, by the language of its block
    **dict.fromkeys(("js", "json", "yaml"), lambda text: json.loads(f'"{text}"')),
    "html": html.unescape,
    "php": lambda text: re.sub(r"\\([\\'])", r"\1", text),
    "sh": lambda text: re.sub(r"\\([\\\"$`])", r"\1", text),
    "python": lambda text: ast.literal_eval(f'"{text}"'),
    "toml": lambda text: tomllib.loads(f'text = "{text}"')["text"],
}
LEFT_OUT = {"env": '"\\$`', "ini": '"\\$`#;%'}  # characters that no escape saves, by language
app = fixtures.members_app


@pytest.fixture
def run(folders, environment):
    """A function that runs `client` with these words, in this process."""
    settings = {"DATA_DIR": folders[0], "PICTURE_DIR": folders[1], "BASE_URL": SITE}
    for name, value in settings.items():
        environment.setenv(f"IDENTITY_{name}", value)
    return lambda *words: CliRunner().invoke(identity_server_command, ["client", *words])


def test_page_has_the_form_that_the_command_reads(subtests):
    paths = {path for path in APPS.glob("*.md") if "client add --for" in path.read_text("utf-8")}
    assert {path.stem for path in paths} == {*find_program_pages(), "README"}
    for name, page in find_program_pages().items():
        with subtests.test(name):
            program = read_page(page)
            uris = sum(program.uris.values(), [])
            assert (program.name, page.count("\n") <= 40) == (name, True)
            assert check_redirect_uris(uris) is None
            assert all(each.startswith(program.address) for each in uris)
            assert program.uris["redirect_uris"]
            assert re.search(
                r"\n\n.+ (Tested with|Tried with|From (its|the) documentation).* [0-9]", page
            )
            headings = re.findall("^## (.*)$", page, re.MULTILINE)
            assert headings in (["Settings"], ["Settings", "Good to know"])


def test_settings_are_paragraphs_and_blocks_with_every_value_of_the_client(subtests):
    """The page of an app shows no other Markdown."""
    for name, page in find_program_pages().items():
        with subtests.test(name):
            for text, code in split_settings(read_page(page).settings):
                markup = r"\*\*|\]\(|^(\||#|>|[-*] |\d+\. )"
                assert code.strip() and not re.search(markup, "".join(text[::2]), re.MULTILINE)
                assert all(text[1::2]) and len(text) % 2 == 1
    for name, page in find_program_pages().items():
        with subtests.test(name):
            settings = read_page(page, FORUM).fill_in(**ISSUED, **NAMES)
            assert "example.org" not in settings
            assert not re.search(r"\b(CLIENT_(ID|SECRET)|YOUR_HANDLE|Identity Server)\b", settings)
            assert {each for each in ISSUED.values() if each not in settings} == set()
            kept = read_page(page, FORUM).fill_in(**ISSUED | {"secret": None}, **NAMES)
            assert kept.replace("CLIENT_SECRET", "s3cret") == settings.replace(
                "CLIENT_SECRET", "s3cret"
            )


def test_name_of_the_site_is_escaped_for_the_format_of_each_file(subtests):
    """A quote in it must not end a text early: what follows would be a setting or a program."""
    for name, page in find_program_pages().items():
        program = read_page(page)
        filled = program.fill_in(**ISSUED, site_name=TRICKY)
        blocks = zip(*(re.findall(BLOCK, each) for each in (program.settings, filled)), strict=True)
        for (language, before), (_, after) in blocks:
            for old, new in zip(before.splitlines(), after.splitlines(), strict=True):
                start, named, end = old.partition("Identity Server")
                if not named:
                    continue
                with subtests.test(f"{name}: {old}"):
                    text = new.removeprefix(start).removesuffix(end)
                    left_out = str.maketrans("", "", LEFT_OUT.get(language, ""))
                    assert READERS.get(language, str)(text) == TRICKY.translate(left_out)
                    quote = "'" if language == "php" else '"'
                    quoted = start.count(quote) % 2 and end.count(quote) % 2
                    assert quoted or language in ("", "html", "ini")
                    if quoted:
                        assert quote not in re.sub(r"\\.", "", text)


def test_index_links_every_page_and_help_names_the_programs(run):
    index = (APPS / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in APPS.glob("*.md")} - {"README.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == pages
    printed = " ".join(run("add", "--help").stdout.split())
    assert printed.endswith(f"Programs: {', '.join(find_program_pages())}.")


def test_redirect_uris_of_a_client_tell_its_program(subtests):
    for name, page in find_program_pages().items():
        with subtests.test(name):
            program = read_page(page, FORUM)
            client = Client("5f0c9d", program.title, "", program.uris["redirect_uris"])
            assert program_of(client) == program
    callback = "https://space.example/auth/oidc/callback"
    for uris in ([], ["https://space.example/callback"], [f"{FORUM}/"], [callback, FORUM]):
        assert program_of(Client("5f0c9d", "Space Game", "", uris)) is None


def test_command_registers_a_program_and_prints_its_settings(run, open_installation):
    done = run("add", "--for", "discourse", "https://Forum.site.test:443/talk/", "--json")
    record = json.loads(done.stdout)
    program = read_page(find_program_pages()["discourse"], FORUM)
    values = (SITE, record["client_id"], record["client_secret"])
    assert record["program"] == "discourse"
    assert record["settings"] == program.fill_in(*values)
    client = open_installation().clients.read(record["client_id"])
    assert (client.name, client.redirect_uris) == ("Discourse", [f"{FORUM}/auth/oidc/callback"])
    assert client.post_logout_redirect_uris == [f"{FORUM}/"]
    renewed = json.loads(run("new-secret", client.id, "--json").stdout)
    assert renewed["settings"] == program.fill_in(SITE, client.id, renewed["client_secret"])


def test_command_prints_settings_for_people_below_the_secret(run, store, ada):
    """Without an owner the placeholder stays: no player can have it as a handle."""
    done = run("add", "Our talk", "--for", "discourse", FORUM)
    secret = re.search(r"^client_secret +(\S+)$", done.stdout, re.MULTILINE)[1]
    assert re.search(r"^name +Our talk$", done.stdout, re.MULTILINE)
    settings = done.stdout.partition("Settings for Discourse:\n\n")[2]
    assert f"openid_connect_client_secret: {secret}\n" in settings
    assert "YOUR_HANDLE" in run("add", "--for", "node-red", FORUM).stdout
    owned = run("add", "--for", "node-red", FORUM, "--owner", "ada").stdout
    assert '{ username: "ada", permissions: "*" }' in owned


def test_command_refuses_what_does_not_fit(run, open_installation, subtests):
    known, public = ["--for", "discourse", FORUM], ["--public"]
    cases = [
        (1, "Choose one of ", ["--for", "discord", FORUM]),
        (1, "address: Start with https", ["--for", "discourse", "forum.site.test"]),
        (1, "address: ", ["--for", "discourse", f"https://{'x' * 1990}"]),
        (1, "address: ", ["--for", "discourse", f"{FORUM}/#top"]),
        (2, "--for", [*known, "--redirect-uri", "https://chess.site.test/"]),
        (2, "--for", [*known, *public]),
        (2, "NAME", ["--redirect-uri", "https://chess.site.test/"]),
    ]
    for status, problem, words in cases:
        with subtests.test(" ".join(words)[:80]):
            done = run("add", *words)
            assert (done.exit_code, done.stdout, problem in done.stderr) == (status, "", True)
    assert all_clients(open_installation()) == []


def by_email() -> set[str]:
    return {name for name, page in find_program_pages().items() if read_page(page).by_email}


def test_program_keyed_on_emails_gets_none_that_are_not_verified(run, environment, subtests):
    assert by_email() == {"drasl", "meshcentral", "misago", "mlflow", "mozilla-django-oidc"}
    for name, page in find_program_pages().items():
        with subtests.test(name):
            done = run("add", "--for", name, FORUM, "--json")
            record, title = json.loads(done.stdout), read_page(page).title
            assert record["no_email"] == (name in by_email())
            why = f"Warning: {title} recognises people by their email, and emails are not verified"
            assert done.stderr.endswith(f"Warning: {UNVERIFIED}\n") != (why in done.stderr)
            assert (why in done.stderr) == (name in by_email())
    for name, value in MAIL.items():
        environment.setenv(f"IDENTITY_{name}", value)
    done = run("add", "--for", "misago", FORUM, "--json")
    assert (json.loads(done.stdout)["no_email"], UNVERIFIED in done.stderr) == (False, False)


def test_command_warns_of_emails_that_are_not_verified(run, environment, subtests):
    callback, game = ("--redirect-uri", f"{FORUM}/x"), ("--game-url", "https://chess.site.test/")
    cases = [
        (True, [*callback]),
        (True, ["--public", *callback]),
        (True, ["--public", "--device"]),
        (False, [*game]),  # on the play page no game gets an email
        (True, [*game, *callback]),
        (False, ["--no-email", *callback]),
    ]
    for warns, words in cases:
        with subtests.test(" ".join(words)):
            done = run("add", "Chess", *words, "--json")
            assert (f"Warning: {UNVERIFIED}\n" == done.stderr.partition("No running")[0]) == warns
            client_id = json.loads(done.stdout)["client_id"]
            run("delete", client_id, "--yes")
    client_id = json.loads(run("add", "Go", *callback, "--no-email", "--json").stdout)["client_id"]
    assert UNVERIFIED in run("set", client_id, "--allow-email").stderr
    for name, value in MAIL.items():
        environment.setenv(f"IDENTITY_{name}", value)
    assert run("set", client_id, "--allow-email").stderr == ""


def test_settings_warn_of_apps_that_get_emails_which_are_not_verified(run, environment):
    def warned() -> list[str]:
        printed = CliRunner().invoke(identity_server_command, ["settings"]).stdout
        return re.findall("^Warning: (.*) may ask for emails, .* anybody there", printed, re.M)

    assert warned() == []
    ids = []
    for name in ("Wiki", "Forum", "Chat"):
        done = run("add", name, "--redirect-uri", f"{FORUM}/{name}", "--json")
        ids.append(json.loads(done.stdout)["client_id"])
    assert warned() == ["Chat and 2 more apps"]
    for client_id in ids[1:]:
        run("set", client_id, "--no-email")
    assert warned() == ["Wiki"]
    for name, value in MAIL.items():
        environment.setenv(f"IDENTITY_{name}", value)
    assert warned() == []


def test_page_of_an_app_warns_of_emails_that_are_not_verified(make_app, store, ada, subtests):
    def warnings(settings: dict, **form: str) -> list[str]:
        app = make_app(CLIENT_REGISTRATION="members", **settings)
        browser = signed_in(Browser(app, app.response_class))
        shown = browser.post("/developer", data=form, follow_redirects=True)
        found = [each.text for each in parse(shown).select(".top .warning")]
        [client] = all_clients(store)
        assert client.no_email == ("no_email" in form or "misago" in form.values() and not settings)
        browser.post(f"/developer/{client.id}/delete")
        return found

    app = {"kind": "elsewhere", "server": "yes", "name": "Chess", "address": f"{FORUM}/callback"}
    grafana = {"kind": "program", "program": "grafana", "address": FORUM}
    misago = grafana | {"program": "misago"}
    warning = [f"Warning: {UNVERIFIED}"]
    assert warnings({}, **app) == warnings({}, **grafana) == warning
    assert warnings({}, **app, no_email="yes") == []
    [why] = warnings({}, **misago)
    assert why.startswith("Warning: Misago recognises people by their email")
    for form in (app, misago):
        assert warnings(MAIL, **form) == []


def settings_on(page) -> str:
    return "".join(each.text for each in parse(page).select("pre[data-copy^='Copy settings']"))


def blocks_of(program, *values) -> str:
    return "".join(code for _, code in split_settings(program.fill_in(*values)))


def test_form_registers_a_program_and_shows_its_settings(store, adas_browser, ada, subtests):
    offered = parse(adas_browser.get("/developer")).select("#program option[value]")
    assert [each["value"] for each in offered] == ["", *find_program_pages()]
    for name, page in find_program_pages().items():
        with subtests.test(name):
            program = read_page(page, FORUM)
            form = {"kind": "program", "program": name, "address": f" {FORUM}/"}
            shown = adas_browser.post("/developer", data=form)
            [client] = all_clients(store)
            assert (shown.status_code, shown.location) == (201, f"/developer/{client.id}")
            assert (client.name, client.owner_id) == (program.title, ada.id)
            assert {field: getattr(client, field) for field in program.uris} == program.uris
            secret = parse(shown).select_one("[data-copy='Copy client secret']").text
            values = ("http://localhost", client.id)
            names = ("Identity Server", "ada")
            notes = shown.text.partition("Good to know</h3>")[2].partition("</section>")[0]
            assert bool(notes) == ("## Good to know" in page) and "##" not in notes
            assert ("Copy handle" in notes) == bool(re.search("(?i)handle|preferred_", page))
            assert settings_on(shown) == blocks_of(program, *values, secret, *names)
            again = adas_browser.get(shown.location)
            store.clients.delete(client.id)  # not by the page: a member's acts have a limit
    assert settings_on(again) == blocks_of(program, *values, None, *names)


def test_form_limits_members_and_guards_the_name_of_the_site(make_app, store, ada):
    app = make_app(CLIENT_REGISTRATION="members", SITE_NAME="discourse")
    browser = signed_in(Browser(app, app.response_class))
    form = {"kind": "program", "program": "discourse", "address": FORUM}
    page = browser.post("/developer", data=form)
    assert list(problems_of(page)) == ["program"]
    page = browser.post("/developer", data=form | {"program": ""})
    assert problems_of(page) == {"program": "Choose a program."}
    for _ in range(10):
        store.clients.register("Chess", [f"{FORUM}/x"], ada.id)
    page = browser.post("/developer", data=form | {"program": "grafana"})
    assert (page.status_code, list(problems_of(page))) == (409, ["form"])
    form = {"kind": "elsewhere", "name": "Go", "address": f"{FORUM}/x"}
    page = browser.post("/developer", data=form)
    assert (page.status_code, list(problems_of(page))) == (409, ["form"])


def test_other_apps_show_no_settings(store, adas_browser, ada, register):
    program = read_page(find_program_pages()["discourse"], FORUM)
    forum = program.uris["redirect_uris"]
    renamed = register(*forum, name="Our forum", owner_id=ada.id)
    other = register(f"{FORUM}/callback", owner_id=ada.id)
    public, _ = store.clients.register("Talk", forum, ada.id, public=True)
    shown = [
        settings_on(adas_browser.get(f"/developer/{each.id}")) for each in (renamed, other, public)
    ]
    assert list(map(bool, shown)) == [True, False, False]
