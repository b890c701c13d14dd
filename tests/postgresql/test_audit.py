"""The audit log in a database."""

import pytest

from storage import StorageFailed

pytestmark = pytest.mark.postgresql


def test_line_of_an_act_that_cannot_be_saved_is_not_there(storage, faults):
    ada = storage.add_user("Ada", "ada@example.org", "")
    faults.refuse_saves("users")
    with pytest.raises(StorageFailed):
        storage.rename_user(
            ada.id, "Grace", lambda user: storage.write_audit("user set", 9, user=user.id)
        )
    faults.allow_saves()
    assert [*storage.read_audit(), *storage.audit_of(ada.id)] == []
