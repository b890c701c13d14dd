"""Signing keys, handles, and fields that are stored only where they are set."""

import json
from dataclasses import replace

import pytest

from model.errors import DamagedRecord
from model.records import Handle, User
from storage import contract

from .base import free_name, together

# What version 1.0.0 stored of a code.
CODE_FIELDS = "client_id user_id grant_id scope redirect_uri code_challenge issued"


class TestOpenId:
    def test_handle_is_the_name_if_it_can_be(self, storage, subtests):
        for number, (name, handle) in enumerate(
            {
                **{"Ada": "ada", "Fuß": "fuss", "1.b_c-D": "1.b_c-d", "a" * 64: "a" * 64},
                **dict.fromkeys(("Ada L", "Zoë", "ада", "_a", "", "../x", "a\n", "a" * 65, "日本")),
                **dict.fromkeys(("player900", "Player1")),
            }.items(),
            start=500,
        ):
            with subtests.test(name):
                user = User(number, name, f"{number}@example.org", "")
                storage.users.insert(user)
                assert storage.handles.find_of(number) is None
                assert storage.handles.of(user) == (handle or f"player{number}")

    def test_handle_never_changes(self, storage, ada, bob):
        assert storage.handles.of(ada) == "ada"
        renamed = storage.users.rename(ada.id, "Grace")
        assert storage.handles.of(renamed) == storage.handles.find_of(ada.id) == "ada"
        with pytest.raises(ValueError), storage.handles.edit("ada") as handle:
            handle.user_id = bob.id

    def test_handle_is_given_once(self, storage, ada):
        """Neither to a newcomer with the name, nor after its player has left."""
        storage.handles.of(ada)
        for give_up in (
            lambda: storage.users.rename(ada.id, "Grace"),
            lambda: storage.users.delete(ada.id),
        ):
            give_up()
            free_name(storage, "Ada")
            newcomer = storage.users.register("Ada", "new@example.org", "")
            assert storage.handles.of(newcomer) == f"player{newcomer.id}"
            storage.users.delete(newcomer.id)
        assert storage.handles.find_of(ada.id) == "ada"

    def test_name_takes_no_handle_of_an_id(self, storage, ada, bob):
        """A reset gives such a name, and storage inserts any."""
        storage.users.insert(User(77, f"player{ada.id}", "zoe@example.org", ""))
        assert storage.handles.of(storage.users.read(77)) == "player77"
        assert storage.handles.of(replace(ada, name="A B")) == f"player{ada.id}"
        storage.handles.add(Handle(f"player{bob.id}", 99))  # an edit by hand
        with pytest.raises(DamagedRecord):
            storage.handles.of(replace(bob, name="B B"))

    def test_racing_programs_get_one_handle_of_each_player(self, storage, ada, bob):
        """Also of two players of whom each had the same name."""
        results = together(storage.handles.of, [ada, replace(bob, name="Ada")] * 8)
        handles = [storage.handles.find_of(each.id) for each in (ada, bob)]
        assert results == handles * 8
        assert sorted(handles) == storage.handles.ids()
        assert handles in (["ada", f"player{bob.id}"], [f"player{ada.id}", "ada"])

    def test_client_without_newer_fields_is_stored_as_before(self, storage, client, stored):
        [before] = stored.texts("clients")
        values = {"post_logout_redirect_uris": ["https://a.example/"], "only_groups": ["players"]}
        with storage.clients.edit(client.id) as edited:
            for name, value in values.items():
                setattr(edited, name, value)
        [text] = stored.texts("clients")
        assert json.loads(text) == json.loads(before) | values
        assert values.keys().isdisjoint(json.loads(before))
        assert storage.clients.read(client.id) == edited != client
        with storage.clients.edit(client.id) as edited:
            edited.post_logout_redirect_uris, edited.only_groups = [], []
        assert stored.texts("clients") == [before]
        assert storage.clients.read(client.id) == client

    def test_code_without_newer_fields_is_stored_as_before(self, storage, code_record, stored):
        storage.codes.add("a code", code_record)
        [text] = stored.texts("codes")
        assert " ".join(json.loads(text)).removesuffix(" boot_id") == CODE_FIELDS
        full = replace(code_record, granted="openid", nonce="a nonce", auth_time=5, amr=["otp"])
        storage.codes.add("another", full)
        assert [storage.codes.read(each) for each in ("a code", "another")] == [code_record, full]


class TestKeys:
    def test_keys_are_read_once_a_second(self, open_installation, monkeypatch):
        monkeypatch.setattr(contract, "KEYS_CACHED", 1000)
        keys = open_installation().keys
        first = keys.current()
        monkeypatch.setattr(keys, "read", lambda: ())
        assert keys.current() == first

    def test_rotation_keeps_the_previous_key(self, storage, open_installation):
        other = open_installation()
        [first] = other.keys.current()
        storage.keys.rotate(drop_old=False)
        kept, second = other.keys.current()
        assert kept == first != second and min(len(first), len(second)) >= 32
        storage.keys.rotate(drop_old=False)
        kept, third = other.keys.current()
        assert kept == second and third not in (first, second)
        storage.keys.rotate(drop_old=True)
        [key] = other.keys.current()
        assert key not in (first, second, third)
        assert storage.keys.current() == (key,)
