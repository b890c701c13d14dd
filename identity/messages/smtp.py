"""A dialogue with the server that letters are given to (RFC 5321).

The whole of it has a time limit for each letter, whatever the server does: the timeout of a socket
is one of each read, and a server that sends a byte every few seconds would hold the sender for
hours. What the server says after it has taken a letter changes nothing: a letter that was taken is
not sent again because the farewell failed.
"""

import contextlib
import itertools
import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.policy import SMTP
from typing import BinaryIO

from identity.messages.connecting import connect
from identity.messages.outbox import CutOff, Deferred, Paused, Refused
from identity.site.hosts import is_loopback
from identity.site.settings import SmtpServer, host_of
from model.addresses import ascii_email

TIMEOUT = 60  # seconds for a letter, with the connection if it is the first one
CONNECTING = 20  # seconds for all addresses of the server
MOST_LETTERS = 100  # of one connection
NO_TLS = (
    "The server offers no TLS, so no letter is sent. Try smtps:// in IDENTITY_SMTP_URL. In a "
    "network of your own, smtp+cleartext:// sends letters that anybody there can read."
)
MECHANISMS = {"PLAIN", "LOGIN", "CRAM-MD5"}  # of smtplib
NO_MECHANISM = (
    "The server takes no password by PLAIN, LOGIN or CRAM-MD5. What it offers: {names}. Ask those "
    "who run it for another port or user, or leave the password out if it needs none."
)
MOST_LINES = 100  # of one reply, each of at most 8 KiB
ABOUT_LETTER = re.compile("RCPT|DATA|MAIL .*SMTPUTF8")  # commands
REPLY_LENGTH = 200  # characters of a server's reply that administrators read
HEADERS = ["Auto-Submitted", "Content-Type", "Date", "From", "MIME-Version", "Message-ID"]
HEADERS += ["Subject", "To"]  # of a letter, sorted


class Lines:
    """The lines that a server sends; after `left` of them it seems to have ended the connection."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.left = 0
        self.close = file.close

    def readline(self, size: int) -> bytes:
        self.left -= 1
        return self._file.readline(size) if self.left >= 0 else b""


class Dialogue(smtplib.SMTP):
    """A connection that tells `opened` its socket as soon as there is one, and `log` its lines."""

    def __init__(
        self,
        server: SmtpServer,
        own_name: str,
        log: Callable[[str], None],
        opened: Callable[[socket.socket], None],
        timeout: int,
    ) -> None:
        self._tls = server.tls
        self._log = log
        self._opened = opened
        self._hides = False  # what is sent and received: a password
        self.command = ""  # the last one
        super().__init__(server.host, server.port, own_name, timeout)

    def connect(
        self, host: str = "localhost", port: int = 0, source_address: tuple | None = None
    ) -> tuple[int, bytes]:
        """Connect, with TLS if the URL says so, and return the greeting."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [(family, address) for family, _, _, _, address in found]
        ends = time.monotonic() + min(CONNECTING, self.timeout / 2)
        self.sock, self.file = connect(addresses, ends), None
        self.sock.settimeout(self.timeout)
        self._opened(self.sock)
        if self._tls:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=host)
        return self.getreply()

    def auth(
        self, mechanism: str, authobject: Callable, *, initial_response_ok: bool = True
    ) -> tuple[int, bytes]:
        """Sign in. LOGIN has no standard, and with its first command some servers take no user."""
        is_standard = mechanism.upper() != "LOGIN"
        return super().auth(mechanism, authobject, initial_response_ok=is_standard)

    def putcmd(self, cmd: str, args: str = "") -> None:
        """Send a command."""
        self.command = f"{cmd} {args}".upper()
        self._hides = self._hides or cmd.upper() == "AUTH"
        self._log(f"> {'AUTH ***' if self._hides else f'{cmd} {args}'.strip()}")
        super().putcmd(cmd, args)

    def getreply(self) -> tuple[int, bytes]:
        """Return status and text of the next reply, up to MOST_LINES: smtplib keeps it whole."""
        self.file = self.file or Lines(self.sock.makefile("rb"))
        self.file.left = MOST_LINES
        code, text = super().getreply()
        self._log(f"< {code} {'***' if self._hides and code == 334 else shown(text)}")
        self._hides = self._hides and code == 334  # RFC 4954 4: more of the password follows
        return code, text


def shown(text: bytes) -> str:
    """Return the text of a reply on one line."""
    words = text.decode("ascii", "replace")
    return re.sub(r"[\x00-\x1f\x7f\ufffd]+", " ", words).strip()[:REPLY_LENGTH]


