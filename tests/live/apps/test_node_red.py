"""Node-RED with passport-openidconnect, the library with which Wiki.js signs in too."""

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect
from programs import free_port

from ..running import RunningServer
from .conftest import BOB
from .driving import register, running_program, sign_in
from .environments import npm_environment

pytestmark = pytest.mark.heavy_apps


@pytest.fixture(scope="module")
def node_red(
    openid_server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a Node-RED that admits its owner `ada` alone."""
    folder = tmp_path_factory.mktemp("node_red")
    packages = npm_environment("node-red", "node-red@4.1.15", "passport-openidconnect@0.1.2")
    address = f"http://localhost:{(port := free_port())}"
    _, [settings] = register(openid_server, "node-red", address, "--owner", "ada")
    (folder / "settings.js").write_text(settings)
    (folder / "node_modules").symlink_to(packages / "node_modules")
    command = [shutil.which("node"), "node_modules/node-red/red.js", "--userDir", str(folder)]
    command += ["--port", str(port), "--define", "uiHost=127.0.0.1"]
    with running_program(command, folder, port):
        yield address


def test_node_red_admits_listed_handles_alone(node_red: str, browse: Callable[..., Page]):
    for name in ("ada", BOB):
        page = browse()
        page.goto(node_red)
        page.get_by_role("button", name="Sign in with Identity Server").click()
        sign_in(page, name)
        if name == "ada":
            expect(page.locator("#usermenu-item-username")).to_have_text("ada")
        else:
            expect(page.get_by_text("AuthenticationError: Unauthorized")).to_be_visible()
