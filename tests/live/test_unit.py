"""What systemd says of deploy/identity-server.service."""

import re
import subprocess
from pathlib import Path

import pytest

from identity.settings import ROOT

pytestmark = [pytest.mark.live, pytest.mark.nginx]
UNIT = Path(ROOT) / "deploy" / "identity-server.service"


def exposure(unit: Path) -> float:
    """From 0, where a service can do nothing else, to 10."""
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", told)[1])


def test_the_service_is_confined():
    assert exposure(UNIT) < 2


def test_a_service_that_is_not_confined_would_be_found(tmp_path: Path):
    plain = tmp_path / "plain.service"
    plain.write_text("[Service]\nUser=somebody\nExecStart=/bin/true\n")
    assert exposure(plain) > 8


def test_systemd_understands_every_line(tmp_path: Path):
    """But for the program, which is not installed where the unit has it."""
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.M))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
