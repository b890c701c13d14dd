"""The sorted names of all players, as each process keeps them."""

import os

import pytest

from storage import open_storage
from storage.flat_files import disk, key_list
from storage.flat_files.key_list import KeyList


@pytest.fixture
def names(tmp_path) -> KeyList:
    (tmp_path / "names").mkdir()
    put(tmp_path, "ada", "bob")
    key_list.renew(f"{tmp_path}/names.log")
    return KeyList(f"{tmp_path}/names", f"{tmp_path}/names.log")


def put(folder, *keys: str) -> None:
    """Write entries that no log tells of."""
    for key in keys:
        (folder / "names" / key).touch()


def note(folder, *changes: str) -> None:
    """Note changes such as "+ada"."""
    for each in changes:
        key_list.note(f"{folder}/names.log", each[1:], each[0] == "+")


def listed(names: KeyList) -> list[str]:
    return names.page("", "", 9999)


def test_later_changes_are_read_from_the_log_alone(names, tmp_path, monkeypatch):
    (tmp_path / "names/.ada.12345678").touch()  # temporary
    assert listed(names) == ["ada", "bob"]
    monkeypatch.setattr(os, "listdir", None)
    note(tmp_path, "+cleo", "-ada", "+a-", "+a", "-a", "+bob", "-nobody")
    assert listed(names) == ["a-", "bob", "cleo"]
    note(tmp_path, *(f"+{number:04}" for number in range(1100)), "-0007", "-bob")
    assert listed(names) == [*(f"{n:04}" for n in range(1100) if n != 7), "a-", "cleo"]


def test_log_is_read_anew_once_it_is_another_one(names, tmp_path, subtests):
    log = tmp_path / "names.log"
    note(tmp_path, "+x")
    for number, change in enumerate(
        (
            lambda: key_list.renew(str(log)),
            log.unlink,
            lambda: key_list.renew(str(log)),
            lambda: log.write_bytes(log.read_bytes()[:-1]),  # shorter
            lambda: log.write_bytes(b""),
            lambda: log.write_bytes(bytes(50)),  # as a power cut may leave it
        )
    ):
        with subtests.test(number):
            key = f"d{number}"
            listed(names)
            put(tmp_path, key)
            change()
            assert key in listed(names)
            note(tmp_path, "+cleo")
            assert "cleo" in listed(names)
            note(tmp_path, "-cleo")
            assert "cleo" not in listed(names)


def test_log_that_is_long_is_begun_anew(names, tmp_path, monkeypatch):
    monkeypatch.setattr(key_list, "LONGEST_LOG", 300)
    for number in range(200):
        put(tmp_path, f"{number}")
        note(tmp_path, f"+{number}")
        assert len(listed(names)) == 3 + number
    assert (tmp_path / "names.log").stat().st_size < 310


def test_long_news_are_listed_anew(names, tmp_path, monkeypatch):
    listed(names)
    monkeypatch.setattr(key_list, "MOST_FOLLOWED", 20)
    put(tmp_path, "unnoted")
    for key, expected in (("x" * 9, False), ("x" * 20, True)):
        note(tmp_path, f"+{key}")
        assert ("unnoted" in listed(names)) == expected
        assert key in listed(names)


def test_line_that_is_cut_off_at_any_place_says_nothing(names, tmp_path, subtests):
    """Nor does the next line join it: a removed `ada b` takes no `ada` away."""
    log = tmp_path / "names.log"
    put(tmp_path, "ada b", "a-")
    before = log.read_bytes()
    note(tmp_path, "-ada b")
    line = log.read_bytes()[len(before) :]
    for length in range(len(line) - 1):
        with subtests.test(length):
            for reads_between in (False, True):
                log.write_bytes(before + line[:length])
                fresh = KeyList(f"{tmp_path}/names", str(log))
                assert not reads_between or listed(fresh) == ["a-", "ada", "ada b", "bob"]
                note(tmp_path, "+cleo", "-bob")
                put(tmp_path, "cleo")
                expected = ["a-", "ada", "ada b", "bob", "cleo"]
                if reads_between:
                    expected.remove("bob")  # else it is listed, and counts for nobody
                assert listed(fresh) == expected
                (tmp_path / "names/cleo").unlink()


def test_full_disk_cuts_a_line_off_and_hides_nobody(names, tmp_path, monkeypatch):
    def write_half(descriptor: int, content: bytes) -> None:
        os.write(descriptor, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    listed(names)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr(disk, "write_all", write_half)
        note(tmp_path, "-ada")
    note(tmp_path, "+cleo")
    assert listed(names) == ["ada", "bob", "cleo"]


def test_every_start_makes_a_log_that_is_missing(data, storage):
    storage.users.register("Ada", "ada@example.org", "")
    (data / "names.log").unlink()
    assert open_storage(str(data), storage.layout.picture_dir).users.by_name("")
    assert (data / "names.log").stat().st_mode & 0o777 == 0o600
