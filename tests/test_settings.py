"""The settings: environment variables, checked; an error names the variable, value and fix."""

import configparser
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

from commands.running import settings
from identity.site.settings import CHOICES, ROOT, SETTINGS, SettingError, read_settings
from identity_server import create_app

pytestmark = pytest.mark.usefixtures("environment")


def test_help_names_all_who_may_sign_up():
    line = next(each for each in settings.help.splitlines() if "IDENTITY_SIGN_UP" in each)
    assert {*re.findall(r"\w+", line)} >= {*CHOICES["SIGN_UP"]}


def test_guide_names_all_extras():
    config = configparser.ConfigParser()
    config.read(Path(ROOT, "setup.cfg"))
    rows = re.findall(r"(?m)^\| `([a-z]+)` \|", Path(ROOT, "docs/settings.md").read_text())
    assert {*rows} >= config["options.extras_require"].keys() - {"all", "test"}


def test_defaults():
    assert {name: str(value) for name, value in read_settings().items()} == {
        "STORAGE": "files",
        "DATA_DIR": f"{ROOT}/instance",
        "PICTURE_DIR": f"{ROOT}/static/pfp",
        "BASE_URL": "http://127.0.0.1:8000",
        "SITE_NAME": "Identity Server",
        "ABOUT_URL": "",
        "WELCOME": "One account for all our games. It keeps your name, picture and play time.",
        "LANGUAGE": "en",
        "PLAYERS": "everyone",
        "INDEX_PROFILES": "off",
        "WEBHOOK_PRIVATE": "off",
        "METRICS": "off",
        "EMAIL": "optional",
        "SIGN_UP": "invite",
        "SIGN_UPS_AN_HOUR": "15",
        "UNCONFIRMED_DAYS": "7",
        "TICKET_DAYS": "0",
        "NETWORK_DAYS": "90",
        "CLIENT_REGISTRATION": "admins",
        "OPENID": "off",
        "REFRESH_DAYS": "30",
        "SIGN_IN_DAYS": "365",
        "SMTP_URL": "",
        "MAIL_FROM": "",
        "PROXIES": "0",
    }


VALID = {  # by variable
    "BASE_URL": ["https://id.example.org", "http://localhost:8000", "http://[::1]:8000"],
    # Text, never parsed as JSON
    "SITE_NAME": [
        *("Ada's Games ♞", "🏳️\u200d🌈 بازی\u200cها", "2048", "007", "1e3", "true", "null"),
        *('the "best"', "[1]", "{}"),
    ],
    "ABOUT_URL": ["https://example.org/about"],
    "WELCOME": ["", "Five friends who make games."],
    "PLAYERS": ["members"],
    "INDEX_PROFILES": ["on"],
    "WEBHOOK_PRIVATE": ["on"],
    "METRICS": ["on", "t" * 16],
    "EMAIL": ["required"],
    "SIGN_UP": ["open", "approval", "closed"],
    "CLIENT_REGISTRATION": ["members"],
    "DATA_DIR": [
        *("/srv/identity", "/srv/007", "/srv/my data", "/srv/~ada", "/srv/données", "/srv/a=b;c")
    ],
    "PICTURE_DIR": ["/srv/pictures"],
    "STORAGE": [
        *("files", "postgresql://ada@host/db", "postgres://host"),
        "postgresql://a:b@h1,h2/db?x=y",
    ],
}


def test_variable_sets_its_setting(environment, subtests):
    for name, values in VALID.items():
        for value in values:
            with subtests.test(f"{name}={value!a}"), environment.context() as changed:
                changed.setenv(f"IDENTITY_{name}", value)
                assert read_settings()[name] == value


