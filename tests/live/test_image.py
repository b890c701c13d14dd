"""The image of deploy/Dockerfile, built and run without Docker, and with Caddy in front.

The steps run in the root of the Debian release that FROM names, made by mmdebstrap. How this
machine reaches its package index goes in by variables and mounts. The container and Caddy have a
network of their own, so that they listen at the ports of the shipped files.
"""

import ast
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

import pytest
from waiting import PATIENCE, wait_until

from identity.site.settings import ROOT, SETTINGS

pytestmark = [pytest.mark.image, pytest.mark.slow]
DEPLOY = Path(ROOT) / "deploy"
STEP_TIMEOUT = 600  # seconds
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OUTSIDE = "/mnt"  # where a step of the build finds the files of this machine
HOST = "id.example.org"
CADDYFILE = """
{{
	admin off
	local_certs
	skip_install_trust
	storage file_system {folder}
}}
import {deploy}/Caddyfile
"""


def run(*command: object, **options) -> str:
    """Run a command, which must succeed; return what it prints."""
    options = {"capture_output": True, "text": True, "timeout": STEP_TIMEOUT} | options
    done = subprocess.run([*map(str, command)], **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[-3000:]
    return done.stdout


# -- building -------------------------------------------------------------------------------------


@dataclass
class Image:
    """The root of a stage of the Dockerfile, and what its instructions say about a container."""

    root: Path
    variables: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    folder: str = "/"
    said: dict[str, str] = field(default_factory=dict)  # by instruction: USER, CMD and others

    def sandbox(self, *mounts: object, **variables: str) -> list[str]:
        """Return the beginning of a command in this root, with processes of its own alone."""
        variables = self.variables | variables
        return [
            *("bwrap", "--die-with-parent", "--unshare-pid", "--as-pid-1", "--unshare-ipc"),
            *map(str, mounts),
            *("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"),
            *("--clearenv", "--chdir", self.folder),
            *(word for each in variables.items() for word in ("--setenv", *each)),
        ]

    def build_step(self, command: str) -> str:
        """Run a command as RUN does, with this machine's way to its package index."""
        mounts = ("--ro-bind", "/", OUTSIDE, "--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf")
        sandbox = self.sandbox("--bind", self.root, "/", *mounts, **way_to_packages())
        return run(*sandbox, "sh", "-c", command)


def way_to_packages() -> dict[str, str]:
    """Return the variables by which pip reaches its index, with the files that they name."""
    variables = {name: each for name, each in os.environ.items() if name.lower().endswith("_proxy")}
    for line in run(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        name = name.rpartition(".")[2].upper().replace("-", "_")
        value = re.sub(r"(?m)(^| |file://)(?=/)", rf"\1{OUTSIDE}", ast.literal_eval(value))
        variables[f"PIP_{name}"] = value
    return variables


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = re.sub(r"(?m)^#.*\n", "", (DEPLOY / "Dockerfile").read_text())
    lines = re.sub(r"\\\n *", "", text).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line]


def build(folder: Path) -> dict[str, Image]:
    """Return the image of each stage, by its name; the last one has the name ""."""
    images: dict[str, Image] = {}
    for word, rest in instructions():
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            images[name] = image = Image(folder / (name or "image"))
            make_root(base, folder, image.root)
        elif word == "RUN":
            image.build_step(rest)
        elif word == "ENV":
            for name, _, value in (each.partition("=") for each in shlex.split(rest)):
                image.variables[name] = Template(value).substitute(image.variables)
        elif word == "COPY":
            *options, source, target = rest.split()
            target = Path(f"{image.root}{target}")
            if options:
                [stage] = re.findall("^--from=(.*)$", options[0])
                run("cp", "-a", f"{images[stage].root}{source}", target)
            else:
                copy_context(target)
        elif word == "WORKDIR":
            image.folder = rest
        else:
            image.said[word] = rest
    return images


def make_root(base: str, folder: Path, root: Path) -> None:
    """Make the root of an image such as `debian:trixie-slim`; what is made once is copied."""
    [release] = re.findall("^debian:([a-z]+)-slim$", base)
    made = folder / release
    if not made.exists():
        options = folder / "apt.conf"
        options.write_text(run("apt-config", "dump", "Acquire"))
        run("mmdebstrap", "--quiet", "--variant=minbase", f"--aptopt={options}", release, made)
    run("cp", "-a", made, root)


def copy_context(target: Path) -> None:
    """Copy what .dockerignore lets through: the last rule that fits a path or a folder above it."""
    rules = [
        (not line.startswith("!"), re.compile(pattern_of(line.removeprefix("!")) + "(/.*)?"))
        for line in Path(ROOT, ".dockerignore").read_text().splitlines()
        if not line.startswith("#")
    ]
    for path in Path(ROOT).rglob("*"):
        name = path.relative_to(ROOT).as_posix()
        [*_, is_ignored] = [ignored for ignored, pattern in rules if pattern.fullmatch(name)]
        if path.is_file() and not is_ignored:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / name)


