"""Letters: how they are composed, with their headers."""

import functools
import textwrap
from collections.abc import Callable, Mapping
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, localtime, make_msgid, quote

from jinja2 import Environment, FileSystemLoader, Template

from identity.messages.letter import Letter
from identity.messages.outbox import Refused
from identity.messages.smtp import Mailer, check_head
from identity.site.languages import sentence_functions, speaking
from identity.site.look import colours_of, logo_png, read_look, read_site_name, site_name_of
from identity.site.settings import RESOURCES, parse_smtp_url
from model.addresses import ascii_email
from model.words import say
from storage import Storage

WIDTH = 180  # characters of a line, each of up to five bytes; RFC 5322 2.1.1 allows 998 bytes


@functools.cache
def read_template() -> Template:
    """Return the template of letters; read early, because after an upgrade it is another one."""
    loader = FileSystemLoader(f"{RESOURCES}/templates")
    environment = Environment(loader=loader, autoescape=True)
    environment.globals.update(sentence_functions())
    return environment.get_template("messages/letter.html")


def compose(
    store: Storage,
    config: Mapping[str, str],
    to: str,
    letter: Letter,
    language: str,
    name: str = "",
) -> str:
    """Return a letter in a language, with its headers: plain text, and the same as HTML.

    `config` has the settings, and `name` is that of a player who confirmed the address. No text is
    encoded: links stay as they are (RFC 6152). The logo is a part of the letter (RFC 2392): mail
    programs load nothing from elsewhere, and many no data: URL.
    Raises ValueError for an address or a header that no letter can have.
    """
    address, sender = ascii_email(to), config["MAIL_FROM"]
    if address is None:
        raise ValueError(f"No letter can be sent to {to!r}.")
    look, domain = read_look(store), sender.rpartition("@")[2]
    site_name, (light, dark) = site_name_of(look, config), colours_of(look.accent)
    shown = {"site_name": site_name, "light": light, "dark": dark, "logo": f"cid:logo@{domain}"}
    with speaking(language) as spoken:
        letter = letter.shown_in(spoken)
        hello = spoken.text(say("Hello %(name)s,", name=name) if name else say("Hello,"))
        above_link = spoken.text(say("%(words)s:", words=letter.words))
        on_another = ""
        if letter.code:
            sentence = say("In another browser you also need this code: %(code)s", code=letter.code)
            on_another = spoken.text(sentence)
        # A moderator's reason may be long, and servers refuse a letter with a line that is.
        text = [textwrap.fill(each, WIDTH, break_on_hyphens=False) for each in letter.text]
        html = read_template().render(
            letter=letter, text=text, hello=hello, on_another=on_another, language=spoken, **shown
        )
    # Not by EmailMessage: it parses a header and writes it anew, and until 2024 Python made lines
    # of the encoded words in it, and several addresses of a name with a comma.
    head = {
        "Subject": header_text(letter.subject),
        "From": f"{header_text(site_name, is_name=True)} <{sender}>",
        "To": address,
        "Date": format_datetime(localtime()),
        "Message-ID": make_msgid(domain=domain),
        "Auto-Submitted": "auto-generated",  # RFC 3834 5
    }
    message = EmailMessage(policy=SMTP.clone(cte_type="8bit"))
    parts = [hello, *text, f"{above_link}\n{letter.link}", on_another, *letter.end]
    message.set_content("\n\n".join(filter(None, parts)) + "\n", cte="8bit")
    message.add_alternative(html, subtype="html", cte="8bit")
    logo = logo_png(store, look, side=64)
    message.get_payload()[1].add_related(logo, "image", "png", cid=f"<logo@{domain}>")
    headers = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    content = headers.encode() + message.as_bytes()
    if problem := check_head(content, address):
        raise ValueError(problem)
    return content.decode()


def header_text(text: str, is_name: bool = False) -> str:
    """Return a text, or the name of a mailbox, for a header: as encoded words unless it is plain.

    Nothing in them is read as an address, a comment or another encoded word (RFC 2047 5).
    """
    if not text.isascii() or "=?" in text:
        return Header(text, "utf-8", header_name="Subject").encode(linesep="\r\n")
    return f'"{quote(text)}"' if is_name else text


def new_mailer(
    config: Mapping[str, str],
    log: Callable[[str], None] = lambda line: None,
    timeout: int | None = None,
) -> Mailer:
    """Return what gives letters to the server of the settings; `log` gets the dialogue.

    `timeout` is in seconds for each letter, None for the usual one.
    """
    server = parse_smtp_url(config["SMTP_URL"])
    return Mailer(server, config["MAIL_FROM"], config["BASE_URL"], log, timeout)


def send_test(store: Storage, config: Mapping[str, str], to: str, **options) -> None:
    """Give a test letter, in the language of the site, to the server at once. Raises NotSent.

    `options` are those of `new_mailer`.
    """
    site = read_site_name(store, config)
    subject = say("A test of %(site)s", site=site)
    text = say(
        "This is a test of %(site)s. Emails to players will arrive like this one.", site=site
    )
    letter = Letter(subject, [text], config["BASE_URL"], say("Open the site"))
    try:
        content = compose(store, config, to, letter, config["LANGUAGE"])
    except ValueError as error:
        raise Refused(str(error)) from error
    mailer = new_mailer(config, **options)
    try:
        mailer.send(to, content.encode())
    finally:
        mailer.close()
