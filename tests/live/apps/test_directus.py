"""Directus, an editor for databases: emails and roles."""

import contextlib
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect
from programs import free_port

from model.records import ADMINISTRATOR, PLAYER

from ..running import PASSWORD, RunningServer
from .conftest import BOB
from .driving import register, running_program, sign_in
from .environments import npm_environment

pytestmark = pytest.mark.heavy_apps


@pytest.fixture(scope="module")
def directus(
    openid_server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a Directus with the roles Administrator and Member."""
    folder = tmp_path_factory.mktemp("directus")
    packages = npm_environment("directus", "directus@11.17.4") / "node_modules"
    command = [shutil.which("node"), str(packages / "directus/cli.js")]
    address = f"http://localhost:{(port := free_port())}"
    _, [settings, roles] = register(openid_server, "directus", address)
    beside = {
        **{"HOST": "127.0.0.1", "PORT": port, "SECRET": "s" * 32},
        **{"DB_CLIENT": "sqlite3", "DB_FILENAME": "data.db"},
        **{"ADMIN_EMAIL": "root@example.org", "ADMIN_PASSWORD": PASSWORD, "TELEMETRY": "false"},
    }
    variables = folder / ".env"
    variables.write_text("".join(f"{name}={value}\n" for name, value in beside.items()))
    done = subprocess.run([*command, "bootstrap"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(folder / "data.db")) as database, database:
        [(administrator,)] = database.execute("SELECT id FROM directus_roles")
        database.execute("INSERT INTO directus_roles (id, name) VALUES ('member', 'Member')")
    roles = roles.replace("FIRST_ROLE", administrator).replace("SECOND_ROLE", "member")
    with variables.open("a") as file:
        file.write(settings + roles)
    with running_program([*command, "start"], folder, port):
        yield address


def test_directus_knows_emails_and_gives_roles_by_group(
    openid_server: RunningServer, directus: str, browse: Callable[..., Page]
):
    store = openid_server.open_storage()

    def sign_in_there(name: str) -> Page:
        page = browse()
        page.goto(f"{directus}/admin/login")
        page.get_by_text("Log In with Identity Server").click()
        sign_in(page, name)
        page.wait_for_url(f"{directus}/admin/content")
        return page

    with store.users.edit(1) as ada:
        ada.mod_level = ADMINISTRATOR
    adas_page = sign_in_there("ada")
    expect(adas_page.get_by_role("button", name="Set Owner")).to_be_visible()
    expect(sign_in_there(BOB).get_by_text("No App Access")).to_be_visible()
    fields = "external_identifier,email,role.name"
    users = adas_page.request.get(f"{directus}/users?filter[provider]=identity&fields={fields}")
    known = {each.pop("external_identifier"): each for each in users.json()["data"]}
    assert known == {
        "1": {"email": "ada@example.org", "role": {"name": "Administrator"}},
        "2": {"email": "bob@example.org", "role": {"name": "Member"}},
    }
    with store.users.edit(1) as ada:
        ada.mod_level = PLAYER
    expect(sign_in_there("ada").get_by_text("No App Access")).to_be_visible()
