"""The API calls that games make most, handled ahead of Flask.

They need nothing of what Flask does around a view (routing, session, hooks), and that is most of
its cost. `FastPath` is WSGI middleware (PEP 3333): it calls their views with an `ApiRequest`, and
passes all other requests to Flask. The same views are Flask routes as well, for the requests that
Flask's hooks have to check, such as one with an unusual Host; both ways give the same response.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote_plus

from flask import Flask, g, request
from werkzeug import exceptions
from werkzeug.wrappers import Response
from werkzeug.wsgi import get_input_stream

from identity.http.responses import (
    ANY_ORIGIN,
    NO_SNIFF,
    JsonResponse,
    json_error,
    storage_http_error,
)
from model.errors import StorageError
from storage import Storage


def parse_parameters(text: str, errors: str = "replace") -> list[tuple[str, str]]:
    """Return the parameters of a query or a form, blank ones included.

    `errors` says what to do with bytes that are not UTF-8. urllib.parse.parse_qsl returns the same,
    and takes three times as long: it decodes also what is not encoded. Raises ValueError if
    `errors` is "strict".
    """
    parameters = []
    for each in text.split("&"):
        name, _, value = each.partition("=")
        if "%" in each or "+" in each:
            name, value = unquote_plus(name, errors=errors), unquote_plus(value, errors=errors)
        if each:
            parameters.append((name, value))
    return parameters


@dataclass(slots=True)
class ApiRequest:
    """A request to the API, read from the WSGI environ (PEP 3333) only when a view asks."""

    environ: dict
    storage: Storage
    base_url: str
    mail: bool  # is set up, so that only confirmed addresses are given to apps
    openid: bool  # OpenID Connect is on
    days_kept: tuple[int, int]  # a refresh token that is not used, and those of one sign-in
    ticket_days: int  # that an account is old before a server accepts its tickets
    any_origin: bool = False  # set by a view: pages of any origin may read this response

    @property
    def query(self) -> list[tuple[str, str]]:
        """The parameters in the query, blank ones included."""
        # PEP 3333 lets a server leave an empty QUERY_STRING out.
        return parse_parameters(self.environ.get("QUERY_STRING", ""))

    @property
    def authorization(self) -> tuple[str, str]:
        """The scheme, in lower case, and credentials of the Authorization header; "" if missing."""
        scheme, _, credentials = self.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        return scheme.lower(), credentials.strip(" ")

    def read_body(self, limit: int) -> bytes:
        """Return the body. Raises RequestEntityTooLarge over `limit` bytes, BadRequest."""
        length = self.environ.get("CONTENT_LENGTH", "")
        if length.isdecimal() and int(length) <= limit:
            try:
                body = self.environ["wsgi.input"].read(int(length))
            except OSError:
                body = b""
            if len(body) < int(length):  # the client has gone, so nobody reads the response
                raise exceptions.BadRequest("the body ends before its Content-Length")
            return body
        # One byte more: Werkzeug truncates a chunked body at its limit without an error.
        body = get_input_stream(self.environ, max_content_length=limit + 1).read()
        if len(body) > limit:
            raise exceptions.RequestEntityTooLarge
        return body


View = Callable[[ApiRequest], JsonResponse]


class ApiViews(dict[tuple[str, str], tuple[View, dict[str, str]]]):
    """The API views of an app, by method and path, each with the headers of all its responses."""

    def __init__(self) -> None:
        super().__init__()
        self.any_origin_paths = set()
        self.preflights: dict[str, tuple[str, str]] = {}  # by path: methods, request headers

    def route(
        self, method: str, path: str, any_origin: bool = False, sent_header: str | None = None
    ) -> Callable:
        """Return a decorator that routes to a view.

        With `any_origin`, pages of any origin may read all responses; otherwise those for which the
        view sets `ApiRequest.any_origin`. A preflight allows the method and `sent_header`.
        """
        headers = {**NO_SNIFF, **ANY_ORIGIN} if any_origin else NO_SNIFF
        if any_origin:
            self.any_origin_paths.add(path)
        if sent_header:
            methods = "GET, HEAD" if method == "GET" else method
            if path in self.preflights:  # a view for several methods
                methods = f"{methods}, {self.preflights[path][0]}"
            self.preflights[path] = methods, sent_header

        def decorate(view: View) -> View:
            self[method, path] = view, headers
            return view

        return decorate


class FastPath:
    """WSGI middleware in front of a Flask app that handles calls of its API views if that is safe.

    It calls a view directly if Host is one of `hosts` and the query is ASCII: Flask's hooks would
    find nothing to refuse. Flask handles all other requests.
    """

    def __init__(self, app: Flask, views: ApiViews, hosts: frozenset[str]) -> None:
        self.app = app
        self.views = views
        self.hosts = hosts
        self.flask = app.wsgi_app
        self.logger = app.logger  # created now: it has a handler before the first view logs
        options = {"provide_automatic_options": False}
        for (method, path), (view, _) in views.items():
            view_in_flask = partial(self._call_from_flask, view)
            name = f"{method} {path}"
            app.add_url_rule(path, name, view_in_flask, methods=[method], **options)
        for path in views.preflights:
            app.add_url_rule(path, "preflight", self._preflight, methods=["OPTIONS"], **options)
        app.after_request(self._allow_any_origin)

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        routed = self.views.get((environ["REQUEST_METHOD"], environ.get("PATH_INFO", "")))
        is_usual = environ.get("HTTP_HOST") in self.hosts
        if routed is None or not is_usual or not environ.get("QUERY_STRING", "").isascii():
            return self.flask(environ, start_response)
        view, headers = routed
        api_request = self._request_of(environ)
        try:
            response = view(api_request)
        except Exception as error:  # of any kind, as Flask does
            response = self._handle_error(error, environ)
        response.headers.extend(headers.items())
        if api_request.any_origin:
            response.headers.extend(ANY_ORIGIN.items())
        return response(environ, start_response)

    def _request_of(self, environ: dict) -> ApiRequest:
        config = self.app.config
        store, mail = self.app.extensions["storage"], bool(config["SMTP_URL"])
        openid = config["OPENID"] == "on"
        days_kept = config["REFRESH_DAYS"], config["SIGN_IN_DAYS"]
        ticket_days = config["TICKET_DAYS"]
        return ApiRequest(environ, store, config["BASE_URL"], mail, openid, days_kept, ticket_days)

    def _call_from_flask(self, view: View) -> JsonResponse:
        g.api_request = self._request_of(request.environ)
        return view(g.api_request)

    def _preflight(self) -> Response:
        """Tell a browser what pages of any origin may send."""
        methods, sent_header = self.views.preflights[request.path]
        headers = {
            "Access-Control-Allow-Methods": methods,
            "Access-Control-Allow-Headers": sent_header,
            "Access-Control-Max-Age": "86400",  # seconds
            **ANY_ORIGIN,
        }
        return Response(status=204, headers=headers)

    def _allow_any_origin(self, response: Response) -> Response:
        """Let pages of any origin read what Flask answers at the paths and views that allow it."""
        allowed = "api_request" in g and g.api_request.any_origin
        if allowed or request.path in self.views.any_origin_paths:
            response.headers.update(ANY_ORIGIN)
        return response

    def _handle_error(self, error: Exception, environ: dict) -> JsonResponse:
        """Return the response for an error of a view, and log it if the server is at fault."""
        if isinstance(error, StorageError):
            error = storage_http_error(error, self.logger)
        if not isinstance(error, exceptions.HTTPException):
            where = environ["PATH_INFO"], environ["REQUEST_METHOD"]
            self.logger.error("Exception on %s [%s]", *where, exc_info=error)
            error = exceptions.InternalServerError()
        return json_error(error, environ["PATH_INFO"])
