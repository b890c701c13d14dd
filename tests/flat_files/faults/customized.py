"""Code that every Python process of a server under test runs first, as `sitecustomize`."""

from pathlib import Path

import pytest
from live.running import PASSWORD
from werkzeug.security import generate_password_hash

from identity.settings import ROOT

# The real hash takes a third of a second.
CHEAP_METHOD = "pbkdf2:sha256:1"
CHEAP_HASH = generate_password_hash(PASSWORD, CHEAP_METHOD)
CHEAP_PASSWORDS = f"""
from identity import passwords
passwords.PASSWORD_METHOD = {CHEAP_METHOD!r}
"""


def customize(environment: pytest.MonkeyPatch, folder: Path, program: str) -> None:
    """Make every Python process started from now on run this program first."""
    (folder / "sitecustomize.py").write_text(program)
    environment.setenv("PYTHONPATH", f"{folder}:{ROOT}")
