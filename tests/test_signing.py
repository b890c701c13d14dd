"""Signed texts have the format of itsdangerous, and only the exact text is valid."""

import hashlib
import string

import pytest
from itsdangerous import BadSignature, SignatureExpired, URLSafeTimedSerializer

from identity.http.signing import ShortTextSerializer
from model.records import CLOCK_TOLERANCE

KEYS = [b"an old key", b"a new key"]
OPTIONS = {"key_derivation": "none", "digest_method": hashlib.sha256}
VALUES = [{"user": 1, "scope": ["userinfo", "email"]}, "é \u2028 🙂", [], None, 0]


@pytest.fixture
def serializer() -> ShortTextSerializer:
    return ShortTextSerializer(KEYS, signer_kwargs=OPTIONS)


def test_text_is_the_one_that_itsdangerous_signs(serializer, clock, subtests):
    plain = URLSafeTimedSerializer(KEYS, signer_kwargs=OPTIONS)
    for value in VALUES:
        with subtests.test(value=value):
            assert serializer.dumps(value) == plain.dumps(value)
            assert serializer.loads(plain.dumps(value)) == value
            assert plain.loads(serializer.dumps(value)) == value


def test_text_is_valid_up_to_its_largest_age(serializer, clock):
    text, age = serializer.dumps("value"), 0
    for next_age in (-CLOCK_TOLERANCE - 1, -CLOCK_TOLERANCE, -1, 0, 1, 600, 601, 10**9):
        clock.shift(next_age - age)
        age = next_age
        if -CLOCK_TOLERANCE <= age <= 600:
            assert serializer.loads(text, max_age=600) == "value"
        else:
            with pytest.raises(SignatureExpired):
                serializer.loads(text, max_age=600)
        assert serializer.loads(text) == "value"


def test_text_with_any_other_character_is_refused(serializer):
    """itsdangerous skips characters outside of Base64, and ignores bits of the last one."""
    text = serializer.dumps({"user": 1})
    altered = ["", ".", "..", "...", "a.b.c", "é"]
    for position, character in enumerate(text):
        others = {*string.ascii_letters, *"-_.=+/ é\n", ""} - {character}
        altered += [text[:position] + other + text[position + 1 :] for other in others]
    for added in ("=", ".", "A", "\n", " ", "é", "\x00"):
        altered += [text + added, added + text]
    for each in altered:
        with pytest.raises(BadSignature):
            serializer.loads(each)
