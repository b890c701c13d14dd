"""What the acts in the audit log are called on pages: a sentence for each."""

from model.words import Words, say, say_number

# By act. %(by)s is who acted; %(user)s, %(client)s and %(invite)s are whom or what the line names.
SENTENCES = {
    "user sign-up": say("%(by)s created an account."),
    "user unconfirmed": say("The account of %(user)s ended: the email was never confirmed."),
    "application approve": say("%(by)s approved the request to join of %(user)s."),
    "application decline": say("%(by)s declined a request to join."),
    "user suspend": say("%(by)s suspended %(user)s."),
    "user unsuspend": say("%(by)s lifted the suspension of %(user)s."),
    "user underage": say("%(by)s marked %(user)s as a younger player."),
    "user not-underage": say("%(by)s no longer marks %(user)s as a younger player."),
    "user reset name": say("%(by)s reset the name of %(user)s."),
    "user reset picture": say("%(by)s reset the picture of %(user)s."),
    "user reset bio": say("%(by)s reset the text of %(user)s."),
    "user mod-level": say("%(by)s gave %(user)s the level %(mod_level)s."),
    "user set name": say("%(by)s renamed %(user)s."),
    "user set email": say("%(by)s changed the email of %(user)s."),
    "user set bio": say("%(by)s changed the text of %(user)s."),
    "user recovery-link": say("%(by)s was sent a link for a new password."),
    "user new-password": say("%(by)s set a new password by a link."),
    "user confirm-email": say("%(by)s confirmed the email."),
    "user take-email-back": say("%(by)s took the email back."),
    "user sign-out": say("%(by)s signed %(user)s out everywhere."),
    "user sign-out-one": say("%(by)s signed %(user)s out of one browser or app."),
    "user sign-in-link": say("%(by)s created a sign-in link for %(user)s."),
    "user delete": say("%(by)s deleted %(user)s."),
    "user add-passkey": say("%(by)s added a passkey."),
    "user remove-passkey": say("%(by)s removed a passkey of %(user)s."),
    "user passkey-counter": say("%(by)s signed in with a passkey that may have been copied."),
    "user remove-password": say("%(by)s removed their password."),
    "user recovery-codes": say("%(by)s created recovery codes."),
    "user recovery-code": say("%(by)s used a recovery code."),
    "flair grant": say("%(by)s gave %(user)s the flair “%(flair)s”."),
    "flair revoke": say("%(by)s took the flair “%(flair)s” from %(user)s."),
    "network ban": say("%(by)s banned a network."),
    "network unban": say("%(by)s lifted the ban of a network."),
    "note add": say("%(by)s wrote a note about %(user)s."),
    "note warn": say("%(by)s warned %(user)s."),
    "note delete": say("%(by)s deleted a note about %(user)s."),
    "report answer": say("%(by)s closed %(start)sa report%(end)s."),
    "invite": say("%(by)s created the invitation “%(invite)s”."),
    "invite revoke": say("%(by)s revoked the invitation “%(invite)s”."),
    "client add": say("%(by)s registered the app %(client)s."),
    "client disable": say("%(by)s disabled the app %(client)s."),
    "client enable": say("%(by)s enabled the app %(client)s."),
    "client listed": say("%(by)s listed the game %(client)s."),
    "client unlisted": say("%(by)s unlisted the game %(client)s."),
    "client declined": say("%(by)s left the game %(client)s unlisted."),
    "client owner": say("%(by)s handed the app %(client)s over to %(user)s."),
    "client new-secret": say("%(by)s created a new secret for the app %(client)s."),
    "client delete": say("%(by)s deleted the app %(client)s."),
    "door": say("%(by)s changed who may come in."),
    "look": say("%(by)s changed the appearance of the site."),
    "chat": say("%(by)s changed what the chat is told."),
    "announcement": say("%(by)s announced something to all players."),
    "announcement end": say("%(by)s ended the announcement."),
    "terms": say("%(by)s changed the terms."),
    "privacy": say("%(by)s changed the page about privacy."),
    "checklist hide": say("%(by)s hid the first steps of the site."),
    "backup": say("%(by)s began a backup."),
    "restore": say("%(by)s restored a backup."),
    "export": say("%(by)s exported the players."),
    "export passwords": say("%(by)s exported the players with their password hashes."),
    "import": say("%(by)s imported players."),
    "key rotate": say("%(by)s replaced the signing key."),
    "key openid-now": say("%(by)s replaced the signing key and the key of ID tokens."),
    "key drop-old": say("%(by)s replaced all signing keys."),
}
LEVELS = {  # in place of that sentence, by mod level
    "0": say("%(by)s gave %(user)s the level player."),
    "1": say("%(by)s gave %(user)s the level moderator."),
    "2": say("%(by)s gave %(user)s the level administrator."),
}
INVITED = say("%(by)s created an account with the invitation “%(invite)s”.")
TO_ADMINISTRATORS = say("%(by)s handed the app %(client)s over to the administrators.")
UNKNOWN = say("%(by)s: %(act)s.")  # of another version
GROUPS = {  # what a page offers to choose, by the words with which acts begin
    say("Everything"): (),
    say("Sign-ups"): ("user sign-up", "user unconfirmed", "application"),
    say("Invitations"): ("invite",),
    say("Suspensions"): (
        *("user suspend", "user unsuspend", "user underage", "user not-underage", "network"),
    ),
    say("Names, pictures and texts"): ("user reset", "user set"),
    say("Levels and flairs"): ("user mod-level", "flair"),
    say("Reports and notes"): ("report", "note"),
    say("Sign-in links and deletions"): ("user sign-in-link", "user sign-out", "user delete"),
    say("Passwords, emails and passkeys"): (
        *("user recovery-link", "user new-password", "user confirm-email"),
        *("user take-email-back", "user add-passkey", "user remove-passkey"),
        *("user passkey-counter", "user remove-password", "user recovery-code"),
    ),
    say("Apps"): ("client",),
    say("Appearance and chat"): ("look", "chat", "announcement", "checklist"),
    say("Door"): ("door", "terms", "privacy"),
    say("Backups and keys"): ("backup", "restore", "export", "import", "key"),
}


def say_line(line: dict, **values: str) -> Words:
    """Return the sentence for a line of the log, with what takes its places."""
    act, days, level = str(line.get("act")), line.get("days"), str(line.get("mod_level"))
    if act == "user suspend" and type(days) is int:
        return say_number(
            "%(by)s suspended %(user)s for %(number)s day.",
            "%(by)s suspended %(user)s for %(number)s days.",
            days,
            **values,
        )
    if act == "invite" and type(days) is int:
        return say_number(
            "%(by)s created the invitation “%(invite)s” for %(number)s day.",
            "%(by)s created the invitation “%(invite)s” for %(number)s days.",
            days,
            **values,
        )
    sentence = SENTENCES.get(act, UNKNOWN)
    if act == "user mod-level" and level in LEVELS:
        sentence = LEVELS[level]
    elif act == "user sign-up" and "invite" in line:
        sentence = INVITED
    elif act == "client owner" and "user" not in line:
        sentence = TO_ADMINISTRATORS
    return sentence.fill(**values)
