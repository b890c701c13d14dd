"""The settings: environment variables, checked; an error names the variable, value and fix."""

import os
import subprocess
import sys

import pytest
from waiting import PATIENCE

from identity.settings import ROOT, SETTINGS, SettingError, read_settings
from identity_server import create_app

pytestmark = pytest.mark.usefixtures("environment")


def test_defaults():
    assert {name: str(value) for name, value in read_settings().items()} == {
        "STORAGE": "files",
        "DATA_DIR": f"{ROOT}/instance",
        "PICTURE_DIR": f"{ROOT}/static/pfp",
        "BASE_URL": "http://127.0.0.1:8000",
        "SITE_NAME": "Identity Server",
        "ABOUT_URL": "",
        "SIGN_UP": "invite",
        "CLIENT_REGISTRATION": "admins",
        "PROXIES": "0",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BASE_URL", "https://id.example.org"),
        ("BASE_URL", "http://localhost:8000"),
        ("BASE_URL", "http://[::1]:8000"),
        ("SITE_NAME", "Ada's Games ♞"),
        ("ABOUT_URL", "https://example.org/about"),
        ("SIGN_UP", "open"),
        ("SIGN_UP", "closed"),
        ("CLIENT_REGISTRATION", "members"),
        ("DATA_DIR", "/srv/identity"),
        ("PICTURE_DIR", "/srv/pictures"),
    ],
)
def test_variable_sets_its_setting(environment, name, value):
    environment.setenv(f"IDENTITY_{name}", value)
    assert read_settings()[name] == value


INVALID = [  # the variable, an invalid value, a part of the message that says the fix
    ("BASE_URL", "", "https://id.example.org"),
    ("BASE_URL", "id.example.org", "https://id.example.org"),
    ("BASE_URL", "id.example.org:8000", "https://id.example.org"),
    ("BASE_URL", "//id.example.org", "https://id.example.org"),
    ("BASE_URL", "ftp://id.example.org", "https://id.example.org"),
    ("BASE_URL", "https://id.example.org/path", "without a path"),
    ("BASE_URL", "https://id.example.org?a=b", "https://id.example.org"),
    ("BASE_URL", "https://id.example.org?", "https://id.example.org"),
    ("BASE_URL", "https://id.example.org#a", "https://id.example.org"),
    ("BASE_URL", "https://ada@id.example.org", "https://id.example.org"),
    ("BASE_URL", "https://id.example.org:x", "https://id.example.org"),
    ("BASE_URL", "https://id.example.org:70000", "https://id.example.org"),
    ("BASE_URL", "https://", "https://id.example.org"),
    ("BASE_URL", "https://[::1", "https://id.example.org"),
    ("BASE_URL", "https://id example.org", "https://id.example.org"),
    ("BASE_URL", "https://id.example.org;script-src *", "https://id.example.org"),
    ("SITE_NAME", "", "1 to 60 characters"),
    ("SITE_NAME", "  ", "1 to 60 characters"),
    ("SITE_NAME", "x" * 61, "1 to 60 characters"),
    ("SITE_NAME", "two\nlines", "1 to 60 characters"),
    ("ABOUT_URL", "example.org", "https://"),
    ("ABOUT_URL", "javascript:alert(1)", "https://"),
    ("ABOUT_URL", "https://", "https://"),
    ("ABOUT_URL", "https://example.org\n", "https://"),
    ("ABOUT_URL", "https://example.org/a b", "https://"),
    ("SIGN_UP", "", "open, invite, closed"),
    ("SIGN_UP", "Open", "open, invite, closed"),
    ("SIGN_UP", "yes", "open, invite, closed"),
    ("CLIENT_REGISTRATION", "everyone", "admins, members"),
    ("CLIENT_REGISTRATION", "", "admins, members"),
    ("PROXIES", "-1", "number"),
    ("PROXIES", "one", "number"),
    ("PROXIES", "1.0", "number"),
    ("PROXIES", "٣", "number"),
    ("PROXIES", " 1", "number"),
    ("PROXIES", "true", "number"),
    ("DATA_DIR", "", "folder"),
    ("PICTURE_DIR", "", "folder"),
]


def test_invalid_value_error_names_variable_value_and_fix(environment, subtests):
    for name, value, fix in INVALID:
        with subtests.test(f"{name}={value!a}"), pytest.MonkeyPatch.context() as changed:
            changed.setenv(f"IDENTITY_{name}", value)
            with pytest.raises(SettingError) as refused:
                read_settings()
            message = str(refused.value)
            assert message.startswith(
                f"IDENTITY_{name} is {value!r}, " if value else f"IDENTITY_{name} is "
            )
            assert fix in message
            assert "\n" not in message


@pytest.mark.parametrize("name", ["SIGNUP", "BASEURL", "data_dir", "SECRET_KEY", "DATA_DIR_", ""])
def test_unknown_variable_error_lists_the_settings(environment, name):
    environment.setenv(f"IDENTITY_{name}", "x")
    with pytest.raises(SettingError) as refused:
        read_settings()
    assert str(refused.value).startswith(f"IDENTITY_{name} ")
    assert all(each in str(refused.value) for each in SETTINGS)


