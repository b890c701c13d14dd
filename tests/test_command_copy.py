"""`identity-server copy`: what it refuses, what it prints, and that it shows no password."""

import pytest
from test_command import Installation

from storage import mask_url


@pytest.fixture
def installation(tmp_path) -> Installation:
    """The command on a new installation."""
    return Installation(tmp_path)


SECRET = "s3cret:/?#@"


def test_command_refuses_the_installation_itself(installation):
    installation.add_user("ada")
    assert "itself" in installation.refusal("copy", "--to", "files")
    url = f"postgresql://identity:{SECRET}@127.0.0.1:1/identity"
    refusal = installation.refusal("copy", "--to", url, IDENTITY_STORAGE=url)
    assert "itself" in refusal and "s3cret" not in refusal


@pytest.mark.parametrize("place", ["", "folder", "mysql://ada:s3cret@host/db", "files://s3cret"])
def test_command_refuses_a_place_that_is_no_url_without_showing_it(installation, place):
    done = installation.run("copy", "--to", place, status=2)
    assert "neither files nor a URL like postgresql://user@host/database" in done.stderr
    assert "s3cret" not in done.stderr


def test_command_does_not_show_the_password_of_a_database_that_is_away(installation):
    pytest.importorskip("psycopg")
    installation.add_user("ada")
    for url in (
        f"postgresql://identity:{SECRET}@127.0.0.1:1/identity",
        "postgresql://identity@127.0.0.1:1/identity?password=s3cret",
        "postgresql://identity:s3cret@127.0.0.1:1/identity?nonsense=s3cret",
    ):
        assert "s3cret" not in installation.refusal("copy", "--to", url)


def test_masked_url_has_no_password(subtests):
    for url, masked in {
        "files": "files",
        "postgresql://ada@host/db": "postgresql://ada@host/db",
        "postgresql://host:5432,other:5432/db": "postgresql://host:5432,other:5432/db",
        "postgresql://ada:x@host:5432/db?user=b": "postgresql://ada:***@host:5432/db?user=b",
        "postgresql://ada:x@y/z@host/db": "postgresql://ada:***@host/db",
        "postgres://:x@host": "postgres://:***@host",
        "postgresql://h/d?password=x#y&user=a": "postgresql://h/d?password=***&user=a",
        "postgresql://h/d?user=a&sslpassword=x": "postgresql://h/d?user=a&sslpassword=***",
    }.items():
        with subtests.test(url):
            assert mask_url(url) == masked
