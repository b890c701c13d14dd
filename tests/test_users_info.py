"""GET /api/users/info: a player's public profile, for anyone."""

import json

import pytest

from storage.encoding import record_as_dict
from storage.records import Suspension

PUBLIC = {
    *("name", "id", "bio", "flairs", "equippedFlair", "playMinutes", "lastHeartbeat", "modLevel"),
    "pfpTimestamp",
}


def request_info(anyone, query: str, method: str = "GET"):
    """Send a request with this query string."""
    return anyone.open(f"/api/users/info{query}", method=method)


def test_response_has_exactly_the_public_fields(store, anyone, ada):
    with store.users.edit(ada.id) as user:
        user.bio = "Chess,\nmostly ♞"
        user.flairs = ["none", "founder"]
        user.equipped_flair = "founder"
        user.play_ms = 3 * 60_000 - 1
        user.last_heartbeat = 1_700_000_000_123
        user.mod_level = 2
    answer = request_info(anyone, f"?id={ada.id}")
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    assert answer.json == {
        "message": "yes",
        "user": {
            "name": "Ada",
            "id": ada.id,
            "bio": "Chess,\nmostly ♞",
            "flairs": ["none", "founder"],
            "equippedFlair": "founder",
            "playMinutes": 2,
            "lastHeartbeat": 1_700_000_000_123,
            "modLevel": 2,
            "pfpTimestamp": ada.pfp_timestamp,
        },
    }


def test_new_account_has_the_flair_none_and_no_play_time(anyone, ada):
    user = request_info(anyone, f"?id={ada.id}").json["user"]
    assert (user["flairs"], user["equippedFlair"]) == (["none"], "none")
    assert (user["playMinutes"], user["bio"], user["modLevel"]) == (0, "", 0)
    assert user["lastHeartbeat"] == ada.created


def test_account_without_a_timestamped_picture_has_no_pfp_timestamp(store, anyone, ada):
    with store.users.edit(ada.id) as user:
        user.pfp_timestamp = None
    assert request_info(anyone, f"?id={ada.id}").json["user"].keys() == PUBLIC - {"pfpTimestamp"}


def test_private_fields_are_never_returned(store, anyone, ada, program, adas_browser):
    adas_browser.allow(program, scope="email")
    with store.users.edit(ada.id) as user:
        user.suspension = Suspension("command")  # private as well
    body = request_info(anyone, f"?id={ada.id}").text
    record = record_as_dict(store.users.read(ada.id))
    private = [record["email"], record["password_hash"], program.id, "suspended"]
    private += [grant["id"] for grant in record["grants"].values()]
    private += [text for session in record["sessions"] for text in (session["id"], "browser")]
    assert len(private) == 7
    assert [text for text in private if text in body] == []
    assert json.loads(body)["user"].keys() == PUBLIC


@pytest.mark.parametrize(
    "query",
    [
        *("", "?", "?id=", "?id", "?ID=1", "?user=1", "?id=1&id=1", "?id=1&id=2", "?id=1&id="),
        *("?id=0", "?id=01", "?id=-1", "?id=%2B1", "?id=+1", "?id=1+", "?id=1.0", "?id=1e1"),
        *("?id=1_0", "?id=0x1", "?id=1%00", "?id=%00", "?id=1%0A", "?id=1/", "?id=../users/1"),
        *(
            "?id=1%D9%A1",
            "?id=%D9%A1",
            "?id=%EF%BC%91",
            "?id=%C2%B9",
            "?id=one",
            "?id=ada",
            "?id=%FF",
            "?id[]=1",
        ),
        f"?id={10**15}",
        f"?id={'1' * 4400}",
        f"?id={'0' * 20}1",
    ],
)
def test_invalid_id_is_400(anyone, ada, query):
    assert ada.id == 1
    answer = request_info(anyone, query)
    assert answer.status_code == 400
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("user_id", [2, 64, 10**15 - 1])
def test_unknown_id_is_404(anyone, ada, user_id):
    answer = request_info(anyone, f"?id={user_id}")
    assert answer.status_code == 404
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


def test_deleted_user_is_404_like_an_unknown_one(store, anyone, ada, bob):
    unknown = request_info(anyone, "?id=99")
    store.users.delete(ada.id)
    deleted = request_info(anyone, f"?id={ada.id}")
    assert (deleted.status_code, deleted.data) == (404, unknown.data)
    assert sorted(deleted.headers) == sorted(unknown.headers)
    assert request_info(anyone, f"?id={bob.id}").status_code == 200


def test_response_is_readable_from_any_origin(anyone, ada):
    headers = {"Origin": "https://game.example", "Sec-Fetch-Site": "cross-site"}
    answer = anyone.get(f"/api/users/info?id={ada.id}", headers=headers)
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in answer.headers
    assert anyone.options("/api/users/info").status_code == 204


def test_head_has_the_same_headers_and_no_body(anyone, ada):
    head, get = (request_info(anyone, f"?id={ada.id}", method) for method in ("HEAD", "GET"))
    assert (head.status_code, head.data) == (200, b"")
    assert sorted(head.headers) == sorted(get.headers)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_other_method_is_405_and_readable_from_any_origin(anyone, ada, method):
    answer = request_info(anyone, f"?id={ada.id}", method)
    assert answer.status_code == 405
    assert {"GET", "HEAD", "OPTIONS"} == set(answer.headers["Allow"].split(", "))
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


def test_session_is_ignored(anyone, adas_browser, ada):
    signed_in = adas_browser.get(f"/api/users/info?id={ada.id}")
    assert signed_in.data == request_info(anyone, f"?id={ada.id}").data
    assert not {"Set-Cookie", "Vary"} & set(signed_in.headers.keys())


def test_damaged_record_is_503_for_that_user_only(anyone, ada, bob, faults, tmp_path, subtests):
    for damage in faults.DAMAGES:
        with subtests.test(damage=damage):
            faults.damage_user(ada.id, damage)
            answer = request_info(anyone, f"?id={ada.id}")
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) > 0
            assert str(tmp_path) not in answer.text
            assert request_info(anyone, f"?id={bob.id}").status_code == 200
