"""ID tokens (OpenID Connect Core 2): how they are made, and those that come back as hints.

The algorithm is RS256 alone (RFC 7518 3.3), which every relying party knows. One key signs, and
others are published. No token of another server is ever verified. `cryptography` is imported at the
first need.
"""

import base64
import contextlib
import functools
import json
import logging

from flask import abort, current_app

from identity.acts.actors import Authority
from identity.acts.rights import only_the_command
from identity.http.fast_path import ApiRequest
from identity.http.signing import COMPACT_JSON, decode_base64, digest_of, encode_base64
from identity.oauth.claims import id_token_claims
from identity.site.formatting import DAY
from model.errors import NotFound, StorageError
from model.grant_records import AuthorizationCode
from model.records import User, now_ms
from model.rules import TIME_END, USER_ID
from model.site_records import OpenIdKey
from storage import Storage

ID_TOKEN_MAX_AGE = 600  # seconds
ID_TOKEN_TYPE = "JWT"
KEY_SIZE = 2048  # bits: RFC 7518 3.3 asks for as many
EXPONENT = 65537
PUBLISHED_BEFORE = DAY * 1000  # milliseconds for which a key is published before it signs
KEPT_AFTER = 14 * DAY * 1000  # milliseconds: programs send ID tokens of old sessions as hints

logger = logging.getLogger("identity_server")  # the app's own


class BadHint(ValueError):
    """Not an ID token of this server; the text continues the name of the parameter."""


def is_on() -> bool:
    """Return True if OpenID Connect is on."""
    return current_app.config["OPENID"] == "on"


def require_openid() -> None:
    """Raise NotFound unless OpenID Connect is on."""
    if not is_on():
        abort(404)


# -- the keys that sign -------------------------------------------------------------------------


def published_keys(store: Storage) -> list[OpenIdKey]:
    """Return the keys that programs may verify with, oldest first; one is made if there is none."""
    # The first signs from the beginning, also by the clock of a machine that is behind. If several
    # processes make one, all of them are published, and the last one signs.
    return _read_keys(store) or [add_key(store, signs_from=0)]


def _read_keys(store: Storage) -> list[OpenIdKey]:
    keys = store.openid_keys.read_from_many(store.openid_keys.ids())
    return sorted(keys, key=lambda key: (key.signs_from, key.id))


def signing_key(store: Storage) -> OpenIdKey:
    """Return the newest key whose time has come, and remove the private halves of older keys."""
    keys = [key for key in published_keys(store) if key.private_key]
    if not keys:  # the record of the newest key is damaged
        keys = [add_key(store, now_ms())]
    # If the clock of this machine is behind, another one may have removed the private half before
    # the first of these: it signs early.
    usable = [key for key in keys if key.signs_from <= now_ms()] or keys[:1]
    for old in usable[:-1]:
        try:
            with store.openid_keys.edit(old.id) as key:
                key.private_key = ""
        except StorageError as error:  # the next signature tries again
            logger.error("the private half of an old key was not removed: %s", error)
    return usable[-1]


