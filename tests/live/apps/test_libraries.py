"""Libraries with which sites sign their players in, and modules of servers."""

import base64
import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from programs import ROOT
from waiting import wait_until

from model.records import ADMINISTRATOR, MODERATOR, PLAYER

from ..running import MEMORY, RunningServer
from ..test_browser import Game
from .conftest import BOB
from .driving import (
    SIGN_IN,
    SITES,
    code_blocks,
    give_name_up,
    running_node_site,
    running_site,
    shown_json,
    sign_in,
    suspend,
)
from .environments import npm_environment, python_environment

pytestmark = pytest.mark.apps


def test_authlib_knows_the_claims_of_id_token_and_userinfo(
    openid_server: RunningServer, browse, tmp_path
):
    """Authlib in a Flask site."""
    packages = ["authlib==1.9.10", "flask==3.1.3", "requests==2.34.2"]
    command = [python_environment("authlib", *packages) / "bin/python", "flask_site.py"]
    with running_site(openid_server, "authlib", command, tmp_path, "flask_site.py") as site:
        page = browse()
        page.goto(f"{site}/sign-in")
        sign_in(page, BOB)
        page.wait_for_url(f"{site}/callback?*")
        known = shown_json(page)
    for claims in known["claims"], known["user"]:
        assert (claims["sub"], claims["name"], claims["email"]) == ("2", BOB, "bob@example.org")
        assert claims["preferred_username"] == "player2"
        assert claims["picture"] == f"{openid_server.address}/users/2/picture"


def test_roles_follow_groups(openid_server: RunningServer, browse, tmp_path):
    """Flask-AppBuilder, which Superset and Airflow are made with; accounts are keyed on `sub`."""

    def account_of(name: str) -> dict:
        page = browse()
        page.goto(f"{site}/login/identity")
        sign_in(page, name)
        page.wait_for_url(f"{site}/")
        page.goto(f"{site}/account")
        return shown_json(page)

    program, files = "flask-appbuilder", ("flask_appbuilder_site.py", "config.py")
    environment = python_environment(
        program, "flask-appbuilder==5.3.0", "authlib==1.9.10", "requests"
    )
    command = [environment / "bin/python", files[0]]
    with running_site(openid_server, program, command, tmp_path, *files) as site:
        with openid_server.open_storage().users.edit(1) as ada:
            ada.mod_level = ADMINISTRATOR
        assert account_of(BOB) == {"username": "player-2", "name": BOB, "roles": ["Public"]}
        known = account_of("ada")
        assert (known["username"], sorted(known["roles"])) == ("player-1", ["Admin", "Public"])
        with openid_server.open_storage().users.edit(1) as ada:
            ada.mod_level = PLAYER


# -- the usual libraries for accounts in Django ---------------------------------------------------

FILES = ["django_site.py", "settings.py"]
DJANGO = "django==5.2.19"
PACKAGES = {
    "django-allauth": ["django-allauth[openid,socialaccount]==65.21.1"],
    "python-social-auth": ["social-auth-core==7.0.0", "social-auth-app-django==8.0.0"],
}
ADDRESSES = {
    "django-allauth": {
        "PREFIX": "accounts/",
        "URLS": "allauth.urls",
        "SIGN_IN": "/accounts/oidc/identity-server/login/",
    },
    "python-social-auth": {"PREFIX": "", "URLS": "social_django.urls", "SIGN_IN": "/login/oidc/"},
}


@pytest.mark.parametrize("program", PACKAGES)
def test_accounts_are_keyed_on_sub(openid_server: RunningServer, browse, tmp_path, program: str):
    """A renamed player keeps the account, and a newcomer with the old name gets another one."""

    def account_of(name: str, player: dict) -> tuple[str, str]:
        """Sign in as this player; return the name of the account and the one that is shown."""
        page = browse()
        page.goto(site)
        page.get_by_role("button", name="Sign in").click()
        sign_in(page, name)
        page.wait_for_url(f"{site}/")
        account = shown_json(page)
        assert (account["uid"], account["email"]) == (str(player["id"]), player["email"])
        return account["username"]

    environment = python_environment(program, DJANGO, *PACKAGES[program])
    command = [environment / "bin/python", FILES[0]]
    addresses = ADDRESSES[program]
    with running_site(openid_server, program, command, tmp_path, *FILES, **addresses) as site:
        name, new_name = f"fan-of-{program}", f"{program}-fan"  # no name twice on the server
        player = openid_server.add_user(name)
        assert account_of(name, player) == name
        give_name_up(openid_server, player["id"], new_name)
        assert account_of(new_name, player) == name
        other = openid_server.add_user(name, f"{program}@example.org")
        assert account_of(name, other) == f"player{other['id']}"


