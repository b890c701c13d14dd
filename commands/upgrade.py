"""`identity-server upgrade-check`: what the next start changes, and which files must be copied."""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from commands import installation_place
from commands.printing import echo, json_option, print_json
from identity.site.formatting import pluralize
from identity.site.settings import ROOT, host_of, read_settings
from storage import Upgrade, find_upgrade, mask_url

DEPLOY = Path(ROOT, "deploy")  # of a checkout: neither a wheel nor an image has it
UNITS = "/etc/systemd/system"
# Files of the folder that an administrator may have copied, besides those of the options.
COPIES = {
    "identity-server": "/usr/local/bin/identity-server",
    "identity-server-backup.service": f"{UNITS}/identity-server-backup.service",
    "identity-server-backup.timer": f"{UNITS}/identity-server-backup.timer",
}
TOKEN = re.compile(
    r"""
    \#[^\n]*                   # a comment
    | "(?:\\.|[^"\\])*"        # quoted text, in which \" is not the end
    | '(?:\\.|[^'\\])*'
    | [{};]                    # punctuation
    | (?:\\.|\$\{|[^\s;{\\])+  # a word; the { of ${name} begins no block
    """,
    re.DOTALL | re.VERBOSE,
)
BLOCK = re.compile("(server|location|map|upstream)\\b")
CHOSEN = re.compile("(server|ssl_certificate|ssl_certificate_key) ")  # by each administrator
TOP = "outside of all blocks"
LARGEST = 200_000  # characters of an installed file


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of an installed file that is not that of this version."""

    file: str
    part: str  # a block of nginx; "" for the whole file
    problem: str  # continues a sentence that begins with the part: "is missing"
    lines: list[str] = field(default_factory=list)  # "+ " before one that is lacking, "- " else
    to_copy: bool = True


@click.command("upgrade-check")
@click.option(
    "--nginx",
    metavar="PATH",
    default="/etc/nginx/sites-available/identity-server",
    help="The installed site of nginx.",
)
@click.option(
    "--unit",
    metavar="PATH",
    default=f"{UNITS}/identity-server.service",
    help="The installed unit of systemd.",
)
@json_option
def upgrade_check(nginx: str, unit: str, as_json: bool) -> None:
    """Say what the next start does to this installation.

    Run it when the new version is there, and before the server is started again. It changes
    nothing. It names the keys that the start adds to the records, says whether the older version
    can use what the start leaves, and compares the installed files of nginx and systemd with those
    in deploy/. The exit status is 1 if a part of these must be copied by hand.
    """
    data_dir, picture_dir, url = installation_place()
    place = data_dir if url == "files" else mask_url(url)
    upgrade = find_upgrade(data_dir, picture_dir, url)
    differences = compare_files(nginx, unit)
    if as_json:
        print_json(
            {"installation": place}
            | ({} if upgrade is None else asdict(upgrade))
            | {"keeps_way_back": upgrade is None or upgrade.keeps_way_back}
            | {"files": [asdict(each) for each in differences]}
        )
    else:
        for line in [*describe(upgrade, place), *describe_files(differences)]:
            echo(line)
    if parts := sum(each.to_copy for each in differences):
        raise click.ClickException(f"{pluralize(parts, 'part')} of installed files must be copied")


# -- the installation ---------------------------------------------------------------------------


def describe(upgrade: Upgrade | None, place: str) -> Iterator[str]:
    """Yield the lines about what the next start does to the installation."""
    if upgrade is None:
        yield f"There is no installation at {place} yet: the next start makes one."
        return
    becomes = f"becomes {upgrade.next_layout}"
    stays = "stays" if upgrade.layout == upgrade.next_layout else becomes
    yield f"{place} has layout {upgrade.layout}, which {stays}."
    if upgrade.keys:
        seconds = pluralize(max(1, round(upgrade.seconds)), "second")
        keys = pluralize(len(upgrade.keys), "key")
        yield f"The next start adds {keys}, which takes about {seconds}:"
        for key, records in upgrade.keys.items():
            yield f"  {key} ({pluralize(records, 'record')})"
        yield "Restart the server instead of reloading it."
    if upgrade.kinds:
        yield f"It makes a place for new kinds of records: {', '.join(upgrade.kinds)}."
    if upgrade.removed:
        yield f"It removes what this version does not need: {', '.join(upgrade.removed)}."
    if upgrade.keeps_way_back:
        yield "The way back stays open: the older version can use what the start leaves,"
        yield "and of later saves all records that got no new field."
    else:
        yield "The way back closes: the older version then needs a backup from before the start."


# -- the files ----------------------------------------------------------------------------------


def describe_files(differences: list[Difference]) -> Iterator[str]:
    """Yield the lines about the installed files."""
    if not differences:
        yield "The installed files of nginx and systemd are those of this version."
    for file, parts in itertools.groupby(differences, lambda each: each.file):
        yield f"{file}:"
        for each in parts:
            yield "  " + f"{each.part} {each.problem}".lstrip()
            yield from (f"      {line}" for line in each.lines)


def compare_files(nginx: str, unit: str) -> list[Difference]:
    """Return what differs between the installed files and those of this version."""
    if not DEPLOY.is_dir():
        problem = "is not here: compare your files with those in the repository"
        return [Difference(str(DEPLOY), "", problem, to_copy=False)]
    differences = compare("nginx.conf", nginx, nginx_differences)
    differences += compare("identity-server.service", unit, line_differences)
    for name, path in COPIES.items():
        if Path(path).exists():
            differences += compare(name, path, line_differences)
    return differences


def compare(
    name: str, path: str, differences: Callable[..., Iterator[Difference]]
) -> list[Difference]:
    """Return the differences between a file in deploy/ and its copy, or one that says why not."""
    try:
        ours, theirs = (
            Path(each).read_text("utf-8-sig", "replace") for each in (DEPLOY / name, path)
        )
    except OSError as error:
        reason = error.strerror
    else:
        if len(theirs) <= LARGEST:
            return [*differences(name, path, ours, theirs)]
        reason = "it is too large"
    return [Difference(path, "", f"is not compared with deploy/{name}: {reason}", to_copy=False)]


def line_differences(name: str, path: str, ours: str, theirs: str) -> Iterator[Difference]:
    """Yield one Difference if the lines of a unit or of the script differ, but for comments.

    Administrators add options to a unit: lines, and more at the end of a line, such as `--server
    granian`. They add none to the script.
    """
    needed, there = (
        [line for line in text.splitlines() if line and not line.startswith("#")]
        for text in (ours, theirs)
    )
    if name == "identity-server":
        lines = [f"+ {each}" for each in needed if each not in there]
        lines += [f"- {each}" for each in there if each not in needed]
    else:
        lines = [f"+ {each}" for each in needed if not any(line.startswith(each) for line in there)]
    if lines:
        problem = f"differs from deploy/{name}: change these lines, or copy the file"
        yield Difference(path, "", problem, lines)


def nginx_differences(name: str, path: str, ours: str, theirs: str) -> Iterator[Difference]:
    """Yield the blocks of the installed site that are not those of deploy/nginx.conf."""
    host = host_of(read_settings()["BASE_URL"])
    ours, theirs = (read_blocks(each.replace("id.example.org", host)) for each in (ours, theirs))
    for block, directives in ours.items():
        there = theirs.get(block)
        if there is None:
            yield Difference(path, block, "is missing")
            continue
        lines = [f"+ {each};" for each in directives if each not in there]
        if block.startswith("location"):  # other blocks may have more: what certbot adds, say
            lines += [f"- {each};" for each in there if each not in directives]
        if lines := [each for each in lines if not CHOSEN.match(each, 2)]:
            yield Difference(path, block, "differs", lines)
    for block in theirs:
        if block not in ours:
            problem = f"is not in deploy/{name}: remove it, unless it is your own"
            yield Difference(path, block, problem, to_copy=False)


def read_blocks(text: str) -> dict[str, list[str]]:
    """Return the directives of a configuration of nginx, by the block that they are in.

    Blocks with the same words in front, as those of two servers, count as one. Other blocks, such
    as `if`, are a part of each directive in them.
    """
    blocks, open_blocks, words = {TOP: []}, [TOP], []
    for token in TOKEN.findall(text):
        if token == "{":
            open_blocks.append(" ".join(words))
        elif token == "}":
            open_blocks = open_blocks[:-1] or [TOP]
        elif token == ";":
            innermost = max(n for n, each in enumerate(open_blocks) if not n or BLOCK.match(each))
            directive = " ".join([*open_blocks[innermost + 1 :], *words])
            blocks.setdefault(open_blocks[innermost], []).append(" ".join(directive.split()))
        elif not token.startswith("#"):
            words.append(token)
        if token in "{};":
            words = []
    return blocks