def in_ascii(letter: bytes) -> bytes:
    """Return a letter in ASCII, for servers without 8BITMIME (RFC 6152); its head stays as it is.

    Lines may be long, and are encoded only if they must be, so that most links stay as they are.
    """
    if letter.isascii():
        return letter
    message = message_from_bytes(letter, policy=SMTP.clone(refold_source="none"))
    for part in (each for each in message.walk() if each.get_content_maintype() == "text"):
        subtype = part.get_content_subtype()
        part.set_content(part.get_content(), subtype=subtype, cte="quoted-printable")
    return message.as_bytes()


def own_name(base_url: str) -> str:
    """Return the name that this server calls itself by (RFC 5321 4.1.3: an address in brackets)."""
    host = host_of(base_url)
    return f"[{host}]" if re.fullmatch("[0-9.]+", host) else host.replace("[", "[IPv6:")


class Mailer:
    """What gives letters to the server, several in one connection.

    A letter has `timeout` seconds, by default TIMEOUT.
    """

    def __init__(
        self,
        server: SmtpServer,
        sender: str,
        base_url: str,
        log: Callable[[str], None],
        timeout: int | None = None,
    ) -> None:
        self._server = server
        self._sender = sender
        self._own_name = own_name(base_url)
        self._log = log
        self._timeout = timeout or TIMEOUT
        self._dialogue: Dialogue | None = None
        self._socket: socket.socket | None = None  # a duplicate: TLS takes the first one over
        self._is_late = False
        self._is_connected = False  # in a block of `connected`
        self._sent = 0  # letters of this connection

    def send(self, to: str, content: bytes) -> None:
        """Send a letter. Raises Paused, CutOff, Deferred, Refused.

        Only a reply to RCPT or DATA is about the letter, and one to MAIL that asks for what few
        letters need. All else is about the installation.
        """
        address = ascii_email(to)
        if address is None:
            raise Refused("No letter can be sent to this address.")
        if problem := check_head(content, address):
            raise Refused(problem)
        with self.connected():
            self._hand_over(self._dialogue, address, content)
            self._sent += 1

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """`with connected():` the server waits for a letter. The block has a time limit.

        Raises Paused, and CutOff for an error inside the commands about a letter.
        """
        if self._is_connected:  # the block is inside another one
            yield
            return
        if self._sent == MOST_LETTERS:
            self.close()
        self._is_late, self._is_connected = False, True
        timer = threading.Timer(self._timeout, self._end)
        timer.daemon = True
        timer.start()
        try:
            if self._dialogue is None:
                self._connect()
            yield
        except Paused:
            self.close()
            raise
        except (OSError, smtplib.SMTPException, ValueError) as error:
            command = self._dialogue.command if self._dialogue else ""
            self.close()
            kind = CutOff if ABOUT_LETTER.match(command) else Paused
            raise kind(self._too_late() if self._is_late else describe(error)) from error
        finally:
            self._is_connected = False
            timer.cancel()

    def _opened(self, connected: socket.socket) -> None:
        """Keep the new socket for `_end`. Raises TimeoutError if the time is over already."""
        self._socket = connected.dup()
        if self._is_late:
            raise TimeoutError

    def _too_late(self) -> str:
        return f"The server took longer than {self._timeout} seconds."

    def _end(self) -> None:
        """Shut the socket down, because the time is over: another thread waits for it."""
        self._is_late = True
        if connected := self._socket:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> None:
        """Connect, and sign in. Raises Paused, OSError, SMTPException."""
        server = self._server
        dialogue = Dialogue(server, self._own_name, self._log, self._opened, self._timeout)
        self._dialogue = dialogue
        dialogue.ehlo_or_helo_if_needed()
        if not (server.tls or server.cleartext):
            self._start_tls(dialogue)
        if server.user:
            self._sign_in(dialogue)

    def _start_tls(self, dialogue: Dialogue) -> None:
        """Change to TLS (RFC 3207). Raises Paused without TLS, except for a server at loopback."""
        if dialogue.has_extn("starttls"):
            try:
                dialogue.starttls(context=ssl.create_default_context())
            except smtplib.SMTPResponseException as error:
                reply = f"{error.smtp_code} {shown(error.smtp_error)}"
                raise Paused(f"The server refused TLS: {reply}") from error
            dialogue.ehlo_or_helo_if_needed()
        elif not is_loopback(self._server.host):  # or somebody in between hides it
            raise Paused(NO_TLS)

    def _sign_in(self, dialogue: Dialogue) -> None:
        """Send the user and the password (RFC 4954). Raises Paused, OSError, SMTPException."""
        offered = dialogue.esmtp_features.get("auth", "").upper().split()
        if not MECHANISMS & set(offered):
            names = shown(" ".join(offered).encode()) or "none"
            raise Paused(NO_MECHANISM.format(names=names))
        dialogue.esmtp_features["auth"] = " ".join(offered)
        dialogue.login(self._server.user, self._server.password)

    def _hand_over(self, dialogue: Dialogue, address: str, content: bytes) -> None:
        """Do the transaction of a letter (RFC 5321 3.3). Raises NotSent, OSError, SMTPException."""
        options = []
        if not address.isascii():
            if not dialogue.has_extn("smtputf8"):
                raise Refused("The server takes no address with letters outside ASCII.")
            options.append("SMTPUTF8")
        if not content.isascii() and dialogue.has_extn("8bitmime"):
            options.append("BODY=8BITMIME")
        elif address.isascii():
            content = in_ascii(content)
        dialogue.command_encoding = "utf-8" if "SMTPUTF8" in options else "ascii"
        code, text = dialogue.mail(self._sender, options)
        if code != 250 and "SMTPUTF8" in options:
            self._refuse(dialogue, code, text)
        if code != 250:
            raise Paused(f"The server refused the sender: {code} {shown(text)}")
        # Not dialogue.rcpt(), which parses the address: it was checked, and is sent as it is.
        code, text = dialogue.docmd("RCPT", f"TO:<{address}>")
        if code not in (250, 251):
            self._refuse(dialogue, code, text)
        try:
            code, text = dialogue.data(content)
        except smtplib.SMTPDataError as error:
            code, text = error.smtp_code, error.smtp_error
        if code != 250:
            self._refuse(dialogue, code, text)

    def _refuse(self, dialogue: Dialogue, code: int, text: bytes) -> None:
        """Reset the dialogue, and raise CutOff, Refused or Deferred: the reply is on the letter."""
        reply = f"The server refused the letter: {code} {shown(text)}"
        if self._is_late:  # it was cut off
            raise CutOff(self._too_late())
        if not 400 <= code < 600 or code == 421:  # RFC 5321 3.8: it ends the connection
            raise CutOff(reply)
        try:
            dialogue.rset()
        except (smtplib.SMTPException, OSError):  # it hung up: others get a new connection
            self.close()
        raise (Refused if code >= 500 else Deferred)(reply)

    def close(self) -> None:
        """Say goodbye, and wait for no reply."""
        dialogue, connected = self._dialogue, self._socket
        self._dialogue, self._socket, self._sent = None, None, 0
        if dialogue:
            with contextlib.suppress(smtplib.SMTPException, OSError):
                dialogue.putcmd("QUIT")
            dialogue.close()
        if connected:
            connected.close()