def pattern_of(glob: str) -> str:
    """Return a regular expression of a pattern in .dockerignore."""
    parts = re.split(r"(\*\*/|\*)", glob)
    return "".join({"**/": "(.*/)?", "*": "[^/]*"}.get(each, re.escape(each)) for each in parts)


# -- running --------------------------------------------------------------------------------------


@dataclass
class Container:
    """The image with a volume, in a network of its own; commands run as in `docker compose`."""

    image: Image
    network: list[str]
    settings: dict[str, str]
    volume: Path

    def command(self, *command: str, mount: str = "--bind", **variables: str) -> list[str]:
        """Return the command by which a process runs in this container, as the image's user."""
        user = self.image.said["USER"]
        place = ("--ro-bind", self.image.root, "/", mount, self.volume, self.image.said["VOLUME"])
        variables = {"HOME": self.image.said["VOLUME"], **self.settings, **variables}
        return [
            *self.network,
            *self.image.sandbox(*place, **variables),
            *("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"),
            *("--no-new-privs", "--bounding-set=-all", *command),
        ]

    def exec(self, *command: str, **options) -> str:
        return run(*self.command(*command), **options)

    def refusal(self, **options: str) -> str:
        """Start the server, which must end with status 1 or 2; return its line."""
        done = subprocess.run(
            self.command(*json.loads(self.image.said["CMD"]), **options),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode in (1, 2) and done.stdout == "", done
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("Error: "), done.stderr
        return done.stderr

    @contextlib.contextmanager
    def running(self, log: Path) -> Iterator[subprocess.Popen]:
        """Run CMD until the block ends, which stops it as Docker does; its output goes to a log."""
        command = self.command(*json.loads(self.image.said["CMD"]))
        with log.open("w") as file, background(command, stdout=file, stderr=file) as process:
            wait_until(self.is_healthy, process, log.read_text)
            yield process
            [first] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(first), signal.SIGTERM)
            assert process.wait(PATIENCE) == 0

    def is_healthy(self) -> bool:
        [check] = re.findall(r"CMD (\[.*\])$", self.image.said["HEALTHCHECK"])
        done = subprocess.run(
            self.command(*json.loads(check)), capture_output=True, timeout=PATIENCE
        )
        return done.returncode == 0


