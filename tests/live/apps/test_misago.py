"""Misago, a forum: user names, emails and avatars."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from io import BytesIO

import psycopg
import pytest
import requests
from databases import Databases
from PIL import Image, ImageChops, ImageStat
from playwright.sync_api import Page, expect
from programs import free_port
from waiting import PATIENCE

from ..running import PASSWORD, RunningServer
from .conftest import BOB
from .driving import register, running_program, sign_in
from .environments import python_environment

pytestmark = [pytest.mark.postgresql, pytest.mark.heavy_apps]

# The project in Misago's package, with a database and folders of the test.
PROJECT = """\
from devproject.settings import *

DATABASES["default"] |= {{"NAME": "misago", "USER": "postgres", "HOST": "127.0.0.1"}}
DATABASES["default"]["PORT"] = {port}
MEDIA_ROOT = "{folder}/media"
"""


@pytest.fixture(scope="module")
def misago(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Misago with the administrator root."""
    folder = tmp_path_factory.mktemp("misago")
    admin = str(python_environment("misago", "misago==0.39.6") / "bin/django-admin")
    with psycopg.connect(databases.cluster.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE misago")
    project = PROJECT.format(port=databases.cluster.port, folder=folder)
    (folder / "forum.py").write_text(project)
    environment = {"DJANGO_SETTINGS_MODULE": "forum", "PYTHONPATH": str(folder)}
    root = ("--username", "root", "--email", "root@example.org", "--password", PASSWORD)
    for arguments in (("migrate",), ("createsuperuser", "--noinput", *root)):
        done = subprocess.run(
            [admin, *arguments], env=os.environ | environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    port = free_port()
    command = [admin, "runserver", "--noreload", f"127.0.0.1:{port}"]
    with running_program(command, folder, port, **environment):
        yield f"http://localhost:{port}"


def enter_settings(page: Page, forum: str, settings: str) -> None:
    """Enter settings, a line `field: value` for each, in the form of the administration."""
    page.goto(f"{forum}/admincp/settings/oauth2/")
    page.get_by_placeholder("Username").fill("root")
    page.get_by_placeholder("Password").fill(PASSWORD)
    with page.expect_navigation():
        page.get_by_role("button", name="Sign in").click()
    page.goto(f"{forum}/admincp/settings/oauth2/")
    for line in settings.splitlines():
        field, _, value = line.partition(": ")
        label = page.locator("label.control-label", has_text=re.compile(rf"^\s*{field}:\s*$"))
        row = page.locator(".form-group", has=label)
        if row.locator("input[type=radio]").count():
            row.get_by_text(value, exact=True).click()
        else:
            row.locator("input").fill(value)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Settings have been saved.")).to_be_visible()


def test_misago_knows_names_emails_and_pictures(
    openid_server: RunningServer, misago: str, browse: Callable[..., Page]
):
    """Misago downloads the picture at the first sign-in, and makes avatars of it."""
    client, [settings] = register(openid_server, "misago", misago)
    openid_server.command("client", "set", client["client_id"], "--allow-email")
    enter_settings(browse(), misago, settings)
    players = ((1, "ada", "ada", "ada@example.org"), (2, BOB, "Bob_Uni", "bob@example.org"))
    for id, name, user_name, email in players:
        page = browse()
        page.goto(misago)
        page.get_by_role("link", name="Sign in").click()
        sign_in(page, name)
        expect(page.locator(".navbar img.user-avatar").first).to_be_visible()
        known = page.request.get(f"{misago}/api/auth/").json()
        assert (known["username"], known["email"]) == (user_name, email)
        picture = f"{openid_server.address}/users/{id}/picture"
        assert look_alike(picture, misago + known["avatars"][0]["url"])
    assert not look_alike(f"{openid_server.address}/users/1/picture", picture)


def look_alike(*addresses: str) -> bool:
    """Return whether two pictures are the same but for their size and format."""
    small = [
        Image.open(BytesIO(requests.get(each, timeout=PATIENCE).content))
        .convert("RGB")
        .resize((32, 32))
        for each in addresses
    ]
    return max(ImageStat.Stat(ImageChops.difference(*small)).mean) < 4  # of 255
