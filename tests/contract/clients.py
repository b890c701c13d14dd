"""Clients of the OAuth grant."""

import hashlib

import pytest

from model import client_rules
from model.errors import InvalidField, NoSuchClient
from model.records import Client

from .base import Contract


class ClientsContract(Contract):
    """A client is public or confidential, and stays so."""

    @pytest.fixture
    def public_client(self, storage) -> Client:
        return storage.clients.register("Go", ["org.example.go:/cb"], None, public=True)[0]

    def test_client_is_read_as_registered(self, storage, ada):
        uris = ["https://chess.example/cb", "http://127.0.0.1/cb"]
        client, secret = storage.clients.register("Chess", uris, ada.id)
        assert storage.clients.read(client.id) == client
        assert (client.name, client.redirect_uris, client.owner_id) == ("Chess", uris, ada.id)
        assert not client.disabled
        assert len(secret) >= 43
        assert client.secret_sha256 == hashlib.sha256(secret.encode()).hexdigest()
        game, _ = storage.clients.register("A game", [], None)
        assert storage.clients.read(game.id) == game

    def test_invalid_client_is_refused(self, storage):
        for name, uris, field in (
            ("", [], "name"),
            ("Chess", ["https://a.example/#x"], "redirect_uris"),
            ("Chess", ["https://a.example/", "javascript:alert(1)"], "redirect_uris"),
        ):
            with pytest.raises(InvalidField) as refusal:
                storage.clients.register(name, uris, None)
            assert refusal.value.field == field
        assert storage.clients.ids() == []

    def test_unknown_client_id_of_any_text_raises(self, storage, client, subtests):
        for client_id in (
            *("", "0" * 24, "x", "..", "../users/1", "A" * 24, "a" * 65, "a\n", "\x00" * 24),
            *("é" * 24, "\ud800"),
        ):
            for act in (
                storage.clients.read,
                lambda each: storage.clients.edit(each).__enter__(),
                storage.clients.issue_secret,
                storage.clients.delete,
            ):
                with subtests.test(ascii(client_id)), pytest.raises(NoSuchClient):
                    act(client_id)

    def test_invalid_client_field_saves_nothing(self, storage, client, subtests):
        for field, value, error in (
            ("id", "b" * 24, ValueError),
            ("name", "two\nlines", InvalidField),
            ("redirect_uris", ["ftp://a.example/"], InvalidField),
            ("redirect_uris", ["org.example.game:/cb"], InvalidField),
            ("disabled", 1, ValueError),
            ("public", True, ValueError),
            ("device", True, InvalidField),
        ):
            with subtests.test(field=field, value=value):
                with pytest.raises(error), storage.clients.edit(client.id) as edited:
                    setattr(edited, field, value)
                assert storage.clients.read(client.id) == client
        assert storage.clients.ids() == [client.id]

    def test_address_that_no_browser_opens_stays_and_is_not_added(self, storage, monkeypatch):
        """A record from before that rule is read, restored, and changed in its other fields."""
        uris, port = ["https://a..b/", "https://c.example/*"], ["https://a.example:6000/"]
        with monkeypatch.context() as before:
            before.setattr(client_rules, "check_opens", lambda uri: None)
            fields = {"game_url": port[0], "post_logout_redirect_uris": port}
            old, _ = storage.clients.register("Old", uris, None, **fields)
        with storage.clients.edit(old.id) as client:
            client.description = "Still here."
        changed = storage.clients.read(old.id)
        assert (changed.redirect_uris, changed.description) == (uris, "Still here.")
        assert changed.accepts_redirect_uri(uris[0])
        held = storage.clients.kind.must_hold(changed).items()
        assert [check(getattr(changed, field)) for field, check in held] == [None] * 4
        wrong = {"redirect_uris": uris[:1], "game_url": "http://a.example:0/"}
        for field, value in (wrong | {"post_logout_redirect_uris": uris}).items():
            with pytest.raises(InvalidField), storage.clients.edit(old.id) as client:
                setattr(client, field, value)
            with pytest.raises(InvalidField):
                storage.clients.register(
                    **{"name": "New", "redirect_uris": [], "owner_id": None, field: value}
                )

    def test_new_secret_replaces_the_old_one(self, storage, client):
        secret = storage.clients.issue_secret(client.id)
        stored = storage.clients.read(client.id).secret_sha256
        assert stored == hashlib.sha256(secret.encode()).hexdigest() != client.secret_sha256

    def test_public_client_has_no_secret(self, storage, public_client):
        uris = ["http://127.0.0.1/cb"]
        client, secret = storage.clients.register("Chess", uris, None, public=True)
        assert (secret, client.secret_sha256, client.public) == (None, "", True)
        assert storage.clients.read(client.id) == client
        called = []
        with pytest.raises(InvalidField, match="no secret"):
            storage.clients.issue_secret(public_client.id, called.append)
        assert (storage.clients.read(public_client.id), called) == (public_client, [])

    def test_public_client_stays_public(self, storage, public_client):
        for field, value, error in (
            ("public", False, ValueError),
            ("redirect_uris", ["http://chess.example/cb"], InvalidField),
        ):
            with pytest.raises(error), storage.clients.edit(public_client.id) as edited:
                setattr(edited, field, value)
        assert storage.clients.read(public_client.id) == public_client