@contextlib.contextmanager
def background(command: list[str], **options) -> Iterator[subprocess.Popen]:
    """Run a command until the block ends."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="identity-image-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def images(folder: Path) -> dict[str, Image]:
    return build(folder)


@pytest.fixture(scope="module")
def compose(images: dict[str, Image]) -> Callable[[str], dict]:
    """A function that returns compose-small.yaml as Docker Compose reads it, with a file .env."""
    image, copied = images["build"], images["build"].root / "deploy"
    image.build_step("apt-get install --yes --no-install-recommends docker-compose")
    run("cp", "-aT", DEPLOY, copied)

    def compose(env: str) -> dict:
        (copied / ".env").write_bytes(env.encode())
        return json.loads(image.build_step("cd /deploy && docker-compose config --format json"))

    return compose


@pytest.fixture(scope="module")
def env() -> str:
    """The file of settings with every setting in force, and OpenID Connect on."""
    text = (DEPLOY / "env.example").read_text()
    text = re.sub("(?m)^#(?=IDENTITY_)", "", text)
    return text.replace("IDENTITY_OPENID=off", "IDENTITY_OPENID=on")


@pytest.fixture(scope="module")
def network() -> Iterator[list[str]]:
    """The beginning of a command in a network with a loopback device alone."""
    script = "ip link set lo up && echo && exec sleep infinity"
    holder = ["unshare", "--net", "sh", "-c", script]
    with background(holder, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield ["nsenter", f"--net=/proc/{process.pid}/ns/net"]
        process.stdout.close()


@pytest.fixture
def new_volume(images: dict[str, Image]) -> Iterator[Callable[[], Path]]:
    """A function that returns a volume as Docker makes it, from the folder of the image."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="identity-image-") as name:

        def new_volume() -> Path:
            volume = Path(tempfile.mkdtemp(dir=name)) / "volume"
            run("cp", "-a", f"{images[''].root}{images[''].said['VOLUME']}", volume)
            return volume

        yield new_volume


@pytest.fixture
def container(images, compose, env, network, new_volume) -> Container:
    settings = compose(env)["services"]["app"]["environment"]
    return Container(images[""], network, settings, new_volume())


# -- the tests ------------------------------------------------------------------------------------


def test_compose_reads_the_settings_with_any_line_ends(compose, env):
    said = compose(env)
    app = said["services"]["app"]
    of_files = {"STORAGE", "DATA_DIR", "PICTURE_DIR"}
    expected = {name: each.default for name, each in SETTINGS.items() if name not in of_files}
    expected |= {"BASE_URL": f"https://{HOST}", "PROXIES": "1", "OPENID": "on"}
    found = {name: each for name, each in app["environment"].items() if "IDENTITY_" in name}
    assert found == {f"IDENTITY_{name}": value for name, value in expected.items()}
    assert app["read_only"] and app["cap_drop"] == ["ALL"]
    assert compose(env.replace("\n", "\r\n")) == said
    quoted = compose(f"{env}IDENTITY_SITE_NAME=\"Ada's\"\nIDENTITY_WELCOME='$5 # each'\n")
    values = quoted["services"]["app"]["environment"]
    assert values["IDENTITY_SITE_NAME"] == "Ada's"  # the last line counts
    assert values["IDENTITY_WELCOME"].replace("$$", "$") == "$5 # each"
    with pytest.raises(AssertionError, match="line [0-9]+: unterminated quoted value"):
        compose(f'{env}IDENTITY_SITE_NAME="Our games\n')


def test_container_answers_through_caddy(container: Container, folder: Path, tmp_path: Path):
    (tmp_path / "Caddyfile").write_text(CADDYFILE.format(folder=folder / "caddy", deploy=DEPLOY))
    (tmp_path / "hosts").write_text("127.0.0.1 localhost app\n")
    log, caddy_log = tmp_path / "log", tmp_path / "caddy.log"
    root = folder / "caddy/pki/authorities/local/root.crt"
    caddy = [
        *(*container.network, "bwrap", "--die-with-parent", "--dev-bind", "/", "/"),
        *("--ro-bind", str(tmp_path / "hosts"), "/etc/hosts", "--setenv", "HOST", HOST),
        *("caddy", "run", "--adapter", "caddyfile", "--config", str(tmp_path / "Caddyfile")),
    ]

    def get(path: str, *options: str) -> str:
        known = ("--cacert", root, "--resolve", f"{HOST}:443:127.0.0.1", "--interface", "127.0.0.9")
        command = ("curl", "--silent", "--show-error", "--fail", *known, *options)
        return run(*container.network, *command, f"https://{HOST}{path}")

    with (
        container.running(log),
        caddy_log.open("w") as file,
        background(caddy, stdout=file, stderr=file) as process,
    ):
        wait_until(root.exists, process, caddy_log.read_text)
        wait_until(lambda: "certificate obtained" in caddy_log.read_text(), process)
        assert "Identity Server" in get("/")
        for page in re.findall(r'href="(/developer/docs/[^"#]+)', get("/developer/docs")):
            assert "<h1" in get(page), page
        assert get("/static/style.css") and get("/openapi.json")
        [key, *_] = json.loads(get("/oauth/keys"))["keys"]
        assert key["kty"] and "/oauth/keys" in get("/.well-known/openid-configuration")
        offer = json.loads(get("/sign-in/passkey/options", "--request", "POST"))
        assert HOST in json.dumps(offer)
        # The address of the client arrives, and not what a client says about it.
        get("/sign-up", "--header", "X-Forwarded-For: 203.0.113.7")
        wait_until(lambda: '"GET /sign-up ' in log.read_text(), process)
        [line] = [each for each in log.read_text().splitlines() if '"GET /sign-up ' in each]
        assert "Warning" not in log.read_text()
        assert line.startswith("127.0.0.9 ") and "203.0.113.7" not in log.read_text()
        assert f"https://{HOST}/sign-up" in log.read_text()  # the link of the first account