def check_head(letter: bytes, address: str) -> str | None:
    """Return what is wrong unless a letter has our headers alone, and this recipient alone.

    A header could be injected through a fault of the standard library: the result is checked.
    """
    text = re.sub(r"(?:\r\n|\r|\n)(?=[ \t])", "", letter.decode())  # RFC 5322 2.2.3: unfolded
    head = list(itertools.takewhile(bool, re.split(r"\r\n|\r|\n", text)))
    names = sorted(line.partition(":")[0] for line in head)
    if names != HEADERS or f"To: {address}" not in (" ".join(line.split()) for line in head):
        return f"The letter has other headers than ours: {', '.join(names)}."
    return None


def describe(error: Exception) -> str:
    """Return what went wrong, and what to do about it, for administrators."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        reply = f"{error.smtp_code} {shown(error.smtp_error)}"
        return f"The server refused the user and the password: {reply}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"The server does not serve us: {error.smtp_code} {shown(error.smtp_error)}"
    if isinstance(error, ssl.SSLCertVerificationError):
        fix = "use the name in its certificate, or set SSL_CERT_FILE to its authority"
        return f"The certificate of the server is not valid ({error.verify_message}): {fix}."
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason}): smtps:// is TLS at once, smtp:// is STARTTLS."
    if isinstance(error, socket.gaierror):
        return "There is no such host as in IDENTITY_SMTP_URL."
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return f"The server cannot do what is needed: {error}"
    if isinstance(error, ValueError):  # a host or a reply that Python cannot decode
        return f"The name or a reply of the server cannot be used: {error}"
    if isinstance(error, smtplib.SMTPServerDisconnected | TimeoutError):
        return "The server ended the connection, or did not respond."
    return f"The server cannot be reached: {error.strerror or error}"
