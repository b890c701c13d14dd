"""Apps that tests share: `create_app` registers 70 routes, which costs 20 times a request."""

import collections
import os

from flask import Flask

from identity_server import create_app
from storage import open_storage

FOLDERS = ("DATA_DIR", "PICTURE_DIR")


class SharedApps:
    """A pool of apps, by their settings. `lend` gives out each as new, with a storage of its own.

    A test may change an app in any way. Only registered routes and handlers cannot be taken back:
    an app that has more of them than when it was new is not lent again.
    """

    def __init__(self) -> None:
        self._idle: dict[frozenset, list[LentApp]] = collections.defaultdict(list)

    def lend(self, settings: dict[str, str]) -> "LentApp":
        """An app that is nobody else's until `take_back`. Raises what `create_app` raises."""
        key = frozenset((name, settings[name]) for name in settings.keys() - set(FOLDERS))
        if not self._idle[key]:
            return LentApp(key, create_app(settings))
        lent = self._idle[key].pop()
        lent.open_folders(*(os.path.abspath(settings[name]) for name in FOLDERS))
        return lent

    def take_back(self, lent: "LentApp") -> None:
        """Restore an app and keep it for the next who asks for its settings."""
        if lent.restore():
            self._idle[lent.key].append(lent)


class LentApp:
    """An app, and what it was when it was new."""

    def __init__(self, key: frozenset, app: Flask) -> None:
        self.key, self.app = key, app
        self._changeable = [vars(app), app.config, app.extensions, app.jinja_env.globals]
        self._as_new = [dict(each) for each in self._changeable]
        self._registered = self._read_registered()

    def _read_registered(self) -> list:
        app = self.app
        handlers = [  # looking one up leaves empty dictionaries behind
            (blueprint, code, error)
            for blueprint, codes in app.error_handler_spec.items()
            for code, errors in codes.items()
            for error in errors
        ]
        before_and_after = repr((app.before_request_funcs, app.after_request_funcs))
        return [list(app.url_map.iter_rules()), before_and_after, handlers]

    def open_folders(self, data_dir: str, picture_dir: str) -> None:
        """Let the app serve the installation in these folders, made where they are empty."""
        self.app.config.update(zip(FOLDERS, (data_dir, picture_dir), strict=True))
        self.app.instance_path = data_dir
        self.app.extensions["storage"] = open_storage(data_dir, picture_dir)

    def restore(self) -> bool:
        """Undo every change; False where that is impossible."""
        if self._read_registered() != self._registered:
            return False
        for current, as_new in zip(self._changeable, self._as_new, strict=True):
            current.clear()
            current.update(as_new)
        return True