def test_values_are_normalized_and_overrides_win(environment, tmp_path):
    environment.chdir(tmp_path)
    assert read_settings({"DATA_DIR": "data"})["DATA_DIR"] == f"{tmp_path}/data"
    for given, base_url in (
        ("https://ID.Example.ORG", "https://id.example.org"),
        ("https://id.example.org/", "https://id.example.org"),
        (" https://id.example.org ", "https://id.example.org"),
        ("HTTP://LocalHost:8000/", "http://localhost:8000"),
    ):
        assert read_settings({"BASE_URL": given})["BASE_URL"] == base_url
    environment.setenv("IDENTITYX_SIGN_UP", "x")
    environment.setenv("FLASK_SIGN_UP", "x")
    environment.setenv("IDENTITY_SIGN_UP", "closed")
    assert read_settings()["SIGN_UP"] == "closed"
    assert read_settings({"SIGN_UP": "open"})["SIGN_UP"] == "open"


def test_password_in_a_swapped_setting_is_not_shown(subtests):
    url = "smtp://ada:Secret@mail.example:587"
    for name, mail in (("MAIL_FROM", {"SMTP_URL": "smtp://mail.example"}), ("BASE_URL", {})):
        with subtests.test(name), pytest.raises(SettingError) as refused:
            read_settings({**mail, name: url})
        assert "mail.example" in str(refused.value) and "Secret" not in str(refused.value)


INVALID = {  # by variable and the part of the message that says the fix
    ("BASE_URL", "https://id.example.org"): [
        *("", "id.example.org", "id.example.org:8000", "//id.example.org", "ftp://id.example.org"),
        *("https://id.example.org?a=b", "https://id.example.org?", "https://id.example.org#a"),
        *("https://ada@id.example.org", "https://id.example.org:x", "https://id.example.org:70000"),
        *("https://", "https://[::1", "https://id example.org"),
        "https://id.example.org;script-src *",
    ],
    ("BASE_URL", "without a path"): ["https://id.example.org/path"],
    ("BASE_URL", "does not begin with https://"): ["id.example.org", "//id.example.org", "id:8000"],
    ("BASE_URL", "is not in ASCII"): ["https://bücher.example", "http://пример.example:8000"],
    ("BASE_URL", "a full stop at its end"): ["https://id.example.org.", "http://id.example:8000./"],
    ("BASE_URL", "port that every https address has"): ["https://id.example.org:443/"],
    ("BASE_URL", "port that every http address has"): ["http://[::1]:80", "HTTP://id.example:80"],
    ("SITE_NAME", "1 to 60 characters"): ["", "  ", "x" * 61],
    ("SITE_NAME", "and U+000A can't be shown"): ["two\nlines"],
    ("ABOUT_URL", "https://"): [
        *("example.org", "javascript:alert(1)", "https://"),
        *("https://example.org\n", "https://example.org/a b"),
    ],
    ("SIGN_UP", "open, approval, invite, closed"): ["", "Open", "yes"],
    ("CLIENT_REGISTRATION", "admins, members"): ["everyone", ""],
    ("PROXIES", "number"): ["-1", "one", "1.0", "٣", " 1", "true"],
    ("REFRESH_DAYS", "from 1 to 9999"): ["", "0", "-1", "1.5", "٣", "10000", "30 days", "1\n"],
    ("SIGN_IN_DAYS", "from 1 to 9999"): ["0", "365d"],
    ("DATA_DIR", "folder"): [""],
    ("PICTURE_DIR", "folder"): [""],
    # What a shell would have removed or expanded, or what nobody sees.
    **{
        (name, f"which has {character!r}"): folders
        for name in ("DATA_DIR", "PICTURE_DIR")
        for character, folders in {
            "\r": ["/srv/a\rb"],
            "\n": ["/srv/data\n", "/srv/a\nb"],
            " ": [" /srv/data", "/srv/data ", " "],
            '"': ['/srv/"my data"'],
            "'": ["/srv/data'"],
            "~": ["~/data", "~ada/data", "~"],
            "$": ["$HOME/data", "/srv/${USER}", "/srv/data$"],
            "\\": ["/srv/my\\ data", "C:\\data"],
            "`": ["`pwd`/data"],
            "\u200b": ["/srv/data\u200b"],
            "\xa0": ["/srv/my\xa0data"],
        }.items()
    },
}


