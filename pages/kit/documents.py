"""The pages of docs/ as web pages, on two shelves: for administrators and for developers."""

import functools
import itertools
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from flask import abort
from markupsafe import Markup

from identity.site.settings import RESOURCES

if TYPE_CHECKING:
    from markdown_it.token import Token

EXAMPLE = "https://id.example.org"  # the address of a server, as the pages write it
HOSTS = ("id.example.org", "YOUR.NAME")  # its host alone
# In a program `SITE` is a name of its own.
PLACEHOLDER = re.compile(r"(https://)?id\.example\.org|YOUR\.NAME|(?<![$\w])SITE(?=/)")
COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)  # the name of a program, for the tests
WIDE = re.compile(r"(?P<Table><table>.*?</table>)|<p>(?P<Picture><img [^>]*>)</p>", re.DOTALL)
NEIGHBOURS_LISTED = 12  # pages of a folder; the first page of a larger one lists them


@dataclass(frozen=True)
class Shelf:
    """The pages of docs/ that are served below one address."""

    address: str
    patterns: tuple[str, ...]  # of the files in docs/, in the order of the navigation

    @functools.cached_property
    def pages(self) -> dict[str, str]:
        """The paths of the pages in docs/, by their names in addresses."""
        docs = Path(RESOURCES, "docs")
        files = [path for each in self.patterns for path in sorted(docs.glob(each))]
        return {name_of(path): path.relative_to(docs).as_posix() for path in files}

    @functools.cached_property
    def titles(self) -> dict[str, str]:
        """The titles of the pages, by their names."""
        sources = {name: read_source(path) for name, path in self.pages.items()}
        return {name: text.partition("\n")[0][2:] for name, text in sources.items()}

    def read(self, name: str, site: str) -> dict:
        """Return what a template shows of the page with this name, or a 404.

        The name is looked up, and never part of a path. Besides the values of `render` there are
        the `address` of the page, that of the `shelf`, and the pages `beside` it.
        """
        if name not in self.pages:
            abort(404)
        place = {"address": f"{self.address}/{name}", "shelf": self.address}
        return render(self.pages[name], site) | place | {"beside": self.beside(name)}

    def beside(self, name: str) -> list[dict]:
        """Return the pages that the navigation of a page lists, itself included.

        Each has an `address` and a `title`, and is `inner` unless it is the first of its folder.
        Of another folder only the first one is listed.
        """
        folder = Path(self.pages[name]).parent
        near = [each for each, path in self.pages.items() if Path(path).parent == folder]
        listed = {name, *(near if len(near) <= NEIGHBOURS_LISTED else ())}
        found = []
        for each, path in self.pages.items():
            is_inner = "/" in path and not path.endswith("/README.md")
            if each in listed or not is_inner:
                address, title = f"{self.address}/{each}", self.titles[each]
                found.append({"address": address, "title": title, "inner": is_inner})
        return found


GUIDE = ("administrator", "everyday", "mail", "backups", "upgrade", "moving", "troubleshooting")
GUIDE += ("settings", "command", "servers", "performance", "performance-measured")
GUIDE += ("several-machines", "several-machines-failures")
PICTURES = ("performance.svg", "tails.svg")  # in docs/, on pages for administrators
ADMINISTRATORS = Shelf("/admin/docs", tuple(f"{name}.md" for name in GUIDE))
GAMES = ("README", "browser", "sites", "devices", "tickets", "recipes")
ENGINES = ("README", "javascript", "phaser", "godot", "unity", "pygame", "servers", "dedicated")
ORDER = [f"games/{name}.md" for name in GAMES] + ["games/*.md"]  # others are the last ones
ORDER += [f"engines/{name}.md" for name in ENGINES] + ["engines/*.md"]
DEVELOPERS = Shelf("/developer/docs", (*ORDER, "grant.md", "apps/*.md"))


def name_of(path: Path) -> str:
    """Return the name of a page: that of its file, or of its folder for a README."""
    return path.parent.name if path.stem == "README" else path.stem


@functools.cache
def served_files() -> dict[str, str]:
    """Return the addresses of the files in docs/ that are served, by their paths in the project."""
    files = {f"/docs/{name}": f"{ADMINISTRATORS.address}/{name}" for name in PICTURES}
    for shelf in (ADMINISTRATORS, DEVELOPERS):
        files |= {f"/docs/{path}": f"{shelf.address}/{name}" for name, path in shelf.pages.items()}
    return files


def read_source(path: str) -> str:
    return Path(RESOURCES, "docs", path).read_text(encoding="utf-8")


