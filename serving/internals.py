"""The undocumented parts of gunicorn and granian that this package overrides or calls."""

import sys
from types import ModuleType


def require_internals(
    library: ModuleType, internals: tuple[tuple[ModuleType, str], ...], fix: str
) -> None:
    """Exit with one line if a library lacks one of these attributes of its modules.

    Without this check a renamed method would silently end the redaction of the logs, for example.
    """
    for module, path in internals:
        found = module
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is None:
            missing = f"{library.__name__} {library.__version__} has no {module.__name__}.{path}"
            sys.exit(f"Error: {missing}: {fix}")
