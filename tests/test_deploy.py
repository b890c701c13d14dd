"""The files in deploy/ are consistent with each other and the server. tests/live/ runs them."""

import configparser
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from documents import PAGES, ROOT

from identity.oauth.clients import TOKEN_BODY_LIMIT
from identity.site.settings import SETTINGS
from identity_server import PAGE_BODY_LIMIT
from images.pictures import MAX_BYTES
from pages.admin.door import LONGEST_FORM
from pages.kit.uploads import FORM_AROUND_PICTURE
from serving import granian_server, gunicorn_config

SITE = (ROOT / "deploy" / "nginx.conf").read_text()
UNIT_FILE = ROOT / "deploy" / "identity-server.service"
DROP_IN_FILE = ROOT / "deploy" / "identity-server.service.d" / "postgresql.conf"
UNIT, DROP_IN = UNIT_FILE.read_text(), DROP_IN_FILE.read_text()
ADMINISTRATOR = PAGES["docs/administrator.md"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
KIBIBYTES = {"k": 1, "m": 1024}


def find_all(pattern: str, text: str) -> list[str]:
    return re.findall(pattern, text, re.MULTILINE)


def test_nginx_upstream_and_keep_alive_fit_the_service():
    """A POST on a connection that the server is closing would fail, and is not retried."""
    [command] = find_all(r"^ExecStart=(.*)$", UNIT)
    assert find_all(r"^    server ([^;]+);$", SITE) == [shlex.split(command)[-1]]
    [seconds] = find_all(r"^    keepalive_timeout ([0-9]+)s;", SITE)
    assert int(seconds) < gunicorn_config.keepalive == granian_server.KEEP_ALIVE


def test_drop_in_changes_the_address_of_the_service_only():
    reset, command = find_all(r"^ExecStart=(.*)$", DROP_IN)
    [of_the_unit] = find_all(r"^ExecStart=(.*)$", UNIT)
    assert (reset, command) == ("", of_the_unit.replace("127.0.0.1", "0.0.0.0"))
    # Denied addresses are those of the unit: the drop-in adds to what is allowed.
    assert "IPAddressDeny=any\n" in UNIT
    assert find_all(r"^(IPAddress\w+)=", DROP_IN) == ["IPAddressAllow"]


def test_nginx_serves_the_folders_of_the_service():
    [pictures] = find_all(r"IDENTITY_PICTURE_DIR=(\S+)$", UNIT)
    [program] = find_all(r"^ExecStart=(.*)/\.venv/", UNIT)
    roots = {str(Path(pictures).parent), program, "/var/www/html"}
    assert set(find_all(r"^        root (/[^;]+);", SITE)) == roots
    assert pictures.endswith("/pfp")  # in the address and so in the folder
    for name in ("DATA_DIR", "PICTURE_DIR"):
        [folder] = find_all(rf"IDENTITY_{name}=(\S+)$", UNIT)
        assert f"IDENTITY_{name}={folder}" in DOCKERFILE


def test_nginx_body_limits_and_patterns_are_exact():
    """PCRE's $ matches in front of one, also in other configurations of this folder."""
    location = r"^ +(?:location [=~] (\S+) \{\n +)?"
    found = find_all(rf"{location}client_max_body_size ([0-9]+)([km]);", SITE)
    limits = {path: int(number) * KIBIBYTES[unit] * 1024 for path, number, unit in found}
    tokens = "^/(oauth/(token|device|revoke|introspect)|api/(oauth/token|tickets|tickets/check))\\z"
    assert limits == {
        "": PAGE_BODY_LIMIT,
        tokens: TOKEN_BODY_LIMIT,
        "^/admin/door/(terms|privacy)\\z": 256 * 1024,
        "^/(account/picture|welcome/picture|developer/[^/]+/cover|admin/look/logo"
        "|admin/door/(allowed|refused))\\z": 9 * 2**20,
    }
    assert max(MAX_BYTES + FORM_AROUND_PICTURE, LONGEST_FORM) < 9 * 2**20
    texts = [path.read_text() for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    patterns = find_all(r"^ *(?:location ~|\"~).*(\\z|\$)\"?(?: \{| \S+;)", "\n".join(texts))
    assert set(patterns) == {"\\z"}


def test_systemd_and_docker_wait_for_open_requests():
    [seconds] = find_all(r"^TimeoutStopSec=([0-9]+)$", UNIT)
    assert int(seconds) > gunicorn_config.graceful_timeout
    granian_stop = granian_server.KEEP_ALIVE + granian_server.FIRST_REQUEST
    assert int(seconds) > granian_stop + granian_server.STOP_TIMEOUT
    docker = [COMPOSE[name]["stop_grace_period"] for name in ("app1", "app2", "nginx")]
    docker += find_all(r"^#     docker run .* --stop-timeout ([0-9]+) ", DOCKERFILE)
    assert [each.removesuffix("s") for each in docker] == [seconds] * 4


def test_certificate_renewal_reloads_nginx():
    """nginx reads a certificate at its start and at a reload only."""
    for text in (SITE, ADMINISTRATOR):
        [step, *_] = find_all(r"(certbot certonly (?:.*\\\n)?.*)$", text)
        assert '--deploy-hook "systemctl reload nginx"' in step


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
    resources = {"constraints.txt", "docs", "examples", "static", "templates"}
    assert {*folders, *resources, "*.py"} <= allowed
    assert allowed.isdisjoint({"instance", "tests", "deploy", ".git", ".venv"})
    removed = {rule for rule in rules if not rule.startswith("!")}
    pictures = {f"docs/**/*.{kind}" for kind in ("json", "png", "webp")}
    assert removed == {"static/pfp", "**/__pycache__", *pictures}
    assert rules.index("!docs") < min(map(rules.index, pictures))  # the last rule that fits counts


def test_compose_file_starts_nginx_and_both_servers():
    servers = [COMPOSE[name] for name in ("app1", "app2")]
    ports = [each["ports"][0].split(":") for each in servers]
    assert {(address, inside) for address, _, inside in ports} == {("127.0.0.1", "8000")}
    upstream = " ".join(f"server 127.0.0.1:{port};" for _, port, _ in ports)
    script = COMPOSE["nginx"]["command"][2].replace("$$", "$")
    changes = re.findall(r'-e "(s.*?)"(?= )', script)
    assert len(changes) == 4
    for change in changes:
        pattern, replacement = re.fullmatch(r"s(.)(.+)\1(.+)\1g?", change).group(2, 3)
        assert re.search(pattern, SITE), pattern
        assert "127.0.0.1" not in replacement or replacement == upstream
    assert "postgresql" in servers[0]["environment"]["IDENTITY_STORAGE"]
    assert servers[0]["env_file"] == ".env"
    assert "-e '.[all]'" in DOCKERFILE


def exposure(unit: Path) -> float:
    """Return systemd's exposure level of a unit, from 0 (confined) to 10."""
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", printed)[1])


@pytest.mark.nginx
def test_units_and_drop_in_are_valid_and_confined(tmp_path: Path):
    """With another program: the unit's own is not installed on this machine."""

    def problems() -> str:
        command = ["systemd-analyze", "verify", tmp_path / UNIT_FILE.name]
        done = subprocess.run(command, capture_output=True, text=True)
        assert bool(done.returncode) <= bool(done.stdout + done.stderr)
        return done.stdout + done.stderr

    unit, valid = (
        re.sub(r"(?m)^ExecStart=/\S+", "ExecStart=/bin/true", each) for each in (UNIT, DROP_IN)
    )
    (tmp_path / UNIT_FILE.name).write_text(unit)
    assert problems() == ""
    drop_in = tmp_path / DROP_IN_FILE.parent.name / DROP_IN_FILE.name
    drop_in.parent.mkdir()
    drop_in.write_text(valid)
    assert problems() == ""
    drop_in.write_text(valid.replace("10.0.0.10", "web"))
    assert problems() != ""  # negative control
    assert exposure(UNIT_FILE) < 2
    copies = [tmp_path / path.name for path in BACKUP_FILES]
    for path, copy in zip(BACKUP_FILES, copies, strict=True):
        copy.write_text(path.read_text())
    done = subprocess.run(["systemd-analyze", "verify", *copies], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


BACKUP_FILES = [
    UNIT_FILE.with_name(f"identity-server-backup.{kind}") for kind in ("service", "timer")
]


@pytest.mark.live
def test_nightly_backup_runs_as_its_unit_says(tmp_path: Path):
    """The command of the unit, as systemd would pass it to the shell, with and without a copy."""
    unit = BACKUP_FILES[0].read_text()
    [line] = find_all(r"^ExecStart=/bin/sh -c '(.*)'$", unit)
    [program] = find_all(r"exec (\S+)", line)
    script = line.replace("$$", "$").replace(program, "printf '%s|'").replace("exec ", "")
    assert program == find_all(r"^ExecStart=(\S+)", UNIT)[0]
    folder = "/var/lib/identity-server/backups"
    assert "identity-server/backups" in find_all(r"^StateDirectory=(.*)$", unit)[0].split()
    for copy, expected in (
        ("", ["backup", "--nightly", folder]),
        ('rsync "$1" x:', ["backup", "--nightly", folder, "--then", 'rsync "$1" x:']),
    ):
        done = subprocess.run(
            ["/bin/sh", "-c", script], env={"BACKUP_COPY": copy}, capture_output=True, text=True
        )
        assert done.stdout.split("|")[:-1] == expected
    for path in BACKUP_FILES:
        assert path.stem in PAGES["docs/backups.md"]


COMMAND = (ROOT / "deploy" / "identity-server").read_text()
ENVIRONMENT = """
# A comment with 'a quote
; Another one
IDENTITY_A=a $b & c ; d # e `f` $(g)
IDENTITY_B='x $HOME "y" \\n'
  IDENTITY_C = "it's $HOME"\x20
IDENTITY_D=say "hi" 'there'
IDENTITY_E=of Windows\r
IDENTITY_F=
IDENTITY_G=a=b
no assignment
1IDENTITY=x
export IDENTITY_H=x
BACKUP_COPY='rsync "$1" x:'
#IDENTITY_A=twice
IDENTITY_LAST=y"""
REFUSED = ["a\\ b", "a\\", "'it's'", "'a' b", '"a\\"b"', '"a" "b"', "'a\nb'", '"a']


def run_command(tmp_path: Path, environment: str, **variables: str) -> subprocess.CompletedProcess:
    """Run the script with a file of settings; the program prints its variables."""
    file = tmp_path / "identity-server.env"
    file.write_text(environment, newline="")
    script = COMMAND.replace("file=/etc/identity-server.env", f"file='{file}'")
    script = re.sub("^exec runuser .*$", "exec env --null", script, flags=re.MULTILINE)
    variables |= {"PATH": "/usr/bin:/bin"}
    options = {"env": variables, "capture_output": True, "text": True}
    return subprocess.run(["/bin/sh", "-c", script], **options)


def settings_of(tmp_path: Path) -> dict[str, str]:
    printed = run_command(tmp_path, ENVIRONMENT, IDENTITY_G="set before").stdout
    variables = dict(each.split("=", 1) for each in printed.split("\0")[:-1])
    return {name: each for name, each in variables.items() if name not in ("PATH", "PWD")}


@pytest.mark.live
def test_command_reads_the_settings_and_runs_nothing_in_them(tmp_path: Path, subtests):
    assert settings_of(tmp_path) == {
        "IDENTITY_A": "a $b & c ; d # e `f` $(g)",
        "IDENTITY_B": 'x $HOME "y" \\n',
        "IDENTITY_C": "it's $HOME",
        "IDENTITY_D": "say \"hi\" 'there'",
        "IDENTITY_E": "of Windows",
        "IDENTITY_F": "",
        "IDENTITY_G": "set before",
        "BACKUP_COPY": 'rsync "$1" x:',
        "IDENTITY_LAST": "y",
    }
    for value in REFUSED:
        with subtests.test(value):
            done = run_command(tmp_path, f"IDENTITY_A=good\nIDENTITY_X={value}\nIDENTITY_Z=z\n")
            assert (done.returncode, done.stdout) == (1, "")
            assert "the line of IDENTITY_X" in done.stderr and "good" not in done.stderr
    twice = run_command(tmp_path, "IDENTITY_X=s3cret\nIDENTITY_XY=y\n IDENTITY_X =again\n")
    problem = "has IDENTITY_X twice, and only the last line counts: remove the other\n"
    assert (twice.returncode, twice.stdout) == (1, "")
    assert twice.stderr.endswith(problem) and "s3cret" not in twice.stderr
    assert "exec runuser -u identity-server --" in COMMAND
    assert find_all(r"^file=(.*)$", COMMAND) == find_all(r"^EnvironmentFile=(.*)$", UNIT)


def test_files_with_passwords_are_made_for_root_alone():
    """Before anything is written into them."""
    several = PAGES["docs/several-machines.md"]
    compose = (ROOT / "deploy" / "compose.yaml").read_text()
    for text, file, first in (
        (ADMINISTRATOR, "/etc/identity-server.env", "IDENTITY_BASE_URL=https"),
        (several, "/etc/identity-server.env", 'IDENTITY_SITE_NAME="Our'),
        (UNIT, "/etc/identity-server.env", "IDENTITY_BASE_URL=https"),
        (compose, "deploy/.env", "PASSWORD="),
    ):
        assert 0 < text.index(f"install -m 600 /dev/null {file}") < text.index(first)
    assert "install -m 600 env.example .env\n" in ADMINISTRATOR
    for text in (ADMINISTRATOR, several):
        assert "install deploy/identity-server /usr/local/bin/\n" in text
        assert "set -a" not in text


@pytest.mark.nginx
def test_settings_mean_the_same_to_systemd(tmp_path: Path, subtests):
    """systemd reads os-release with the parser of EnvironmentFile=; no condition is empty."""
    settings = settings_of(tmp_path) | {"IDENTITY_G": "a=b"}
    for name, value in filter(all, settings.items()):
        with subtests.test(name, value=value):
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            for condition, status in ((quoted, 0), (f"{quoted}x", 1)):
                done = subprocess.run(
                    ["systemd-analyze", "condition", f'ConditionOSRelease="{name}={condition}"'],
                    env={"SYSTEMD_OS_RELEASE": str(tmp_path / "identity-server.env")},
                    capture_output=True,
                )
                assert done.returncode == status, done.stderr


def test_small_compose_file_has_one_server_behind_caddy():
    small = yaml.safe_load((ROOT / "deploy" / "compose-small.yaml").read_text())
    app, caddy = small["services"]["app"], small["services"]["caddy"]
    assert app["build"] == COMPOSE["app1"]["build"]
    assert app["environment"] == {"IDENTITY_BASE_URL": "https://${HOST:?}", "IDENTITY_PROXIES": 1}
    assert (app["env_file"], app["read_only"]) == (".env", True)
    assert {app["logging"]["driver"], caddy["logging"]["driver"]} == {"local"}
    assert app["stop_grace_period"] == COMPOSE["app1"]["stop_grace_period"]
    assert "ports" not in app  # nobody reaches it past Caddy
    mounted = {each.partition(":")[0] for each in app["volumes"] + caddy["volumes"]}
    assert mounted - {"./Caddyfile"} == set(small["volumes"])
    [volume] = find_all(r"^VOLUME (\S+)$", DOCKERFILE)
    assert app["volumes"] == [f"data:{volume}"]
    caddyfile = (ROOT / "deploy" / "Caddyfile").read_text()
    [port] = find_all(r"^EXPOSE ([0-9]+)$", DOCKERFILE)
    assert find_all(r"reverse_proxy (\S+)", caddyfile) == [f"app:{port}"]
    [size] = find_all(r"max_size ([0-9]+)MB", caddyfile)
    assert int(size) * 10**6 >= MAX_BYTES + FORM_AROUND_PICTURE


def test_env_file_has_each_setting_with_its_default():
    """As a comment, but for those that the image or compose-small.yaml sets."""
    small = (ROOT / "deploy" / "compose-small.yaml").read_text()
    elsewhere = {*re.findall(r"\bIDENTITY_(\w+)[=:]", DOCKERFILE + small), "STORAGE"}
    assert elsewhere == {"DATA_DIR", "PICTURE_DIR", "BASE_URL", "PROXIES", "STORAGE"}
    lines = [
        f"# {each.help}\n#IDENTITY_{name}={each.default}\n"
        for name, each in SETTINGS.items()
        if name not in elsewhere
    ]
    text = (ROOT / "deploy" / "env.example").read_text()
    head, _, rest = text.partition(f"\n{lines[0]}")
    assert f"{lines[0]}{rest}" == "\n".join(lines)
    in_force = [line for line in head.splitlines() if line and not line.startswith("#")]
    assert in_force == ["COMPOSE_FILE=compose-small.yaml", "HOST=id.example.org"]
