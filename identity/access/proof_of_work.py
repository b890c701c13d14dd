"""A proof of work that the sign-up form brings, so that scripts which do not run it are refused.

It is a price, and no wall: ten lines of Python solve it in a third of a second. What holds is that
later sign-ups wait for a moderator (`admission`). It is never harder under attack, which would hurt
phones alone. A nonce solves the puzzle n of a challenge if SHA-256(SHA-256(challenge), n, nonce)
begins with BITS zeros; n and the nonce have four bytes.
"""

import hashlib
import re
import secrets
from struct import Struct

from itsdangerous import BadSignature

from identity.http.context import get_storage
from identity.http.signing import serializer
from model.errors import TooManyAttempts
from storage.contract import ATTEMPTS_WINDOW

PUZZLES, BITS = 16, 15  # many easy ones: their sum varies less than the work of a hard one
CHALLENGE_MAX_AGE = ATTEMPTS_WINDOW  # seconds; a proof that was used is known for as long
CHALLENGE_LENGTH = 100  # characters, at most
NONCES = re.compile(rf"[0-9]{{1,10}}(?: [0-9]{{1,10}}){{{PUZZLES - 1}}}")
NUMBERS = Struct(">II")
PURPOSE = "sign-up proof"


def issue_challenge() -> dict[str, str | int]:
    """Return what a sign-up page gives its script; the form brings the `text` back."""
    text = serializer(PURPOSE).dumps(secrets.token_urlsafe(12))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"text": text, "digest": digest, "puzzles": PUZZLES, "bits": BITS}


def spend_proof(challenge: str, nonces: str) -> bool:
    """Return True for the right solution of a challenge, and use it up. Raises StorageFailed.

    `nonces` are decimal numbers with spaces between them, in the order of the puzzles.
    """
    if len(challenge) > CHALLENGE_LENGTH or not NONCES.fullmatch(nonces):
        return False
    try:
        serializer(PURPOSE).loads(challenge, CHALLENGE_MAX_AGE)
    except BadSignature:
        return False
    digest = hashlib.sha256(challenge.encode()).digest()
    if not all(solves(digest, n, int(nonce)) for n, nonce in enumerate(nonces.split(" "))):
        return False
    try:
        get_storage().attempts.count("proof", digest.hex(), 1, CHALLENGE_MAX_AGE)
    except TooManyAttempts:
        return False
    return True


def solves(digest: bytes, puzzle: int, nonce: int) -> bool:
    """Return True if a nonce solves a puzzle of the challenge with this SHA-256."""
    block = digest + NUMBERS.pack(puzzle, nonce % 2**32)
    found = int.from_bytes(hashlib.sha256(block).digest(), "big")
    return nonce < 2**32 and found >> (256 - BITS) == 0
