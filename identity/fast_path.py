"""The three API calls, handled ahead of Flask.

They need nothing of what Flask does around a view (routing, session, hooks), and that is most of
its cost. `FastPath` is WSGI middleware (PEP 3333): it calls their views with an `ApiRequest`, and
passes all other requests to Flask. The same views are Flask routes as well, for the requests that
Flask's hooks have to check, such as one with an unusual Host; both ways give the same response.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from urllib.parse import parse_qsl

from flask import Flask, request
from werkzeug.datastructures import EnvironHeaders
from werkzeug.exceptions import (
    BadRequest,
    HTTPException,
    InternalServerError,
    RequestEntityTooLarge,
)
from werkzeug.wrappers import Response
from werkzeug.wsgi import get_input_stream

import storage
from identity.responses import ANY_ORIGIN, NO_SNIFF, JsonResponse, json_error, storage_http_error


@dataclass(slots=True)
class ApiRequest:
    """A request to the API, read from the WSGI environ (PEP 3333) only when a view asks."""

    environ: dict
    storage: storage.Storage

    @property
    def method(self) -> str:
        """The method, in upper case."""
        return self.environ["REQUEST_METHOD"]

    @property
    def path(self) -> str:
        """The path, decoded, without the query."""
        return self.environ.get("PATH_INFO", "")

    @property
    def query(self) -> list[tuple[str, str]]:
        """The parameters in the query, blank ones included."""
        # PEP 3333 lets a server leave an empty QUERY_STRING out.
        return parse_qsl(self.environ.get("QUERY_STRING", ""), keep_blank_values=True)

    @property
    def headers(self) -> EnvironHeaders:
        """The headers; their names are compared without case."""
        return EnvironHeaders(self.environ)

    @property
    def address(self) -> str | None:
        """The client's IP address, from the server or the trusted proxies."""
        return self.environ.get("REMOTE_ADDR")

    @property
    def authorization(self) -> tuple[str, str]:
        """The scheme, in lower case, and credentials of the Authorization header; "" if missing."""
        scheme, _, credentials = self.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        return scheme.lower(), credentials.strip(" ")

    def read_body(self, limit: int) -> bytes:
        """Return the body. Raises RequestEntityTooLarge over `limit` bytes, BadRequest."""
        length = self.environ.get("CONTENT_LENGTH", "")
        if length.isdecimal() and int(length) <= limit:
            body = self.environ["wsgi.input"].read(int(length))
            if len(body) < int(length):  # the client has gone, so nobody reads the response
                raise BadRequest("the body ends before its Content-Length")
            return body
        # One byte more: Werkzeug truncates a chunked body at its limit without an error.
        body = get_input_stream(self.environ, max_content_length=limit + 1).read()
        if len(body) > limit:
            raise RequestEntityTooLarge
        return body


@dataclass(frozen=True)
class ApiView:
    """A view of an `ApiRequest`, and the headers of all its responses, errors included."""

    view: Callable[[ApiRequest], JsonResponse]
    headers: list[tuple[str, str]]


class ApiViews(dict[tuple[str, str], ApiView]):
    """The API views of an app, by method and path."""

    def route(self, method: str, path: str, any_origin: bool = False) -> Callable:
        """Return a decorator that routes requests to a view, by browsers on any origin or not."""
        headers = {**NO_SNIFF, **ANY_ORIGIN} if any_origin else NO_SNIFF

        def decorate(view: Callable[[ApiRequest], JsonResponse]) -> Callable:
            self[method, path] = ApiView(view, list(headers.items()))
            return view

        return decorate

    def any_origin_paths(self) -> set[str]:
        """Return the paths that browsers may call from pages of any origin."""
        return {path for (_, path), each in self.items() if ANY_ORIGIN.items() <= set(each.headers)}


def preflight() -> Response:
    """Tell a browser that pages of any origin may send an access token."""
    headers = {
        "Access-Control-Allow-Methods": "GET, HEAD",
        "Access-Control-Allow-Headers": "Authorization",
        "Access-Control-Max-Age": "86400",  # seconds
    }
    return Response(status=204, headers=headers)


class FastPath:
    """WSGI middleware in front of a Flask app that handles calls of its API views if that is safe.

    It calls a view directly if Host is one of `hosts` and the query is ASCII: Flask's hooks would
    find nothing to refuse. Flask handles all other requests.
    """

    def __init__(self, app: Flask, views: ApiViews, hosts: frozenset[str]) -> None:
        self.app = app
        self.views = views
        self.hosts = hosts
        self.any_origin_paths = views.any_origin_paths()
        self.flask = app.wsgi_app
        self.logger = app.logger  # created now: it has a handler before the first view logs
        for (method, path), each in views.items():
            view = partial(self._call_from_flask, each.view)
            options = {"methods": [method], "provide_automatic_options": False}
            app.add_url_rule(path, each.view.__name__, view, **options)
        for path in self.any_origin_paths:
            options = {"methods": ["OPTIONS"], "provide_automatic_options": False}
            app.add_url_rule(path, "preflight", preflight, **options)
        app.after_request(self._allow_any_origin)

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        routed = self.views.get((environ["REQUEST_METHOD"], environ.get("PATH_INFO", "")))
        is_usual = environ.get("HTTP_HOST") in self.hosts
        if routed is None or not is_usual or not environ.get("QUERY_STRING", "").isascii():
            return self.flask(environ, start_response)
        api_request = ApiRequest(environ, self.app.extensions["storage"])
        try:
            response = routed.view(api_request)
        except Exception as error:  # of any kind, as Flask does
            response = self._handle_error(error, api_request)
        response.headers.extend(routed.headers)
        return response(environ, start_response)

    def _call_from_flask(self, view: Callable) -> JsonResponse:
        return view(ApiRequest(request.environ, self.app.extensions["storage"]))

    def _allow_any_origin(self, response: Response) -> Response:
        """Let browsers read Flask's own responses as well: errors, and those to a preflight."""
        if request.path in self.any_origin_paths:
            response.headers.update(ANY_ORIGIN)
        return response

    def _handle_error(self, error: Exception, api_request: ApiRequest) -> JsonResponse:
        if isinstance(error, storage.StorageError):
            error = storage_http_error(error, self.logger)
        if not isinstance(error, HTTPException):
            where = api_request.path, api_request.method
            self.logger.error("Exception on %s [%s]", *where, exc_info=error)
            error = InternalServerError()
        return json_error(error)
