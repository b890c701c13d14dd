"""Acts on players: those of moderators, of administrators, and of players on themselves.

All of them raise NotAllowed, StorageFailed and NoSuchUser; those that are logged raise
TooManyAttempts.
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from identity.acts.account_words import say_raised, say_suspended, say_who_suspended
from identity.acts.actors import Authority, NotAllowed
from identity.acts.families import end_all, end_where_refused
from identity.acts.logouts import tell_all_ended
from identity.acts.naming import name_actor
from identity.acts.network_bans import networks_to_keep
from identity.acts.passkeys import require_way_in
from identity.acts.rights import (
    Right,
    is_oneself,
    may_administer,
    may_delete,
    may_moderate,
    may_unsuspend,
)
from identity.messages.outbox import announce
from identity.site.catalogues import LANGUAGES
from identity.site.formatting import format_date, format_time
from model.errors import InvalidField, TooManyNames
from model.kind import DAY_MS
from model.names import unique_key
from model.records import ADMINISTRATOR, CLOCK_TOLERANCE, Suspension, User, now_ms, sha256
from model.rules import check_bio, check_flair, check_mod_level, check_short_text, refuse
from model.words import say
from storage import Storage
from storage.repositories import Images

RESETS = {  # what may be reset, and what the player is told
    "bio": say("A moderator removed what you wrote about yourself. Write something else."),
    "picture": say("A moderator removed your picture. Choose another one on your account page."),
    "name": say(
        "A moderator changed your name to %(name)s. Choose a new one on your account page."
    ),
}
NOW_UNDERAGE = say(
    "A moderator marked you as a younger player, so apps no longer learn who you are."
)
NAMES_KEPT = 10  # former names of one player, which nobody else can have
RENAMES_AN_HOUR = 10  # of one player, who could imitate many others in turn
SITTING_GAP = 150_000  # milliseconds between two heartbeats of one sitting
COUNTED_ALREADY = 30_000  # milliseconds: a heartbeat so soon after another comes from a second tab


# -- moderation and administration ---------------------------------------------------------


def suspend(
    by: Authority,
    user_id: int,
    reason: str = "",
    days: int | None = None,
    keep_end: bool = False,
    is_new: bool = False,
) -> None:
    """Stop a player from signing in, for some days or, with None, until somebody lifts that.

    Sessions and tokens end. A suspended player gets the new reason and end, with `keep_end` the
    reason alone, and with `is_new` none. Raises InvalidField, LastAdministrator.
    """
    refuse("reason", check_short_text(reason))
    now = now_ms()
    until = None if days is None else now + days * DAY_MS
    last = _keep_an_administrator(by, may_moderate, user_id)
    with last, by.store.users.edit(user_id) as user:
        _require_suspension_right(by, user)
        if is_new and user.suspended:
            raise InvalidField("form", say("Another moderator has just suspended this player."))
        if keep_end and not user.suspended:
            raise InvalidField("length", say("The suspension has just ended. Choose how long."))
        until = user.suspension.until if keep_end else until
        new = Suspension(by.actor.id, now, reason, until, networks_to_keep(user))
        if user.suspended and replace(user.suspension, since=now) == new:
            return
        length = {} if days is None else {"days": days}
        by.audit("user suspend", user=user_id, **length)
        end_all(by, user)
        user.suspension = new
        for grant in user.grants.values():
            grant.end_tokens()
    words = say_who_suspended(name_actor(by.store, by.actor.id), user, days)
    announce(by.store, "suspension", words, f"/users/{user_id}")
    by.write_to(user, "suspension", say_suspended(new))


def unsuspend(by: Authority, user_id: int) -> None:
    with by.store.users.edit(user_id) as user:
        _require_suspension_right(by, user)
        if user.suspended:
            by.audit("user unsuspend", user=user_id)
            user.suspension = None


def reset(by: Authority, user_id: int, what: str) -> None:
    """Take away a bio, name or picture that nobody should see; `what` is one of RESETS."""
    name = f"player{user_id}"
    new = {"bio": ("bio", ""), "name": ("name", name), "picture": ()}[what]

    def before(user: User) -> None:
        by.audited(may_moderate, f"user reset {what}", *new)(user)
        if not new or getattr(user, new[0]) != new[1]:
            user.notify(RESETS[what].fill(name=name))

    if what == "bio":
        with by.store.users.edit(user_id) as user:
            before(user)
            user.bio = ""
    elif what == "name":
        by.store.users.reset_name(user_id, before)
    else:
        _save_generated_picture(by, user_id, may_moderate, before)


def set_underage(by: Authority, user_id: int, underage: bool) -> None:
    """Mark a player as younger than the site asks for, or take the mark away.

    No app learns of such a player: what apps have of the player ends. They keep the consent.
    """
    act = "user underage" if underage else "user not-underage"
    with by.store.users.edit(user_id) as user:
        by.audited(may_moderate, act, "underage", underage)(user)
        if underage and not user.underage:
            user.notify(NOW_UNDERAGE)
        user.underage = underage
        if underage:
            end_where_refused(by, user)
            for grant in user.grants.values():
                grant.end_tokens()


def set_mod_level(by: Authority, user_id: int, mod_level: int) -> bool:
    """Change what a player may do here, and return True if that is more than before.

    Then all other administrators are told. Raises InvalidField, LastAdministrator.
    """
    refuse("mod_level", check_mod_level(mod_level))
    last = nullcontext()
    if mod_level != ADMINISTRATOR:
        last = _keep_an_administrator(by, may_administer, user_id)
    act, field = "user mod-level", "mod_level"
    audited = by.audited(may_administer, act, field, mod_level, mod_level=mod_level)
    with last, by.store.users.edit(user_id) as user:
        audited(user)
        rises = mod_level > user.mod_level
        user.mod_level = mod_level
        end_where_refused(by, user)
    if rises:
        text = say_raised(name_actor(by.store, by.actor.id), user)
        by.notify_administrators(text, but=user_id)
    return rises


def grant_flair(by: Authority, user_id: int, flair: str) -> None:
    """Give a player a flair, which they may then equip. Raises InvalidField."""
    refuse("flair", check_flair(flair))
    with by.edit(may_administer, by.store.users, user_id) as user:
        if flair not in user.flairs:
            by.audit("flair grant", user=user_id, flair=flair)
            user.flairs.append(flair)


def revoke_flair(by: Authority, user_id: int, flair: str) -> None:
    """Take a flair from a player. Raises InvalidField for "none" and a flair they lack."""
    with by.edit(may_administer, by.store.users, user_id) as user:
        if flair == "none" or flair not in user.flairs:
            raise InvalidField("flair", say("This player does not have this flair."))
        by.audit("flair revoke", user=user_id, flair=flair)
        user.flairs = [each for each in user.flairs if each != flair]
        if user.equipped_flair == flair:
            user.equipped_flair = "none"
        end_where_refused(by, user)


# -- players, of themselves; also the command, with an audit line -----------------------------


def change_email(by: Authority, user_id: int, email: str, rp_id: str | None = None) -> None:
    """Change a player's email address, which is unconfirmed then; "" removes it.

    Only passkeys of the host `rp_id` count as ways in; for None none do. The command may take away
    the last way in. Raises InvalidField, EmailTaken, LastWayIn.
    """
    audited = by.audited(is_oneself, "user set email", "email", email)

    def before(user: User) -> None:
        audited(user)
        if not by.is_command:
            changed = replace(user, email=email, email_verified=False)
            require_way_in(by.store, changed, rp_id)

    by.store.users.change_email(user_id, email, before)


def change_profile(
    by: Authority,
    user_id: int,
    name: str | None = None,
    bio: str | None = None,
    equipped_flair: str | None = None,
    unlisted: bool | None = None,
    hides_game: bool | None = None,
    language: str | None = None,
) -> None:
    """Change what others see of a player, and the language of pages and letters, in one save.

    None keeps a field as it is. A flair that the player lacks is not equipped. Any `name`, also the
    present one, counts against RENAMES_AN_HOUR. Raises InvalidField, NameTaken, NameKept,
    TooManyNames, TooManyAttempts.
    """
    refuse("language", check_language(language or ""))

    def change(user: User) -> None:
        kept = user.name if name is None else name
        by.audited(is_oneself, "user set name", "name", kept)(user)
        if not by.is_command:
            _require_few_names(by.store, user, kept)
        if bio not in (None, user.bio):  # a newer rule locks nobody out
            refuse("bio", check_bio(bio))
            by.audited(is_oneself, "user set bio")(user)
            user.bio = bio
        if equipped_flair in user.flairs:
            user.equipped_flair = equipped_flair
        user.unlisted = user.unlisted if unlisted is None else unlisted
        user.hides_game = user.hides_game if hides_game is None else hides_game
        user.language = user.language if language is None else language

    if hides_game and user_id in by.store.playing.now():
        by.store.playing.note(user_id, None)  # the next heartbeat is up to a minute away
    if name is None:
        with by.store.users.edit(user_id) as user:
            change(user)
    else:
        # A name that is refused counts as well: to ask for it takes the lock of all accounts.
        by.count_own("rename of", RENAMES_AN_HOUR)
        by.store.users.rename(user_id, name, change)


def check_language(language: str) -> str | None:
    """Return what is wrong with a chosen language, or None."""
    return None if language in ("", *LANGUAGES) else say("Choose one of these languages.")


def _require_few_names(store: Storage, user: User, name: str) -> None:
    """Raise TooManyNames if a player would keep more than NAMES_KEPT names under this new one.

    One of the player's former names, or the present one spelled differently, is always fine.
    The caller holds the lock of the player's record.
    """
    own, new = (sha256(unique_key(each)) for each in (user.name, name))
    kept = {each.id: each.expires for each in store.users.former_names.of(user.id)}
    kept.pop(own, None)
    if new not in (own, *kept) and len(kept) >= NAMES_KEPT:
        problem = say(
            "You gave up %(number)s names lately. Take one of them back, or choose a new one after "
            "%(date)s.",
            number=NAMES_KEPT,
            date=format_date(min(kept.values())),
        )
        raise TooManyNames("name", problem)


def save_picture(by: Authority, user_id: int, images: Images) -> None:
    """Make these images of all sizes a player's picture."""
    by.store.pictures.save(user_id, images, functools.partial(by.require, is_oneself))


