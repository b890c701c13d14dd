"""How the tests know which of them start processes."""

import os
import subprocess

import pytest
from processes import no_process

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    "start", [lambda: subprocess.run(["true"]), lambda: os.system("true")], ids=["run", "system"]
)
def test_a_process_that_is_started_is_noticed(start):
    with no_process():
        pass
    with pytest.raises(AssertionError, match="needs the marker `live`"), no_process():
        start()
