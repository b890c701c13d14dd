"""The act of administrators on the first steps of a new site."""

from identity.acts.actors import Authority
from identity.acts.rights import may_administer
from identity.site.states import edit_state, find_state
from model.records import now_ms

CHECKLIST = "checklist"  # the id of the state that is there once the steps are hidden


def hide(by: Authority) -> None:
    """Hide the first steps from all administrators, for good.

    Raises NotAllowed, StorageFailed, TooManyAttempts.
    """
    by.require(may_administer)
    if find_state(by.store, CHECKLIST) is None:
        by.audit("checklist hide")
        with edit_state(by.store, CHECKLIST) as state:
            state.time = now_ms()
