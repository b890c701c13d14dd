"""`identity-server invite`: invitations."""

import click

from commands import open_installation
from commands.address import base_url_of_links
from commands.printing import echo, json_option, print_lines, print_records
from identity.acts import invitations
from identity.acts.actors import COMMAND, Authority
from identity.acts.invitations import MOST_DAYS, MOST_USES
from identity.site.pasted import unwrap
from model.site_records import Invite

DAYS, COUNT = click.IntRange(1, MOST_DAYS), click.IntRange(1, 1000)
USES = click.IntRange(1, MOST_USES)


@click.group("invite", invoke_without_command=True)
@click.option("--days", metavar="N", type=DAYS, default=7, help="How long each link is valid.")
@click.option("--count", metavar="N", type=COUNT, default=1, help="How many links.")
@click.option("--uses", metavar="N", type=USES, default=1, help="How many accounts for each link.")
@click.option("--note", metavar="TEXT", default="", help="For whom; administrators see it.")
@click.option("--flair", metavar="FLAIR", default="", help="A flair for the new players.")
@json_option
@click.pass_context
def invite_commands(ctx: click.Context, count: int, as_json: bool, **fields) -> None:
    """Print invitations: links that create accounts.

    Each creates one account, or as many as --uses says.

    \b
    identity-server invite --uses 20 --note "Discord channel"
    """
    if ctx.invoked_subcommand:
        return
    by = Authority(open_installation(), COMMAND)
    address = f"{base_url_of_links()}/sign-up?invite="
    links = [f"{address}{invitations.create(by, **fields)}" for _ in range(count)]
    print_lines(links, links, as_json)


@invite_commands.command("list")
@json_option
def invite_list(as_json: bool) -> None:
    """List invitations, the newest first.

    Ended ones are kept for 90 days, with the ids of the players who used them.
    """
    kept = open_installation().invites
    found = kept.page("list", "all", newest_first=True)
    records = [invite_record(each, kept.accounts_with(each)) for each in found]
    print_records(records, ["id", "note", "used", "uses", "goodUntil", "revoked"], as_json, 0)


def invite_record(invite: Invite, used_by: list[int]) -> dict:
    """Return an invitation as the command prints it, without what a link to sign up needs."""
    return {
        "id": invite.id,
        "note": invite.note,
        "flair": invite.flair,
        "uses": invite.uses,
        "used": len(used_by),
        "usedBy": used_by,
        "createdBy": invite.by,
        "created": invite.created,
        "goodUntil": invite.good_until or invite.expires,
        "revoked": bool(invite.revoked),
    }


@invite_commands.command("revoke")
@click.argument("invite_id", type=unwrap, metavar="ID")
def invite_revoke(invite_id: str) -> None:
    """Revoke the invitation with this ID, as `invite list` prints it."""
    invitations.revoke(Authority(open_installation(), COMMAND), invite_id)
    echo("The invitation is revoked.")
