"""Letters through Debian's Postfix, with STARTTLS and a password."""

import email
import email.policy
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from mail_server import link_in, text_of_letter
from waiting import wait_until

from .running import ANSWER_TIMEOUT, MEMORY, RunningServer, free_port, running_server

pytestmark = pytest.mark.postfix

MAIN = """
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
myhostname = localhost
mydestination =
inet_interfaces = loopback-only
virtual_mailbox_domains = games.test
virtual_mailbox_base = {folder}/mail
virtual_mailbox_maps = static:ada/
virtual_uid_maps = static:{uid}
virtual_gid_maps = static:{gid}
smtpd_tls_cert_file = {folder}/cert.pem
smtpd_tls_key_file = {folder}/key.pem
smtpd_tls_security_level = encrypt
smtpd_tls_auth_only = yes
smtpd_sasl_auth_enable = yes
smtpd_sasl_path = smtpd
cyrus_sasl_config_path = {folder}/sasl
smtpd_recipient_restrictions = permit_sasl_authenticated, reject
smtpd_relay_restrictions = permit_sasl_authenticated, reject
"""
MASTER = """
127.0.0.1:{port} inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
virtual unix - n n - - virtual
error unix - - n - - error
retry unix - - n - - error
proxymap unix - - n - - proxymap
anvil unix - - n - 1 anvil
tlsmgr unix - - n 1000? 1 tlsmgr
postlog unix-dgram n - n - 1 postlogd
"""


def run(*command: object, **options) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def postfix() -> Iterator[tuple[Path, int]]:
    """The folder of a Postfix, which all its users can reach, and its port."""
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="identity-postfix-") as name:
        Path(name).chmod(0o755)
        port = free_port()
        prepare(Path(name), port)
        run("postfix", "-c", name, "start")
        yield Path(name), port
        run("postfix", "-c", name, "stop")


def prepare(folder: Path, port: int) -> None:
    """Write the configuration, the certificate and the password."""
    nobody, mailer = pwd.getpwnam("nobody"), pwd.getpwnam("postfix")
    values = {"folder": folder, "uid": nobody.pw_uid, "gid": nobody.pw_gid, "port": port}
    (folder / "main.cf").write_text(MAIN.format(**values))
    (folder / "master.cf").write_text(MASTER.format(**values))
    for name in ("queue", "mail/ada", "data", "sasl"):
        (folder / name).mkdir(parents=True)
    os.chown(folder / "mail/ada", nobody.pw_uid, nobody.pw_gid)
    os.chown(folder / "data", mailer.pw_uid, mailer.pw_gid)
    key = ("-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-subj", "/CN=localhost")
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *key),
        *("-addext", "subjectAltName=DNS:localhost"),
    )
    settings = f"pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {folder}/sasldb\n"
    (folder / "sasl" / "smtpd.conf").write_text(f"{settings}mech_list: PLAIN LOGIN\n")
    run("saslpasswd2", "-p", "-c", "-f", folder / "sasldb", "-u", "localhost", "site", input="a/b")
    os.chown(folder / "sasldb", mailer.pw_uid, mailer.pw_gid)


@pytest.fixture(scope="module")
def server(postfix: tuple[Path, int]) -> Iterator[RunningServer]:
    folder, port = postfix
    settings = {"SMTP_URL": f"smtp://site:a%2Fb@localhost:{port}", "MAIL_FROM": "site@games.test"}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSL_CERT_FILE", str(folder / "cert.pem"))
        with running_server(**settings) as server:
            yield server


def test_letter_arrives_through_postfix(server: RunningServer, postfix: tuple[Path, int]):
    folder, _ = postfix
    email_address = "ada@games.test"
    user = server.add_user("ada", email_address)
    server.open_storage().users.change_email(user["id"], email_address, verified=True)
    requests.post(f"{server.address}/recover", {"email": email_address}, timeout=ANSWER_TIMEOUT)
    box = folder / "mail/ada/new"
    wait_until(lambda: box.exists() and any(box.iterdir()), None, (folder / "log").read_text)
    [path] = box.iterdir()
    letter = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    assert letter["Received"] and "ESMTPSA" in letter["Received"]  # RFC 3848: TLS, password
    assert link_in(text_of_letter(letter)).startswith(f"{server.address}/recover#")


def test_command_says_what_is_wrong(server: RunningServer, postfix: tuple[Path, int]):
    _, port = postfix
    printed = server.command_output("mail", "test", "ada@games.test")
    assert "> STARTTLS" in printed and "> AUTH ***" in printed and "a/b" not in printed
    for url, problem in (
        (f"smtp://site:wrong@localhost:{port}", "refused the user and the password: 535"),
        (f"smtp://localhost:{port}", "refused the letter: 554"),
        (f"smtp://site:a%2Fb@127.0.0.1:{port}", "use the name in its certificate"),
        (f"smtps://site:a%2Fb@localhost:{port}", "smtps:// is TLS at once"),
        ("smtp://localhost:1", "cannot be reached"),
    ):
        server.settings["SMTP_URL"] = url
        failed = server.start_command("mail", "test", "ada@games.test")
        _, printed = failed.communicate(timeout=ANSWER_TIMEOUT)
        assert (failed.returncode, problem in printed) == (1, True), printed
