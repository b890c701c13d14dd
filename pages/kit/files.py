"""Files that are served unchanged: pictures, covers of apps, the style sheet, scripts."""

import base64
import functools
import hashlib
import os

from flask import Blueprint, abort, request, send_from_directory
from werkzeug.wrappers import Response

from identity.http.context import get_storage
from identity.http.responses import ANY_ORIGIN
from identity.site.settings import RESOURCES
from model.errors import NoSuchPicture
from model.kinds import COVERS
from model.records import COVER_SIZES, PICTURE_SIZES, Client, User
from model.rules import PICTURE_FILE, USER_ID
from storage.users import Images

MODULE = "/static/v1/identity.js"  # a version that breaks games gets another address
# Pages of any origin, also those that load only what allows it (COEP).
FOR_GAMES = {**ANY_ORIGIN, "Cross-Origin-Resource-Policy": "cross-origin"}
LASTING = "public, max-age=86400, immutable"  # seconds
COVERS_CACHED = 1024  # apps whose covers were drawn: about 700 bytes each
STATIC = os.path.join(RESOURCES, "static")

files = Blueprint("files", __name__)


@files.get(f"/pfp/<any({', '.join(PICTURE_SIZES)}):size>/<file_name>")
def picture(size: str, file_name: str) -> Response:
    """Return a profile picture. In production nginx serves the folder, with the same headers."""
    if not PICTURE_FILE.fullmatch(file_name):
        abort(404)
    content, modified = read_picture(size, file_name)
    etag = f"{int(modified):x}-{len(content):x}"  # as nginx does
    # A file with a timestamp in its name never changes: a new picture has another address.
    return send_image(content, etag, LASTING if "-" in file_name else "no-cache", modified)


def read_picture(size: str, file_name: str) -> tuple[bytes, float]:
    """Return a picture, and when it was modified in seconds since 1970. Raises NotFound."""
    try:
        return get_storage().pictures.read(size, file_name)
    except NoSuchPicture:
        abort(404)


def send_image(content: bytes, etag: str, caching: str, modified: float | None = None) -> Response:
    """Return a webp file, a part of it, or 304; `modified` is in seconds since 1970."""
    response = Response(content, content_type="image/webp")
    if modified is not None:
        response.last_modified = modified
    response.set_etag(etag)
    response.headers["Cache-Control"] = caching
    response.headers.update(FOR_GAMES)  # which draw pictures on a canvas
    return response.make_conditional(request, accept_ranges=True, complete_length=len(content))


def picture_address(user: User, size: str) -> str:
    """Return the path of a player's picture; `size` is a name in PICTURE_SIZES."""
    return f"/pfp/{size}/{user.picture_file}"


@files.get(f"/covers/<any({', '.join(COVER_SIZES)}):size>/<name>.webp")
def cover(size: str, name: str) -> Response:
    """Return an app's cover: the upload by its current id, the generated one by the app's id."""
    store = get_storage()
    client = store.clients.read(name.partition("-")[0])
    if name == client.id:  # which may have an uploaded cover as well
        drawn = generated_cover(client.id, client.name, tuple(client.tags))
        content, caching = drawn[size], "public, max-age=3600"
    elif name == client.cover_id:
        content = base64.b64decode(getattr(store.records(COVERS).read(name), size))
        caching = LASTING
    else:
        abort(404)
    return send_image(content, hashlib.sha256(content).hexdigest(), caching)


@functools.lru_cache(maxsize=COVERS_CACHED)
def generated_cover(client_id: str, name: str, tags: tuple[str, ...]) -> Images:
    """Return the cover of an app without an uploaded one, by size."""
    from images.covers import generate_cover  # Pillow: memory a worker may not need

    return generate_cover(client_id, name, tags)


def cover_address(client: Client, size: str) -> str:
    """Return the path of an app's cover; `size` is a name in COVER_SIZES.

    That of a generated one has a query with the tags: with others it is another picture.
    """
    tags = "" if client.cover_id or not client.tags else f"?tags={'+'.join(client.tags)}"
    return f"/covers/{size}/{client.cover_id or client.id}.webp{tags}"


@files.get("/users/<user_id>/picture")
def current_picture(user_id: str) -> Response:
    """Return a player's current picture, at an address that stays, so that programs can keep it."""
    if not USER_ID.fullmatch(user_id):
        abort(404)
    user = get_storage().users.read(int(user_id))
    content, modified = read_picture("large", user.picture_file)
    # Not by its time alone: the next picture may be older, or of the same second.
    etag = f"{user.pfp_timestamp}-{int(modified):x}-{len(content):x}"
    return send_image(content, etag, "public, max-age=300")  # seconds


@files.get("/static/<file_name>")
def static_file(file_name: str) -> Response:
    """Return a file such as the style sheet; not in a folder, so never a temporary picture."""
    if file_name.startswith("."):
        abort(404)
    return send_from_directory(STATIC, file_name)


@files.get(MODULE)
def identity_module() -> Response:
    """Return the JavaScript module that games on other sites import."""
    # Named: what Python derives from the file's name depends on the machine.
    response = send_from_directory(STATIC, "identity.js", mimetype="text/javascript")
    response.headers.update({**FOR_GAMES, "Cache-Control": "public, max-age=3600"})  # seconds
    return response
