"""The letters that players get, and when; `mail_channel` sends them.

Only a letter to a confirmed address names the player: whoever signs up with the address of another
person chooses the name.
"""

import logging
from collections.abc import Mapping

from flask import after_this_request, current_app, request
from itsdangerous import BadSignature
from werkzeug.wrappers import Response

from identity.access.links import CONFIRMATION, LINK_MAX_AGE, Asked, Holder, ask, issue_way_back
from identity.acts.actors import HALF_AN_HOUR, Authority
from identity.acts.emails import CHOICES, muted_by
from identity.http.context import base_url, get_storage, mail_is_on, site_name
from identity.http.languages import page_language
from identity.http.limits import AttemptLimit, client_address, count_attempts, limits_of_address
from identity.http.signing import serializer
from identity.messages.letter import Letter
from identity.messages.outbox import KEPT_DAYS, MAIL, new_message, post
from identity.site.catalogues import LANGUAGES
from identity.site.formatting import DAY, format_time
from identity.site.languages import first_known
from identity.site.look import read_site_name
from model.addresses import check_email, login_key
from model.errors import StorageError, TooManyAttempts
from model.kind import DAY_MS
from model.names import EMAIL_KEPT_DAYS
from model.records import User, now_ms
from model.words import say, say_number
from storage import Storage

LETTERS_AN_HOUR, LETTERS_OF_NETWORK = 3, 10  # to an address, and asked for by a network
NOTICES_AN_HOUR = 10  # of a kind, to a player
WRITTEN_AN_HOUR = 60  # to all players together, because of what one moderator did
MOST_LETTERS_WAITING = 100_000  # letters
KNOWN_PLAYERS, KNOWN_AGE = 10, 400 * DAY  # players that a browser remembers, and seconds
LOG = logging.getLogger(__name__)
NOTICES = {  # by kind: the subject and the sentence
    "password": (
        say("Your password was changed (%(site)s)"),
        say("Your password at %(site)s was changed."),
    ),
    "passkey": (
        say("A passkey was added (%(site)s)"),
        say("A passkey was added to your account at %(site)s."),
    ),
    "passkey removed": (
        say("A passkey was removed (%(site)s)"),
        say("A passkey of your account at %(site)s was removed."),
    ),
    "password removed": (
        say("Your password was removed (%(site)s)"),
        say("Your password at %(site)s was removed."),
    ),
    "recovery codes": (
        say("New recovery codes (%(site)s)"),
        say("New recovery codes were created for your account at %(site)s. The old ones are gone."),
    ),
    "letters": (
        say("No more emails about sign-ins (%(site)s)"),
        say("From now on %(site)s sends you no email when a new browser signs in to your account."),
    ),
    "rise": (
        say("Somebody got more rights (%(site)s)"),
        say("A player became a moderator or an administrator of %(site)s."),
    ),
    "recovery code": (
        say("A recovery code was used (%(site)s)"),
        say("One of your recovery codes at %(site)s was used to sign in."),
    ),
    "sign-in": (
        say("New sign-in (%(site)s)"),
        say("Your account at %(site)s was used in a browser that is new to it."),
    ),
    "language": (
        say("The language of your account was changed (%(site)s)"),
        say("From now on your pages and emails of %(site)s are in this language: %(language)s."),
    ),
}
NO_LANGUAGE = say(  # in place of that sentence
    "From now on your pages of %(site)s are in the language of your browser, and your emails in "
    "that of the site."
)
WRITTEN = {  # by kind of `write_to`: the subject
    "report": say("Your report was answered (%(site)s)"),
    "game": say("News about your game (%(site)s)"),
    "sign-in": say("An app may stay signed in (%(site)s)"),
    "warning": say("A moderator warned you (%(site)s)"),
    "suspension": say("You are suspended (%(site)s)"),
    "deletion": say("Your account was deleted (%(site)s)"),
    "approved": say("You can sign in now (%(site)s)"),
    "declined": say("Your request to join was declined (%(site)s)"),
}


