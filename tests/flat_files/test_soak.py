"""Files that a soak run leaves behind."""

from types import SimpleNamespace

import pytest

from benchmarks.soak import problems_on_disk


@pytest.mark.parametrize("folder", ["instance", "pfp"])
def test_leftover_file_is_reported(store, tmp_path, folder):
    folders = {"DATA_DIR": str(tmp_path / "instance"), "PICTURE_DIR": str(tmp_path / "pfp")}
    installation = SimpleNamespace(settings=folders)
    assert problems_on_disk(installation) == []
    leftover = tmp_path / folder / ".left"
    leftover.touch()
    assert f"{leftover} was left behind" in problems_on_disk(installation)
