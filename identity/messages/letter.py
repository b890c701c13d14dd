"""What a letter says: without `mail`, which a site without letters does not import."""

from typing import NamedTuple

LINK_ENDS = ("The link works once, for an hour.", "Was that not you? Ignore this email.")


class Letter(NamedTuple):
    """What a letter says: sentences, and a link with its code."""

    subject: str
    text: list[str]
    link: str = ""
    words: str = ""  # of the link
    code: str = ""
    end: tuple[str, ...] = ()


def confirmation_letter(site: str, url: str, text: str, code: str) -> Letter:
    """Return the letter that confirms an address; `text` is the link's secret, `url` the site's."""
    return Letter(
        f"Confirm your email for {site}",
        [f"Somebody typed this address at {site}. If that was you, confirm it."],
        f"{url}/confirm#{text}",
        "Confirm this address",
        code,
        LINK_ENDS,
    )


def recovery_letter(site: str, url: str, text: str, code: str) -> Letter:
    """Return the letter for a new password: a link, and a code for other browsers beside it.

    `url` is the site's, `text` the secret of the link.
    """
    return Letter(
        f"Set a new password for {site}",
        [f"Somebody asked for a new password for your account at {site}."],
        f"{url}/recover#{text}",
        "Set a new password",
        code,
        LINK_ENDS,
    )
