"""GET /api/users/batch: the public profiles of several players, for anyone."""

import pytest

from identity_server import BATCH_IDS, BATCH_QUERY_LIMIT


def request_batch(anyone, query: str, method: str = "GET"):
    """Send a request with this query string."""
    return anyone.open(f"/api/users/batch{query}", method=method)


def profile_of(anyone, user) -> dict:
    return anyone.get(f"/api/users/info?id={user.id}").json["user"]


def test_response_has_the_profiles_in_the_asked_order(anyone, ada, bob):
    """Enumeration tells nothing that single look-ups do not."""
    answer = request_batch(anyone, f"?ids={bob.id},{ada.id}")
    profiles = [profile_of(anyone, bob), profile_of(anyone, ada)]
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    assert answer.json == {"message": "yes", "users": profiles}


def test_each_profile_is_the_same_as_alone_in_utf_8(store, anyone, ada, bob):
    """An escape of one character would take 12 bytes, in 100 biographies."""
    bio = "🙂é" * 500
    with store.users.edit(bob.id) as user:
        user.bio = bio
    answer = request_batch(anyone, f"?ids={ada.id},{bob.id}")
    assert answer.json["users"] == [profile_of(anyone, user) for user in (ada, bob)]
    assert bio in answer.text
    alone = anyone.get(f"/api/users/info?id={bob.id}").data
    assert alone.isascii() and b"\\ud83d\\ude42\\u00e9" in alone


def test_unknown_and_deleted_players_are_left_out(store, anyone, ada, bob):
    store.users.delete(bob.id)
    answer = request_batch(anyone, f"?ids=99,{bob.id},{ada.id},{10**15 - 1}")
    assert [each["id"] for each in answer.json["users"]] == [ada.id]
    assert request_batch(anyone, "?ids=99").json == {"message": "yes", "users": []}


def test_id_that_is_asked_several_times_is_answered_once(anyone, ada, bob):
    users = request_batch(anyone, f"?ids={bob.id},{ada.id},{bob.id},{bob.id}").json["users"]
    assert [each["id"] for each in users] == [bob.id, ada.id]


def test_commas_may_be_encoded_and_other_parameters_are_ignored(anyone, ada, bob):
    answer = request_batch(anyone, f"?x=1&ids={ada.id}%2C{bob.id}&ID=7")
    assert [each["id"] for each in answer.json["users"]] == [ada.id, bob.id]


@pytest.mark.parametrize(
    "query",
    [
        *("", "?", "?ids=", "?ids", "?id=1", "?ids=1&ids=2", "?ids=1,", "?ids=,1", "?ids=1,,2"),
        *("?ids=1;2", "?ids=1 2", "?ids=0", "?ids=01", "?ids=-1", "?ids=1,one", "?ids[]=1"),
        *("?ids=%D9%A1", "?ids=1%00", "?ids=1,%0A2", f"?ids={10**15}", "?ids=../users/1"),
    ],
)
def test_invalid_ids_are_400_for_the_whole_request(anyone, ada, query):
    answer = request_batch(anyone, query)
    assert answer.status_code == 400
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


def test_at_most_100_ids(anyone, ada):
    """Repeated ones count, too."""
    most = ",".join(["1"] * 100)
    assert request_batch(anyone, f"?ids={most}").status_code == 200
    assert request_batch(anyone, f"?ids={most},1").status_code == 400


def test_query_has_at_most_4096_bytes(anyone, ada):
    start = "ids=1&x="
    longest = start + "x" * (BATCH_QUERY_LIMIT - len(start))
    assert len(longest) == 4096
    assert request_batch(anyone, f"?{longest}").status_code == 200
    answer = request_batch(anyone, f"?{longest}x")
    assert (answer.status_code, "4096" in answer.json["message"]) == (400, True)


def test_all_longest_ids_fit(anyone, ada):
    ids = ",".join(str(10**15 - 1 - number) for number in range(BATCH_IDS))
    assert request_batch(anyone, f"?ids={ids}").json == {"message": "yes", "users": []}


def test_damaged_record_is_left_out(anyone, ada, bob, faults, subtests):
    for damage in faults.DAMAGES:
        with subtests.test(damage=damage):
            faults.damage_user(ada.id, damage)
            users = request_batch(anyone, f"?ids={ada.id},{bob.id}").json["users"]
            assert [each["id"] for each in users] == [bob.id]


def test_change_shows_at_the_next_request(store, anyone, ada):
    assert request_batch(anyone, f"?ids={ada.id}").json["users"][0]["bio"] == ""
    with store.users.edit(ada.id) as user:
        user.bio = "new"
    assert request_batch(anyone, f"?ids={ada.id}").json["users"][0]["bio"] == "new"


def test_response_is_readable_from_any_origin_and_ignores_the_session(anyone, adas_browser, ada):
    answer = request_batch(anyone, f"?ids={ada.id}")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    signed_in = adas_browser.get(f"/api/users/batch?ids={ada.id}")
    assert signed_in.data == answer.data
    assert not {"Set-Cookie", "Vary", "Access-Control-Allow-Credentials"} & set(signed_in.headers)
    assert anyone.options("/api/users/batch").status_code == 204


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_other_method_is_405(anyone, method):
    answer = request_batch(anyone, "?ids=1", method)
    assert answer.status_code == 405
    assert {"GET", "HEAD", "OPTIONS"} == set(answer.headers["Allow"].split(", "))
