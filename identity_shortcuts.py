"""A shorter way through Flask, for the calls that a server exists for.

Of what Flask does around a view an API call may need nothing: no routing, no session, no hook.
That is most of its cost. A shortcut answers the same; what is unusual about a request, or goes
wrong with it, goes the whole way.
"""

import functools
import json
from collections.abc import Callable, Iterable

from flask import Flask, Request
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


class FlaskWithShortcuts(Flask):
    """Flask, with the views in `shortcuts`, which are also routed, called directly.

    They answer without a session and without the app's before_request and after_request. So the
    app's USUAL_HOSTS are the only values of Host that are not looked at further.
    """

    shortcuts: dict[tuple[str, str], Callable] = {}  # by method and path

    def wsgi_app(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        view = self.shortcuts.get((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        usual = environ.get("HTTP_HOST") in self.config["USUAL_HOSTS"]
        if view is None or not usual or not environ["QUERY_STRING"].isascii():
            return super().wsgi_app(environ, start_response)
        environ["identity_server.shortcut"] = True
        with self.request_context(environ):
            try:
                answer = view()
            except Exception as error:  # whatever it is: as Flask does
                answer = self._answer_error(error)
            return answer(environ, start_response)

    def _answer_error(self, error: Exception) -> Response:
        try:
            return self.finalize_request(self.handle_user_exception(error))
        except Exception as unhandled:
            return self.handle_exception(unhandled)

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """None, which skips the routing, for a request on a shortcut."""
        if request is None:
            return self._own_adapter
        if "identity_server.shortcut" in request.environ:
            return None
        return super().create_url_adapter(request)

    @functools.cached_property
    def _own_adapter(self) -> MapAdapter | None:
        # What Flask makes anew for each app context, always the same
        return super().create_url_adapter(None)

    def do_teardown_request(self, *error: object) -> None:
        """As Flask does it, where anything is registered for it: Flask looks at every request."""
        if self.teardown_request_funcs:
            super().do_teardown_request(*error)

    def do_teardown_appcontext(self, *error: object) -> None:
        """The same for the app context."""
        if self.teardown_appcontext_funcs:
            super().do_teardown_appcontext(*error)
