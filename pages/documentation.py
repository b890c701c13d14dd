"""The pages of docs/ for developers of games and of other apps, as web pages for everybody."""

import functools
import itertools
import posixpath
import re
from pathlib import Path
from typing import NamedTuple

from flask import Blueprint, abort
from markupsafe import Markup

from identity.context import base_url
from identity.sessions import signed_in_player
from identity.settings import RESOURCES
from pages.rendering import Preview, render_page

ADDRESS = "/developer/docs"
# The address of a server, as the pages write it. In a program `SITE` is a name of its own.
PLACEHOLDER = re.compile(r"https://id\.example\.org|(?<![$\w])SITE(?=/)")
COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)  # the name of a program, for the tests
WIDE = re.compile(r"(?P<Table><table>.*?</table>)|<p>(?P<Picture><img [^>]*>)</p>", re.DOTALL)
SUMMARY_LENGTH = 200  # characters

documentation = Blueprint("documentation", __name__)


class Page(NamedTuple):
    """A page as HTML, and the ids and texts of the headings of its sections."""

    title: str
    summary: str
    headings: list[tuple[str, str]]
    body: Markup


@documentation.get(ADDRESS)
def show_index() -> str:
    """Show links to the pages."""
    groups = {folder: titles(f"docs/{folder}/") for folder in ("engines", "apps")}
    summary = "How a game, a forum or a wiki asks this site who a player is."
    preview = Preview("For developers", summary, address=ADDRESS)
    return render_page("documentation.html", signed_in_player(), preview, **groups)


@documentation.get(f"{ADDRESS}/<name>")
def show_page(name: str) -> str:
    """Show the page with this name. The name is looked up, and never part of a path."""
    if name not in find_pages():
        abort(404)
    page = render(name, base_url())
    preview = Preview(page.title, page.summary, address=f"{ADDRESS}/{name}")
    return render_page("documentation_page.html", signed_in_player(), preview, page=page)


@functools.cache
def find_pages() -> dict[str, str]:
    """Return the paths of the pages, relative to RESOURCES, by their names in addresses."""
    found = [path.relative_to(RESOURCES) for path in Path(RESOURCES, "docs").glob("*/*.md")]
    paths = ["docs/games.md", "docs/grant.md", *sorted(map(Path.as_posix, found))]
    return {name_of(path): path for path in paths}


def name_of(path: str) -> str:
    """Return the name of a page: that of its file, or of its folder for a README."""
    folder, name = path.removesuffix(".md").split("/")[-2:]
    return folder if name == "README" else name


def read_page(path: str) -> str:
    return Path(RESOURCES, path).read_text(encoding="utf-8")


@functools.cache
def titles(folder: str) -> list[tuple[str, str]]:
    """Return the names and titles of the pages in a folder, without its README."""
    paths = {name: path for name, path in find_pages().items() if path.startswith(folder)}
    lines = {name: read_page(path).partition("\n")[0] for name, path in paths.items()}
    found = [(name, line.removeprefix("# ")) for name, line in lines.items() if name not in folder]
    return sorted(found, key=lambda each: each[1].casefold())


@functools.cache
def render(name: str, site: str) -> Page:
    """Return the page with this name, with the address of this site in its examples."""
    from markdown_it import MarkdownIt  # 20 ms and 1 MiB, only where somebody reads the pages

    markdown = MarkdownIt("js-default")  # which shows HTML as text
    path = find_pages()[name]
    tokens = markdown.parse(COMMENT.sub("", PLACEHOLDER.sub(site, read_page(path))))
    headings = []
    for opening, content in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            anchor = anchor_of(content.content)
            opening.attrSet("id", anchor)
            headings += [(anchor, content.content)] if opening.tag == "h2" else []
        lead_to_served_pages(content.children or [], path)
    title, content = tokens[1].content, tokens[3:]
    body = markdown.renderer.render(content, markdown.options, {})
    numbers = itertools.count(1)
    body = re.sub("<pre>", lambda _: f'<pre dir="ltr" data-copy="Copy code {next(numbers)}">', body)
    summary = " ".join(Markup(body.partition("</p>")[0]).striptags().split())
    return Page(title, summary[:SUMMARY_LENGTH], headings, Markup(WIDE.sub(let_scroll, body)))


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


def lead_to_served_pages(tokens: list, path: str) -> None:
    """Give the links and pictures of a page's line their addresses on this site.

    A link to a file that is not served becomes text.
    """
    is_served = True
    for token in tokens:
        if attribute := {"link_open": "href", "image": "src"}.get(token.type):
            address = served_address(token.attrs[attribute], path)
            is_served = address is not None
            token.attrSet(attribute, address or "")
        token.hidden = not is_served and token.type in ("link_open", "link_close")


def served_address(target: str, path: str) -> str | None:
    """Return the address of what the page at a path links to, None if it is not served."""
    if re.match("https?:|#", target):
        return target
    file, mark, anchor = target.partition("#")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
    if file.startswith("static/"):
        return f"/{file}"
    is_page = find_pages().get(name_of(file)) == file
    return f"{ADDRESS}/{name_of(file)}{mark}{anchor}" if is_page else None


def let_scroll(found: re.Match) -> str:
    """Return a table or a picture in a box that scrolls sideways, also by keys."""
    label, block = found.lastgroup, found[found.lastgroup]
    return f'<div class="scroll" role="group" aria-label="{label}" tabindex="0">{block}</div>'
