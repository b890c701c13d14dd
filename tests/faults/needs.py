"""What the tests of this folder need of the machine: marks that skip them where it is not there."""

import os
import shutil

import pytest

IS_ROOT = os.geteuid() == 0
MOUNTS = pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a file system")
STRACE = [
    pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a file system, traces processes"),
    pytest.mark.skipif(not shutil.which("strace"), reason="needs strace: makes system calls fail"),
]