def count_letter(purpose: str, email: str) -> None:
    """Count a letter that somebody asks for. Raises TooManyAttempts, StorageFailed.

    Each purpose has a limit of its own for an address: letters of one purpose use up no other's.
    """
    key = f"{purpose} {login_key(email)}"
    address, window = request.remote_addr, HALF_AN_HOUR
    limits = limits_of_address(address, "letters from", LETTERS_OF_NETWORK, window=window)
    limits.append(AttemptLimit("letters to", key, LETTERS_AN_HOUR, window))
    count_attempts(get_storage(), limits)


def request_recovery(asked: Asked) -> None:
    """Ask for a letter to a typed address, which is looked up as it is sent. Raises StorageFailed.

    The request must not tell whether somebody has the address, also not by the time it takes.
    """
    _request("recovery", asked, LINK_MAX_AGE * 1000, language=page_language())


def _request(kind: str, asked: Asked, good_for: int, **fields: str) -> None:
    """Put a letter into the outbox that is composed as it is sent. Raises StorageFailed."""
    fields |= {"to": asked.address, "browser": asked.browser}
    message = new_message(MAIL, kind, body="", good_until=asked.time + good_for, **fields)
    post(get_storage(), message, MOST_LETTERS_WAITING)


def ask_confirmation(user: Holder) -> bool:
    """Ask by a letter to confirm an address. True also if the outbox does not take it.

    False if mail is off, if no address waits to be confirmed, or if the letter cannot be counted.
    """
    if not mail_is_on() or user.email_verified or check_email(user.email, required=True):
        return False
    try:
        count_letter(CONFIRMATION, user.email)
    except (TooManyAttempts, StorageError):  # the account or the change is saved
        return False  # what this browser asked for before stays good
    asked = ask(CONFIRMATION, user.email)
    try:  # its turn may come much later: the link is good from when it is sent
        _request(CONFIRMATION, asked, KEPT_DAYS * DAY_MS)
    except StorageError as error:
        LOG.error("a letter is dropped: %s", error)
    return True


def tell_old_address(user: User) -> None:
    """Tell an address that was replaced, if it was confirmed; `user` is from before the change."""
    if not (mail_is_on() and user.email_verified):
        return
    text = issue_way_back(get_storage(), user.id, user.email)
    end = say_number(
        "Was that you? Then ignore this email. The link works for %(number)s day.",
        "Was that you? Then ignore this email. The link works for %(number)s days.",
        EMAIL_KEPT_DAYS,
    )
    letter = Letter(
        say("Your email was changed"),
        [say("Your account at %(site)s does not have this address any more.", site=site_name())],
        f"{base_url()}/recover#{text}",
        say("Take your account back"),
        end=(end,),
    )
    _post("email", user, letter, good_for=EMAIL_KEPT_DAYS * DAY_MS)


def notify(user: User, kind: str, language: str = "") -> None:
    """Send a letter about what happened to a player with a confirmed address, if mail is on.

    `kind` is one of NOTICES. Of each kind a player gets NOTICES_AN_HOUR letters at most: whoever
    has the password could fill the mailbox. A letter that is not counted or saved is dropped. The
    kind "language" tells the new `language`, "" for none, in the old one: that of `user`.
    """
    if not (mail_is_on() and user.email_verified):
        return
    try:
        about = f"{kind} {user.id}"
        get_storage().attempts.count("notices", about, NOTICES_AN_HOUR, HALF_AN_HOUR)
    except (TooManyAttempts, StorageError) as error:
        return LOG.warning("a letter is dropped: %s", error)
    subject, sentence = NOTICES[kind]
    if kind == "language" and not language:
        sentence = NO_LANGUAGE
    values = {"site": site_name(), "language": LANGUAGES.get(language)}
    time, address = format_time(now_ms()), client_address(request.remote_addr)
    where = say("On %(time)s, from %(address)s.", time=time, address=address)
    path, words = "/recover", say("Set a new password")
    advice = say("Was that not you? Set a new password: that signs everybody out.")
    if "passkey" in kind or "recovery code" in kind:  # with which one could sign in again
        advice = say(
            "Was that not you? Set a new password: that signs everybody out. Then remove the "
            "passkeys that are not yours, and create new recovery codes."
        )
    if kind == "rise":
        path, words = "/admin/log", say("Open the log")
        advice = say("If no administrator did this, the log says who did. Change the level back.")
    end = say("Was that you? Then there is nothing to do.")
    text = [sentence.fill(**values), where, advice]
    letter = Letter(subject.fill(**values), text, f"{base_url()}{path}", words, end=(end,))
    _post(kind, user, letter)


