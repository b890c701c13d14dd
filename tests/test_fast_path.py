"""The API calls ahead of Flask: `identity.http.fast_path`. Other tests cover the responses."""

import json
from collections.abc import Callable
from unittest.mock import Mock

import pytest
from compare_fast_path import ComparingFastPath
from flask import Flask
from werkzeug.test import EnvironBuilder, run_wsgi_app

import identity_server
from identity.http.fast_path import FastPath

CALLS = {"/api/oauth/whois": "GET", "/api/users/info": "GET", "/api/users/batch": "GET"}
CALLS |= dict.fromkeys(("/api/oauth/token", "/api/tickets", "/api/tickets/check"), "POST")
CALLS |= dict.fromkeys(("/oauth/token", "/oauth/revoke", "/oauth/introspect"), "POST")


@pytest.fixture
def make_plain_app(tmp_path, environment, monkeypatch, unsynced) -> Callable[[type], Flask]:
    """A function that returns an app with this fast path class and a player with id 1."""

    def make_plain_app(fast_path: type) -> Flask:
        monkeypatch.setattr(identity_server, "FastPath", fast_path)
        folders = {"DATA_DIR": str(tmp_path / "instance"), "PICTURE_DIR": str(tmp_path / "pfp")}
        app = identity_server.create_app(folders | {"BASE_URL": "http://localhost"})
        app.extensions["storage"].users.register("Ada", "ada@example.org", "")
        return app

    return make_plain_app


@pytest.fixture
def plain_app(make_plain_app) -> Flask:
    return make_plain_app(FastPath)


def answer(app: Flask, path: str, query: str = "id=1", host: str = "localhost", **environ: str):
    """Return status, headers and JSON of an API call; None omits a variable."""
    builder = EnvironBuilder(path, method=CALLS[path], query_string=query)
    given = builder.get_environ() | {"HTTP_HOST": host} | environ
    body, status, headers = run_wsgi_app(
        app, {name: value for name, value in given.items() if value is not None}
    )
    return status, headers, json.loads(b"".join(body))


def test_only_unusual_api_requests_reach_flask(plain_app, monkeypatch):
    flask = Mock(wraps=plain_app.wsgi_app.flask)
    monkeypatch.setattr(plain_app.wsgi_app, "flask", flask)
    for path in CALLS:
        answer(plain_app, path)
        assert flask.call_count == 0
    for number, path in enumerate(CALLS):
        answer(plain_app, path, host="LOCALHOST")
        answer(plain_app, path, query="id=é")
        assert flask.call_count == 2 * (number + 1)


def test_omitted_query_string_is_an_empty_one(plain_app):
    """PEP 3333 lets a server omit it. gunicorn always sets it."""
    for path in CALLS:
        without = answer(plain_app, path, QUERY_STRING=None)
        assert without == answer(plain_app, path, QUERY_STRING="")
        assert without[0][:3] in ("400", "401")


def test_unexpected_error_is_logged_and_500_as_json(plain_app, monkeypatch, caplog):
    users = plain_app.extensions["storage"].users
    monkeypatch.setattr(users, "read_from", Mock(side_effect=RuntimeError("broken")))
    status, headers, body = answer(plain_app, "/api/users/info")
    assert status == "500 INTERNAL SERVER ERROR"
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Access-Control-Allow-Origin"] == "*"
    assert list(body) == ["message"]
    [record] = caplog.records
    assert record.getMessage() == "Exception on /api/users/info [GET]"
    assert record.exc_info[1].args == ("broken",)


def test_control_differing_response_is_detected(make_plain_app):
    """The control of `ComparingFastPath`."""
    app = make_plain_app(ComparingFastPath)
    assert answer(app, "/api/users/info")[0] == "200 OK"
    hooks = app.after_request_funcs[None]
    for change in (
        lambda answer: answer.headers.set("Cache-Control", "private"),
        lambda answer: answer.headers.remove("X-Content-Type-Options"),
        lambda answer: setattr(answer, "status_code", 203),
        lambda answer: answer.set_data(b'{"message": "no"}'),
    ):
        # A Flask hook unknown to the fast path. Flask refuses after_request() by now.
        app.after_request_funcs[None] = [lambda each, c=change: c(each) or each, *hooks]
        with pytest.raises(AssertionError):
            answer(app, "/api/users/info")
