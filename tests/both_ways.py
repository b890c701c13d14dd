"""Every API request of every test, answered by the fast path and by Flask, with one outcome."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace

from flask import Flask

from identity.fast_path import ApiRequest, ApiViews, FastPath
from identity.responses import JsonResponse

OUTCOME = "tests.outcome"  # in the WSGI environ: what the view returned or raised


def record_outcome(view: Callable[[ApiRequest], JsonResponse]) -> Callable:
    """Return a view that notes its outcome in the environ, and repeats one that is there."""

    @functools.wraps(view)
    def recorded(api_request: ApiRequest) -> JsonResponse:
        environ = api_request.environ
        if OUTCOME not in environ:
            try:
                answer = view(api_request)
                environ[OUTCOME] = functools.partial(_answer_again, answer.body, answer.headers[:])
            except Exception as error:
                environ[OUTCOME] = functools.partial(_raise_again, error)
        return environ[OUTCOME]()

    return recorded


def _answer_again(body: bytes, headers: list[tuple[str, str]]) -> JsonResponse:
    answer = JsonResponse({}, {})
    answer.body, answer.headers = body, headers[:]
    return answer


def _raise_again(error: Exception) -> None:
    raise error


def record_outcomes(views: ApiViews) -> ApiViews:
    """Return these views, each of which notes its outcome."""
    return ApiViews(
        {where: replace(each, view=record_outcome(each.view)) for where, each in views.items()}
    )


class BothWays(FastPath):
    """The fast path, which then lets Flask give the same outcome, and compares the two answers.

    A token request cannot be sent twice, because its code is spent. So the view runs once, and
    Flask answers with what it returned or raised.
    """

    def __init__(self, app: Flask, views: ApiViews, hosts: frozenset[str]) -> None:
        super().__init__(app, record_outcomes(views), hosts)

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        answer = self._answer(super().__call__, environ)
        if OUTCOME in environ:
            assert answer == self._answer(self.flask, environ)
        status, headers, body = answer
        start_response(status, headers)
        return [body]

    @staticmethod
    def _answer(application: Callable, environ: dict) -> tuple[str, list[tuple[str, str]], bytes]:
        """Return status, headers and body; the order of the headers has no meaning."""
        started = []
        body = application(environ, lambda *answer: started.append(answer))
        try:
            content = b"".join(body)
        finally:
            getattr(body, "close", lambda: None)()
        [(status, headers, *_)] = started
        return status, sorted(headers), content
