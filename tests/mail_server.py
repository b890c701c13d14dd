"""A mail server on this machine, which responds as a test tells it."""

import asyncio
import contextlib
import email
import email.policy
import re
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult

USER, SECRET = "us@er", "pass:word/%"
CUT, SILENCE = "cut", "silence"  # instead of a reply


class MailServer:
    """What arrives, and the replies: by command ("MAIL", "RCPT", "DATA"), then by address."""

    def __init__(
        self,
        certificate: ssl.SSLContext | None = None,
        tls: bool = False,
        auth: bool = False,
        without: tuple[str, ...] = (),  # mechanisms
    ) -> None:
        self.letters: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.replies: dict[str, str] = {}
        self.extended = True  # it takes addresses outside ASCII (RFC 6531)
        self.greeting_name = ""  # what the client calls itself
        self.connections = 0
        self.pauses: dict[str, float] = {}  # seconds before the reply to a command
        self.received: list[str] = []  # commands
        self.cuts = 0  # how many connections are closed after DATA, without a reply
        self.silent = threading.Event()  # a reply is held back
        options = {"require_starttls": False, "tls_context": None if tls else certificate}
        options["auth_exclude_mechanism"] = without
        if auth:
            options |= {
                "authenticator": self._authenticate,
                "auth_require_tls": bool(certificate) and not tls,
            }
            options["auth_required"] = True

        def factory(_: Controller) -> SMTP:
            with warnings.catch_warnings(action="ignore"):  # about passwords without TLS
                return SMTP(self, enable_SMTPUTF8=self.extended, **options)

        controller = type("Server", (Controller,), {"factory": factory})
        self._controller = controller(
            self, "localhost", 0, ssl_context=certificate if tls else None
        )
        # The controller connects to itself once; port 0 leaves the choice to the system.
        with contextlib.closing(socket.create_server(("localhost", 0))) as free:
            self._controller.port = free.getsockname()[1]
        self._controller.start()
        self.port = self._controller.port

    def close(self) -> None:
        self._controller.stop()

    def url(self, scheme: str = "smtp", credentials: str = "") -> str:
        return f"{scheme}://{credentials and f'{credentials}@'}localhost:{self.port}"

    def _authenticate(self, server, session, envelope, mechanism, data) -> AuthResult:
        right = (data.login, data.password) == (USER.encode(), SECRET.encode())
        return AuthResult(success=right, handled=right)

    # -- the hooks of aiosmtpd -----------------------------------------------------------------

    async def _begin(self, command: str) -> None:
        self.received.append(command)
        await asyncio.sleep(self.pauses.get(command, 0))

    async def handle_EHLO(self, server, session, envelope, hostname, responses):
        await self._begin("EHLO")
        session.host_name, self.greeting_name = hostname, hostname
        self.connections += 1
        return responses

    async def handle_MAIL(self, server, session, envelope, address, options):
        await self._begin("MAIL")
        if "MAIL" in self.replies:
            return self.replies["MAIL"]
        if "SMTPUTF8" in options and "SMTPUTF8" in self.replies:
            return self.replies["SMTPUTF8"]
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(self, server, session, envelope, address, options):
        await self._begin("RCPT")
        if (reply := self.replies.get(address)) == SILENCE:
            self.silent.set()
            await asyncio.sleep(30)
        if reply == CUT:
            server.transport.abort()
        if reply:
            return reply
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        await self._begin("DATA")
        if self.cuts:
            self.cuts -= 1
            server.transport.abort()
            return "250 OK"
        reply = self.replies.get("DATA", "250 OK")
        if reply.startswith("250"):
            self.recipients += envelope.rcpt_tos
            self.letters.append(
                email.message_from_bytes(envelope.content, policy=email.policy.default)
            )
        return reply

    async def handle_RSET(self, server, session, envelope):
        if self.replies.get("RSET") == CUT:
            server.transport.abort()
        return "250 OK"

    async def handle_QUIT(self, server, session, envelope):
        return self.replies.get("QUIT", "221 Bye")


class TimeLimit(threading.Timer):
    """A timer whose time is over when the server falls silent, however long that takes."""

    def __init__(self, server: MailServer, _: float, function: Callable[[], None]) -> None:
        super().__init__(0, function)
        self._silent = server.silent

    def run(self) -> None:
        while not self.finished.wait(0.02):
            if self._silent.is_set():
                self._silent.clear()
                self.function()


def text_of_letter(letter: EmailMessage) -> str:
    return letter.get_body(("plain",)).get_content().replace("\r\n", "\n")


def link_in(text: str) -> str:
    """Return the link of a letter that has one with a secret."""
    [link] = re.findall(r"^http\S+#\S+$", text, re.MULTILINE)
    return link


def code_in(text: str) -> str:
    return re.search(r"code: (\d{6})$", text, re.MULTILINE)[1]


@contextlib.contextmanager
def scripted_server(*parts: bytes | float) -> Iterator[int]:
    """Run a server that sends these bytes, and waits so many seconds, whatever it receives."""
    listener, stopped = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while not stopped.is_set():
                connected, _ = listener.accept()
                with connected, contextlib.suppress(OSError):
                    for part in parts:
                        if isinstance(part, bytes):
                            connected.sendall(part)
                        elif stopped.wait(part):
                            break

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        stopped.set()
        listener.close()


@contextlib.contextmanager
def silent_address(port: int) -> Iterator[str]:
    """Yield an address of this machine that neither accepts nor refuses a connection."""
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
        yield "127.0.0.2"