def test_invalid_value_error_names_variable_value_and_fix(environment, subtests):
    for (name, fix), values in INVALID.items():
        for value in values:
            with subtests.test(f"{name}={value!a}"), environment.context() as changed:
                changed.setenv(f"IDENTITY_{name}", value)
                with pytest.raises(SettingError) as refused:
                    read_settings()
                message = str(refused.value)
                shown = f"{value!r}, " if value else ""
                assert message.startswith(f"IDENTITY_{name} is {shown}")
                assert fix in message
                assert "\n" not in message


OF_A_FILE = {  # by a value with what belongs to the line of a file; the part that says the fix
    "https://id.example.org\r": "with Unix line ends",
    "\r": "with Unix line ends",
    '"Our games"': 'in quotes ("), which are not needed',
    "'/srv/s3cret'": "in quotes ('), which are not needed",
    '"Our games': 'a " too many',
    'on"': 'a " too many',
    '"': 'a " too many',
}


def test_line_end_or_quote_of_a_file_is_refused_in_every_setting(environment, subtests):
    for name, (value, fix) in itertools.product(SETTINGS, OF_A_FILE.items()):
        with subtests.test(f"{name}={value!a}"), environment.context() as changed:
            changed.setenv(f"IDENTITY_{name}", value)
            with pytest.raises(SettingError, match=re.escape(fix)) as refused:
                read_settings()
            message = str(refused.value)
            assert message.startswith(f"IDENTITY_{name} ") and "\n" not in message
            assert "s3cret" not in message


def test_folder_that_is_there_may_have_any_name(environment, tmp_path):
    """Only a new and empty installation would be the wrong one."""
    for name in ("ada's data", "$HOME"):
        (tmp_path / name).mkdir()
        environment.setenv("IDENTITY_DATA_DIR", f"{tmp_path}/{name}")
        assert read_settings()["DATA_DIR"] == f"{tmp_path}/{name}"


def test_proxies_default_is_one_for_https(environment):
    for base_url, values in (
        ("http://localhost:8000", {None: 0, "": 0, "0": 0, "1": 1}),
        ("https://id.example.org", {None: 1, "": 1, "1": 1, "2": 2}),
    ):
        environment.setenv("IDENTITY_BASE_URL", base_url)
        for given, proxies in values.items():
            overrides = {} if given is None else {"PROXIES": given}
            assert read_settings(overrides)["PROXIES"] == proxies
    with pytest.raises(SettingError, match=r"^IDENTITY_PROXIES .*set 1"):
        read_settings({"PROXIES": "0"})  # beside https


def test_create_app_checks_the_settings_and_reads_them_once(environment, tmp_path):
    folders = {"DATA_DIR": str(tmp_path / "instance"), "PICTURE_DIR": str(tmp_path / "pfp")}
    with pytest.raises(SettingError):
        create_app(folders | {"SIGN_UP": "x"})
    assert list(tmp_path.iterdir()) == []
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


def test_unknown_variable_or_storage_is_refused(environment):
    for url in (
        *("", "file", "files://s3cret", "postgresql", "mysql://a:s3cret@h", "files\r"),
        *("postgresql://a:s3cret@h/b\r", "'postgresql://a:s3cret@h'", " postgresql://a:s3cret@h"),
        *("postgresql://a:s3cret@h/b ", "postgresql://a:s3cret@h/b'", "postgresql://a@h/b\u200b"),
    ):
        with pytest.raises(SettingError) as refused:
            read_settings({"STORAGE": url})
        message = str(refused.value)
        assert message.startswith("IDENTITY_STORAGE ") and "postgresql://user@host" in message
        assert "s3cret" not in message
    for name, nearest in {
        **{"SIGNUP": "SIGN_UP", "BASEURL": "BASE_URL", "data_dir": "DATA_DIR"},
        **{"DATA_DIR_": "DATA_DIR", "SMPT_URL": "SMTP_URL", "SECRET_KEY": None, "": None},
    }.items():
        with environment.context() as changed, pytest.raises(SettingError) as refused:
            changed.setenv(f"IDENTITY_{name}", "x")
            read_settings()
        message = str(refused.value)
        meant = f": perhaps IDENTITY_{nearest} is meant" if nearest else ""
        assert message.startswith(f"IDENTITY_{name} is unknown{meant}; ")
        assert all(each in message for each in SETTINGS)
