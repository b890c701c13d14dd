"""deploy/identity-server.service and its drop-in for PostgreSQL, checked by systemd."""

import re
import subprocess
from pathlib import Path

import pytest

from identity.settings import ROOT

pytestmark = [pytest.mark.live, pytest.mark.nginx]
UNIT = Path(ROOT) / "deploy" / "identity-server.service"
DROP_IN = Path(ROOT) / "deploy" / "identity-server.service.d" / "postgresql.conf"


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


def problems_in(folder: Path) -> str:
    """Return what systemd says about the unit in this folder, with its drop-in if that is there."""
    command = ["systemd-analyze", "verify", folder / UNIT.name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert bool(done.returncode) <= bool(done.stdout + done.stderr)
    return done.stdout + done.stderr


def copy_without_program(file: Path, target: Path) -> None:
    """Copy with another program: the unit's own is not installed on this machine."""
    target.parent.mkdir(exist_ok=True)
    target.write_text(
        re.sub(r"^ExecStart=/\S+", "ExecStart=/bin/true", file.read_text(), flags=re.M)
    )


def test_unit_is_valid(tmp_path: Path):
    copy_without_program(UNIT, tmp_path / UNIT.name)
    assert problems_in(tmp_path) == ""


def test_drop_in_is_valid(tmp_path: Path):
    """A second command, or an address that is none, would be a problem."""
    copy_without_program(UNIT, tmp_path / UNIT.name)
    drop_in = tmp_path / DROP_IN.parent.name / DROP_IN.name
    copy_without_program(DROP_IN, drop_in)
    assert problems_in(tmp_path) == ""
    valid = drop_in.read_text()
    for wrong in (valid.replace("ExecStart=\n", ""), valid.replace("10.0.0.10", "web")):
        drop_in.write_text(wrong)
        assert problems_in(tmp_path) != ""
