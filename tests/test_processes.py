"""The test guard `forbid_processes`, which finds tests that start a process without a marker."""

import os
import subprocess

import pytest
from processes import forbid_processes

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    "start", [lambda: subprocess.run(["true"]), lambda: os.system("true")], ids=["run", "system"]
)
def test_started_process_is_detected(start):
    with forbid_processes():
        pass
    with pytest.raises(AssertionError, match="needs the marker `live`"), forbid_processes():
        start()
