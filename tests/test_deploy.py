"""The files in deploy/ are consistent with each other and the server. tests/live/ runs them."""

import configparser
import re
import shlex
from pathlib import Path

import yaml

from identity_server import PAGE_BODY_LIMIT, TOKEN_BODY_LIMIT
from pages.account import FORM_AROUND_PICTURE
from serving import granian_server, gunicorn_config
from storage.pictures import MAX_BYTES

ROOT = Path(__file__).parent.parent
SITE = (ROOT / "deploy" / "nginx.conf").read_text()
UNIT = (ROOT / "deploy" / "identity-server.service").read_text()
DROP_IN = (ROOT / "deploy" / "identity-server.service.d" / "postgresql.conf").read_text()
ADMINISTRATOR = (ROOT / "docs" / "administrator.md").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
KIBIBYTES = {"k": 1, "m": 1024}


def find_all(pattern: str, text: str) -> list[str]:
    """Return the matches of the pattern's group."""
    return re.findall(pattern, text, re.MULTILINE)


def limits_in_nginx() -> dict[str, int]:
    """Return the body limits in bytes by location; "" for all others."""
    limits = {}
    for location, number, unit in re.findall(
        r"^ +(?:location = (\S+) \{\n +)?client_max_body_size ([0-9]+)([km]);", SITE, re.MULTILINE
    ):
        limits[location] = int(number) * KIBIBYTES[unit] * 1024
    return limits


def test_nginx_upstream_is_the_address_of_the_service():
    [command] = find_all(r"^ExecStart=(.*)$", UNIT)
    assert find_all(r"^    server ([^;]+);$", SITE) == [shlex.split(command)[-1]]


def test_drop_in_changes_the_address_of_the_service_only():
    reset, command = find_all(r"^ExecStart=(.*)$", DROP_IN)
    [of_the_unit] = find_all(r"^ExecStart=(.*)$", UNIT)
    assert (reset, command) == ("", of_the_unit.replace("127.0.0.1", "0.0.0.0"))
    # Denied addresses are those of the unit: the drop-in adds to what is allowed.
    assert "IPAddressDeny=any\n" in UNIT
    assert find_all(r"^(IPAddress\w+)=", DROP_IN) == ["IPAddressAllow"]


def test_nginx_serves_the_folders_of_the_service_and_the_image():
    [pictures] = find_all(r"IDENTITY_PICTURE_DIR=(\S+)$", UNIT)
    [program] = find_all(r"^ExecStart=(.*)/\.venv/", UNIT)
    assert set(find_all(r"^        root (/[^;]+);", SITE)) == {
        *(str(Path(pictures).parent), program, "/var/www/html")
    }
    assert pictures.endswith("/pfp")  # in the address and so in the folder
    for name in ("DATA_DIR", "PICTURE_DIR"):
        [folder] = find_all(rf"IDENTITY_{name}=(\S+)$", UNIT)
        assert f"IDENTITY_{name}={folder}" in DOCKERFILE


def test_nginx_body_limits_equal_those_of_the_server():
    assert limits_in_nginx() == {
        "": PAGE_BODY_LIMIT,
        "/api/oauth/token": TOKEN_BODY_LIMIT,
        "/account/picture": 9 * 2**20,
    }
    assert MAX_BYTES + FORM_AROUND_PICTURE < 9 * 2**20


def test_nginx_keep_alive_is_shorter_than_that_of_gunicorn():
    """A POST on a connection that the server is closing would fail, and is not retried."""
    [seconds] = find_all(r"^    keepalive_timeout ([0-9]+)s;", SITE)
    assert int(seconds) < gunicorn_config.keepalive == granian_server.KEEP_ALIVE


def test_systemd_waits_for_open_requests():
    [seconds] = find_all(r"^TimeoutStopSec=([0-9]+)$", UNIT)
    assert int(seconds) > gunicorn_config.graceful_timeout
    granian_stop = granian_server.KEEP_ALIVE + granian_server.FIRST_REQUEST
    assert int(seconds) > granian_stop + granian_server.STOP_TIMEOUT


def test_docker_waits_for_open_requests():
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    waits = [services[name]["stop_grace_period"] for name in ("app1", "app2", "nginx")]
    waits += find_all(r"^#     docker run .* --stop-timeout ([0-9]+) ", DOCKERFILE)
    assert len(waits) == 4
    assert {int(each.removesuffix("s")) for each in waits} == {40}  # as TimeoutStopSec
    assert find_all(r"^TimeoutStopSec=([0-9]+)$", UNIT) == ["40"]


def test_certificate_renewal_reloads_nginx():
    """nginx reads a certificate at its start and at a reload only."""
    comment = find_all(r"^#     (certbot (?:.*\\\n#)?.*)$", SITE)
    [step, *_] = find_all(r"^(certbot certonly .*)$", ADMINISTRATOR)
    assert [shlex.split(each.replace("\\\n#", "")) for each in comment] == [shlex.split(step)]
    assert '--deploy-hook "systemctl reload nginx"' in step
    for text in (SITE, ADMINISTRATOR):
        assert "certbot renew --dry-run" in text
    # For a certificate that was made without the option.
    assert "/etc/letsencrypt/renewal-hooks/deploy/" in ADMINISTRATOR


def test_image_has_the_code_and_no_data_of_this_checkout():
    """.dockerignore is a list of allowed names: a backup or accounts in the folder stay out."""
    ignored, *rules = (
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] != "#"
    )
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert ignored == "*"
    folders = {each for each in setup["options"]["packages"].split() if "." not in each}
    assert {*folders, "*.py", "constraints.txt", "examples", "static", "templates"} <= allowed
    assert allowed.isdisjoint({"instance", "tests", ".git", ".venv"})
    assert {rule for rule in rules if not rule.startswith("!")} == {"static/pfp", "**/__pycache__"}


def test_compose_file_starts_nginx_with_the_site_and_both_servers(tmp_path: Path):
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    services = compose["services"]
    servers = [services[name] for name in ("app1", "app2")]
    ports = [each["ports"][0].split(":") for each in servers]
    assert {(address, inside) for address, _, inside in ports} == {("127.0.0.1", "8000")}
    upstream = " ".join(f"server 127.0.0.1:{port};" for _, port, _ in ports)
    script = services["nginx"]["command"][2].replace("$$", "$")
    changes = re.findall(r'-e "(s.*?)"(?= )', script)
    assert len(changes) == 4
    for change in changes:
        pattern, replacement = re.fullmatch(r"s(.)(.+)\1(.+)\1g?", change).group(2, 3)
        assert re.search(pattern, SITE), pattern
        assert "127.0.0.1" not in replacement or replacement == upstream
    assert "postgresql" in servers[0]["environment"]["IDENTITY_STORAGE"]
    assert "-e '.[postgresql,fast]'" in DOCKERFILE
