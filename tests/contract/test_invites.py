"""The contract of invitations: how many accounts each makes."""

import pytest

from model.errors import InviteSpent, NameTaken
from model.kind import DAY_MS
from model.records import User, now_ms, sha256
from model.site_records import Invite

from .base import together

RACERS = 8


def register(storage, name: str, invite: str):
    return storage.users.register(name, "", "", invite=invite)


class TestInvites:
    def test_an_invitation_is_good_for_its_uses(self, storage):
        secret = storage.invites.issue(7, uses=2, note="Friends", flair="first ten", by=7)
        users = [register(storage, name, secret) for name in ("Ada", "Bob")]
        with pytest.raises(InviteSpent):
            register(storage, "Cleo", secret)
        assert storage.invites.find_unused(secret) is None
        [invite] = storage.invites.page("list", "all")
        assert (invite.used_by, invite.note) == ([user.id for user in users], "Friends")
        for user in map(storage.users.read, invite.used_by):
            assert (user.invite, user.invited_by) == (invite.id, 7)
            assert (user.flairs, user.equipped_flair) == (["none", "first ten"], "none")

    def test_racing_sign_ups_make_as_many_accounts_as_it_is_for(self, storage):
        secret = storage.invites.issue(7, uses=3)
        results = together(lambda n: register(storage, f"Racer{n}", secret), range(RACERS))
        made = sorted(each.id for each in results if isinstance(each, User))
        assert (len(made), [type(each) for each in results].count(InviteSpent)) == (3, RACERS - 3)
        [invite] = storage.invites.page("list", "all")
        assert storage.users.ids() == sorted(invite.used_by) == made

    def test_deleted_account_gives_no_use_back(self, storage):
        secret = storage.invites.issue(7)
        storage.users.delete(register(storage, "Ada", secret).id)
        with pytest.raises(InviteSpent):
            register(storage, "Bob", secret)

    def test_refused_sign_up_uses_nothing(self, storage):
        secret = storage.invites.issue(7)
        storage.users.register("Ada", "", "")
        with pytest.raises(NameTaken):
            register(storage, "ADA", secret)

        def refuse(_) -> None:
            raise KeyError

        with pytest.raises(KeyError):
            storage.users.register("Bob", "", "", invite=secret, before=refuse)
        assert register(storage, "Bob", secret).invite

    def test_use_of_an_account_that_was_never_added_does_not_count(self, storage):
        """A kill between the two saves leaves its id; ids are never given again."""
        secret = storage.invites.issue(7)
        with storage.invites.edit(storage.invites.find_unused(secret).id) as invite:
            invite.used_by = [999]
        user = register(storage, "Ada", secret)
        assert storage.invites.read(user.invite).used_by == [user.id]

    def test_revoked_or_ended_invitation_is_good_no_more(self, storage, subtests):
        revoked, later = storage.invites.issue(7), now_ms() + DAY_MS
        with storage.invites.edit(storage.invites.find_unused(revoked).id) as invite:
            invite.revoked = now_ms()
        fields = {"secret": sha256("ended"), "good_until": now_ms() - 1}
        storage.invites.add(Invite("0" * 15 + "-00000000", later, **fields))
        for field, secret in (("revoked", revoked), ("good_until", "ended")):
            with subtests.test(field):
                assert storage.invites.find_unused(secret) is None
                with pytest.raises(InviteSpent):
                    register(storage, f"Ada {field}", secret)

    def test_revocation_during_a_sign_up_waits_or_wins(self, storage):
        """The one that comes first is done first; no use is lost and none is given after it."""
        secret, made = storage.invites.issue(7, uses=RACERS), []
        invite_id = storage.invites.find_unused(secret).id

        def sign_up() -> None:
            for number in range(RACERS):
                made.append(register(storage, f"Racer{number}", secret).id)

        def revoke() -> None:
            with storage.invites.edit(invite_id) as invite:
                invite.revoked = now_ms()

        signed_up, revoked = together(lambda act: act(), (sign_up, revoke))
        assert revoked is None and isinstance(signed_up, InviteSpent | None)
        with pytest.raises(InviteSpent):
            register(storage, "Late", secret)
        kept = storage.invites.read(invite_id)
        assert kept.revoked and kept.used_by == made

    def test_invitation_of_an_earlier_version_makes_one_account(self, storage):
        storage.invites.add(Invite(sha256("older"), now_ms() + DAY_MS))
        user = register(storage, "Ada", "older")
        assert (user.invite, user.invited_by) == (sha256("older"), None)
        with pytest.raises(InviteSpent):
            register(storage, "Bob", "older")
