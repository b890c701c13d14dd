"""Fixtures of several test files, which take them as `boss = fixtures.boss`."""

import pytest
from forms import from_address
from mail_server import text_of_letter

from identity.access.mail_channel import Mail
from identity.messages.outbox import Sender
from model.records import ADMINISTRATOR


@pytest.fixture
def open_app(make_app):
    """An app with open sign-up."""
    return make_app(SIGN_UP="open")


@pytest.fixture
def members_app(make_app):
    """An app whose members may register apps."""
    return make_app(CLIENT_REGISTRATION="members")


@pytest.fixture
def boss(enter):
    """The browser of an administrator."""
    return enter("Boss", ADMINISTRATOR)


@pytest.fixture
def bobs_browser(open_browser, bob):
    """A browser at another address, in which Bob is signed in."""
    browser = from_address(open_browser(), "192.0.2.100")
    browser.sign_in("Bob")
    return browser


@pytest.fixture
def deliver(app, store, mail_server):
    """A function that sends what waits, and returns the texts of the new letters."""
    sender = Sender(store, Mail(store, app.config))

    def deliver() -> list[str]:
        before = len(mail_server.letters)
        sender.send_due(0)
        return list(map(text_of_letter, mail_server.letters[before:]))

    return deliver
