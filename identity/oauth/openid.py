"""ID tokens (OpenID Connect Core 2): how they are made, and those that come back as hints.

The algorithm is RS256 alone (RFC 7518 3.3), which every relying party knows. No token of another
server is ever verified. `cryptography` is imported at the first signature.
"""

import base64
import functools
import json

from flask import abort, current_app

from identity.http.fast_path import ApiRequest
from identity.http.signing import COMPACT_JSON, decode_base64, digest_of, encode_base64
from identity.oauth.claims import id_token_claims
from identity.oauth.openid_keys import EXPONENT, signing_key
from model.records import AuthorizationCode, User, now_ms
from model.rules import USER_ID
from storage import Storage

ID_TOKEN_MAX_AGE = 600  # seconds
ID_TOKEN_TYPE = "JWT"


class BadHint(ValueError):
    """Not an ID token of this server; the text continues the name of the parameter."""


def is_on() -> bool:
    """Return True if OpenID Connect is on."""
    return current_app.config["OPENID"] == "on"


def require_openid() -> None:
    """Raise NotFound unless OpenID Connect is on."""
    if not is_on():
        abort(404)


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
        "amr": code.amr or ["pwd"],  # RFC 8176
    }
    claims |= {"nonce": code.nonce} if code.nonce else {}
    claims |= id_token_claims(user, code.scope, store, issuer, api_request.mail)
    return issue_jwt(api_request, claims, ID_TOKEN_TYPE, ID_TOKEN_MAX_AGE)


def issue_jwt(api_request: ApiRequest, claims: dict, kind: str, max_age: int) -> str:
    """Return the claims as a JWT (RFC 7519), signed with RS256, for `max_age` seconds.

    The `kind` is its `typ`: none passes for another (RFC 8725 3.11). Raises StorageError.
    """
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    now = now_ms() // 1000
    claims = {"iss": api_request.base_url, "iat": now, "exp": now + max_age, **claims}
    key = signing_key(api_request.storage)
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
