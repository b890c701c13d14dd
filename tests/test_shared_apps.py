"""Shared apps: a test sees no change that an earlier test made to its app."""

import pytest
from flask import Flask
from shared_apps import SharedApps

from model.records import PLAYER


@pytest.fixture
def pool() -> SharedApps:
    """A pool of this test."""
    return SharedApps()


@pytest.fixture
def acquire(pool, environment, tmp_path_factory):
    """A function that acquires an app with a new installation."""

    def acquire():
        base = tmp_path_factory.mktemp("installation")
        folders = {"DATA_DIR": str(base / "instance"), "PICTURE_DIR": str(base / "pfp")}
        return pool.acquire(folders | {"STORAGE": "files", "BASE_URL": "http://localhost"})

    return acquire


def test_released_app_is_reused_in_its_initial_state(pool, acquire):
    pooled = acquire()
    app, store = pooled.app, pooled.app.extensions["storage"]
    data_dir, wsgi_app = app.config["DATA_DIR"], app.wsgi_app
    store.users.register("Ada", "ada@example.org", "", PLAYER)
    app.config.update(SIGN_UP="open", BASE_URL="http://other.example", ADDED="by a test")
    app.extensions["another"] = object()
    app.jinja_env.globals.update(site_name="Changed", added="by a test")
    app.wsgi_app = lambda environ, start_response: []
    pool.release(pooled)

    reused = acquire().app
    assert reused is app  # the pool creates no second app
    assert reused.extensions["storage"].users.ids() == []
    assert reused.config["DATA_DIR"] != data_dir
    assert (reused.config["SIGN_UP"], reused.config["BASE_URL"]) == ("invite", "http://localhost")
    assert reused.jinja_env.globals["site_name"] == "Identity Server"
    assert reused.wsgi_app == wsgi_app
    for names in (reused.config, reused.extensions, reused.jinja_env.globals):
        assert names.keys().isdisjoint({"ADDED", "another", "added"})


def test_app_with_an_added_route_or_handler_is_not_reused(pool, acquire, subtests):
    for add, arguments in (
        (Flask.add_url_rule, ("/more", None, lambda: "more")),
        (Flask.before_request, (lambda: None,)),
        (Flask.after_request, (lambda answer: answer,)),
        (Flask.register_error_handler, (ZeroDivisionError, str)),
    ):
        with subtests.test(add.__name__):
            pooled = acquire()
            pooled.app.test_client().get("/nowhere")  # looks up handlers
            pool.release(pooled)
            same = acquire()
            assert same.app is pooled.app
            add(same.app, *arguments)
            pool.release(same)
            assert acquire().app is not pooled.app
