"""Compares the responses of the fast path and of Flask for every API request of every test."""

import copy
import functools
from collections.abc import Callable, Iterable

from flask import Flask

from identity.http.fast_path import ApiRequest, ApiViews, FastPath
from identity.http.responses import JsonResponse

OUTCOME = "tests.outcome"  # WSGI environ key: the view's response or error, and any_origin


def record_outcome(view: Callable[[ApiRequest], JsonResponse]) -> Callable:
    """Return a view that records its outcome in the environ, or repeats a recorded one."""

    @functools.wraps(view)
    def recorded(api_request: ApiRequest) -> JsonResponse:
        environ = api_request.environ
        if OUTCOME not in environ:
            try:
                outcome = view(api_request)
            except Exception as error:
                outcome = error
            environ[OUTCOME] = outcome, api_request.any_origin
        outcome, api_request.any_origin = environ[OUTCOME]
        if isinstance(outcome, Exception):
            raise outcome
        return copy.deepcopy(outcome)  # to which headers are added

    return recorded


class ComparingFastPath(FastPath):
    """The fast path, which also sends each request through Flask and compares the responses.

    A token request cannot be repeated, because its code is used. So the view runs once, and Flask
    responds with its recorded outcome.
    """

    def __init__(self, app: Flask, views: ApiViews, hosts: frozenset[str]) -> None:
        recorded = copy.copy(views)
        recorded.update({at: (record_outcome(view), more) for at, (view, more) in views.items()})
        super().__init__(app, recorded, hosts)

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        answer = self._answer(super().__call__, environ)
        if OUTCOME in environ:
            assert answer == self._answer(self.flask, environ)
        status, headers, body = answer
        start_response(status, headers)
        return [body]

    @staticmethod
    def _answer(application: Callable, environ: dict) -> tuple[str, list[tuple[str, str]], bytes]:
        """Return status, sorted headers and body; the order of headers has no meaning."""
        started = []
        body = application(environ, lambda *answer: started.append(answer))
        try:
            content = b"".join(body)
        finally:
            getattr(body, "close", lambda: None)()
        [(status, headers, *_)] = started
        return status, sorted(headers), content