def remove_picture(by: Authority, user_id: int) -> None:
    """Go back to the generated picture."""
    _save_generated_picture(by, user_id, is_oneself, functools.partial(by.require, is_oneself))


def show_game(by: Authority, user_id: int, client_id: str, shown: bool) -> None:
    """Show or hide on a player's profile that they played the game of an app."""
    with by.edit(is_oneself, by.store.users, user_id) as user:
        if client_id in user.grants:
            user.grants[client_id].hidden = not shown


def withdraw(by: Authority, user_id: int, client_id: str) -> None:
    """Withdraw a player's consent to an app, which ends its tokens."""
    with by.edit(is_oneself, by.store.users, user_id) as user:
        tell_all_ended(by, user, user.consents.keys() & {client_id}, user.sessions)
        user.grants.pop(client_id, None)


def end_test(by: Authority, user_id: int, client_id: str, has_token: bool) -> None:
    """End the grant of a test of an app by its developer.

    A consent from before the test stays. If the test got a token, all tokens end.
    """
    with by.edit(is_oneself, by.store.users, user_id) as user:
        consent = user.consents.get(client_id)
        if consent is None:
            user.grants.pop(client_id, None)
        elif has_token:
            consent.end_tokens()


def add_heartbeat(by: Authority, user_id: int, game: str | None = None) -> None:
    """Add the time since the last heartbeat of this sitting to a player's play time.

    `game` is the client id of the game that sent it. Older pages do not name it.
    """
    with by.edit(is_oneself, by.store.users, user_id) as user:
        if count_heartbeat(user, now_ms()):
            user.last_game = game
            if game in user.consents:
                user.grants[game].played = user.last_heartbeat
    by.store.playing.note(user_id, None if user.hides_game else game)


