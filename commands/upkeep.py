"""`identity-server check` and `rotate-key`."""

import click

from commands import installation_place, open_installation
from commands.printing import clear_progress, echo, escape, json_option, print_json, show_progress
from identity.acts.actors import COMMAND, Authority
from identity.site.formatting import pluralize
from storage import check_installation
from storage.maintenance import Problem


@click.command()
@click.option("--repair", is_flag=True, help="Repair what can be repaired without inventing data.")
@json_option
def check(repair: bool, as_json: bool) -> None:
    """Check every record and every picture, and name what is wrong.

    The exit status is 1 if something is wrong; with --repair, if something is left that only you
    can repair. The server may run meanwhile. A damaged record is never changed, and keeps its name,
    email address and pictures: repair it by hand, or take it from a backup. Codes, invitations and
    counted attempts are not checked: they expire.
    """
    problems = []
    for each in check_installation(*installation_place(), repair, show_progress):
        problems.append(each)
        if not as_json:
            clear_progress()
            echo(in_one_line(each))
    clear_progress()
    if as_json:  # these names are an interface
        records = [
            {"file": each.place, "problem": each.problem, "repaired": each.repaired}
            for each in problems
        ]
        print_json(records)
    left = sum(each.repaired is None for each in problems)
    if left:
        hint = "left to you" if repair else "found: --repair repairs what can be repaired"
        raise click.ClickException(f"{pluralize(left, 'problem')} {hint}")
    if not problems and not as_json:
        echo("Nothing is wrong.")


def in_one_line(problem: Problem) -> str:
    """Return a problem as one line for a terminal: its place, what it is, and the repair."""
    repaired = f" (repaired: {problem.repaired})" if problem.repaired else ""
    # A file that was copied into the folders may have any name, also one of two lines.
    return escape(f"{problem.place}: {problem.problem}{repaired}", allowed="")


@click.command("rotate-key")
@click.option("--drop-old", is_flag=True, help="End everything that was signed so far.")
@click.option("--now", is_flag=True, help="Replace the key of ID tokens at once.")
def rotate_key(drop_old: bool, now: bool) -> None:
    """Sign with a new key from now on, in every running worker.

    What the key before signed goes on until the next rotation: sessions last 14 days, so leave as
    many between two of them. With --drop-old, for a key that got out, all sessions, access tokens
    and links end at once, and everyone signs in again. Apps that stay signed in are not affected.

    ID tokens (OpenID Connect) have a key of their own. The next one is published now and signs in a
    day, and programs can verify with the one before it for 14 days after that. With --now, or
    --drop-old, the next one signs at once and no other is published.
    """
    from identity.oauth.openid import rotate_keys  # Flask, which few commands need

    rotate_keys(Authority(open_installation(), COMMAND), drop_old, now)
    if drop_old:
        echo("A new key signs. Everything signed before has ended: everyone signs in again.")
    else:
        echo("A new key signs. What the key before signed goes on until the next rotation.")
