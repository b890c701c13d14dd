"""The three API calls, answered ahead of Flask.

They need nothing of what Flask does around a view (routing, session, hooks), and that is most of
its cost. `FastPath` is WSGI middleware (PEP 3333): it calls their views with an `ApiRequest`, and
hands everything else to Flask. The same views are Flask routes as well, for the requests that need
a closer look, such as one with an unusual Host; both ways give the same answer.
"""

import json
import logging
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
    NotFound,
    RequestEntityTooLarge,
    ServiceUnavailable,
)
from werkzeug.wrappers import Response
from werkzeug.wsgi import get_input_stream

import storage

STORAGE_RETRY_AFTER = 5  # seconds
NO_SNIFF = ("X-Content-Type-Options", "nosniff")
ANY_ORIGIN = ("Access-Control-Allow-Origin", "*")


# ---------------------------------------------------------------------------------------------
# Requests and answers
# ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ApiRequest:
    """A request to the API, read from the WSGI environ (PEP 3333) only as far as a view asks."""

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
        """The client's IP address, as the server or the trusted proxies tell it."""
        return self.environ.get("REMOTE_ADDR")

    def read_body(self, limit: int) -> bytes:
        """Return the body. Raises RequestEntityTooLarge over `limit` bytes, BadRequest."""
        length = self.environ.get("CONTENT_LENGTH", "")
        if length.isdecimal() and int(length) <= limit:
            body = self.environ["wsgi.input"].read(int(length))
            if len(body) < int(length):  # a client that sends half a body hears no answer anyway
                raise BadRequest("the body ends before its Content-Length")
            return body
        # One byte more: Werkzeug truncates a chunked body at its limit without an error.
        body = get_input_stream(self.environ, max_content_length=limit + 1).read()
        if len(body) > limit:
            raise RequestEntityTooLarge
        return body


class JsonAnswer:
    """A successful answer, as a WSGI application: a fraction of the cost of a Response."""

    def __init__(self, body: dict, headers: dict[str, str]) -> None:
        self.body = json.dumps(body).encode()
        self.headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(self.body))),
            *headers.items(),
        ]

    def __call__(self, environ: dict, start_response: Callable) -> list[bytes]:
        start_response("200 OK", self.headers)
        return [self.body]


# ---------------------------------------------------------------------------------------------
# Errors
# ---------------------------------------------------------------------------------------------


class InsufficientStorage(HTTPException):
    """507: the disk is full (RFC 4918 11.5)."""

    code = 507
    description = "the disk is full; nothing was saved"


class StorageUnavailable(ServiceUnavailable):
    """503: the disk refuses, or a record is damaged."""

    description = "the server cannot read or save what this needs right now"


def storage_http_error(error: storage.StorageError, logger: logging.Logger) -> HTTPException:
    """Return the HTTP error for what storage could not do, and log all but a missing record."""
    if isinstance(error, storage.NotFound):
        return NotFound()
    logger.error("%s", error)
    if isinstance(error, storage.StorageFull):
        return InsufficientStorage()
    return StorageUnavailable(retry_after=STORAGE_RETRY_AFTER)


def json_error(error: HTTPException) -> Response:
    """Return the error as an API answer, `{"message": ...}`."""
    if error.response is not None:
        return error.response
    answer = error.get_response()
    answer.data = json.dumps({"message": error.description})
    answer.content_type = "application/json"
    return answer


# ---------------------------------------------------------------------------------------------
# The two ways to a view
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ApiView:
    """A view of an `ApiRequest`, and the headers of all of its answers, errors included."""

    view: Callable[[ApiRequest], JsonAnswer]
    headers: list[tuple[str, str]]


class ApiViews(dict[tuple[str, str], ApiView]):
    """The API views of an app, by method and path."""

    def route(self, method: str, path: str, *headers: tuple[str, str]) -> Callable:
        """Return a decorator that routes requests to a view; all its answers get the `headers`."""

        def decorate(view: Callable[[ApiRequest], JsonAnswer]) -> Callable:
            self[method, path] = ApiView(view, [NO_SNIFF, *headers])
            return view

        return decorate


class FastPath:
    """WSGI middleware in front of a Flask app that answers its API views where that is safe.

    A view is called directly where Host is one of `hosts` and the query is ASCII: Flask's hooks
    would find nothing to refuse. Flask answers all other requests.
    """

    def __init__(self, app: Flask, views: ApiViews, hosts: frozenset[str]) -> None:
        self.app = app
        self.views = views
        self.hosts = hosts
        self.flask = app.wsgi_app
        self.logger = app.logger  # made here: it has a handler before the first view logs
        for (method, path), each in views.items():
            view = partial(self._call_from_flask, each.view)
            options = {"methods": [method], "provide_automatic_options": False}
            app.add_url_rule(path, each.view.__name__, view, **options)

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        routed = self.views.get((environ["REQUEST_METHOD"], environ.get("PATH_INFO", "")))
        is_usual = environ.get("HTTP_HOST") in self.hosts
        if routed is None or not is_usual or not environ.get("QUERY_STRING", "").isascii():
            return self.flask(environ, start_response)
        api_request = ApiRequest(environ, self.app.extensions["storage"])
        try:
            answer = routed.view(api_request)
        except Exception as error:  # whatever it is, as Flask does
            answer = self._answer_error(error, api_request)
        answer.headers.extend(routed.headers)
        return answer(environ, start_response)

    def _call_from_flask(self, view: Callable) -> JsonAnswer:
        return view(ApiRequest(request.environ, self.app.extensions["storage"]))

    def _answer_error(self, error: Exception, api_request: ApiRequest) -> Response:
        if isinstance(error, storage.StorageError):
            error = storage_http_error(error, self.logger)
        if not isinstance(error, HTTPException):
            where = api_request.path, api_request.method
            self.logger.error("Exception on %s [%s]", *where, exc_info=error)
            error = InternalServerError()
        return json_error(error)
