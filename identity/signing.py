"""Signatures for everything that leaves the server and must come back unchanged."""

import functools
import hashlib
import hmac

from itsdangerous import TimestampSigner, URLSafeTimedSerializer
from itsdangerous.encoding import base64_encode

from identity.context import get_storage
from storage import Storage


class ShortTextSerializer(URLSafeTimedSerializer):
    """A serializer for short texts: it caches its signer and never compresses.

    `python -m benchmarks.profile` compares it with the class that it extends.
    """

    def make_signer(self, salt: str | bytes | None = None) -> TimestampSigner:
        if "cached_signer" not in self.__dict__:
            self.cached_signer = super().make_signer(salt)
        return self.cached_signer

    def loads(self, text: str | bytes, max_age: int | None = None) -> object:
        return self.load_payload(self.make_signer().unsign(text, max_age=max_age))

    def dump_payload(self, obj: object) -> bytes:
        return base64_encode(self.serializer.dumps(obj))


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
