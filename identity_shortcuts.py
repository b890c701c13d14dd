"""A shorter way through Flask, for the calls that a server exists for.

Of what Flask does around a view an API call may need nothing: no routing, no session, no request
object, no hook. That is most of its cost. A shortcut answers the same; what is unusual about a
request, or goes wrong with it, goes the whole way.
"""

import functools
import json
from collections.abc import Callable, Iterable

from flask import Blueprint, Flask, Request, request
from werkzeug.routing import MapAdapter
from werkzeug.wrappers import Response


class JsonAnswer:
    """A successful answer, as a WSGI application: a fraction of the cost of a Response."""

    def __init__(self, body: dict, headers: dict[str, str]) -> None:
        self.body = json.dumps(body).encode()
        self.headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(self.body))),
            ("X-Content-Type-Options", "nosniff"),
            *headers.items(),
        ]

    def __call__(self, environ: dict, start_response: Callable) -> list[bytes]:
        start_response("200 OK", self.headers)
        return [self.body]


def shortcut(blueprint: Blueprint, method: str, path: str) -> Callable:
    """A decorator: route this address to a view that takes the WSGI environ (PEP 3333) alone."""

    def decorate(view: Callable) -> Callable:
        blueprint.record(lambda state: state.app.add_shortcut(method, path, view))
        return view

    return decorate


class FlaskWithShortcuts(Flask):
    """Flask, with some views called directly where nothing about the request is unusual.

    They answer without a request context, a session and the app's before_request and after_request.
    So the app's USUAL_HOSTS are the only values of Host that are not looked at further.
    """

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.shortcuts: dict[tuple[str, str], Callable] = {}  # by method and path

    def add_shortcut(self, method: str, path: str, view: Callable) -> None:
        """Call `view` directly; the route is for what goes the whole way."""
        self.shortcuts[method, path] = view
        self.add_url_rule(
            path,
            view.__name__,
            lambda: view(request.environ),
            methods=[method],
            provide_automatic_options=False,
        )

    def wsgi_app(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        view = self.shortcuts.get((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        usual = environ.get("HTTP_HOST") in self.config["USUAL_HOSTS"]
        if view is None or not usual or not environ["QUERY_STRING"].isascii():
            return super().wsgi_app(environ, start_response)
        with self.app_context():
            try:
                answer = view(environ)
            except Exception as error:  # whatever it is: as Flask does
                with self.request_context(environ):
                    answer = self._answer_error(error)
            return answer(environ, start_response)

    def _answer_error(self, error: Exception) -> Response:
        try:
            return self.finalize_request(self.handle_user_exception(error))
        except Exception as unhandled:
            return self.handle_exception(unhandled)

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """What Flask makes; for an app context, where it is always the same, once."""
        return super().create_url_adapter(request) if request else self._own_adapter

    @functools.cached_property
    def _own_adapter(self) -> MapAdapter | None:
        return super().create_url_adapter(None)

    def do_teardown_appcontext(self, *error: object) -> None:
        """As Flask does it, where anything is registered for it: Flask looks at every request."""
        if self.teardown_appcontext_funcs:
            super().do_teardown_appcontext(*error)
