"""GET /api/users/info and /api/users/batch: the public profiles of players, for anyone."""

from datetime import UTC, datetime

from forms import edit

from identity_server import BATCH_IDS, BATCH_QUERY_LIMIT
from model.records import Suspension


def request_info(anyone, query: str):
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
    edit(store.users, ada.id, pfp_timestamp=None)  # an imported account
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


def request_batch(anyone, query: str):
    return anyone.get(f"/api/users/batch{query}")


def ids_of(answer) -> list[int]:
    return [each["id"] for each in answer.json["users"]]


def test_each_profile_is_the_same_as_alone_in_utf_8(store, anyone, ada, bob):
    """Enumeration tells nothing that single look-ups do not.

    An escape of one character would take 12 bytes, in 100 biographies.
    """
    assert request_batch(anyone, f"?ids={bob.id}").json["users"][0]["bio"] == ""
    bio = "🙂é" * 500
    edit(store.users, bob.id, bio=bio)
    answer = request_batch(anyone, f"?ids={bob.id},{ada.id}")
    alone = [anyone.get(f"/api/users/info?id={user.id}") for user in (bob, ada)]
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    joined = {"joined": datetime.now(UTC).strftime("%Y-%m-%d")}
    assert answer.json["users"] == [each.json["user"] | joined for each in alone]
    assert bio in answer.text
    assert alone[0].data.isascii() and b"\\ud83d\\ude42\\u00e9" in alone[0].data


def test_unknown_and_deleted_players_are_left_out(store, anyone, ada, bob):
    """Commas may be encoded, and other parameters are ignored."""
    store.users.delete(bob.id)
    answer = request_batch(anyone, f"?x=1&ids=99%2C{bob.id},{ada.id}%2C{10**15 - 1}&ID=7")
    assert ids_of(answer) == [ada.id]
    assert request_batch(anyone, "?ids=99").json == {"message": "yes", "users": []}


def test_id_that_is_asked_several_times_is_answered_once(anyone, ada, bob):
    answer = request_batch(anyone, f"?ids={bob.id},{ada.id},{bob.id},{bob.id}")
    assert ids_of(answer) == [bob.id, ada.id]


def test_invalid_ids_are_400_for_the_whole_request(anyone, ada, subtests):
    for query in (
        *("", "?", "?ids=", "?ids", "?id=1", "?ids=1&ids=2", "?ids=1,", "?ids=,1", "?ids=1,,2"),
        *("?ids=1;2", "?ids=1 2", "?ids=0", "?ids=01", "?ids=-1", "?ids=1,one", "?ids[]=1"),
        *("?ids=%D9%A1", "?ids=1%00", "?ids=1,%0A2", f"?ids={10**15}", "?ids=../users/1"),
    ):
        with subtests.test(query):
            assert request_batch(anyone, query).status_code == 400


def test_at_most_100_ids(anyone, ada):
    """Repeated ones count, too."""
    most = ",".join(["1"] * 100)
    assert request_batch(anyone, f"?ids={most}").status_code == 200
    assert request_batch(anyone, f"?ids={most},1").status_code == 400


def test_query_has_at_most_4096_bytes(anyone, ada):
    """A hundred of the longest ids fit."""
    ids = ",".join(str(10**15 - 1 - number) for number in range(BATCH_IDS))
    longest = f"ids={ids}&x=".ljust(BATCH_QUERY_LIMIT, "x")
    assert len(longest) == 4096
    assert request_batch(anyone, f"?{longest}").json == {"message": "yes", "users": []}
    answer = request_batch(anyone, f"?{longest}x")
    assert (answer.status_code, "4096" in answer.json["message"]) == (400, True)