def write_to(config: Mapping[str, str], by: Authority, user: Holder, kind: str, text: str) -> None:
    """Send a player who did not turn that off a letter with the `text` of an act, if mail is on.

    The limit of `notify` holds. Another one is for what one moderator does to all players: the text
    may have a reason, and whoever copied a moderator's cookie could write to everybody. A letter
    that nobody can turn off has one of its own: no other letters use that up.
    """
    is_muted = kind in CHOICES and kind in muted_by(user)
    if not (config["SMTP_URL"] and user.email_verified) or is_muted:
        return
    counted = "letters" if kind in CHOICES else f"{kind} letters"
    try:
        by.count_own(f"{counted} because of", WRITTEN_AN_HOUR)
        by.store.attempts.count("notices", f"{kind} {user.id}", NOTICES_AN_HOUR, HALF_AN_HOUR)
    except (TooManyAttempts, StorageError) as error:
        return LOG.warning("a letter is dropped: %s", error)
    end = say("Was that a mistake? Write to the people who run the site.")
    if kind in CHOICES:
        end = say("You can turn off emails like this one on your account page, under Security.")
    subject = WRITTEN[kind].fill(site=read_site_name(by.store, config))
    ends = (end,) if kind != "approved" else ()
    letter = Letter(subject, [text], config["BASE_URL"], say("Open the site"), end=ends)
    post_letter(by.store, config, kind, user, letter)


def mail_administrators(kind: str, but: int) -> None:
    """Call `notify` for all administrators except the one with the id `but`."""
    if mail_is_on():
        for each in get_storage().users.administrators():
            if each.id != but:
                notify(each, kind)


def _post(kind: str, user: User, letter: Letter, good_for: int = 0) -> None:
    post_letter(get_storage(), current_app.config, kind, user, letter, good_for)


def language_of_letters(user: Holder, config: Mapping[str, str], asked: str = "") -> str:
    """Return the language of letters to a player: the player's own, else that of the site.

    Before that of the site comes the one of the page that `asked` for a letter. An alert has no
    such page: what it tells of may have been done by a thief, who reads another language.
    """
    return first_known(user.language, asked, config["LANGUAGE"])


def post_letter(
    store: Storage, config: Mapping, kind: str, user: Holder, letter: Letter, good_for: int = 0
) -> None:
    """Put a letter to a confirmed address into the outbox; only log a failure.

    It is in the language that the record `user` has, whatever that of this page is. It is sent
    within `good_for` milliseconds (0: at any time) or not at all.
    """
    from identity.messages.mail import compose  # not without mail

    good_until = now_ms() + good_for if good_for else 0
    try:
        language = language_of_letters(user, config)
        body = compose(store, config, user.email, letter, language, user.name)
        message = new_message(MAIL, kind, body, to=user.email, good_until=good_until)
        post(store, message, MOST_LETTERS_WAITING)
    except (StorageError, ValueError) as error:
        LOG.error("a letter is dropped: %s", error)


# -- browsers in which a player was signed in before --------------------------------------------


def note_browser(user: User, tell: bool) -> None:
    """If mail is on, name the player in this browser's cookie; `tell` one whom it did not name."""
    if not mail_is_on():
        return
    https = base_url().startswith("https:")
    name = "__Host-known" if https else "identity_known"
    try:
        known = serializer("known browser").loads(request.cookies.get(name, ""), KNOWN_AGE)
    except BadSignature:
        known = []
    if tell and user.id not in known and "sign-in" not in muted_by(user):
        notify(user, "sign-in")
    signed = serializer("known browser").dumps(
        [user.id, *(each for each in known if each != user.id)][:KNOWN_PLAYERS]
    )

    @after_this_request
    def keep(response: Response) -> Response:
        options = {"secure": https, "httponly": True, "samesite": "Lax"}
        response.set_cookie(name, signed, max_age=KNOWN_AGE, **options)
        return response
