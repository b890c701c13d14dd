"""The commands about letters, and the letters of what other commands do."""

import click

from commands import open_installation
from commands.address import base_url_of_links
from commands.printing import echo, json_option, print_records
from identity.acts.actors import COMMAND, Authority
from identity.messages.outbox import MAIL
from identity.site.settings import SettingError, read_settings
from model.addresses import check_email, normal_email
from model.kinds import OUTBOX, given_up_of, waiting_queues
from model.rules import refuse
from model.site_records import Message
from storage import Storage

COLUMNS = ["id", "kind", "to", "state", "tries", "next", "problem"]


@click.group("mail")
def mail_commands() -> None:
    """Test the mail server, and list letters."""


@mail_commands.command("test")
@click.argument("address", type=normal_email, metavar="ADDRESS")
def mail_test(address: str) -> None:
    """Send a letter to ADDRESS and print the dialogue with the server.

    The exit status is 1 if the server did not take the letter; the last line says why.
    """
    refuse("address", check_email(address, required=True))
    config = read_settings()
    if not config["SMTP_URL"]:
        raise SettingError("SMTP_URL", "is not set: smtp://user:password@host:port")
    # With Jinja, which no other command here needs.
    from identity.messages.mail import send_test
    from identity.messages.outbox import NotSent

    try:
        send_test(open_installation(), config, address, log=echo)
    except NotSent as error:
        raise click.ClickException(str(error)) from error
    echo(f"The server accepted the letter to {address}. Look in the spam folder, too.")


@mail_commands.command("list")
@json_option
def mail_list(as_json: bool) -> None:
    """List letters that wait or were given up, not what they say."""
    outbox = open_installation().records(OUTBOX)
    queues = [*waiting_queues(MAIL), given_up_of(MAIL)]
    records = [record_of(each) for queue in queues for each in outbox.page("queue", queue)]
    print_records(records, COLUMNS, as_json, 0)


def record_of(letter: Message) -> dict:
    """Return a letter as the command prints one; times in milliseconds."""
    return {
        "id": letter.id,
        "kind": letter.event,
        "to": letter.to,
        "state": "given up" if letter.given_up else "waiting",
        "tries": letter.tries,
        "next": None if letter.given_up else letter.due,
        "problem": letter.problem or None,
        "created": letter.created,
        "expires": letter.good_until or letter.expires,
    }


def authority_with_letters(store: Storage) -> Authority:
    """Return the Authority of the command; if mail is set up, its acts send letters."""
    config = read_settings()

    def write(*letter) -> None:
        from identity.access.letters import write_to  # Flask, which few commands need

        write_to(config | {"BASE_URL": base_url_of_links()}, *letter)

    return Authority(store, COMMAND, write if config["SMTP_URL"] else None)
