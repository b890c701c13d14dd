"""Marks that skip tests if the machine lacks their requirements."""

import os
import shutil

import pytest

IS_ROOT = os.geteuid() == 0
MOUNTS = pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a file system")
STRACE = pytest.mark.skipif(
    not (IS_ROOT and shutil.which("strace")), reason="needs root and strace: injects faults"
)
