"""How the tests know which of them start processes."""

import os
import subprocess

import pytest
from processes import forbid_processes

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    "start", [lambda: subprocess.run(["true"]), lambda: os.system("true")], ids=["run", "system"]
)
def test_a_process_that_is_started_is_noticed(start):
    with forbid_processes():
        pass
    with pytest.raises(AssertionError, match="needs the marker `live`"), forbid_processes():
        start()
