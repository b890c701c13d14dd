"""Refresh tokens (RFC 6749 6): an app keeps a player signed in until somebody ends that.

A family is one such sign-in. Each use of its token gives the next one. A response may get lost, and
several tabs may ask at once, so the token before stays good until the next one was used, and gives
the same one again. A token that is older was copied: its family ends (RFC 9700 4.14.2).

The next secret is made of the one that was sent and the salt of the family, and the storage has
hashes alone: nobody who reads it can refresh. A family counts only while a grant names it. So each
act on a player ends it in the save of that player, and a refresh, which saves the family alone,
brings nothing back.
"""

import contextlib
import hmac
import re
import secrets

from identity.acts.families import is_good
from identity.http.fast_path import ApiRequest
from identity.http.limits import client_address
from identity.http.signing import encode_base64
from identity.oauth.authorization import ALWAYS_GRANTED, read_scope
from identity.oauth.clients import STANDARD_FIELDS
from identity.oauth.terms import InvalidGrant, InvalidScope
from identity.site.formatting import MINUTE
from model.errors import AlreadyThere, NoSuchUser, NotFound
from model.grant_records import AuthorizationCode, Family
from model.kind import DAY_MS
from model.kinds import FAMILIES
from model.records import Client, Session, User, now_ms, sha256, sid_of
from storage import Storage

FAMILIES_KEPT = 20  # of one player and app; the oldest is dropped first
REFRESH_TOKEN = re.compile(r"([A-Za-z0-9_-]{16})\.([A-Za-z0-9_-]{43})")
ENDED = "this refresh token was revoked, or has expired, or was replaced and used again"


class Reused(Exception):
    """A refresh token was used after its successor, or its family counts no more."""


def prepare_family(code: AuthorizationCode, client: Client, session: Session | None) -> None:
    """Let a code start a family, of a browser's session or, with None, of another device."""
    code.family, code.epoch = secrets.token_urlsafe(12), client.epoch
    code.device = session.browser if session else ""
    code.sid = code.sid or sid_of(code.family)


def secret_after(secret: str, salt: str) -> str:
    """Return the secret that follows from one: 43 characters, as long as nobody has both."""
    return encode_base64(hmac.digest(salt.encode(), secret.encode(), "sha256")).decode()


# -- the first token -----------------------------------------------------------------------------


def start_family(
    api_request: ApiRequest, form: dict[str, str], code: AuthorizationCode, client: Client
) -> str:
    """Start the family of a code, and return its first refresh token.

    It follows from what the client sent for it: a request that a kill interrupted gives the same
    token when it is sent again. Raises InvalidGrant, StorageError.
    """
    store, now, salt = api_request.storage, now_ms(), secrets.token_urlsafe(16)
    families, sent = store.records(FAMILIES), form[STANDARD_FIELDS[form["grant_type"]]]
    secret = secret_after(sent, salt)
    family = Family(
        id=code.family,
        user_id=code.user_id,
        client_id=client.id,
        epoch=code.epoch,
        scope=code.scope,
        granted=code.granted or "",
        created=now,
        expires=expiry(api_request, now, now),
        salt=salt,
        current=sha256(secret),
        used=now,
        address=client_address(api_request.environ.get("REMOTE_ADDR")),
        device=code.device,
        sid=code.sid,
        auth_time=code.auth_time,
        amr=code.amr,
    )
    try:
        families.add(family)
    except AlreadyThere:  # of a request before, which did not spend the code
        secret = secret_after(sent, families.read(family.id).salt)
    add_to_grant(store, family, code.grant_id)
    return f"{family.id}.{secret}"


