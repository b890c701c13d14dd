"""A cache for pictures: generating one takes 3 ms, and decoding an upload takes a process."""

import functools

import pytest

from images import pictures

generate_picture = functools.cache(pictures.generate_picture)
make_picture = functools.cache(pictures.make_picture)


def cache_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let storage cache its pictures, which depend on the input only."""
    monkeypatch.setattr(pictures, "generate_picture", generate_picture)
    monkeypatch.setattr(pictures, "make_picture", make_picture)
