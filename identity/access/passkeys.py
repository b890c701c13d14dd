"""Passkeys: signing in with a key that the player's device keeps, in place of a password.

The standard is W3C Web Authentication Level 3; numbers in comments are its sections. The package
fido2 verifies what an authenticator signed. It is imported at the first use, which takes 150 ms and
10 MiB; without it, or at a base URL that can have none, no passkeys are offered.
`identity.acts.passkeys` has the acts on them.
"""

import base64
import hashlib
import json
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from identity.http.signing import encode_base64
from model.kinds import PASSKEYS
from model.records import Passkey, User, now_ms
from storage import Storage

CEREMONY_TIME = 300  # seconds between the options and the authenticator's answer
ALGORITHMS = (-7, -8, -257)  # ES256, EdDSA and RS256, which 5.4 recommends, of RFC 9053 2
VERIFIED = {"userVerification": "required"}  # the player, by a fingerprint, say
LONGEST_ID = 1023  # bytes: 7.1 step 25
LONGEST_KEY = 1024  # bytes; one of RSA with 4,096 bits has 530
BYTES = ("clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle")
TRANSPORTS = ("usb", "nfc", "ble", "smart-card", "hybrid", "internal")  # 5.8.4
# The models of authenticators that synchronise passkeys, and those of the largest systems.
MODELS = {
    "ea9b8d664d011d213ce4b6b48cb575d4": "Google Password Manager",
    "53414d53554e47000000000000000000": "Samsung Pass",
    "bada5566a7aa401fbd9645619a55120d": "1Password",
    "d548826e79b4db40a3d811116f7e8349": "Bitwarden",
    "fdb141b25d84443e8a354698c205a502": "KeePassXC",
    "50726f746f6e5061737350726f746f6e": "Proton Pass",
}
MODELS |= dict.fromkeys(
    ("fbfc3007154e4ecc8c0b6e020557d7bd", "dd4ec289e01d41c9bb8970fa845d4bf2"), "Apple Passwords"
)
WINDOWS = "08987058cadc4b81b6e130de50dcbe96", "9ddd1817af5a4672a2b93e3dd95000a9"
MODELS |= dict.fromkeys((*WINDOWS, "6028b017b1d44c02b4b3afcdafc96bb2"), "Windows Hello")
logger = logging.getLogger(__name__)


class PasskeyRefused(Exception):
    """The authenticator's answer is malformed, or proves nothing."""


class UnknownPasskey(Exception):
    """The credential id belongs to no passkey of this site, or to one that was removed."""


# -- what the browser is asked ------------------------------------------------------------------


def creation_options(
    user: User, handle: str, existing: list[Passkey], challenge: str, rp: dict[str, str]
) -> dict:
    """Return PublicKeyCredentialCreationOptionsJSON (5.1.8). `rp` has the `id` and the `name`."""
    return {
        "rp": rp,
        "user": {"id": handle, "name": user.name, "displayName": user.name},
        "challenge": challenge,
        "pubKeyCredParams": [{"type": "public-key", "alg": each} for each in ALGORITHMS],
        "timeout": CEREMONY_TIME * 1000,
        "excludeCredentials": [describe_credential(each) for each in existing],
        # requireResidentKey is of Level 1.
        "authenticatorSelection": {"residentKey": "required", "requireResidentKey": True}
        | VERIFIED,
        "attestation": "none",
    }


def request_options(allowed: list[Passkey], challenge: str, rp_id: str) -> dict:
    """Return PublicKeyCredentialRequestOptionsJSON (5.1.9); with none `allowed`, any will do."""
    credentials = [describe_credential(each) for each in allowed]
    options = {"challenge": challenge, "timeout": CEREMONY_TIME * 1000, "rpId": rp_id}
    return options | {"allowCredentials": credentials} | VERIFIED


def describe_credential(passkey: Passkey) -> dict:
    """Return PublicKeyCredentialDescriptorJSON (5.8.3)."""
    described = {"type": "public-key", "id": passkey.credential_id}
    return described | ({"transports": passkey.transports} if passkey.transports else {})


def new_bytes() -> str:
    """Return 32 random bytes in base64url: a challenge (13.4.3) or a user handle (14.6.1)."""
    return secrets.token_urlsafe(32)


# -- what the authenticator answers ---------------------------------------------------------------


def encode_base64url(content: bytes) -> str:
    return encode_base64(content).decode()


