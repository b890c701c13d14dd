"""Fixtures of the conformance tests: the server with OpenID Connect, and a relying party."""

import functools

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from flask import Flask

from conformance.relying_party import AFTER_LOGOUT, RelyingParty

make_key = functools.cache(rsa.generate_private_key)  # it takes as long as ten sign-ins


@pytest.fixture
def app(make_app, monkeypatch) -> Flask:
    """The app with OpenID Connect, whose key is the same in all tests."""
    monkeypatch.setattr(rsa, "generate_private_key", make_key)
    return make_app(OPENID="on")


@pytest.fixture
def party(register, browser, ada, bob) -> RelyingParty:
    """A relying party that a member registered."""
    fields = {"owner_id": bob.id, "post_logout_redirect_uris": [AFTER_LOGOUT]}
    return RelyingParty(register("https://forum.example/callback", **fields), browser)
