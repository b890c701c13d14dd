"""The health check, if folders are missing or cannot be written."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("part", ["users", "keys", "pictures"])
def test_healthz_is_503_without_records_keys_or_pictures(anyone, faults, folders, part):
    """An unmounted disk looks like this."""
    faults.take_away(part)
    answer = anyone.get("/healthz")
    assert answer.status_code == 503
    assert answer.content_type == "application/json"
    assert list(answer.json) == ["message"]
    assert not any(folder in answer.text for folder in folders)


@pytest.mark.live
def test_health_check_fails_if_only_empty_files_can_be_created(tmp_path):
    """A full disk still creates empty files; the limit on file size simulates one."""
    program = (
        "import resource, sys, storage;"
        "store = storage.open_storage(sys.argv[1], sys.argv[2]);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
        "open(f'{store.layout.data_dir}/users/empty', 'x').close();"
        "store.check_health()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "data", tmp_path / "pictures"],
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
    )
    assert "StorageFailed: the disk refused" in done.stderr
    assert (tmp_path / "data/users/empty").exists()
