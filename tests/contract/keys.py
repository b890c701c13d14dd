"""The signing keys."""

from storage import contract

from .base import Contract


class KeysContract(Contract):
    """A rotation adds a key that every process uses at once."""

    def test_first_key_is_strong_and_stays(self, storage):
        [key] = storage.keys.current()
        assert len(key) >= 32
        assert storage.keys.current() == (key,)

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
        assert kept == first != second and len(second) >= 32
        storage.keys.rotate(drop_old=False)
        kept, third = other.keys.current()
        assert kept == second and third not in (first, second)
        storage.keys.rotate(drop_old=True)
        [key] = other.keys.current()
        assert key not in (first, second, third)
        assert storage.keys.current() == (key,)
