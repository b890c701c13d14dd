"""The audit log in a database."""

import pytest

from storage.errors import StorageFailed

pytestmark = pytest.mark.postgresql


def test_line_of_an_act_that_cannot_be_saved_is_not_there(storage, faults):
    ada = storage.users.register("Ada", "ada@example.org", "")
    faults.refuse_saves("users")
    with pytest.raises(StorageFailed):
        storage.users.rename(
            ada.id, "Grace", lambda user: storage.audit.write("user set", 9, user=user.id)
        )
    faults.allow_saves()
    assert [*storage.audit.read(), *storage.audit.about({ada.id})] == []
