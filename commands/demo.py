"""`identity-server demo`, which runs `examples/demo/`."""

import runpy

import click

from commands.running import bind_option
from identity.settings import RESOURCES


@click.command()
@bind_option("Where to listen: each program takes the first free port from this one on.")
def demo(bind: tuple[str, int]) -> None:
    """Show a small community with a web app and a game, until Ctrl-C.

    All is kept in a temporary folder, which goes at the end. No setting of yours is read.
    """
    example = runpy.run_path(f"{RESOURCES}/examples/demo")
    example["run_demo"](*bind)
