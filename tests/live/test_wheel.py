"""The package, installed by pip in a new environment and used from an empty folder."""

import contextlib
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

from identity.site.settings import ROOT

pytestmark = pytest.mark.wheel
CONSTRAINTS = Path(ROOT) / "constraints.txt"
SOURCES = ("*.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
FILES = Path(ROOT, "docs").iterdir()
DOCUMENTATION = [f"docs/{each.name}" for each in FILES if each.suffix in (".md", ".svg")]
RESOURCES = ["docs/apps", "docs/engines", "docs/games", "examples", "static", "templates"]
RESOURCES += ["translations"]
LEFT_OUT = {"translations/update", "translations/babel.cfg", "translations/messages.pot"}
FOLDERS = ["commands", "identity", "images", "model", "pages", "serving", "storage", *RESOURCES]
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
    for file in DOCUMENTATION:
        shutil.copy(Path(ROOT) / file, source / file)
    pip("wheel", "--no-deps", "--wheel-dir", folder, source)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with the package installed in `venv`, and with the empty folders `home`, `here`."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "home").mkdir()
    (folder / "here").mkdir()
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip("--python", venv, "install", "--no-compile", "--constraint", CONSTRAINTS, wheel)
    return folder


@contextlib.contextmanager
def running(installed: Path, *arguments: str) -> Iterator[subprocess.Popen]:
    """Run the command with the environment variables of a login only; stop it by SIGINT."""
    process = subprocess.Popen(
        [installed / "venv" / "bin" / "identity-server", *arguments],
        cwd=installed / "here",
        env={"HOME": str(installed / "home"), "PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)


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
        inside = f"identity/{folder}" if folder in RESOURCES else folder
        for file in (Path(ROOT) / folder).rglob("*"):
            name = file.relative_to(Path(ROOT) / folder)
            is_resource = file.is_file() and f"{folder}/{name}" not in LEFT_OUT
            if is_resource and not {"__pycache__", "pfp"} & {*name.parts}:
                assert f"{inside}/{name}" in packed
    assert {f"identity/{file}" for file in DOCUMENTATION} <= packed
    top = {name.partition("/")[0] for name in packed if ".dist-info/" not in name}
    assert not top & {"templates", "static", "examples", "deploy", "docs", "tests"}


def test_version(installed, wheel):
    with running(installed, "--version") as process:
        printed = process.stdout.read()
    assert printed == f"identity-server {wheel.name.split('-')[1]}\n"


def test_installed_command_knows_the_programs(installed):
    with running(installed, "client", "add", "--help") as process:
        assert "Programs: " in (printed := process.stdout.read())
    assert "discourse" in printed


def test_installed_server_has_pages_with_styles(installed):
    browser = requests.Session()
    port = free_port()
    with running(installed, "serve", "--bind", f"127.0.0.1:{port}") as process:
        wait_until(lambda: is_open(port), process)
        served = process.stdout.readline().split()[-1].rstrip("/")
        for path in ("/", "/sign-in", "/sign-up", "/developer/docs/games", "/developer/docs/godot"):
            open_page(browser, f"{served}{path}")
        assert browser.get(f"{served}/openapi.json", timeout=PATIENCE).json()["openapi"]
    # No data in the current folder, nor in site-packages.
    assert list((installed / "here").iterdir()) == []
    data = installed / "home" / ".local" / "share" / "identity-server"
    assert {each.name for each in data.iterdir()} == {"instance", "pfp"}


def test_installed_demo_has_community_web_app_and_game(installed):
    browser = requests.Session()
    with running(installed, "demo", "--bind", "127.0.0.1:0") as process:
        lines = []
        while not lines or "Ctrl-C ends it" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        said = "".join(lines)
        site, game, web_app, letters = re.findall(r"^  .*? {2,}(http://\S+)", said, re.MULTILINE)
        password = re.search(r"^  password +(.*)$", said, re.MULTILINE)[1]
        form = {"name": "ada", "password": password}
        signed_in = browser.post(f"{site}sign-in", data=form, timeout=PATIENCE)
        assert signed_in.status_code == 200
        own = re.findall(r'href="(/[^"/][^"]*)"', open_page(browser, site))
        pages = {each for each in own if not each.startswith("/static/")}
        assert len(pages) > 3
        for path in (*sorted(pages), "/admin/docs/everyday", "/admin/docs/performance"):
            open_page(browser, f"{site.rstrip('/')}{path}")
        frame = re.search(r'<iframe[^>]* src="([^"]+)"', open_page(browser, game))[1]
        open_page(browser, frame)
        for address in (web_app, letters):
            open_page(browser, address)
    assert list((installed / "here").iterdir()) == []