def test_superuser_is_not_whoever_has_the_email(openid_server: RunningServer, browse, tmp_path):
    """mozilla-django-oidc keys accounts on emails; the class of its page does so on `sub`."""
    program, email = "mozilla-django-oidc", "root@example.org"
    environment = python_environment(program, DJANGO, "mozilla-django-oidc==5.0.2")
    command, addresses = [environment / "bin/python", FILES[0]], {"PREFIX": "oidc/", "SIGN_IN": ""}
    addresses |= {"URLS": "mozilla_django_oidc.urls", "SUPERUSER": email}
    player = openid_server.add_user("thief", email)
    with running_site(openid_server, program, command, tmp_path, *FILES, **addresses) as site:
        for _ in range(2):
            page = browse()
            page.goto(f"{site}/oidc/authenticate/")
            sign_in(page, "thief")
            page.wait_for_url(f"{site}/")
            account = {"username": f"id-{player['id']}", "email": "", "name": "thief"}
            assert shown_json(page) == account


@pytest.mark.parametrize("kind", ["oidc", "oauth"])
def test_authjs_signs_in_by_each_type(openid_server: RunningServer, browse, tmp_path, kind: str):
    """Auth.js has both types of providers that sites have: by issuer, or by endpoints."""
    packages = ["@auth/express@0.12.3", "express@4.22.1"]
    with running_node_site(openid_server, "authjs", packages, tmp_path, TYPE=kind) as site:
        page = browse()
        page.goto(f"{site}/auth/signin")
        page.get_by_role("button", name="Sign in with Identity Server").click()
        sign_in(page, BOB)
        page.wait_for_url(f"{site}/")
        assert shown_json(page)["user"] == {
            "name": BOB,
            "email": "bob@example.org",
            "image": f"{openid_server.address}/users/2/picture",
        }


def test_better_auth_makes_an_account(openid_server: RunningServer, browse, tmp_path):
    """Better Auth knows one address of this server: the discovery document."""
    packages = ["better-auth@1.7.25"]
    with running_node_site(openid_server, "better-auth", packages, tmp_path) as site:
        page = browse()
        page.goto(site)
        page.get_by_role("button", name="Sign in").click()
        sign_in(page, BOB)
        page.wait_for_url(f"{site}/api/auth/get-session")
        user = shown_json(page)["user"]
        assert (user["name"], user["email"]) == (BOB, "bob@example.org")
        assert user["image"] == f"{openid_server.address}/users/2/picture"
        assert user["emailVerified"] is False
        page.goto(f"{site}/accounts")
        assert [each["accountId"] for each in shown_json(page)] == ["2"]


def test_page_gets_a_token_of_the_game(openid_server: RunningServer, browse, tmp_path):
    """Colyseus, a game server, whose pages sign in in a popup."""
    packages = [
        "@colyseus/core@0.17.51",
        "@colyseus/auth@0.17.9",
        "@colyseus/ws-transport@0.17.13",
        "express@5.3.0",
        "zod@4.1.12",
    ]
    variables = {"SESSION_SECRET": "of the tests", "JWT_SECRET": "of the tests"}
    with running_node_site(openid_server, "colyseus", packages, tmp_path, **variables) as site:
        page = browse()
        page.goto(site)
        with page.expect_popup() as popup:
            page.get_by_role("button", name="Sign in").click()
        sign_in(popup.value, BOB)
        page.locator("pre:not(:empty)").wait_for()
        known = shown_json(page)
        assert known["user"] == {"id": "2", "name": BOB}
        payload = known["token"].split(".")[1]
        assert json.loads(base64.urlsafe_b64decode(payload + "==")).items() >= known["user"].items()


def test_express_knows_the_claims_and_signs_out(openid_server: RunningServer, browse, tmp_path):
    """express-openid-connect signs out on both sites, and ends what a logout token names."""
    packages, variables = (
        ["express-openid-connect@3.4.0", "express@5.3.0"],
        {"COOKIE_SECRET": "s" * 32},
    )
    program = "express-openid-connect"
    with running_node_site(openid_server, program, packages, tmp_path, **variables) as site:
        page = browse()
        page.goto(site)
        sign_in(page, BOB)
        page.wait_for_url(f"{site}/")
        user = shown_json(page)
        assert (user["sub"], user["name"], "email" in user) == ("2", BOB, False)
        page.goto(f"{site}/logout")
        page.locator(SIGN_IN).wait_for()  # both have forgotten the player
        assert_suspension_signs_out(openid_server, program, site, browse())


def assert_suspension_signs_out(server: RunningServer, program: str, site: str, page: Page) -> None:
    """Sign a new player in to a site that asks for one, and suspend this player."""
    server.add_user(program)
    page.goto(site)
    sign_in(page, program)
    page.wait_for_url(f"{site}/")
    suspend(server, program, site, program)

    def is_out() -> bool:
        page.goto(site)
        return page.url != f"{site}/"

    wait_until(is_out)


@pytest.fixture(scope="module")
def site(openid_server: RunningServer, tmp_path_factory) -> Iterator[str]:
    """The address of a site with openid-client, which checks each response as specified."""
    folder = tmp_path_factory.mktemp("site")
    packages = ["openid-client@6.9.0"]
    with running_node_site(openid_server, "openid-client", packages, folder) as site:
        yield site


