"""An authenticator in software (W3C Web Authentication Level 3, 6), and what a page does with it.

It makes real ES256 keys, and signs what it is told to, right or wrong.
"""

import hashlib
import json
import secrets
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field

from conftest import Browser
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2 import cbor
from werkzeug.test import TestResponse

USER_PRESENT, USER_VERIFIED, ELIGIBLE, BACKED_UP, ATTESTED = 1, 4, 8, 16, 64  # 6.1
VERIFIED = USER_PRESENT | USER_VERIFIED
ORIGIN, RP_ID = "http://localhost", "localhost"


def encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "==")


@dataclass
class Authenticator:
    """One discoverable credential; without a counter, as a synced passkey."""

    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    handle: str = ""  # what the options of the creation name
    aaguid: bytes = bytes(16)
    algorithm: int = -7

    def create(self, options: dict, origin: str = ORIGIN, flags: int = VERIFIED, **changes) -> str:
        """Return RegistrationResponseJSON for these options; `changes` are of the client data."""
        self.handle = options["user"]["id"]
        point = self.key.public_key().public_numbers()
        key = {1: 2, 3: self.algorithm, -1: 1, -2: _bytes(point.x), -3: _bytes(point.y)}
        length = struct.pack(">H", len(self.credential_id))
        attested = self.aaguid + length + self.credential_id + cbor.encode(key)
        data = self._data(options["rp"]["id"], flags | ATTESTED) + attested
        client_data = self._client_data("webauthn.create", options, origin, changes)
        statement = {"fmt": "none", "attStmt": {}, "authData": data}
        return self._describe(
            clientDataJSON=client_data,
            attestationObject=cbor.encode(statement),
            transports=["internal", "hybrid"],
        )

    def get(
        self,
        options: dict,
        origin: str = ORIGIN,
        flags: int = VERIFIED,
        counter: int = 0,
        rp_id: str = RP_ID,
        handle: str | None = None,
        **changes,
    ) -> str:
        """Return AuthenticationResponseJSON for these options."""
        data = self._data(rp_id, flags, counter)
        client_data = self._client_data("webauthn.get", options, origin, changes)
        signed = data + hashlib.sha256(client_data).digest()
        return self._describe(
            clientDataJSON=client_data,
            authenticatorData=data,
            signature=self.key.sign(signed, ec.ECDSA(SHA256())),
            userHandle=decode(self.handle if handle is None else handle),
        )

    def _data(self, rp_id: str, flags: int, counter: int = 0) -> bytes:
        return hashlib.sha256(rp_id.encode()).digest() + struct.pack(">BI", flags, counter)

    def _client_data(self, kind: str, options: dict, origin: str, changes: dict) -> bytes:
        values = {"type": kind, "challenge": options["challenge"], "origin": origin}
        return json.dumps(values | {"crossOrigin": False} | changes).encode()

    def _describe(self, **response) -> str:
        credential_id = encode(self.credential_id)
        texts = {
            name: encode(value) if isinstance(value, bytes) else value
            for name, value in response.items()
        }
        described = {"id": credential_id, "rawId": credential_id, "type": "public-key"}
        return json.dumps(described | {"response": texts, "clientExtensionResults": {}})


def _bytes(number: int) -> bytes:
    return number.to_bytes(32, "big")


# -- the page -----------------------------------------------------------------------------------


def ask_creation(browser: Browser, **fields: str) -> dict:
    """Return the options of a new passkey for the signed-in player."""
    answer = browser.post("/account/passkeys/options", data=fields)
    assert answer.status_code == 200, answer.text
    return answer.json


def add_passkey(
    browser: Browser, authenticator: Authenticator | None = None, name: str = "Phone", **changes
) -> Authenticator:
    """Add a passkey to the account of the signed-in player, and return it."""
    authenticator = authenticator or Authenticator()
    credential = authenticator.create(ask_creation(browser), **changes)
    answer = browser.post("/account/passkeys", data={"credential": credential, "name": name})
    assert answer.status_code in (201, 303), answer.text
    return authenticator


def ask_request(browser: Browser, leads_to: str = "/") -> dict:
    """Return the options of a sign-in."""
    answer = browser.post("/sign-in/passkey/options", data={"next": leads_to})
    assert answer.status_code == 200, answer.text
    return answer.json


def use_passkey(
    browser: Browser, authenticator: Authenticator, leads_to: str = "/account", **changes
) -> TestResponse:
    """Sign in with a passkey."""
    credential = authenticator.get(ask_request(browser, leads_to), **changes)
    return browser.post("/sign-in/passkey", data={"credential": credential, "next": leads_to})
