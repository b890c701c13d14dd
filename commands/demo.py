"""`identity-server demo`, which runs `examples/demo/`."""

import runpy

import click

from commands import read_url
from commands.running import bind_option
from identity.site.settings import RESOURCES


@click.command()
@bind_option("Where to listen: each program takes the first free port from this one on.")
@click.option(
    "--storage",
    metavar="URL",
    callback=read_url,
    default="files",
    help="An empty database, which keeps the community.",
)
def demo(bind: tuple[str, int], storage: str) -> None:
    """Show a small community with games and a web app, until Ctrl-C.

    All is kept in a temporary folder, which goes at the end. No setting of yours is read. With the
    URL of a database the community is in the database, and stays there.
    """
    example = runpy.run_path(f"{RESOURCES}/examples/demo")
    example["run_demo"](*bind, storage)