def test_claims_are_in_id_token_and_userinfo(openid_server: RunningServer, site: str, browse):
    page = browse()
    page.goto(f"{site}/sign-in?scope=openid profile email groups")
    sign_in(page, BOB)
    page.wait_for_url(f"{site}/callback?*")
    known = shown_json(page)
    player = {
        "sub": "2",
        "name": BOB,
        "preferred_username": "player2",
        "picture": f"{openid_server.address}/users/2/picture",
        "email": "bob@example.org",
        "email_verified": False,
        "groups": ["players"],
    }
    for claims in known["claims"], known["user"]:
        assert claims | player == claims
    assert page.request.get(player["picture"]).headers["content-type"] == "image/webp"


def test_password_again_and_sign_out(site: str, browse):
    page = browse()
    page.goto(f"{site}/sign-in")
    sign_in(page)
    page.wait_for_url(f"{site}/callback?*")
    first = shown_json(page)["claims"]
    page.goto(f"{site}/sign-in?prompt=none")
    assert shown_json(page)["claims"]["auth_time"] == first["auth_time"]
    page.goto(f"{site}/sign-in?prompt=login")
    sign_in(page)
    page.wait_for_url(f"{site}/callback?*")
    assert shown_json(page)["claims"]["auth_time"] > first["auth_time"]
    page.goto(f"{site}/sign-out")
    expect(page).to_have_url(f"{site}/")
    page.goto(f"{site}/sign-in?prompt=none")
    assert shown_json(page) == {"error": "login_required"}


def test_page_without_a_server_signs_in_and_out(openid_server: RunningServer, game: Game, browse):
    """oidc-client-ts: a public client, registered with the command of docs/apps/."""
    site = game.origin()
    text = (ROOT / "docs/apps/oidc-client-ts.md").read_text()
    text = text.replace("https://app.example.org", site)
    [command] = re.findall("^    identity-server (.*)$", text, re.MULTILINE)
    client = openid_server.command(*shlex.split(command))
    text = text.replace("https://id.example.org", openid_server.address)
    [settings] = code_blocks(text.replace("CLIENT_ID", client["client_id"]))
    html = (SITES / "oidc-client-ts.html").read_text().replace("// SETTINGS", settings)
    packages = npm_environment("oidc-client-ts", "oidc-client-ts@3.5.0") / "node_modules"
    library = packages / "oidc-client-ts/dist/browser/oidc-client-ts.min.js"
    game.pages = {"/": html, "/callback": html, "/library.js": library.read_text()}
    page = browse()
    page.goto(site)
    page.get_by_role("button", name="Sign in").click()
    sign_in(page, BOB)
    expect(page.locator("pre")).to_contain_text("player2")
    profile = shown_json(page)
    assert (profile["sub"], profile["name"], profile["email"]) == ("2", BOB, "bob@example.org")
    page.get_by_role("button", name="Renew in a frame").click()
    expect(page.locator("pre")).to_have_text('{"error":"interaction_required"}')
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{site}/")
    page.get_by_role("button", name="Sign in").click()
    page.locator(SIGN_IN).wait_for()


@pytest.fixture(scope="module")
def apache(openid_server: RunningServer) -> Iterator[str]:
    """mod_auth_openidc in Apache: pages for players, and /moderators for moderators."""
    # Apache's workers are not root, and cannot read folders of pytest.
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="apache-") as name:
        folder, files = Path(name), ("apache.conf", "page.html")
        folder.chmod(0o755)
        command = [shutil.which("apache2"), "-D", "FOREGROUND", "-f", folder / "apache.conf"]
        program = "mod-auth-openidc"
        with running_site(openid_server, program, command, folder, *files, FOLDER=name) as site:
            yield site


def test_pages_of_apache_know_the_claims(apache: str, browse):
    page = browse()
    page.goto(apache)
    sign_in(page, BOB)
    page.wait_for_url(f"{apache}/")
    known = {"REMOTE_USER": "player2", "name": BOB, "email": "bob@example.org", "groups": "players"}
    assert shown_json(page) == known
    page.goto(f"{apache}/signed-in?logout={apache}/")
    page.locator(SIGN_IN).wait_for()  # both have forgotten the player


def test_suspended_player_is_out_of_apache(openid_server: RunningServer, apache: str, browse):
    assert_suspension_signs_out(openid_server, "mod-auth-openidc", apache, browse())


def test_groups_decide_who_may_enter_apache(openid_server: RunningServer, apache: str, browse):
    moderator = openid_server.add_user("chidi")
    with openid_server.open_storage().users.edit(moderator["id"]) as user:
        user.mod_level = MODERATOR
    for name, status in ("ada", 401), ("chidi", 200):
        page = browse()
        page.goto(f"{apache}/moderators")
        with page.expect_response(f"{apache}/moderators") as response:
            sign_in(page, name)
        assert response.value.status == status
