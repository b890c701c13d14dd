"""A pool of apps: `create_app` registers 70 routes, which takes as long as 20 requests."""

import collections
import os

from flask import Flask

from identity_server import create_app
from storage import open_storage

INSTALLATION = ("DATA_DIR", "PICTURE_DIR", "STORAGE")
MAIL_SERVER = "SMTP_URL"  # with the port of this test's; the app reads it for each letter


class SharedApps:
    """A pool of apps, by their settings. `acquire` returns each as new, with its own storage.

    A test may change an app in any way. Added routes and handlers cannot be removed, so an app with
    additional ones is not reused.
    """

    def __init__(self) -> None:
        self._idle: dict[frozenset, list[PooledApp]] = collections.defaultdict(list)

    def acquire(self, settings: dict[str, str]) -> "PooledApp":
        """Return an app for exclusive use until `release`. Raises what `create_app` raises."""
        names = settings.keys() - {*INSTALLATION, MAIL_SERVER}
        key = frozenset((name, settings[name]) for name in names)
        if not self._idle[key]:
            return PooledApp(key, create_app(settings))
        pooled = self._idle[key].pop()
        folders = (os.path.abspath(settings[name]) for name in INSTALLATION[:2])
        pooled.open_installation(*folders, settings["STORAGE"])
        pooled.app.config[MAIL_SERVER] = settings.get(MAIL_SERVER, "")
        return pooled

    def release(self, pooled: "PooledApp") -> None:
        """Restore an app and keep it for the next test with the same settings."""
        if pooled.restore():
            self._idle[pooled.key].append(pooled)


class PooledApp:
    """An app and its initial state."""

    def __init__(self, key: frozenset, app: Flask) -> None:
        self.key, self.app = key, app
        self._changeable = [vars(app), app.config, app.extensions, app.jinja_env.globals]
        self._as_new = [dict(each) for each in self._changeable]
        self._registered = self._read_registered()

    def _read_registered(self) -> list:
        app = self.app
        errors = [each for codes in app.error_handler_spec.values() for each in codes.values()]
        handlers = list(filter(None, errors))  # a look-up adds empty dictionaries
        hooks = app.before_request_funcs, app.after_request_funcs
        return [list(app.url_map.iter_rules()), repr(hooks), repr(handlers)]

    def open_installation(self, *installation: str) -> None:
        """Let the app serve the installation of these settings, which is created if missing."""
        self.app.config.update(zip(INSTALLATION, installation, strict=True))
        self.app.instance_path = self.app.config["DATA_DIR"]
        self.app.extensions["storage"] = open_storage(*installation)

    def restore(self) -> bool:
        """Undo every change; return False if that is impossible."""
        if self._read_registered() != self._registered:
            return False
        for current, as_new in zip(self._changeable, self._as_new, strict=True):
            current.clear()
            current.update(as_new)
        return True