def add_key(store: Storage, signs_from: int) -> OpenIdKey:
    """Add and return a key that signs from this time, in milliseconds."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(EXPONENT, KEY_SIZE)
    modulus = _encode_number(private.public_key().public_numbers().n)
    members = {"e": _encode_number(EXPONENT), "kty": "RSA", "n": modulus}  # RFC 7638 3.2
    pkcs8 = private.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    kid, text = digest_of(COMPACT_JSON.encode(members)), base64.b64encode(pkcs8).decode()
    key = OpenIdKey(kid, modulus, text, signs_from, TIME_END - 1)
    store.openid_keys.add(key)
    return key


def rotate_openid_keys(store: Storage, now: bool) -> None:
    """Add the next key, unless there are no keys, or one waits already to sign.

    The new key signs in a day, and the old keys verify for 14 days after that. With `now` it signs
    at once, even if another one waits, and the old keys are deleted.
    """
    keys = _read_keys(store)
    if not keys or (keys[-1].signs_from > now_ms() and not now):
        return
    signs_from = now_ms() + (0 if now else PUBLISHED_BEFORE)
    add_key(store, signs_from)
    for old in keys:
        with contextlib.suppress(NotFound):  # another process rotates
            if now:
                store.openid_keys.delete(old.id)
                continue
            with store.openid_keys.edit(old.id) as key:
                key.expires = min(key.expires, signs_from + KEPT_AFTER)


def rotate_keys(by: Authority, drop_old: bool, openid_now: bool = False) -> None:
    """Replace the signing key (`drop_old`: and end the old ones), and that of ID tokens if any.

    The new key of ID tokens signs in a day, with `openid_now` or `drop_old` at once. An act of the
    command: raises NotAllowed.
    """
    by.require(only_the_command, None)
    others = "key openid-now" if openid_now else "key rotate"
    by.audit("key drop-old" if drop_old else others)
    rotate_openid_keys(by.store, openid_now or drop_old)
    by.store.keys.rotate(drop_old)


def _encode_number(number: int) -> str:
    return encode_base64(number.to_bytes(-(-number.bit_length() // 8), "big")).decode()


# -- ID tokens ----------------------------------------------------------------------------------


def issue_id_token(
    code: AuthorizationCode, user: User, access_token: str, api_request: ApiRequest
) -> str:
    """Return the ID token for a code and the access token beside it. Raises StorageError."""
    store, issuer = api_request.storage, api_request.base_url
    claims = {
        "sub": str(user.id),
        "aud": code.client_id,
        "auth_time": code.auth_time // 1000,
        "at_hash": digest_of(access_token, length=16),  # OpenID Connect Core 3.1.3.6
    }
    optional = {"nonce": code.nonce, "amr": code.amr, "sid": code.sid}  # amr: RFC 8176
    claims |= {name: value for name, value in optional.items() if value}
    claims |= id_token_claims(user, code.scope, store, issuer, api_request.mail)
    return issue_jwt(store, issuer, claims, ID_TOKEN_TYPE, ID_TOKEN_MAX_AGE)


def issue_jwt(store: Storage, issuer: str, claims: dict, kind: str, max_age: int) -> str:
    """Return the claims as a JWT (RFC 7519), signed with RS256, for `max_age` seconds.

    The `kind` is its `typ`: none passes for another (RFC 8725 3.11). Raises StorageError.
    """
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    now = now_ms() // 1000
    claims = {"iss": issuer, "iat": now, "exp": now + max_age, **claims}
    key = signing_key(store)
    header = {"alg": "RS256", "typ": kind, "kid": key.id}
    parts = (encode_base64(COMPACT_JSON.encode(each).encode()) for each in (header, claims))
    signed = b".".join(parts)
    signature = _load_key(key.private_key).sign(signed, PKCS1v15(), SHA256())
    return (signed + b"." + encode_base64(signature)).decode()


@functools.lru_cache(maxsize=4)
def _load_key(private_key: str):
    """Return a private key, loaded once: that takes 40 ms, because its numbers are checked."""
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    return load_der_private_key(base64.b64decode(private_key), None)


def read_hint(token: str, store: Storage, issuer: str) -> dict | None:
    """Return the claims of an ID token of this server, which may have expired.

    None if its key is unknown: it was replaced long ago, or lost. Raises BadHint.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        signed, _, signature = token.encode("ascii").rpartition(b".")
        header, _, payload = signed.partition(b".")
        head = json.loads(decode_base64(header))
        # The algorithm is ours, whatever the token says (RFC 8725 3.1).
        if head["alg"] != "RS256":
            raise BadHint("is not signed with RS256")
        if head.get("typ", ID_TOKEN_TYPE) != ID_TOKEN_TYPE:
            raise BadHint("is not an ID token")
        key = store.openid_keys.find(str(head["kid"]))
        if key is None:
            return None
        modulus = int.from_bytes(decode_base64(key.modulus.encode()), "big")
        public_key = RSAPublicNumbers(EXPONENT, modulus).public_key()
        public_key.verify(decode_base64(signature), signed, PKCS1v15(), SHA256())
        claims = json.loads(decode_base64(payload))
    except BadHint:
        raise
    except InvalidSignature:
        raise BadHint("has a wrong signature") from None
    except (ValueError, TypeError, LookupError, RecursionError):
        raise BadHint("is not an ID token") from None
    if claims["iss"] != issuer or not USER_ID.fullmatch(claims["sub"]):
        raise BadHint("is of another issuer")
    return claims
