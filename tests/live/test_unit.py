"""deploy/identity-server.service, checked by systemd."""

import re
import subprocess
from pathlib import Path

import pytest

from identity.settings import ROOT

pytestmark = [pytest.mark.live, pytest.mark.nginx]
UNIT = Path(ROOT) / "deploy" / "identity-server.service"


def exposure(unit: Path) -> float:
    """Return systemd's exposure level of a unit, from 0 (confined) to 10."""
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", printed)[1])


def test_service_is_confined():
    assert exposure(UNIT) < 2


def test_exposure_of_an_unconfined_service(tmp_path: Path):
    plain = tmp_path / "plain.service"
    plain.write_text("[Service]\nUser=somebody\nExecStart=/bin/true\n")
    assert exposure(plain) > 8


def test_unit_is_valid(tmp_path: Path):
    """With another program: the unit's own is not installed on this machine."""
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.M))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