def test_image_has_every_extra(container: Container):
    names = "fido2, cryptography, segno, psycopg, granian, prometheus_client"
    container.exec("python3", "-c", f"import {names}")
    assert container.exec("id", "-u") == "900\n"


def test_commands_of_the_guide(container: Container, new_volume):
    """What docs/administrator.md runs in the container, in its order."""
    add = shlex.split("identity-server user add ada --email ada@example.org --password-stdin")
    container.exec(*add, input="correct horse battery staple\n")
    guide = Path(ROOT, "docs", "administrator.md").read_text(encoding="utf-8")
    found = re.findall(r"docker compose (?:exec|run --rm)(?: -T)? app ([^`\n]+)", guide)
    files: dict[str, bytes] = {}
    for command in found:
        words = shlex.split(command.partition(" && rsync")[0].rstrip(")"))
        *words, direction, path = words if words[-2] in ("<", ">") else (*words, "", "")
        if direction == "<" and not (container.volume / "newer").exists():
            container.volume = new_volume()  # "an installation without players"
        printed = container.exec(*words, input=files.get(path, b""), text=False)
        if direction == ">":
            files[path] = printed
        elif direction == "<":
            assert b"ada" in container.exec("identity-server", "user", "list", text=False)
        elif "--nightly" in words:
            [archive] = container.volume.glob("identity-*.tar.gz")
            assert archive.stat().st_mode & 0o777 == 0o600
    assert len(found) == 8 and len(files) == 2


def test_bad_input_is_refused_in_one_line(container: Container, new_volume, tmp_path, subtests):
    with container.running(tmp_path / "log"):
        refusal = container.refusal()
        assert "cannot listen at 0.0.0.0:8000 (Address already in use)" in refusal
    for name, value, fix in (
        ("BASE_URL", HOST, "does not begin with https://"),
        ("BASE_URL", f"https://https://{HOST}", "such as https://id.example.org"),
        ("SITE_NAME", "Our games\r", "save the file of settings with Unix line ends"),
        ("SITE_NAME", '"Our games"', "which are not needed: remove them"),
        ("SITE_NAME", 'Our games"', "too many"),
        ("SITENAME", "Our games", "perhaps IDENTITY_SITE_NAME is meant"),
    ):
        with subtests.test(name, value=value):
            container.volume = new_volume()
            assert fix in container.refusal(**{f"IDENTITY_{name}": value})
    with subtests.test("a volume that is read-only"):
        assert "mount its disk for writing" in container.refusal(mount="--ro-bind")
    for folder in ("", "instance"):
        with subtests.test("a volume of root's", folder=folder):
            (container.volume / folder).mkdir(exist_ok=True)
            os.chown(container.volume / folder, 0, 0)
            assert re.search(r"chown (-R )?900 /var/lib/identity-server\b", container.refusal())
