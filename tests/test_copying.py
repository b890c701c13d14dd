"""`storage.copying`: a whole installation in another place, from each backend to each."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from backends import FLAT_FILES, Backend
from copying import ADA, BOB, DORA, LARGEST, fill, read_all

from storage import Storage
from storage.copying import copy
from storage.errors import BadInstallation

pytestmark = pytest.mark.contract


@pytest.fixture(params=["flat files", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def target_backend(request) -> Iterator[Backend]:
    """The backend of the copy."""
    if request.param == "flat files":
        yield FLAT_FILES
    else:
        with request.getfixturevalue("databases").lend() as backend:
            yield backend


@pytest.fixture
def target(target_backend, tmp_path, unsynced, drawn_once) -> Storage:
    """An installation without users, to which is copied."""
    return target_backend.open(str(tmp_path / "target"), str(tmp_path / "target pictures"))


@pytest.fixture
def source(storage) -> Storage:
    """An installation with something of everything."""
    fill(storage)
    return storage


@contextmanager
def nothing_changes(*stores: Storage) -> Iterator[None]:
    before = [read_all(each) for each in stores]
    yield
    assert [read_all(each) for each in stores] == before


def test_copy_has_everything(source, target):
    with nothing_changes(source):
        assert copy(source, target) == 3
    assert read_all(target) == read_all(source)
    for user_id in source.users.ids():
        file = source.users.read(user_id).picture_file
        assert target.pictures.read("large", file)[0] == source.pictures.read("large", file)[0]
    assert target.keys.current() == source.keys.current()
    assert [list(target.audit.about({each})) for each in (ADA, BOB, DORA)] == [
        list(source.audit.about({each})) for each in (ADA, BOB, DORA)
    ]
    assert target.users.register("New", "new@example.org", "").id == LARGEST + 1
    assert list(target.verify()) == []


def test_copy_and_back_is_the_same(source, target, backend, tmp_path):
    before = read_all(source)
    copy(source, target)
    back = backend.open(str(tmp_path / "back"), str(tmp_path / "back pictures"))
    copy(target, back)
    assert read_all(back) == before


def test_copy_reports_progress(source, target):
    seen = []
    copy(source, target, lambda *done: seen.append(done))
    assert seen == [(3, 3)]


@pytest.mark.parametrize("record", ["user", "client"])
def test_copy_into_an_installation_in_use_is_refused(source, target, record):
    if record == "user":
        target.users.register("Zoe", "zoe@example.org", "")
    else:
        target.clients.register("Go", [], None)
    refused = pytest.raises(BadInstallation, match="has players or clients")
    with nothing_changes(source, target), refused:
        copy(source, target)


def test_copy_of_an_installation_into_itself_is_refused(source, open_installation):
    refused = pytest.raises(BadInstallation, match="has players or clients")
    with nothing_changes(source), refused:
        copy(source, open_installation())


def test_copy_of_nothing_is_refused(storage, target):
    with pytest.raises(BadInstallation, match="no players and no clients"):
        copy(storage, target)


def copy_is_refused(source: Storage, target: Storage) -> str:
    """Try a copy, which must name one thing that cannot be read and change nothing; return that."""
    reported = []
    refused = pytest.raises(BadInstallation, match="nothing is copied")
    with nothing_changes(target), refused:
        copy(source, target, report=reported.append)
    [line] = reported
    return line


def test_copy_of_a_damaged_user_names_it_and_leaves_nothing(source, target, faults):
    faults.damage_user(BOB)
    assert f"users/{BOB}" in copy_is_refused(source, target)
    faults.repair_user(BOB)
    assert copy(source, target) == 3


def test_copy_of_a_damaged_client_names_it_and_leaves_nothing(source, target, faults):
    [client_id] = source.clients.ids()
    faults.damage_client(client_id)
    assert f"clients/{client_id}" in copy_is_refused(source, target)


def test_copy_that_is_interrupted_leaves_nothing(source, target):
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with nothing_changes(source, target), pytest.raises(KeyboardInterrupt):
        copy(source, target, interrupt)
    assert copy(source, target) == 3
