"""GET /api/users/batch: the public profiles of several players, for anyone.

test_api_calls.py has what the API calls have in common.
"""

from identity_server import BATCH_IDS, BATCH_QUERY_LIMIT


def request_batch(anyone, query: str):
    """Send a request with this query string."""
    return anyone.get(f"/api/users/batch{query}")


def ids_of(answer) -> list[int]:
    """Return the ids of the players in a response."""
    return [each["id"] for each in answer.json["users"]]


def test_each_profile_is_the_same_as_alone_in_utf_8(store, anyone, ada, bob):
    """Enumeration tells nothing that single look-ups do not.

    An escape of one character would take 12 bytes, in 100 biographies.
    """
    assert request_batch(anyone, f"?ids={bob.id}").json["users"][0]["bio"] == ""
    bio = "🙂é" * 500
    with store.users.edit(bob.id) as user:
        user.bio = bio
    answer = request_batch(anyone, f"?ids={bob.id},{ada.id}")
    alone = [anyone.get(f"/api/users/info?id={user.id}") for user in (bob, ada)]
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    assert answer.json == {"message": "yes", "users": [each.json["user"] for each in alone]}
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