@functools.cache
def render(path: str, site: str) -> dict:
    """Return the page at a path in docs/ with the address of this site in its examples.

    It has a `title`, a `summary` for link previews, a `body` in HTML and its `headings`: each has
    an `anchor`, a `text`, and the headings `inner` to it.
    """
    from markdown_it import MarkdownIt  # 20 ms and 1 MiB, only where somebody reads the pages

    host = urlsplit(site).hostname
    source = PLACEHOLDER.sub(lambda found: host if found[0] in HOSTS else site, read_source(path))
    markdown = MarkdownIt("js-default")  # which shows HTML as text
    tokens = without_contents(markdown.parse(COMMENT.sub("", source)))
    headings = name_headings(tokens)
    for token in tokens:
        resolve_links(token.children or [], path)
        if token.attrs.pop("style", None) == "text-align:right":  # the policy allows no styles
            token.attrSet("class", "figure")
    body = markdown.renderer.render(tokens[3:], markdown.options, {})  # the title is elsewhere
    summary = textwrap.shorten(Markup(body.partition("</p>")[0]).striptags(), 200, placeholder="…")
    numbers = itertools.count(1)
    body = re.sub("<pre>", lambda _: f'<pre dir="ltr" data-copy="Copy code {next(numbers)}">', body)
    body = re.sub("<th[^>]*></th>", "<td></td>", body)  # a screen reader would announce a heading
    body = Markup(WIDE.sub(let_scroll, body))
    return {"title": tokens[1].content, "summary": summary, "headings": headings, "body": body}


def without_contents(tokens: "list[Token]") -> "list[Token]":
    """Return the tokens but for the list of the page's own headings: the navigation has them.

    It is the first list before them of which each item is a link to an anchor.
    """
    for start, token in enumerate(tokens):
        if token.tag == "h2":
            break
        if token.type != "bullet_list_open":
            continue
        ends = (at for at, each in enumerate(tokens) if each.type == "bullet_list_close")
        end = next(at for at in ends if at > start and tokens[at].level == token.level)
        items = [each.children for each in tokens[start:end] if each.type == "inline"]
        if all(each[0].type == "link_open" and leads_to_own(each) for each in items):
            return tokens[:start] + tokens[end + 1 :]
    return tokens


def leads_to_own(children: "list[Token]") -> bool:
    """Return True if each link of a paragraph leads to its own page."""
    links = [str(each.attrGet("href")) for each in children if each.type == "link_open"]
    return all(each.startswith("#") for each in links)


def name_headings(tokens: "list[Token]") -> list[dict]:
    """Give each heading its anchor, and return those of the second level and the third in them."""
    found: list[dict] = []
    for opening, content in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(each.content for each in content.children)
            anchor = re.sub(r"[^\w -]", "", text).lower().replace(" ", "-")  # GitHub's
            opening.attrSet("id", anchor)
            if opening.tag in ("h2", "h3"):
                around = found[-1]["inner"] if found and opening.tag == "h3" else found
                around.append({"anchor": anchor, "text": text, "inner": []})
    return found


def resolve_links(children: "list[Token]", path: str) -> None:
    """Give links and pictures of the page at a path in docs/ their addresses on this site.

    A link to a file that is not served becomes its text, with the path behind it.
    """
    unserved = label = ""
    for child in children:
        if child.type == "image":
            child.attrSet("src", served_address(urljoin(f"/docs/{path}", child.attrGet("src"))))
        elif child.type == "link_open":
            target = urljoin(f"/docs/{path}", child.attrGet("href"))
            address, label = served_address(target), ""
            child.attrSet("href", address)
            child.hidden = not address
            unserved = "" if address else target[1:].partition("#")[0]
        elif child.type == "link_close" and unserved:
            is_named = unserved.startswith(label.rstrip("/"))
            child.type, child.content = "text", "" if is_named else f" ({unserved})"
        label += child.content


def served_address(target: str) -> str:
    """Return where a link to a path in the project leads, "" for a file that is not served."""
    path, *anchor = re.split("(?=#)", target, maxsplit=1)
    if path.startswith("/") and not path.startswith("/static/"):
        path = served_files().get(path)
    return "".join([path, *anchor]) if path else ""


def let_scroll(found: re.Match) -> str:
    """Return a table or a picture in a box that scrolls sideways, also by keys."""
    label, block = found.lastgroup, found[found.lastgroup]
    return f'<div class="scroll" role="group" aria-label="{label}" tabindex="0">{block}</div>'