def delete_user(by: Authority, user_id: int) -> None:
    """Delete a player, who gets a letter. Raises LastAdministrator."""
    user = by.store.users.read(user_id)
    now = format_time(now_ms())
    right, text = may_delete, say("An administrator deleted your account on %(time)s.", time=now)
    if user_id == by.actor.id:
        right, text = is_oneself, say("Your account was deleted on %(time)s.", time=now)
    with _keep_an_administrator(by, right, user_id):

        def before(user: User) -> None:
            by.audited(right, "user delete")(user)
            tell_all_ended(by, user, user.consents, user.sessions)

        by.store.users.delete(user_id, before)
    by.write_to(user, "deletion", text)


# -- what the acts share -------------------------------------------------------------------


def _require_suspension_right(by: Authority, user: User) -> None:
    """Require the right to suspend and unsuspend a user. Raises NotAllowed."""
    by.require(may_moderate, user)
    if not by.has(functools.partial(may_unsuspend, by.store), user):
        raise NotAllowed(say("An administrator suspended this player. Ask them to change it."))


def _keep_an_administrator(
    by: Authority, right: Right, user_id: int
) -> AbstractContextManager[None]:
    """Return a context manager for a block that could take the rights from an administrator.

    It raises LastAdministrator for the last one, but lets the command do that. Raises NotAllowed.
    """
    if by.is_command:
        return nullcontext()
    # First, because LastAdministrator tells who the last administrator is.
    by.require(right, by.store.users.read(user_id))
    return by.store.users.administered_without(user_id)


def _save_generated_picture(
    by: Authority, user_id: int, right: Right, before: Callable[[User], None]
) -> None:
    """Replace an uploaded picture; `before` is called with the player, under the record's lock."""
    user = by.store.users.read(user_id)
    by.require(right, user)
    if not user.pfp_generated:
        by.store.pictures.save(user_id, None, before)


def count_heartbeat(user: User, now: int) -> bool:
    """Change the play time and last heartbeat of a locked record; False if another tab just did."""
    since = now - user.last_heartbeat  # milliseconds; below 0 if another machine's clock is ahead
    if -CLOCK_TOLERANCE * 1000 <= since <= COUNTED_ALREADY:
        return False
    if 0 <= since <= SITTING_GAP:
        user.play_ms += since
    user.last_heartbeat = now
    return True