def decode_base64url(text: str) -> bytes:
    """Return the bytes of a text in base64url without padding. Raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)


@contextmanager
def refusing_all_errors() -> Iterator[None]:
    """Raise PasskeyRefused for whatever error the answer of an authenticator causes.

    For garbage fido2 raises ValueError, KeyError, TypeError, struct.error and others; deep JSON and
    CBOR cause a RecursionError.
    """
    try:
        yield
    except Exception as error:
        logger.warning("a passkey was refused: %s", ascii(error)[:200])
        raise PasskeyRefused from error


@refusing_all_errors()
def read_credential(text: str) -> dict:
    """Return the parts of a RegistrationResponseJSON or AuthenticationResponseJSON to verify.

    All bytes in it are texts in base64url: from a number fido2 would make as many bytes, up to all
    memory. Raises PasskeyRefused.
    """
    answer = json.loads(text)
    parts = {name: answer["response"][name] for name in BYTES if answer["response"].get(name)}
    client_data = json.loads(decode_base64url(parts["clientDataJSON"]))
    if not all(type(each) is str for each in (client_data["challenge"], *parts.values())):
        raise TypeError("a number in place of bytes")
    # 7.1 step 9, 7.2 step 14, and the step after each
    if client_data.get("crossOrigin") or client_data.get("topOrigin") is not None:
        raise ValueError("from a page inside another site's")
    raw_id = encode_base64url(decode_base64url(answer["rawId"]))
    transports = answer["response"].get("transports") or []
    return {"rawId": raw_id, "response": parts, "type": answer["type"], "transports": transports}


@refusing_all_errors()
def verify_registration(
    answer: dict, challenge: str, rp_id: str, origin: str, user_id: int, handle: str
) -> tuple[Passkey, str]:
    """Return the passkey in an answer (7.1), and the name of its model or "".

    The passkey has no name yet. Raises PasskeyRefused.
    """
    from fido2 import cbor

    attestation = cbor.decode(decode_base64url(answer["response"]["attestationObject"]))
    if type(attestation["authData"]) is not bytes:
        raise TypeError("a number in place of bytes")
    data = _fido2_server(rp_id, origin).register_complete(_state(challenge), answer)
    credential = data.credential_data
    key = cbor.encode(credential.public_key)
    if encode_base64url(credential.credential_id) != answer["rawId"]:
        raise ValueError("another credential id")
    if len(credential.credential_id) > LONGEST_ID or len(key) > LONGEST_KEY:
        raise ValueError("too long")
    if credential.public_key[3] not in ALGORITHMS:  # 7.1 step 20
        raise ValueError("a key that was not asked for")
    require_eligible(data)
    passkey_id, sent = hashlib.sha256(credential.credential_id).hexdigest(), answer["transports"]
    key_and_host = answer["rawId"], encode_base64url(key), rp_id
    passkey = Passkey(passkey_id, user_id, handle, *key_and_host, name="", created=now_ms())
    passkey.counter, passkey.synced = data.counter, data.is_backed_up()
    passkey.transports = [each for each in TRANSPORTS if each in sent]
    return passkey, MODELS.get(credential.aaguid.hex(), "")


def require_eligible(data) -> None:  # fido2.webauthn.AuthenticatorData
    """Raise ValueError for a passkey that is backed up and cannot be (7.1 step 18)."""
    if data.is_backed_up() and not data.is_backup_eligible():
        raise ValueError("backed up, and not eligible")


def read_passkey(
    store: Storage, answer: dict, rp_id: str, asked_id: str = ""
) -> tuple[Passkey, User]:
    """Return the passkey that an answer of `read_credential` names, and its player.

    Nothing is proven yet but that the user handle is the player's (7.2 step 6). It may be missing
    if the player with the id `asked_id` was asked for one of their own passkeys. Raises
    PasskeyRefused, UnknownPasskey.
    """
    passkey_id = hashlib.sha256(decode_base64url(answer["rawId"])).hexdigest()
    passkey = store.records(PASSKEYS).find(passkey_id)
    user = store.users.find(passkey.user_id) if passkey and passkey.rp_id == rp_id else None
    if user is None:
        raise UnknownPasskey
    with refusing_all_errors():
        handle = answer["response"].get("userHandle")
        is_own = handle is None and str(user.id) == asked_id
        if not is_own and decode_base64url(handle) != decode_base64url(passkey.handle):
            raise ValueError("the user handle of another player")
    return passkey, user


@refusing_all_errors()
def verify_assertion(
    answer: dict, passkey: Passkey, challenge: str, origin: str
) -> tuple[int, bool]:
    """Return the counter of an answer (7.2), and whether the passkey is synced.

    Raises PasskeyRefused.
    """
    from fido2 import cbor
    from fido2.cose import CoseKey
    from fido2.webauthn import AuthenticatorData

    key = CoseKey.parse(cbor.decode(decode_base64url(passkey.public_key)))
    known = SimpleNamespace(credential_id=decode_base64url(passkey.credential_id), public_key=key)
    server = _fido2_server(passkey.rp_id, origin)
    server.authenticate_complete(_state(challenge), [known], answer)
    data = AuthenticatorData(decode_base64url(answer["response"]["authenticatorData"]))
    require_eligible(data)
    return data.counter, data.is_backed_up()


def _fido2_server(rp_id: str, origin: str):  # -> fido2.server.Fido2Server
    from fido2.server import Fido2Server

    return Fido2Server({"id": rp_id, "name": rp_id}, verify_origin=lambda sent: sent == origin)


def _state(challenge: str) -> dict:
    """Return what fido2 would have kept of its own options, which are not used here."""
    return {"challenge": challenge, "user_verification": "required"}
