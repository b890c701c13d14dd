"""What a letter says: without `mail`, which a site without letters does not import."""

from typing import NamedTuple

from identity.site.languages import Language
from model.words import say

LINK_ENDS = (say("The link works once, for an hour."), say("Was that not you? Ignore this email."))


class Letter(NamedTuple):
    """What a letter says: sentences, which may be Words, and a link with its code."""

    subject: str
    text: list[str]
    link: str = ""
    words: str = ""  # of the link
    code: str = ""
    end: tuple[str, ...] = ()

    def shown_in(self, language: Language) -> "Letter":
        """Return the letter with its words as text in a language."""
        subject, *end = map(language.shown, (self.subject, *self.end))
        text, words = list(map(language.shown, self.text)), language.shown(self.words)
        return self._replace(subject=subject, text=text, words=words, end=tuple(end))


def confirmation_letter(site: str, url: str, text: str, code: str) -> Letter:
    """Return the letter that confirms an address; `text` is the link's secret, `url` the site's."""
    return Letter(
        say("Confirm your email for %(site)s", site=site),
        [say("Somebody typed this address at %(site)s. If that was you, confirm it.", site=site)],
        f"{url}/confirm#{text}",
        say("Confirm this address"),
        code,
        LINK_ENDS,
    )


def recovery_letter(site: str, url: str, text: str, code: str) -> Letter:
    """Return the letter for a new password: a link, and a code for other browsers beside it.

    `url` is the site's, `text` the secret of the link.
    """
    return Letter(
        say("Set a new password for %(site)s", site=site),
        [say("Somebody asked for a new password for your account at %(site)s.", site=site)],
        f"{url}/recover#{text}",
        say("Set a new password"),
        code,
        LINK_ENDS,
    )
