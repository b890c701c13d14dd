"""Signed texts have the format of itsdangerous, and only the exact text is valid."""

import hashlib
import string
import time

import pytest
from itsdangerous import BadSignature, SignatureExpired, URLSafeTimedSerializer

from identity import signing
from identity.signing import ShortTextSerializer
from storage.records import CLOCK_TOLERANCE

KEYS = [b"an old key", b"a new key"]
OPTIONS = {"key_derivation": "none", "digest_method": hashlib.sha256}
VALUES = [{"user": 1, "scope": ["userinfo", "email"]}, "é \u2028 🙂", [], None, 0]


@pytest.fixture
def serializer() -> ShortTextSerializer:
    return ShortTextSerializer(KEYS, signer_kwargs=OPTIONS)


@pytest.fixture
def plain() -> URLSafeTimedSerializer:
    """The serializer of itsdangerous with the same keys."""
    return URLSafeTimedSerializer(KEYS, signer_kwargs=OPTIONS)


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time that the serializers see, as the only element."""
    now = [1_700_000_000.5]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def test_text_is_the_one_that_itsdangerous_signs(serializer, plain, clock, subtests):
    for value in VALUES:
        with subtests.test(value=value):
            assert serializer.dumps(value) == plain.dumps(value)
            assert serializer.loads(plain.dumps(value)) == value
            assert plain.loads(serializer.dumps(value)) == value


def test_text_is_valid_up_to_its_largest_age_and_from_a_clock_that_is_ahead(serializer, clock):
    text = serializer.dumps("value")
    for age in (-CLOCK_TOLERANCE, -1, 0, 1, 600):
        clock[0] = 1_700_000_000.5 + age
        assert serializer.loads(text, max_age=600) == "value"
    for age in (-CLOCK_TOLERANCE - 1, 601, 10**9):
        clock[0] = 1_700_000_000.5 + age
        with pytest.raises(SignatureExpired):
            serializer.loads(text, max_age=600)
        assert serializer.loads(text) == "value"


def test_text_signed_with_an_older_key_is_valid_until_the_key_is_removed(serializer):
    text = ShortTextSerializer(KEYS[:1], signer_kwargs=OPTIONS).dumps("value")
    assert serializer.loads(text) == "value"
    with pytest.raises(BadSignature):
        ShortTextSerializer(KEYS[1:], signer_kwargs=OPTIONS).loads(text)


def test_text_with_any_other_character_is_refused(serializer):
    """itsdangerous skips characters outside of Base64, and ignores bits of the last one."""
    text = serializer.dumps({"user": 1})
    for position, character in enumerate(text):
        for other in (*string.ascii_letters, *"-_.=+/ é\n", ""):
            if other != character:
                with pytest.raises(BadSignature):
                    serializer.loads(text[:position] + other + text[position + 1 :])
    for added in ("=", ".", "A", "\n", " ", "é", "\x00"):
        for altered in (text + added, added + text):
            with pytest.raises(BadSignature):
                serializer.loads(altered)
    for text in ("", ".", "..", "...", "a.b.c", "é"):
        with pytest.raises(BadSignature):
            serializer.loads(text)


def test_text_for_one_purpose_is_refused_for_another(app):
    with app.app_context():
        text = signing.serializer("session").dumps("value")
        assert signing.serializer("session").loads(text) == "value"
        with pytest.raises(BadSignature):
            signing.serializer("access token").loads(text)
