"""Signatures for everything that leaves the server and must come back unchanged."""

import binascii
import functools
import hashlib
import hmac
import json
import time

from itsdangerous import BadSignature, SignatureExpired, URLSafeTimedSerializer
from itsdangerous.encoding import int_to_bytes

from identity.http.context import get_storage
from model.records import CLOCK_TOLERANCE
from storage import Storage

COMPACT_JSON = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))
JSON_DECODER = json.JSONDecoder()
TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")  # RFC 4648 5
FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")


class ShortTextSerializer(URLSafeTimedSerializer):
    """A serializer for short texts, which are not compressed.

    The format is that of the class that it extends, in a third of the time: `python -m
    benchmarks.profile` compares them. It verifies only the exact text that was signed; the base
    class skips characters that are not Base64, and ignores unused bits of the last one.
    """

    def dumps(self, obj: object, salt: str | bytes | None = None) -> str:
        """Return a signed text with a JSON value and the time."""
        payload = COMPACT_JSON.encode(obj).encode()
        signed = encode_base64(payload) + b"." + encode_base64(int_to_bytes(int(time.time())))
        return (signed + b"." + signature(self.macs[0], signed)).decode()

    def loads(self, s: str | bytes, max_age: int | None = None) -> object:
        """Return the value in a signed text, at most `max_age` seconds old (None: of any age).

        The text may come from the near future: of a machine whose clock is ahead, by at most
        CLOCK_TOLERANCE. Raises BadSignature, SignatureExpired.
        """
        signed, _, found = (s.encode() if isinstance(s, str) else s).rpartition(b".")
        for mac in self.macs:
            if hmac.compare_digest(found, signature(mac, signed)):
                break
        else:
            raise BadSignature("the signature does not match")
        payload, _, signed_at = signed.rpartition(b".")
        age = int(time.time()) - int.from_bytes(decode_base64(signed_at), "big")
        if max_age is not None and not -CLOCK_TOLERANCE <= age <= max_age:
            raise SignatureExpired(f"the signature is {age} seconds old, of {max_age}")
        return JSON_DECODER.raw_decode(decode_base64(payload).decode())[0]

    @functools.cached_property
    def macs(self) -> list[hmac.HMAC]:
        """An HMAC-SHA256 (RFC 2104) for each key, to be copied; the key that signs comes first."""
        return [hmac.new(key, digestmod="sha256") for key in reversed(self.secret_keys)]


def signed_at(text: str) -> int:
    """Return when a text that `loads` accepted was signed, in seconds since 1970."""
    return int.from_bytes(decode_base64(text.split(".")[1].encode()), "big")


def signature(mac: hmac.HMAC, signed: bytes) -> bytes:
    mac = mac.copy()
    mac.update(signed)
    return encode_base64(mac.digest())


def encode_base64(content: bytes) -> bytes:
    """Return bytes in the URL-safe Base64 of RFC 4648 5, without padding."""
    return binascii.b2a_base64(content, newline=False).translate(TO_URL_SAFE).rstrip(b"=")


def digest_of(text: str, length: int = 32) -> str:
    """Return the first `length` bytes of a text's SHA-256, in URL-safe Base64 without padding."""
    return encode_base64(hashlib.sha256(text.encode()).digest()[:length]).decode()


def decode_base64(text: bytes) -> bytes:
    """Return the bytes of a text that `encode_base64` returned."""
    return binascii.a2b_base64(text.translate(FROM_URL_SAFE) + b"==")


def serializer(purpose: str, store: Storage | None = None) -> URLSafeTimedSerializer:
    """Return the serializer for one purpose; text signed for another purpose never verifies.

    The keys are those of `store`, by default of the app that handles this request. A rotated key
    reaches every worker within a second. `loads(text, max_age=seconds)` raises
    itsdangerous.BadSignature, or its subclass SignatureExpired.
    """
    return _make_serializer((store or get_storage()).keys.current(), purpose)


@functools.lru_cache(maxsize=64)
def _make_serializer(keys: tuple[bytes, ...], purpose: str) -> URLSafeTimedSerializer:
    # Each purpose has its own key, derived once: itsdangerous would derive it at every call.
    purpose_keys = [hmac.digest(key, purpose.encode(), "sha256") for key in keys]
    options = {"key_derivation": "none", "digest_method": hashlib.sha256}
    return ShortTextSerializer(purpose_keys, signer_kwargs=options)
