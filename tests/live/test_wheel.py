"""The package, installed by pip in a new environment and used from an empty folder."""

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from programs import free_port, is_open
from waiting import PATIENCE, wait_until

from identity.settings import ROOT

pytestmark = [pytest.mark.wheel, pytest.mark.xdist_group("wheel")]
CONSTRAINTS = Path(ROOT) / "constraints.txt"
SOURCES = ("*.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
FOLDERS = ["commands", "examples", "identity", "pages", "serving", "static", "storage", "templates"]
PIP_TIMEOUT = 300  # seconds


def pip(*arguments: str | Path) -> None:
    """Run pip, which must succeed."""
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel of this checkout, built in a copy, where setuptools leaves files."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    left_out = shutil.ignore_patterns("pfp", "__pycache__")
    for name in FOLDERS:
        shutil.copytree(Path(ROOT) / name, source / name, ignore=left_out)
    for pattern in SOURCES:
        for file in Path(ROOT).glob(pattern):
            shutil.copy(file, source)
    pip("wheel", "--no-deps", "--wheel-dir", folder, source)
    [built] = folder.glob("*.whl")
    return built


class Installed:
    """The package in an environment of its own, used with an empty home folder."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        environment, self.home, self.here = (folder / each for each in ("venv", "home", "empty"))
        self.home.mkdir()
        self.here.mkdir()
        command = [sys.executable, "-m", "venv", "--without-pip", environment]
        subprocess.run(command, check=True)
        pip("--python", environment, "install", "--no-compile", "-c", CONSTRAINTS, wheel)
        self.command = environment / "bin" / "identity-server"

    def start(self, *arguments: str) -> subprocess.Popen:
        """Start the command with the environment variables of a login only."""
        return subprocess.Popen(
            [self.command, *arguments],
            cwd=self.here,
            env={"HOME": str(self.home), "PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Installed:
    """The installed package."""
    return Installed(tmp_path_factory.mktemp("installed"), wheel)


def stop(process: subprocess.Popen) -> None:
    """Stop a process by SIGINT."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()


@pytest.fixture
def served(installed) -> Iterator[str]:
    """The address of a server on an empty installation."""
    port = free_port()
    process = installed.start("serve", "--bind", f"127.0.0.1:{port}")
    wait_until(lambda: is_open(port), process)
    yield process.stdout.readline().split()[-1].rstrip("/")
    stop(process)


def open_page(browser: requests.Session, address: str) -> str:
    """Return a page; its style sheets and scripts must be there as well."""
    page = browser.get(address, timeout=PATIENCE)
    assert page.status_code == 200, (address, page.text)
    parts = re.findall(r'(?:<link [^>]*href|<script [^>]*src)="(?!data:)([^"]+)"', page.text)
    assert any(part.endswith(".css") for part in parts), address
    for part in parts:
        found = browser.get(requests.compat.urljoin(page.url, part), timeout=PATIENCE)
        assert found.status_code == 200 and found.content, part
    return page.text


def test_wheel_has_every_resource_file(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    for folder in FOLDERS:
        inside = f"identity/{folder}" if folder in ("examples", "static", "templates") else folder
        for file in (Path(ROOT) / folder).rglob("*"):
            name = file.relative_to(Path(ROOT) / folder)
            if file.is_file() and "__pycache__" not in name.parts and "pfp" not in name.parts:
                assert f"{inside}/{name}" in packed
    top = {name.partition("/")[0] for name in packed if ".dist-info/" not in name}
    assert not top & {"templates", "static", "examples", "deploy", "tests"}


def test_version(installed, wheel):
    printed, _ = installed.start("--version").communicate(timeout=PATIENCE)
    assert printed == f"identity-server {wheel.name.split('-')[1]}\n"


def test_installed_server_has_pages_with_styles(installed, served):
    browser = requests.Session()
    for path in ("/", "/sign-in", "/sign-up"):
        open_page(browser, f"{served}{path}")
    assert browser.get(f"{served}/openapi.json", timeout=PATIENCE).json()["openapi"]
    # No data in the current folder, nor in site-packages.
    assert list(installed.here.iterdir()) == []
    data = installed.home / ".local" / "share" / "identity-server"
    assert {each.name for each in data.iterdir()} == {"instance", "pfp"}


def test_installed_demo_has_community_web_app_and_game(installed):
    process = installed.start("demo", "--bind", "127.0.0.1:0")
    try:
        said = ""
        while "Ctrl-C ends it" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        site, game, web_app = re.findall(r"^  .*? {2,}(http://\S+)", said, re.MULTILINE)
        password = re.search(r"^The password of all five is: (.*)$", said, re.MULTILINE)[1]
        browser = requests.Session()
        form = {"name": "ada", "password": password}
        signed_in = browser.post(f"{site}sign-in", data=form, timeout=PATIENCE)
        assert signed_in.status_code == 200
        own = re.findall(r'href="(/[^"/][^"]*)"', open_page(browser, site))
        pages = {each for each in own if not each.startswith("/static/")}
        assert len(pages) > 3
        for path in sorted(pages):
            open_page(browser, f"{site.rstrip('/')}{path}")
        frame = re.search(r'<iframe[^>]* src="([^"]+)"', open_page(browser, game))[1]
        open_page(browser, frame)
        open_page(browser, web_app)
    finally:
        stop(process)
    assert list(installed.here.iterdir()) == []