def test_variables_with_another_prefix_are_ignored(environment):
    environment.setenv("IDENTITYX_SIGN_UP", "x")
    environment.setenv("FLASK_SIGN_UP", "x")
    assert read_settings()["SIGN_UP"] == "invite"


@pytest.mark.parametrize("text", ["2048", "007", "1e3", "true", "null", '"quoted"', "[1]", "{}"])
def test_value_is_not_parsed_as_json(environment, text):
    environment.setenv("IDENTITY_SITE_NAME", text)
    environment.setenv("IDENTITY_DATA_DIR", f"/srv/{text}")
    values = read_settings()
    assert (values["SITE_NAME"], values["DATA_DIR"]) == (text, f"/srv/{text}")


@pytest.mark.parametrize(
    ("given", "base_url"),
    [
        ("https://ID.Example.ORG", "https://id.example.org"),
        ("https://id.example.org/", "https://id.example.org"),
        (" https://id.example.org ", "https://id.example.org"),
        ("HTTP://LocalHost:8000/", "http://localhost:8000"),
    ],
)
def test_base_url_is_normalized_to_an_origin(environment, given, base_url):
    environment.setenv("IDENTITY_BASE_URL", given)
    assert read_settings()["BASE_URL"] == base_url


@pytest.mark.parametrize(
    ("base_url", "given", "proxies"),
    [
        ("http://localhost:8000", None, 0),
        ("http://localhost:8000", "", 0),
        ("http://localhost:8000", "0", 0),
        ("http://localhost:8000", "1", 1),
        ("https://id.example.org", None, 1),
        ("https://id.example.org", "", 1),
        ("https://id.example.org", "1", 1),
        ("https://id.example.org", "2", 2),
    ],
)
def test_proxies_default_is_one_for_https(environment, base_url, given, proxies):
    environment.setenv("IDENTITY_BASE_URL", base_url)
    if given is not None:
        environment.setenv("IDENTITY_PROXIES", given)
    assert read_settings()["PROXIES"] == proxies


def test_https_without_proxies_is_refused(environment):
    environment.setenv("IDENTITY_BASE_URL", "https://id.example.org")
    environment.setenv("IDENTITY_PROXIES", "0")
    with pytest.raises(SettingError, match=r"^IDENTITY_PROXIES .*set 1"):
        read_settings()


def test_relative_folder_is_resolved_from_the_current_folder(environment, tmp_path):
    environment.chdir(tmp_path)
    environment.setenv("IDENTITY_DATA_DIR", "data")
    assert read_settings()["DATA_DIR"] == f"{tmp_path}/data"


def test_overrides_win_over_the_environment(environment):
    environment.setenv("IDENTITY_SIGN_UP", "closed")
    assert read_settings({"SIGN_UP": "open"})["SIGN_UP"] == "open"
    with pytest.raises(SettingError):
        read_settings({"SIGN_UP": "x"})


def test_invalid_setting_stops_create_app_before_it_creates_folders(tmp_path):
    folders = {"DATA_DIR": str(tmp_path / "instance"), "PICTURE_DIR": str(tmp_path / "pfp")}
    with pytest.raises(SettingError):
        create_app(folders | {"SIGN_UP": "x"})
    assert list(tmp_path.iterdir()) == []


def test_create_app_reads_the_settings_once(environment, tmp_path):
    folders = {"DATA_DIR": str(tmp_path / "instance"), "PICTURE_DIR": str(tmp_path / "pfp")}
    app = create_app(folders)
    environment.setenv("IDENTITY_SITE_NAME", "Another")
    assert "Another" not in app.test_client().get("/").text
    assert "Another" in create_app(folders).test_client().get("/").text


@pytest.mark.live
def test_import_reads_no_setting_and_creates_no_folder(tmp_path):
    wrong = {"IDENTITY_BASE_URL": "nonsense", "IDENTITY_DATA_DIR": str(tmp_path / "instance")}
    program = "import identity_server, identity_admin; print('imported')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | wrong,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "imported\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["files", "postgresql://ada@host/db", "postgres://host", "postgresql://a:b@h1,h2/db?x=y"]
)
def test_storage_is_files_or_the_url_of_a_database(environment, url):
    environment.setenv("IDENTITY_STORAGE", url)
    assert read_settings()["STORAGE"] == url


@pytest.mark.parametrize("url", ["", "file", "files://s3cret", "postgresql", "mysql://a:s3cret@h"])
def test_another_storage_is_refused_without_showing_it(environment, url):
    environment.setenv("IDENTITY_STORAGE", url)
    with pytest.raises(
        SettingError, match=r"^IDENTITY_STORAGE .*postgresql://user@host"
    ) as refused:
        read_settings()
    assert "s3cret" not in str(refused.value)
