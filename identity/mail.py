"""Letters: how they are composed, and the channel of the outbox that sends them."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr, localtime, make_msgid

from jinja2 import Environment, FileSystemLoader, Template

from identity.letter import Letter, recovery_letter
from identity.links import PASSWORD, codes_of, find_confirmed, issue_link
from identity.outbox import MAIL, Channel, Paused, Refused
from identity.settings import RESOURCES, parse_smtp_url
from identity.smtp import Mailer, ascii_address
from storage import Storage
from storage.errors import StorageError
from storage.kinds import OUTBOX
from storage.records import User
from storage.site_records import Message

CREATED_LINKS = "user recovery-link"  # the act in the audit log


@functools.cache
def _template() -> Template:
    loader = FileSystemLoader(f"{RESOURCES}/templates")
    return Environment(loader=loader, autoescape=True).get_template("letter.html")


def compose(config: Mapping[str, str], to: str, letter: Letter) -> str:
    """Return a letter with its headers: plain text, and the same as HTML.

    `config` has the settings. Nothing is encoded: links stay as they are (RFC 6152). Raises
    ValueError.
    """
    with contextlib.suppress(Refused):  # the server is not asked either
        to = ascii_address(to)
    policy = SMTP.clone(cte_type="8bit", utf8=not to.isascii())  # RFC 6531
    message = EmailMessage(policy=policy)
    message["Subject"] = letter.subject
    message["From"] = formataddr((config["SITE_NAME"], config["MAIL_FROM"]))
    try:
        message["To"] = to
    except (AttributeError, IndexError) as error:  # of Python's parser, for "a@["
        raise ValueError(f"{to!r} cannot be written in a letter") from error
    message["Date"] = format_datetime(localtime())
    message["Message-ID"] = make_msgid(domain=config["MAIL_FROM"].rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834 5
    on_another = f"In another browser you also need this code: {letter.code}" if letter.code else ""
    parts = [*letter.text, f"{letter.words}:\n{letter.link}", on_another, *letter.end]
    message.set_content("\n\n".join(filter(None, parts)) + "\n", cte="8bit")
    html = _template().render(letter=letter, on_another=on_another)
    message.add_alternative(html, subtype="html", cte="8bit")
    return message.as_bytes().decode()


def new_mailer(config: Mapping[str, str], log: Callable[[str], None] = lambda line: None) -> Mailer:
    """Return what gives letters to the server of the settings; `log` gets the dialogue."""
    server = parse_smtp_url(config["SMTP_URL"])
    return Mailer(server, config["MAIL_FROM"], config["BASE_URL"], log)


class Mail(Channel):
    """The channel of letters."""

    name = MAIL
    poll = 0.25  # seconds: somebody waits for the letter
    delays = [60, 300, 1800, 7200]  # seconds

    def __init__(self, store: Storage, config: Mapping[str, str]) -> None:
        self._config = config
        self._store = store
        self._mailer = new_mailer(config)
        _template()  # after an upgrade the disk has that of another version

    def send(self, message: Message) -> None:
        """Send a letter. One to an address that nobody has confirmed here is done. Raises NotSent.

        It is saved before it is sent, and never composed anew.
        """
        body = message.body
        if not body:
            try:
                user = find_confirmed(self._store, message.to)
                if user is None:
                    return
                body = self._compose_recovery(user, message)
                with self._store.records(OUTBOX).edit(message.id) as kept:
                    kept.to, kept.body = user.email, body
                message.to = user.email
            except ValueError as error:
                raise Refused(str(error)) from error
            except StorageError as error:
                raise Paused(f"The letter cannot be composed: {error}") from error
        self._mailer.send(message.to, body.encode())

    def _compose_recovery(self, user: User, message: Message) -> str:
        store, config = self._store, self._config
        store.audit.write(CREATED_LINKS, user.id, user=user.id)
        text = issue_link(store, PASSWORD, user, message.browser)
        code = codes_of(store, PASSWORD, user, message.browser)[0]
        letter = recovery_letter(config["SITE_NAME"], config["BASE_URL"], text, code)
        return compose(config, user.email, letter)

    def close(self) -> None:
        """End the connection."""
        self._mailer.close()
