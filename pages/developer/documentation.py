"""The pages of docs/ for developers of games and of other apps, as web pages for everybody."""

import functools
import itertools
import re
import textwrap
from pathlib import Path
from urllib.parse import urljoin

from flask import Blueprint, abort
from markupsafe import Markup

from identity.access.sessions import signed_in_player
from identity.http.context import base_url
from identity.site.settings import RESOURCES
from pages.kit.rendering import Preview, render_page

ADDRESS = "/developer/docs"
# The address of a server, as the pages write it. In a program `SITE` is a name of its own.
PLACEHOLDER = re.compile(r"https://id\.example\.org|(?<![$\w])SITE(?=/)")
COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)  # the name of a program, for the tests
WIDE = re.compile(r"(?P<Table><table>.*?</table>)|<p>(?P<Picture><img [^>]*>)</p>", re.DOTALL)

documentation = Blueprint("documentation", __name__)


@documentation.get(ADDRESS)
def show_index() -> str:
    """Show links to the pages."""
    summary = "How a game, a forum or a wiki asks this site who a player is."
    preview = Preview("For developers", summary, address=ADDRESS)
    return render_page("developer/documentation.html", signed_in_player(), preview)


@documentation.get(f"{ADDRESS}/<name>")
def show_page(name: str) -> str:
    """Show the page with this name, which is looked up, and never part of a path, or a 404."""
    if name not in find_pages():
        abort(404)
    page = render(name, base_url())
    preview = Preview(page["title"], page["summary"], address=f"{ADDRESS}/{name}")
    return render_page("developer/documentation_page.html", signed_in_player(), preview, page=page)


@functools.cache
def find_pages() -> dict[str, str]:
    """Return the paths of the pages, relative to RESOURCES, by their names in addresses."""
    found = sorted(Path(RESOURCES, "docs").glob("*/*.md"))
    paths = [path.relative_to(RESOURCES).as_posix() for path in found]
    return {name_of(path): path for path in ["docs/grant.md", *paths]}


def name_of(path: str) -> str:
    """Return the name of a page: that of its file, or of its folder for a README."""
    folder, name = path.removesuffix(".md").split("/")[-2:]
    return folder if name == "README" else name


@functools.cache
def render(name: str, site: str) -> dict:
    """Return a page with the address of this site in its examples.

    It has a `title`, a `summary` for link previews, `headings` of its sections as (anchor, text),
    and a `body` in HTML.
    """
    from markdown_it import MarkdownIt  # 20 ms and 1 MiB, only where somebody reads the pages

    path = find_pages()[name]
    source = Path(RESOURCES, path).read_text(encoding="utf-8")
    markdown = MarkdownIt("js-default")  # which shows HTML as text
    markdown.normalizeLink = lambda target: served_address(target, path)
    tokens = markdown.parse(COMMENT.sub("", PLACEHOLDER.sub(site, source)))
    headings = []
    for opening, content in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            anchor = re.sub(r"[^\w -]", "", content.content).lower().replace(" ", "-")  # GitHub's
            opening.attrSet("id", anchor)
            headings += [(anchor, content.content)] if opening.tag == "h2" else []
    body = markdown.renderer.render(tokens[3:], markdown.options, {})  # the title is elsewhere
    summary = textwrap.shorten(Markup(body.partition("</p>")[0]).striptags(), 200, placeholder="…")
    numbers = itertools.count(1)
    body = re.sub("<pre>", lambda _: f'<pre dir="ltr" data-copy="Copy code {next(numbers)}">', body)
    body = Markup(WIDE.sub(let_scroll, body))
    return {"title": tokens[1].content, "summary": summary, "headings": headings, "body": body}


def served_address(target: str, path: str) -> str:
    """Return the address of a link `target` on the page at a path; pages have theirs at ADDRESS."""
    address = urljoin(f"/{path}", target)
    return re.sub(r"^/docs/.*\.md", lambda found: f"{ADDRESS}/{name_of(found[0])}", address)


def let_scroll(found: re.Match) -> str:
    """Return a table or a picture in a box that scrolls sideways, also by keys."""
    label, block = found.lastgroup, found[found.lastgroup]
    return f'<div class="scroll" role="group" aria-label="{label}" tabindex="0">{block}</div>'
