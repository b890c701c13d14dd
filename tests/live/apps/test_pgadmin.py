"""pgAdmin 4: names and email addresses of accounts, and signing out on both sites."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from programs import free_port

from .conftest import BOB
from .driving import give_name_up, register, running_program, sign_in
from .environments import python_environment

pytestmark = pytest.mark.heavy_apps


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder of pgAdmin's files."""
    return tmp_path_factory.mktemp("pgadmin")


@pytest.fixture(scope="module")
def pgadmin(openid_server, folder):
    """The address of a pgAdmin in server mode with the settings of its page."""
    program = python_environment("pgadmin", "pgadmin4==9.18") / "bin/pgadmin4"
    address = f"http://127.0.0.1:{(port := free_port())}"
    _, [settings] = register(openid_server, "pgadmin", address)
    beside = f"""
DATA_DIR = STORAGE_DIR = SESSION_DB_PATH = "{folder}/data"
AZURE_CREDENTIAL_CACHE_DIR = KERBEROS_CCACHE_DIR = DATA_DIR
LOG_FILE = DATA_DIR + "/pgadmin4.log"
SQLITE_PATH = DATA_DIR + "/pgadmin4.db"
DEFAULT_SERVER_PORT = {port}
UPGRADE_CHECK_ENABLED = False
MASTER_PASSWORD_REQUIRED = False  # no dialog after the sign-in
"""
    (folder / "config_local.py").write_text(settings + beside)
    operator = {"PGADMIN_SETUP_EMAIL": "a@example.org", "PGADMIN_SETUP_PASSWORD": "no matter"}
    with running_program([str(program)], folder, port, PYTHONPATH=str(folder), **operator):
        yield address


def accounts(folder: Path) -> dict[str, str]:
    """Return the email address of each account of pgAdmin."""
    with closing(sqlite3.connect(folder / "data/pgadmin4.db")) as database:
        return dict(database.execute("SELECT username, email FROM user"))


def sign_in_at(pgadmin: str, page: Page, name: str, account: str) -> None:
    """Sign in as this player; check that pgAdmin takes it for this account."""
    page.goto(pgadmin)
    page.get_by_role("button", name="Login with Identity Server").click()
    sign_in(page, name)
    expect(page.locator("[data-test=loggedin-username]")).to_have_text(f"{account} (identity)")


def sign_out(page: Page) -> None:
    """Sign out by pgAdmin's menu, and return to its sign-in page."""
    page.locator("[data-test=loggedin-username]").click()
    page.get_by_role("menuitem", name="Logout").click()
    page.get_by_role("button", name="Login with Identity Server").wait_for()


def test_pgadmin_knows_handles_and_emails(pgadmin, folder, browse):
    sign_in_at(pgadmin, browse(), "ada", "ada")
    sign_in_at(pgadmin, browse(), BOB, "player2")
    expected = {"ada": "ada@example.org", "player2": "bob@example.org"}
    assert expected.items() <= accounts(folder).items()


def test_pgadmin_account_stays_with_renamed_player(openid_server, pgadmin, folder, browse):
    """In one browser: signing out of pgAdmin signs out of this server as well."""
    browser = browse()
    grace = openid_server.add_user("grace")
    sign_in_at(pgadmin, browser, "grace", "grace")
    sign_out(browser)
    give_name_up(openid_server, grace["id"], "Grace H")
    newcomer = openid_server.add_user("grace", "newcomer@example.org")
    sign_in_at(pgadmin, browser, "grace", f"player{newcomer['id']}")
    sign_out(browser)
    sign_in_at(pgadmin, browser, "Grace H", "grace")
    assert accounts(folder)["grace"] == "grace@example.org"
    assert accounts(folder)[f"player{newcomer['id']}"] == "newcomer@example.org"
