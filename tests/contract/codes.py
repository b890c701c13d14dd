"""Authorization codes, and those of devices."""

import dataclasses
import functools

import pytest

from model.errors import CodeSpent, NoSuchCode
from model.records import AuthorizationCode, DeviceRequest, now_ms

from .base import Contract, together


class CodesContract(Contract):
    """A code is spent once."""

    def test_code_is_read_as_added_until_it_is_spent(self, storage, code_record):
        for code in ("a code", "another"):
            storage.codes.add(code, code_record)
        for _ in range(2):  # reading spends nothing
            assert storage.codes.read("a code") == code_record
        storage.codes.spend("a code")
        for act in (storage.codes.read, storage.codes.spend):
            with pytest.raises(CodeSpent) as replay:
                act("a code")
            assert replay.value.record == code_record
        assert storage.codes.read("another") == code_record

    def test_request_of_a_device_is_read_until_it_is_spent(self, storage, device_request):
        storage.codes.add("user code", device_request)
        for _ in range(2):
            assert storage.codes.read("user code", DeviceRequest) == device_request
        storage.codes.spend("user code", DeviceRequest)
        for act in (storage.codes.read, storage.codes.spend):
            with pytest.raises(CodeSpent) as replay:
                act("user code", DeviceRequest)
            assert replay.value.record == device_request

    def test_code_of_another_type_is_unknown(self, storage, code_record, device_request):
        """Also after its use: a program that sends the one for the other learns nothing."""
        storage.codes.add("a code", code_record)
        storage.codes.add("user code", device_request)
        others = {"a code": DeviceRequest, "user code": AuthorizationCode}
        for code, other in others.items():
            with pytest.raises(NoSuchCode):
                storage.codes.read(code, other)
        storage.codes.spend("a code")
        storage.codes.spend("user code", DeviceRequest)
        for code, other in others.items():
            with pytest.raises(NoSuchCode):
                storage.codes.read(code, other)

    def test_code_of_a_game_has_no_redirect_uri(self, storage, code_record):
        record = dataclasses.replace(code_record, redirect_uri=None, code_challenge="x" * 43)
        storage.codes.add("a code", record)
        assert storage.codes.read("a code") == record

    def test_unknown_code_raises(self, storage, code_record, subtests):
        storage.codes.add("a code", code_record)
        for code in ("", "unknown", "a code ", "A CODE", "../spent", "\x00", "c" * 9999):
            for act in (storage.codes.read, storage.codes.spend):
                with subtests.test(code), pytest.raises(NoSuchCode):
                    act(code)

    def test_old_code_is_still_read(self, storage, code_record):
        """Its age is checked where codes are exchanged, so that the answer can give the reason."""
        record = dataclasses.replace(code_record, issued=now_ms() - 600_000)
        storage.codes.add("a code", record)
        assert storage.codes.read("a code") == record

    def test_code_is_spent_once_by_sixteen_racing_threads(
        self, storage, code_record, device_request
    ):
        for n in range(10):
            record = (code_record, device_request)[n % 2]
            storage.codes.add(f"code {n}", record)
            spend = functools.partial(storage.codes.spend, record_type=type(record))
            results = together(spend, [f"code {n}"] * 16)
            assert results.count(None) == 1
            assert sum(isinstance(result, CodeSpent) for result in results) == 15
