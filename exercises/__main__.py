"""The command: python -m exercises [NUMBER [--solve]]."""

import contextlib
import sys
import textwrap

import click

from exercises.checks import EXERCISES, Exercise
from exercises.playing import Begin, Say, running


@click.command()
@click.argument("number", type=click.IntRange(1, len(EXERCISES)), required=False)
@click.option("--solve", is_flag=True, help="Show which code was taken out, and play nothing.")
def exercises(number: int | None, solve: bool) -> None:
    """List the checks of the grant, or attack the server without check NUMBER, and then with it.

    Requests are printed as curl commands. The servers listen on the loopback address, on free
    ports, and end with the exercise.
    """
    if number is None:
        show_list()
        return
    chosen = EXERCISES[number - 1]
    if solve:
        click.echo("\n\n".join(map(str, chosen.removals)))
        return
    click.echo(
        f"{number}. {chosen.check} ({chosen.source})\n\n{textwrap.fill(chosen.story, 100)}\n"
    )
    if not play_both(chosen, click.echo):
        sys.exit("This exercise is broken: the check makes no difference.")
    click.echo(
        f"Which code was taken out? Find it, then compare: python -m exercises {number} --solve"
    )


def show_list() -> None:
    """Print the number, the check and its source for each exercise."""
    for number, each in enumerate(EXERCISES, 1):
        click.echo(f"{number:2}  {each.check:58}{each.source}")
    click.echo("\nTo attack the server without one of these checks: python -m exercises NUMBER")


def play_both(chosen: Exercise, say: Say, whole: Begin | None = None) -> bool:
    """Attack without the check, then with it; return whether only the first attack succeeds.

    `whole` begins a play on a server with all checks; by default such a server is started.
    """
    say("== Without the check\n")
    with running(chosen.removals) as begin:
        succeeded = chosen.attack(begin(say))
    say("The attack succeeds.\n" if succeeded else "The attack fails.\n")
    say("== With the check\n")
    with contextlib.nullcontext(whole) if whole else running([]) as begin:
        refused = not chosen.attack(begin(say))
    say("The attack is refused.\n" if refused else "The attack succeeds.\n")
    return succeeded and refused


if __name__ == "__main__":
    exercises(prog_name="python -m exercises")
