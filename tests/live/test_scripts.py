"""The messages of static/play.js and static/identity.js, tested in Node without a browser."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.node]
TESTS = Path(__file__).parent / "scripts"


@pytest.mark.parametrize("script", ["play", "identity"])
def test_script_passes_its_tests_in_node(script: str):
    command = [shutil.which("node"), "--test", str(TESTS / f"{script}.test.mjs")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
