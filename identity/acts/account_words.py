"""What people read of an act on an account: the player, the administrators, the chat."""

from collections.abc import Callable

from identity.acts.naming import Named
from identity.site.formatting import add_reason, format_time
from model.records import ADMINISTRATOR, Suspension, User
from model.words import Words, say, say_number


def say_suspended(suspension: Suspension, write: Callable[[int], str] = format_time) -> Words:
    """Return what a suspended player reads: until when, as `write` shows a time, and the reason."""
    sentence = say("You are suspended.")
    if suspension.until is not None:
        sentence = say("You are suspended until %(time)s.", time=write(suspension.until))
    return add_reason(sentence, suspension.reason)


def say_who_suspended(by: Named, user: User, days: int | None) -> Words:
    """Return what the chat says of a suspension for some days, None until somebody lifts it."""
    names = {"who": by.words, "player": user.name}
    if days is None:
        return say("%(who)s suspended %(player)s.", **names)
    return say_number(
        "%(who)s suspended %(player)s for %(number)s day.",
        "%(who)s suspended %(player)s for %(number)s days.",
        days,
        **names,
    )


def say_raised(by: Named, user: User) -> Words:
    """Return who made a player what the player is now: a moderator or an administrator."""
    names = {"who": by.words, "player": user.name, "id": str(user.id)}
    administrator = say("%(who)s made %(player)s, player id %(id)s, an administrator.")
    moderator = say("%(who)s made %(player)s, player id %(id)s, a moderator.")
    if by.user:
        names["own_id"] = str(by.user.id)
        administrator = say(
            "%(who)s, player id %(own_id)s, made %(player)s, player id %(id)s, an administrator."
        )
        moderator = say(
            "%(who)s, player id %(own_id)s, made %(player)s, player id %(id)s, a moderator."
        )
    return (administrator if user.mod_level == ADMINISTRATOR else moderator).fill(**names)
