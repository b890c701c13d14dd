"""A relying party: the client's half of OpenID Connect Core 1.0, whose sections are cited.

It trusts nothing that the server says and shares no code with it: `cryptography` verifies tokens.
"""

import base64
import hashlib
import json
import re
import secrets
import time
from typing import NamedTuple
from urllib.parse import urlencode

from conftest import FOREIGN_LINK, PASSWORD, Browser, Program
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA256
from forms import parse
from test_token import basic
from werkzeug.test import TestResponse

DISCOVERY = "/.well-known/openid-configuration"
AFTER_LOGOUT = "https://forum.example/signed-out"
LONG_STATE = (bytes(range(0x20, 0x7F)).decode() * 2)[:128]  # all that RFC 6749 A.5 allows


class SignIn(NamedTuple):
    """A completed sign-in: what the player saw, and what the relying party got."""

    pages: list[str]  # "sign-in", "consent"
    code: str
    tokens: dict  # the token response
    header: dict  # of the ID token, as are the claims
    claims: dict
    userinfo: dict


class RelyingParty:
    """A program that knows the server by its discovery document, and the browser of its visitor."""

    def __init__(self, program: Program, browser: Browser) -> None:
        self.program, self.http, self.browser = program, program.http, browser
        self.token_request = {}  # parameters besides those of every request
        self.metadata = self.http.get(DISCOVERY).json

    def path_of(self, name: str) -> str:
        """Return the path of an address in the discovery document."""
        return self.metadata[name].removeprefix(self.metadata["issuer"])

    def visit(self, parameters: dict, name: str = "authorization_endpoint") -> TestResponse:
        """Follow a link on the program's site to an endpoint; it has no parameter that is None."""
        sent = {key: value for key, value in parameters.items() if value is not None}
        link = f"{self.path_of(name)}?{urlencode(sent)}"
        return self.browser.get(link, headers=FOREIGN_LINK)

    def request(self, **changes: str | int | None) -> dict[str, str | int]:
        """Return the parameters of an authentication request (3.1.2.1)."""
        own = {name: secrets.token_urlsafe(16) for name in ("state", "nonce")}
        own |= {"client_id": self.program.id, "redirect_uri": self.program.redirect_uri}
        return own | {"response_type": "code", "scope": "openid"} | changes

    def read_response(self, answer: TestResponse, asked: dict) -> dict[str, str]:
        """Return the parameters of an authentication response, if it is of this request."""
        parameters = self.program.read_callback(answer)
        assert parameters.get("state") == asked.get("state")
        assert parameters["iss"] == self.metadata["issuer"]  # RFC 9207
        return parameters

    def ask_for_error(self, **changes: str | int | None) -> str:
        """Send a request that must fail without a page; return the error (3.1.2.6)."""
        asked = self.request(**changes)
        return read_error(self.read_response(self.visit(asked), asked))

    def sign_in(self, **changes: str | int | None) -> SignIn:
        """Sign the player in, who types the password and allows what is asked for."""
        asked = self.request(**changes)
        return self.complete(self.visit(asked), asked)

    def complete(self, answer: TestResponse, asked: dict) -> SignIn:
        """Complete a sign-in after the first answer to its request."""
        answer, pages = follow(self.browser, answer)
        code = self.read_response(answer, asked)["code"]
        answer = self.exchange(code)
        tokens = answer.json
        assert (tokens["token_type"], answer.headers["Cache-Control"]) == ("Bearer", "no-store")
        header, claims = self.verify(tokens, asked.get("nonce"))
        userinfo = self.ask_userinfo(tokens).json
        assert userinfo["sub"] == claims["sub"]  # 5.3.2
        return SignIn(pages, code, tokens, header, claims, userinfo)

    def exchange(self, code: str) -> TestResponse:
        """Send a token request (3.1.3.1), by client_secret_basic unless it has a secret."""
        form = {"grant_type": "authorization_code", "code": code}
        form |= {"redirect_uri": self.program.redirect_uri} | self.token_request
        own = {} if "client_secret" in form else basic(self.program.id, self.program.secret)
        return self.http.post(self.path_of("token_endpoint"), data=form, headers=own)

    def refresh(self, tokens: dict, **sent: str) -> TestResponse:
        """Send a refresh request (12.1)."""
        form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]} | sent
        own = basic(self.program.id, self.program.secret)
        return self.http.post(self.path_of("token_endpoint"), data=form, headers=own)

    def verify(self, tokens: dict, nonce: str | None) -> tuple[dict, dict]:
        """Return header and claims of an ID token if it passes the checks of 3.1.3.7."""
        signed, _, signature = tokens["id_token"].rpartition(".")
        header, claims = (json.loads(decode(part)) for part in signed.split("."))
        keys = {each["kid"]: each for each in self.http.get(self.path_of("jwks_uri")).json["keys"]}
        assert header["alg"] == "RS256"
        key = read_key(keys[header["kid"]])
        key.verify(decode(signature), signed.encode(), PKCS1v15(), SHA256())
        assert (claims["iss"], claims["aud"]) == (self.metadata["issuer"], self.program.id)
        assert claims["auth_time"] <= claims["iat"] <= time.time() < claims["exp"]
        digest = hashlib.sha256(tokens["access_token"].encode()).digest()
        assert (claims.get("nonce"), decode(claims["at_hash"])) == (nonce, digest[:16])  # 3.1.3.6
        return header, claims

    def ask_userinfo(self, tokens: dict, method: str = "GET") -> TestResponse:
        """Send a userinfo request (5.3.1) with the access token in the header."""
        headers = {"Authorization": f"Bearer {tokens['access_token']}"}
        return self.http.open(self.path_of("userinfo_endpoint"), method=method, headers=headers)


def follow(browser: Browser, answer: TestResponse) -> tuple[TestResponse, list[str]]:
    """Do what the pages ask of Ada; return the last answer and the kinds of those pages."""
    pages = []
    for _ in range(9):  # the way is longer only in a circle
        page = parse(answer)
        if answer.status_code in (302, 303) and answer.location.startswith("/"):
            answer = browser.get(answer.location)
        elif password := page.find("input", type="password"):
            pages.append("sign-in")
            form = password.find_parent("form")
            fields = {each["name"]: each.get("value", "") for each in form.select("input[name]")}
            fields |= {"name": fields["name"] or "Ada", "password": PASSWORD}
            answer = browser.post(form["action"], data=fields)
        elif page.find("button", value="allow"):
            pages.append("consent")
            answer = browser.decide(answer)
        else:
            break
    return answer, pages


def encode(*parts: dict | bytes) -> str:
    """Return parts of a JWT, dictionaries as JSON, in base64url without padding (RFC 7515 7.1)."""
    data = (json.dumps(each).encode() if isinstance(each, dict) else each for each in parts)
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in data)


def decode(part: str) -> bytes:
    """Return the bytes of one part of a JWT."""
    data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    assert encode(data) == part
    return data


def read_key(jwk: dict[str, str]) -> RSAPublicKey:
    """Return the public key of a JWK (RFC 7518 6.3.1)."""
    exponent, modulus = (int.from_bytes(decode(jwk[name])) for name in ("e", "n"))
    return RSAPublicNumbers(exponent, modulus).public_key()


def read_error(parameters: dict[str, str]) -> str:
    """Return an error, whose description is as RFC 6749 4.1.2.1 and 5.2 allow."""
    assert parameters.keys() <= {"error", "error_description", "error_uri", "state", "iss"}
    assert re.fullmatch(r"[ !#-\[\]-~]+", parameters["error_description"])
    return parameters["error"]
