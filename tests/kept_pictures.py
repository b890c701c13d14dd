"""Pictures that the tests have storage make once: drawing takes 3 ms, and decoding a process."""

import functools

import pytest

from storage import pictures

generate_picture = functools.cache(pictures.generate_picture)
make_picture = functools.cache(pictures.make_picture)


def keep_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the pictures that storage makes: for the same input they are the same."""
    monkeypatch.setattr(pictures, "generate_picture", generate_picture)
    monkeypatch.setattr(pictures, "make_picture", make_picture)
