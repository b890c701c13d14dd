"""GET /api/users/info: a player's public profile, for anyone.

test_api_calls.py has what the API calls have in common.
"""

from model.records import Suspension


def request_info(anyone, query: str):
    """Send a request with this query string."""
    return anyone.get(f"/api/users/info{query}")


def test_response_has_exactly_the_public_fields(store, anyone, ada, program, adas_browser):
    """Nothing of the player's email address, sessions, consents and suspension."""
    adas_browser.allow(program, scope="email")
    with store.users.edit(ada.id) as user:
        user.suspension = Suspension("command")
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


def test_new_account_has_the_flair_none_and_no_play_time(store, anyone, ada):
    user = request_info(anyone, f"?id={ada.id}").json["user"]
    assert (user["flairs"], user["equippedFlair"]) == (["none"], "none")
    assert (user["playMinutes"], user["bio"], user["modLevel"]) == (0, "", 0)
    assert user["lastHeartbeat"] == ada.created
    with store.users.edit(ada.id) as edited:
        edited.pfp_timestamp = None  # an imported account
    del user["pfpTimestamp"]
    assert request_info(anyone, f"?id={ada.id}").json["user"] == user


INVALID_QUERIES = [
    *("", "?", "?id=", "?id", "?ID=1", "?user=1", "?id=1&id=1", "?id=1&id=2", "?id=1&id="),
    *("?id=0", "?id=01", "?id=-1", "?id=%2B1", "?id=+1", "?id=1+", "?id=1.0", "?id=1e1"),
    *("?id=1_0", "?id=0x1", "?id=1%00", "?id=%00", "?id=1%0A", "?id=1/", "?id=../users/1"),
    *("?id=1%D9%A1", "?id=%D9%A1", "?id=%EF%BC%91", "?id=%C2%B9", "?id=one", "?id=ada", "?id=%FF"),
    *("?id[]=1", f"?id={10**15}", f"?id={'1' * 4400}", f"?id={'0' * 20}1"),
]


def test_invalid_id_is_400(anyone, ada, subtests):
    assert ada.id == 1
    for query in INVALID_QUERIES:
        with subtests.test(query):
            assert request_info(anyone, query).status_code == 400


def test_deleted_user_is_404_like_an_unknown_one(store, anyone, ada, bob):
    store.users.delete(ada.id)
    deleted = request_info(anyone, f"?id={ada.id}")
    assert deleted.status_code == 404
    for unknown_id in (3, 64, 10**15 - 1):
        unknown = request_info(anyone, f"?id={unknown_id}")
        assert (unknown.status_code, unknown.data) == (404, deleted.data)
        assert sorted(unknown.headers) == sorted(deleted.headers)
    assert request_info(anyone, f"?id={bob.id}").status_code == 200
