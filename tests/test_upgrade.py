"""`upgrade-check`: the files that must be copied. What a start changes: flat_files, contract."""

from pathlib import Path

import pytest
from test_command import Installation

from commands import upgrade
from storage import Upgrade

DEPLOY = Path(__file__).parent.parent / "deploy"
SITE = (DEPLOY / "nginx.conf").read_text().replace("id.example.org", "games.example.com")
UNIT = (DEPLOY / "identity-server.service").read_text()
DEVICE = "location ~ ^/(play/[^/]+/authorize|device|device/decision)\\z"
TOKENS = (
    "location ~ ^/(oauth/(token|device|revoke|introspect)|api/(oauth/token|tickets|tickets/check))"
)
TOKENS += "\\z"
OWN = "location = /own { return 204; }"


@pytest.fixture
def installation(tmp_path, monkeypatch) -> Installation:
    """An installation with the files of this version, at games.example.com."""
    installation = Installation(tmp_path)
    installation.environment["IDENTITY_BASE_URL"] = "https://games.example.com"
    (tmp_path / "site").write_text(SITE)
    (tmp_path / "unit").write_text(UNIT)
    (tmp_path / "script").write_bytes((DEPLOY / "identity-server").read_bytes())
    monkeypatch.setattr(upgrade, "COPIES", {"identity-server": str(tmp_path / "script")})
    return installation


def differences(installation: Installation, status: int) -> list[tuple]:
    """Return the file, the part and the problem of what is not as in this version."""
    command = "upgrade-check", "--nginx", "site", "--unit", "unit"
    found = installation.record(*command, status=status)["files"]
    printed = installation.run(*command, status=status).output
    assert all(line in printed for each in found for line in each["lines"])
    assert ("must be copied" in printed) == any(each["to_copy"] for each in found) == bool(status)
    return [(Path(each["file"]).name, each["part"], each["problem"]) for each in found]


def test_files_of_this_version_need_nothing(installation):
    assert differences(installation, 0) == []
    printed = installation.output("upgrade-check", "--nginx", "site", "--unit", "unit")
    assert "There is no installation" in printed and "are those of this version" in printed
    assert not installation.data.exists()


def test_what_administrators_choose_is_no_difference(installation, tmp_path):
    site = SITE.replace("letsencrypt/live/games.example.com", "own").replace("    #", "  # Our ")
    site = site.replace("server 127.0.0.1:8000;", "server 10.0.0.1:8000; server 10.0.0.2:8000;")
    site = site.replace("ssl_protocols", "include options-ssl-nginx.conf;\n\tssl_protocols")
    (tmp_path / "site").write_text(site)
    unit = UNIT.replace(":8000", ":8000 --server granian").replace("# ", "# Our ")
    (tmp_path / "unit").write_text(unit + "[Service]\nCPUQuota=50%\n")
    assert differences(installation, 0) == []


def test_locations_that_differ_are_named(installation, tmp_path):
    assert SITE.count(DEVICE) == SITE.count(TOKENS) == 1
    site = SITE.replace(DEVICE, "location ~ ^/old\\z").replace(
        "max_body_size 16k", "max_body_size 8k"
    )
    site = site.replace("location @server", f"{OWN}\nlocation @server", 1)
    site = site.replace("if ($identity_foreign) { return 403; }", "", 1)
    site = site.replace('    own "";\n', "")
    (tmp_path / "site").write_text(site)
    unknown = "is not in deploy/nginx.conf: remove it, unless it is your own"
    found = differences(installation, 1)
    [forms] = [each for each in found if "sign-in/passkey" in each[1]]
    assert forms[2] == "differs"
    assert sorted(found) == sorted(
        [
            ("site", "map $identity_sender $identity_foreign", "differs"),
            ("site", DEVICE, "is missing"),
            ("site", TOKENS, "differs"),
            ("site", "location ~ ^/old\\z", unknown),
            ("site", "location = /own", unknown),
            forms,
        ]
    )
    printed = installation.run("upgrade-check", "--nginx", "site", "--unit", "unit", status=1)
    assert "      + client_max_body_size 16k;\n      - client_max_body_size 8k;\n" in printed.stdout
    assert printed.stdout.count("+ if ($identity_foreign) return 403;") == 1
    assert printed.stderr == "Error: 4 parts of installed files must be copied\n"


def test_unit_and_script_of_an_older_version_differ(installation, tmp_path):
    (tmp_path / "unit").write_text(UNIT.replace("PrivateIPC=yes\n", ""))
    (tmp_path / "script").write_text("#!/bin/sh\nset -a; . /etc/identity-server.env\n")
    assert [each[0] for each in differences(installation, 1)] == ["unit", "script"]


def test_script_with_a_line_that_is_no_more_differs(installation, tmp_path):
    with (tmp_path / "script").open("a") as script:
        script.write("set -a\n")
    assert [each[0] for each in differences(installation, 1)] == ["script"]
    printed = installation.run("upgrade-check", "--nginx", "site", "--unit", "unit", status=1)
    assert f"{tmp_path}/script:\n  differs from deploy/identity-server" in printed.stdout
    assert printed.stdout.endswith("\n      - set -a\n")


def test_files_that_are_not_here_are_named_and_need_nothing(installation, tmp_path):
    (tmp_path / "site").unlink()
    (tmp_path / "unit").unlink()
    found = differences(installation, 0)
    assert [each[:2] for each in found] == [("site", ""), ("unit", "")]
    assert all("No such file" in problem for _, _, problem in found)


def test_without_the_folder_nothing_is_compared(installation, tmp_path, monkeypatch):
    monkeypatch.setattr(upgrade, "DEPLOY", tmp_path / "deploy")
    (tmp_path / "site").write_text("")
    assert [each[0] for each in differences(installation, 0)] == ["deploy"]


def test_way_back_needs_the_layout_and_the_keys():
    assert Upgrade(1, 1, {"names": 3}, ["notes"], [], 0).keeps_way_back
    assert not Upgrade(1, 2, {}, [], [], 0).keeps_way_back
    assert not Upgrade(1, 1, {}, [], ["used_invites"], 0).keeps_way_back


def test_layout_of_a_newer_program_is_refused(installation):
    installation.data.mkdir()
    (installation.data / "format").write_text("99\n")
    assert "run the newer program" in installation.refusal("upgrade-check")
