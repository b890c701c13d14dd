"""The keys that sign ID tokens with RS256 (RFC 7518 3.3): one signs, and others are published.

`cryptography` is imported at the first need.
"""

import base64
import contextlib
import logging
from importlib.util import find_spec

from identity.acts.actors import Authority
from identity.acts.rights import only_the_command
from identity.http.signing import COMPACT_JSON, digest_of, encode_base64
from identity.site.formatting import DAY
from model.errors import BadInstallation, NotFound, StorageError
from model.records import OpenIdKey, now_ms
from model.rules import TIME_END
from storage import Storage
from storage.repositories import unchanged

KEY_SIZE = 2048  # bits: RFC 7518 3.3 asks for as many
EXPONENT = 65537
PUBLISHED_BEFORE = DAY * 1000  # milliseconds for which a key is published before it signs
KEPT_AFTER = 14 * DAY * 1000  # milliseconds: programs send ID tokens of old sessions as hints

logger = logging.getLogger("identity_server")  # the app's own


def published_keys(store: Storage) -> list[OpenIdKey]:
    """Return the keys that programs may verify with, oldest first; one is made if there is none."""
    # The first signs from the beginning, also by the clock of a machine that is behind. If several
    # processes make one, all of them are published, and the last one signs.
    return _read_keys(store) or [add_key(store, signs_from=0)]


def _read_keys(store: Storage) -> list[OpenIdKey]:
    keys = store.openid_keys.read_from_many(store.openid_keys.ids(), unchanged)
    return sorted(keys, key=lambda key: (key.signs_from, key.id))


def signing_key(store: Storage) -> OpenIdKey:
    """Return the newest key whose time has come, and remove the private halves before it."""
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
    """Add the next key, unless there are no keys, or one is waiting already.

    It signs in a day, and the one before it verifies for 14 days after that. With `now` it signs at
    once, and the others are gone. Raises BadInstallation.
    """
    keys = _read_keys(store)
    if not keys or (keys[-1].signs_from > now_ms() and not now):
        return
    if find_spec("cryptography") is None:
        raise BadInstallation("the key of ID tokens needs the package cryptography to be replaced")
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
    """Add a signing key, as `Keys.rotate` does, and one for ID tokens if they have keys.

    With `openid_now` or `drop_old` that signs at once. An act: raises NotAllowed, BadInstallation.
    """
    by.require(only_the_command, None)
    others = "key openid-now" if openid_now else "key rotate"
    by.audit("key drop-old" if drop_old else others)
    rotate_openid_keys(by.store, openid_now or drop_old)
    by.store.keys.rotate(drop_old)


def _encode_number(number: int) -> str:
    return encode_base64(number.to_bytes(-(-number.bit_length() // 8), "big")).decode()
