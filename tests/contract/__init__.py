"""What storage promises on each backend, as classes of tests.

They are collected where a class inherits from them: in flat_files/test_contract.py and in
postgresql/test_contract.py, whose conftest.py choose the backend. They use only the interface in
`storage`.
"""

import pytest

MODULES = ("base", "users", "changes", "clients", "codes", "attempts", "keys", "kinds", "loading")
MODULES += ("openid", "names", "playing")
pytest.register_assert_rewrite(*(f"{__name__}.{each}" for each in MODULES))
