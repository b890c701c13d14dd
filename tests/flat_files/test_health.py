"""The health check, if folders are missing or cannot be written."""

import resource
from pathlib import Path

import pytest

from model.errors import StorageFailed


@pytest.mark.parametrize("part", ["users", "keys", "pictures"])
def test_healthz_is_503_without_records_keys_or_pictures(anyone, faults, folders, part):
    """An unmounted disk looks like this."""
    faults.take_away(part)
    answer = anyone.get("/healthz")
    assert answer.status_code == 503
    assert answer.content_type == "application/json"
    assert list(answer.json) == ["message"]
    assert not any(folder in answer.text for folder in folders)


def test_no_folder_is_not_no_record(open_browser, adas_browser, ada, program, store, folders):
    """An unmounted disk looks like this: no game must take its players for deleted ones."""
    browser, code = open_browser(), adas_browser.allow(program)
    game, _ = store.clients.register(
        "Game", [], None, game_url="https://game.example/", listed=True
    )
    token = program.token_for(adas_browser.allow(program))
    picture = f"/pfp/small/{ada.picture_file}"
    requests = {
        "info": lambda: program.http.get(f"/api/users/info?id={ada.id}"),
        "batch": lambda: program.http.get(f"/api/users/batch?ids={ada.id}"),
        "whois": lambda: program.whois(token),
        "token": lambda: program.exchange(code),
        "authorize": lambda: browser.get(program.link()),
        "play": lambda: browser.get(f"/play/{game.id}"),
        "profile": lambda: browser.get(f"/users/{ada.id}"),
        "sign-in": browser.sign_in,
        "home": lambda: browser.get("/"),
        "picture": lambda: browser.get(picture),
    }
    away = [each.rename(each.with_name(f"{each.name}.away")) for each in map(Path, folders)]
    assert {name: request().status_code for name, request in requests.items()} == dict.fromkeys(
        requests, 503
    )
    for each in away:
        each.rename(each.with_suffix(""))
    assert {name: request().status_code for name, request in requests.items()} == dict.fromkeys(
        requests, 200
    ) | {"authorize": 303, "sign-in": 303}


def test_health_check_fails_on_a_disk_full_of_blocks(storage, data):
    """A full disk still creates empty files; the limit on file size simulates one."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        (data / "users/empty").touch()
        with pytest.raises(StorageFailed, match="the disk refused"):
            storage.require_health()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
