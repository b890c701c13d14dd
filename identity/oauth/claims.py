"""What a program learns of a player: the public profile, and claims (OpenID Connect Core 5.1)."""

from identity.http.responses import encode_ascii_json, encode_json
from identity.site.formatting import format_stamp
from model.addresses import check_email
from model.records import User
from storage import Storage

# In the ID token, which programs keep in a cookie of 4 kB; userinfo has more of them.
GROUPS_IN_TOKEN = 20
TOKEN_CLAIMS = ("iss", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "amr", "sid")
CLAIMS = ("sub", "name", "nickname", "username", "preferred_username", "picture", "profile")
CLAIMS += ("email", "email_verified", "groups")


def profile_body(user: User) -> bytes:
    """Return the body of the response about this player, to be cached."""
    return encode_ascii_json({"message": "yes", "user": public_profile(user)})


def batched_profile(user: User) -> tuple[bytes, User]:
    """Return this player's part of the response about several, to be cached, and the player.

    A suspension ends without a change of the record, so the part does not say whether there is one.
    """
    return encode_json(dated_profile(user)), user


def dated_profile(user: User) -> dict:
    """Return the public profile with the day of joining in UTC: servers turn new accounts away."""
    return public_profile(user) | {"joined": format_stamp(user.created, "%Y-%m-%d")}


def public_profile(user: User) -> dict:
    """Return what anyone may know of a player; times in milliseconds, playMinutes in minutes."""
    profile = {
        "name": user.name,
        "id": user.id,
        "bio": user.bio,
        "flairs": user.flairs,
        "equippedFlair": user.equipped_flair,
        "playMinutes": user.play_ms // 60_000,
        "lastHeartbeat": user.last_heartbeat,
        "modLevel": user.mod_level,
    }
    if user.pfp_timestamp is not None:
        profile["pfpTimestamp"] = user.pfp_timestamp
    return profile


def profile_claims(user: User, store: Storage, base_url: str) -> dict[str, str]:
    """Return the claims that every token of userinfo gives. Raises StorageError.

    Programs key their accounts on `preferred_username`, or on `username`: it is the handle, which
    is made here if the player has none. The address of the picture stays when the picture changes.
    """
    handle = store.handles.of(user)
    return {
        "name": user.name,
        "nickname": user.name,
        "username": handle,
        "preferred_username": handle,
        "picture": f"{base_url}/users/{user.id}/picture",
        "profile": f"{base_url}/users/{user.id}",
    }


def given_email(user: User, mail: bool) -> str:
    """Return the email address that apps get, "" for none; with `mail` only a confirmed one.

    A program may read one that breaks the rule as the address of somebody else.
    """
    is_given = (user.email_verified or not mail) and not check_email(user.email)
    return user.email if is_given else ""


def scope_claims(user: User, scope: list[str], mail: bool) -> dict[str, str | bool | list[str]]:
    """Return the claims of the scopes `email` and `groups`; with `mail` only a confirmed email."""
    claims = {}
    if "email" in scope and (email := given_email(user, mail)):
        claims |= {"email": email, "email_verified": user.email_verified}
    if "groups" in scope:
        claims["groups"] = user.groups
    return claims


def id_token_claims(
    user: User, scope: list[str], store: Storage, base_url: str, mail: bool
) -> dict:
    """Return a player's claims for an ID token, `groups` only if few. Raises StorageError."""
    claims = scope_claims(user, scope, mail)
    if len(claims.get("groups", ())) > GROUPS_IN_TOKEN:
        del claims["groups"]
    return claims | (profile_claims(user, store, base_url) if "profile" in scope else {})
