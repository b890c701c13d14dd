"""`storage.whole.copying` and `identity-server copy`: a whole installation in another place."""

from collections.abc import Iterator

import pytest
from archives import ADA, BOB, DORA, LARGEST, Site, fill, read_all
from backends import FLAT_FILES
from conftest import BACKENDS, on_each_backend
from test_command import Installation

from model.errors import BadInstallation
from storage import Storage, mask_url
from storage.whole.copying import copy

SECRET = "s3cret:/?#@"


@pytest.fixture(params=BACKENDS)
def target(request, tmp_path) -> Iterator[Storage]:
    """An installation without users on each backend, to which is copied."""
    folders = str(tmp_path / "target"), str(tmp_path / "target pictures")
    if request.param == "flat files":
        yield FLAT_FILES.open(*folders)
    else:
        with request.getfixturevalue("databases").lend() as backend:
            yield backend.open(*folders)


@on_each_backend
def test_copy_has_everything(storage, target, monkeypatch):
    monkeypatch.setattr("storage.maintenance.STEP", 1)
    fill(storage)
    before, reported = read_all(storage), []
    assert copy(storage, target, lambda *done: reported.append(done)) == 3
    steps, total = [done for done, _ in reported], reported[-1][1]
    assert total > 10
    assert steps == [*range(1, total + 1), total]
    assert read_all(target) == read_all(storage) == before
    for user_id in storage.users.ids():
        file = storage.users.read(user_id).picture_file
        assert target.pictures.read("large", file)[0] == storage.pictures.read("large", file)[0]
    assert target.keys.current() == storage.keys.current()
    for each in (ADA, BOB, DORA):
        assert list(target.audit.about({each})) == list(storage.audit.about({each}))
    assert target.users.register("New", "new@example.org", "").id == LARGEST + 1
    assert list(target.verify()) == []


@pytest.fixture
def site(tmp_path, unsynced, drawn_once) -> Site:
    site = Site(tmp_path / "site")
    fill(site.open())
    return site


@pytest.fixture
def empty(tmp_path) -> Site:
    """An installation without users."""
    site = Site(tmp_path / "empty")
    site.open()
    return site


def refused_copy(source: Site, target: Site, problem: str) -> list[str]:
    """Try a copy, which must be refused and change nothing; return what was reported."""
    before, reported = (source.files(), target.files()), []
    with pytest.raises(BadInstallation, match=problem):
        copy(source.open(), target.open(), report=reported.append)
    assert (source.files(), target.files()) == before
    return reported


def test_copy_into_an_installation_in_use_or_of_nothing_is_refused(site, empty):
    refused_copy(site, site, "has players or clients")
    refused_copy(empty, empty, "no players and no clients")
    empty.open().clients.register("Go", [], None)
    refused_copy(site, empty, "has players or clients")


@pytest.mark.parametrize("damaged", [f"users/{BOB}.json", "invites/*.json", "clients/*.json"])
def test_copy_of_unreadable_records_leaves_nothing(site, empty, damaged):
    path = min(site.data.glob(damaged))
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    [reported] = refused_copy(site, empty, "nothing is copied")
    assert path.stem in reported
    path.write_bytes(content)
    assert copy(site.open(), empty.open()) == 3


def test_copy_that_is_interrupted_leaves_nothing(site, empty):
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = empty.files()
    with pytest.raises(KeyboardInterrupt):
        copy(site.open(), empty.open(), interrupt)
    assert empty.files() == before
    assert copy(site.open(), empty.open()) == 3


@pytest.fixture
def installation(tmp_path) -> Installation:
    installation = Installation(tmp_path)
    installation.add_user("ada")
    return installation


def test_command_refuses_the_installation_itself(installation):
    assert "itself" in installation.refusal("copy", "--to", "files")
    url = f"postgresql://identity:{SECRET}@127.0.0.1:1/identity"
    refusal = installation.refusal("copy", "--to", url, IDENTITY_STORAGE=url)
    assert "itself" in refusal and "s3cret" not in refusal


def test_bad_url_is_refused_and_no_password_shown(subtests, installation):
    for url, masked in {
        "files": "files",
        "postgresql://host:5432,other:5432/db": "postgresql://host:5432,other:5432/db",
        "postgresql://ada:x@host:5432/db?user=b": "postgresql://ada:***@host:5432/db?user=b",
        "postgresql://ada:x@y/z@host/db": "postgresql://ada:***@host/db",
        "postgresql://h/d?password=x#y&user=a": "postgresql://h/d?password=***&user=a",
        "postgresql://h/d?user=a&sslpassword=x": "postgresql://h/d?user=a&sslpassword=***",
    }.items():
        with subtests.test(url):
            assert mask_url(url) == masked
    for place in ("folder", "mysql://ada:s3cret@host/db"):
        done = installation.run("copy", "--to", place, status=2)
        assert "neither files nor a URL like postgresql://user@host/database" in done.stderr
        assert "s3cret" not in done.stderr
    pytest.importorskip("psycopg")
    for url in (
        f"postgresql://identity:{SECRET}@127.0.0.1:1/identity",
        "postgresql://identity@127.0.0.1:1/identity?password=s3cret",
        "postgresql://identity:s3cret@127.0.0.1:1/identity?nonsense=s3cret",
    ):
        assert "s3cret" not in installation.refusal("copy", "--to", url)
