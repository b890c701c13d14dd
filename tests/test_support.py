"""The support of the tests: shared apps, the faults of flat files, the guard `forbid_processes`."""

import os
import subprocess

import pytest
from flask import Flask
from processes import forbid_processes
from shared_apps import SharedApps

from model.errors import StorageFailed
from model.grant_records import AuthorizationCode
from model.records import PICTURE_SIZES, PLAYER
from model.rules import REPORT_REASONS
from storage import Storage


@pytest.fixture
def pool() -> SharedApps:
    return SharedApps()


@pytest.fixture
def acquire(pool, environment, tmp_path_factory):
    """A function that acquires an app with a new installation."""

    def acquire(**settings: str):
        base = tmp_path_factory.mktemp("installation")
        folders = {"DATA_DIR": str(base / "instance"), "PICTURE_DIR": str(base / "pfp")}
        settings |= folders | {"STORAGE": "files", "BASE_URL": "http://localhost"}
        return pool.acquire(settings)

    return acquire


def test_released_app_is_reused_in_its_initial_state(pool, acquire):
    pooled = acquire()
    app, store = pooled.app, pooled.app.extensions["storage"]
    data_dir, wsgi_app = app.config["DATA_DIR"], app.wsgi_app
    store.users.register("Ada", "ada@example.org", "", PLAYER)
    app.config.update(SIGN_UP="open", BASE_URL="http://other.example", ADDED="by a test")
    app.extensions["another"] = object()
    app.jinja_env.globals.update(report_reasons="Changed", added="by a test")
    app.wsgi_app = lambda environ, start_response: []
    pool.release(pooled)

    reused = acquire().app
    assert reused is app  # the pool creates no second app
    assert reused.extensions["storage"].users.ids() == []
    assert reused.config["DATA_DIR"] != data_dir
    assert (reused.config["SIGN_UP"], reused.config["BASE_URL"]) == ("invite", "http://localhost")
    assert reused.jinja_env.globals["report_reasons"] == REPORT_REASONS
    assert reused.wsgi_app == wsgi_app
    for names in (reused.config, reused.extensions, reused.jinja_env.globals):
        assert names.keys().isdisjoint({"ADDED", "another", "added"})


def test_reused_app_has_the_mail_server_of_its_settings(pool, acquire):
    apps = []
    for port in (1, 2, 0):
        mail = {"SMTP_URL": f"smtp://localhost:{port}"} if port else {}
        pooled = acquire(MAIL_FROM="site@games.example", **mail)
        apps.append(pooled.app)
        assert pooled.app.config["SMTP_URL"] == mail.get("SMTP_URL", "")
        pool.release(pooled)
    assert apps == [pooled.app] * 3


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


CODE = AuthorizationCode("a" * 24, 1, "a grant", ["userinfo"], None, None)


def change_bio(store: Storage, user_id: int) -> None:
    with store.users.edit(user_id) as user:
        user.bio += "more"


def test_refused_saves_fail_until_they_are_allowed(storage, faults, subtests):
    storage.codes.add("old", CODE)
    ada = storage.users.register("Ada", "ada@example.org", "a hash")
    client, _ = storage.clients.register("Chess", ["https://chess.example/"], None)
    changes = {
        "users": lambda: change_bio(storage, ada.id),
        "pictures": lambda: storage.pictures.save(ada.id, dict.fromkeys(PICTURE_SIZES, b"webp")),
        "accounts": lambda: storage.users.rename(ada.id, "Grace"),
        "clients": lambda: storage.clients.issue_secret(client.id),
        "audit": lambda: storage.audit.write("backup", "command"),
        "codes": lambda: storage.codes.add("new", CODE),
        "attempts": lambda: storage.attempts.count("password", "ada", 99),
        "used codes": lambda: storage.codes.spend("old"),
    }
    for kind, change in changes.items():
        with subtests.test(kind):
            before = storage.users.read(ada.id)
            for refused in (kind, "everything"):
                faults.refuse_saves(refused)
                for _ in range(2):
                    with pytest.raises(StorageFailed):
                        change()
                assert storage.users.read(ada.id) == before
                faults.allow_saves()
            change()


@pytest.mark.live
@pytest.mark.parametrize(
    "start", [lambda: subprocess.run(["true"]), lambda: os.system("true")], ids=["run", "system"]
)
def test_started_process_is_detected(start):
    with forbid_processes():
        pass
    with pytest.raises(AssertionError, match="needs the marker `live`"), forbid_processes():
        start()
