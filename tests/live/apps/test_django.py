"""The usual programs for accounts in Django: allauth, mozilla-django-oidc, Python Social Auth."""

import pytest

from ..running import RunningServer
from .driving import give_name_up, running_site, shown_json, sign_in
from .environments import python_environment

pytestmark = [pytest.mark.apps, pytest.mark.xdist_group("django")]
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
