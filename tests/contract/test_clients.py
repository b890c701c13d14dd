"""Clients of the OAuth grant, their authorization codes, and those of devices."""

import dataclasses
import functools
import hashlib

import pytest

from model import client_rules
from model.errors import CodeSpent, InvalidField, NoSuchClient, NoSuchCode
from model.grant_records import AuthorizationCode, DeviceRequest
from model.records import Client, now_ms

from .base import together

LOGOUT = "backchannel_logout_uri"


class TestClients:
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

    def test_invalid_client_field_saves_nothing(self, storage, client, subtests):
        for field, value, error in (
            ("id", "b" * 24, ValueError),
            ("name", "two\nlines", InvalidField),
            ("redirect_uris", ["ftp://a.example/"], InvalidField),
            ("redirect_uris", ["org.example.game:/cb"], InvalidField),
            ("disabled", 1, ValueError),
            ("public", True, ValueError),
            ("device", True, InvalidField),
            ("tags", ["chess"], InvalidField),
        ):
            with subtests.test(field=field, value=value):
                with pytest.raises(error), storage.clients.edit(client.id) as edited:
                    setattr(edited, field, value)
                assert storage.clients.read(client.id) == client
        assert storage.clients.ids() == [client.id]

    def test_games_are_in_the_order_of_time_and_of_names(self, storage):
        names = ["pong", "Éclair", "Zoo", "Eclipse", "Pong 2", "Старт"]
        for created, name in enumerate(names, 9):
            fields = {"game_url": f"https://g{created}.example/", "created": created}
            storage.clients.register(name, [], None, listed=name != "Zoo", **fields)

        def found(index: str, *args: object) -> list[str]:
            return [
                each.name for each in storage.clients.between(index, "listed", "listedz", *args)
            ]

        newest = ["Старт", "Pong 2", "Eclipse", "Éclair", "pong"]
        by_name = ["Eclipse", "Éclair", "pong", "Pong 2", "Старт"]
        assert found("time") == newest
        assert found("title", None, None, False) == by_name
        [eclair] = [each for each in storage.clients.games(True) if each.name == "Éclair"]
        for index, key_of, order, down in (
            ("time", client_rules.by_time, newest, True),
            ("title", client_rules.by_title, by_name, False),
        ):
            place, behind = (key_of(eclair), eclair.id), order[order.index("Éclair") + 1 :]
            assert found(index, place, 1, down) == behind[:1]
            assert found(index, place, None, down) == behind
        with storage.clients.edit(eclair.id) as client:
            client.name, client.listed = "Zz", False
        assert "Zz" not in found("time") + found("title")
        with storage.clients.edit(eclair.id) as client:
            client.listed = True
        assert found("title")[:2] == ["Старт", "Zz"]

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
        assert [check(getattr(changed, field)) for field, check in held] == [None] * 5
        wrong = {"redirect_uris": uris[:1], "game_url": "http://a.example:0/"}
        for field, value in (wrong | {"post_logout_redirect_uris": uris, LOGOUT: uris[0]}).items():
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
        for client_id in ("0" * 24, "\ud800"):
            for act in (storage.clients.issue_secret, storage.clients.read, storage.clients.delete):
                with pytest.raises(NoSuchClient):
                    act(client_id)

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


class TestCodes:
    def test_code_is_read_until_it_is_spent(self, storage, code_record, device_request, subtests):
        """Also one of a game, which has no redirect URI. The answer says that one is too old."""
        replace = dataclasses.replace
        of_a_game = replace(code_record, redirect_uri=None, code_challenge="x" * 43)
        old = replace(code_record, issued=now_ms() - 600_000)
        storage.codes.add("another", code_record)
        for record in (code_record, of_a_game, old, device_request):
            code, kind = repr(record), type(record)
            with subtests.test(code):
                storage.codes.add(code, record)
                for _ in range(2):  # reading spends nothing
                    assert storage.codes.read(code, kind) == record
                storage.codes.spend(code, kind)
                for act in (storage.codes.read, storage.codes.spend):
                    with pytest.raises(CodeSpent) as replay:
                        act(code, kind)
                    assert replay.value.record == record
        assert storage.codes.read("another") == code_record

    def test_code_of_another_type_is_unknown(self, storage, code_record, device_request):
        """Also after its use: a program that sends the one for the other learns nothing."""
        storage.codes.add("a code", code_record)
        storage.codes.add("user code", device_request)
        others = {"a code": DeviceRequest, "user code": AuthorizationCode}
        for code, other in others.items():
            with pytest.raises(NoSuchCode):
                storage.codes.read(code, other)
        storage.codes.spend("a code")
        storage.codes.spend("user code", DeviceRequest)
        for code, other in others.items():
            with pytest.raises(NoSuchCode):
                storage.codes.read(code, other)

    def test_unknown_code_raises(self, storage, code_record, subtests):
        storage.codes.add("a code", code_record)
        for code in ("", "unknown", "a code ", "A CODE", "../spent", "\x00", "c" * 9999):
            for act in (storage.codes.read, storage.codes.spend):
                with subtests.test(code), pytest.raises(NoSuchCode):
                    act(code)

    def test_sixteen_racing_threads_spend_a_code_once(self, storage, code_record, device_request):
        for n, record in enumerate([code_record, device_request] * 5):
            storage.codes.add(f"code {n}", record)
            spend = functools.partial(storage.codes.spend, record_type=type(record))
            results = together(spend, [f"code {n}"] * 16)
            assert results.count(None) == 1
            assert sum(isinstance(result, CodeSpent) for result in results) == 15