def add_to_grant(store: Storage, family: Family, grant_id: str) -> None:
    """Let a family count, in place of the oldest of too many. Raises InvalidGrant."""
    with contextlib.suppress(NoSuchUser), store.users.edit(family.user_id) as user:
        grant = user.grants.get(family.client_id)
        # Under the lock of the player: what ended the grant meanwhile, as a suspension does, ended
        # this family too.
        if grant and grant.id == grant_id:
            others = [each for each in grant.families if each != family.id]
            if len(others) >= FAMILIES_KEPT:  # those that have expired displace none
                left = store.records(FAMILIES).read_from_many(others)
                others = [each.id for each in left]
            grant.families = [*others, family.id][-FAMILIES_KEPT:]
            return
    store.records(FAMILIES).discard([family.id])
    raise InvalidGrant("the player has withdrawn consent, or the account is suspended or deleted")


def expiry(api_request: ApiRequest, created: int, now: int) -> int:
    """Return when a family that is used now ends."""
    idle, longest = api_request.days_kept
    return min(now + idle * DAY_MS, created + longest * DAY_MS)


# -- each further token --------------------------------------------------------------------------


def use_refresh_token(
    api_request: ApiRequest, client: Client, form: dict[str, str]
) -> tuple[AuthorizationCode, User, str]:
    """Return what a refresh token of this client gives now, its player, and the next token.

    The answer has the form of a code that was just issued. Raises InvalidGrant, InvalidScope,
    StorageError: the token stays good then, unless it was old.
    """
    store, now = api_request.storage, now_ms()
    match = REFRESH_TOKEN.fullmatch(form["refresh_token"])
    if match is None:
        raise InvalidGrant("this is not a refresh token of this server")
    family_id, secret = match.groups()
    try:
        with store.records(FAMILIES).edit(family_id) as family:
            if family.client_id != client.id:
                raise InvalidGrant(ENDED)
            user = find_player(store, family, client)
            if user is None or sha256(secret) not in (family.current, family.previous):
                raise Reused
            code = renewed_code(api_request, family, user, client, form.get("scope"))
            following = secret_after(secret, family.salt)
            is_newest = sha256(secret) == family.current
            if is_newest:
                family.previous, family.current = family.current, sha256(following)
            if is_newest or now - family.used > MINUTE * 1000:
                family.used, family.expires = now, expiry(api_request, family.created, now)
                family.address = client_address(api_request.environ.get("REMOTE_ADDR"))
    except NotFound:
        raise InvalidGrant(ENDED) from None
    except Reused:
        end_family(store, family.user_id, client.id, family_id)
        raise InvalidGrant(ENDED) from None
    return code, user, f"{family_id}.{following}"


def find_player(store: Storage, family: Family, client: Client) -> User | None:
    """Return the player of a family that counts, None if it has ended."""
    user = store.users.find(family.user_id)
    return user if user and is_good(family, user, client) and client.admits(user) else None


def renewed_code(
    api_request: ApiRequest, family: Family, user: User, client: Client, asked: str | None
) -> AuthorizationCode:
    """Return what a family gives for the `asked` scope, None for all of it. Raises InvalidScope.

    The family keeps its own scope (RFC 6749 6). Its ID tokens have no nonce (OpenID Connect Core
    12.2).
    """
    names = list(dict.fromkeys((family.granted if asked is None else asked).split()))
    if not {*names} <= {*family.scope}:
        raise InvalidScope("the scope is larger than that of the refresh token")
    # Without what its app or this site has turned off since.
    scope = read_scope(" ".join(names), client, api_request.openid, offline=True)
    code = AuthorizationCode(client.id, user.id, user.grants[client.id].id, scope, None, None)
    code.granted = " ".join(each for each in names if each in scope) or ALWAYS_GRANTED
    code.auth_time, code.amr, code.sid = family.auth_time, family.amr, family.sid
    return code


def end_family(
    store: Storage, user_id: int, client_id: str, family_id: str, grant_id: str = ""
) -> None:
    """End a family, and a grant that still has this id, with all access tokens of the app.

    Raises StorageError.
    """
    with contextlib.suppress(NoSuchUser), store.users.edit(user_id) as user:
        if grant := user.grants.get(client_id):
            grant.end_family(family_id)
            if grant.id == grant_id:
                grant.end_tokens()
