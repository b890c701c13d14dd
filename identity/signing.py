"""Signatures for everything that leaves the server and must come back unchanged."""

import base64
import functools
import hashlib
import hmac
import json
import time

from itsdangerous import BadSignature, SignatureExpired, URLSafeTimedSerializer
from itsdangerous.encoding import base64_encode, int_to_bytes

from identity.context import get_storage
from storage import Storage

COMPACT_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class ShortTextSerializer(URLSafeTimedSerializer):
    """A serializer for short texts, which are not compressed.

    The format is that of the class that it extends, in a third of the time: `python -m
    benchmarks.profile` compares them. It verifies only the exact text that was signed; the base
    class skips characters that are not Base64, and ignores unused bits of the last one.
    """

    def dumps(self, obj: object, salt: str | bytes | None = None) -> str:
        """Return a signed text with a JSON value and the time."""
        payload = COMPACT_JSON.encode(obj)
        signed = base64_encode(payload) + b"." + base64_encode(int_to_bytes(int(time.time())))
        return (signed + b"." + signature(self.secret_keys[-1], signed)).decode()

    def loads(self, s: str | bytes, max_age: int | None = None) -> object:
        """Return the value in a signed text, at most `max_age` seconds old.

        Raises BadSignature, SignatureExpired.
        """
        signed, _, found = (s.encode() if isinstance(s, str) else s).rpartition(b".")
        expected = (signature(key, signed) for key in reversed(self.secret_keys))
        if not any(hmac.compare_digest(found, each) for each in expected):
            raise BadSignature("the signature does not match")
        payload, _, signed_at = signed.rpartition(b".")
        age = int(time.time()) - int.from_bytes(decode_base64(signed_at), "big")
        if max_age is not None and not 0 <= age <= max_age:
            raise SignatureExpired(f"the signature is {age} seconds old, of {max_age}")
        return json.loads(decode_base64(payload))


def signature(key: bytes, signed: bytes) -> bytes:
    """Return the HMAC-SHA256 (RFC 2104) in Base64, without padding."""
    return base64_encode(hmac.digest(key, signed, "sha256"))


def decode_base64(text: bytes) -> bytes:
    """Return the bytes of a Base64 text that `base64_encode` returned."""
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))


def serializer(purpose: str, store: Storage | None = None) -> URLSafeTimedSerializer:
    """Return the serializer for one purpose; text signed for another purpose never verifies.

    The keys are those of `store`, by default of the app that handles this request. A rotated key
    reaches every worker at its next call. `loads(text, max_age=seconds)` raises
    itsdangerous.BadSignature, or its subclass SignatureExpired.
    """
    return _make_serializer((store or get_storage()).keys(), purpose)


@functools.lru_cache(maxsize=64)
def _make_serializer(keys: tuple[bytes, ...], purpose: str) -> URLSafeTimedSerializer:
    # Each purpose has its own key, derived once: itsdangerous would derive it at every call.
    purpose_keys = [hmac.digest(key, purpose.encode(), "sha256") for key in keys]
    options = {"key_derivation": "none", "digest_method": hashlib.sha256}
    return ShortTextSerializer(purpose_keys, signer_kwargs=options)
