"""Files that are served as they are: profile pictures, the style sheet and the like."""

import os

from flask import Blueprint, abort, request, send_from_directory
from werkzeug.http import parse_date, parse_range_header
from werkzeug.wrappers import Response

import storage
from identity.context import get_storage
from identity.settings import RESOURCES

files = Blueprint("files", __name__)


@files.before_request
def drop_unsupported_range_headers() -> None:
    """Take headers away that RFC 9110 has a server ignore; Werkzeug refuses them, or breaks."""
    asked = parse_range_header(request.headers.get("Range"))
    # 14.2: of another unit, or no range; or several, which only nginx gives.
    if not asked or asked.units != "bytes" or len(asked.ranges) > 1:
        request.environ.pop("HTTP_RANGE", None)
    for name in ("HTTP_IF_MODIFIED_SINCE", "HTTP_IF_RANGE"):
        try:
            parse_date(request.environ.get(name))
        except OverflowError:  # 13.1.3, 13.1.5: no date, so nothing that a part would belong to
            del request.environ[name]
            request.environ.pop("HTTP_RANGE", None)


@files.get(f"/pfp/<any({', '.join(storage.PICTURE_SIZES)}):size>/<file_name>")
def picture(size: str, file_name: str) -> Response:
    """A profile picture. In production nginx answers this from the folder, with these headers."""
    if not storage.PICTURE_FILE.fullmatch(file_name):
        abort(404)
    try:
        content, modified = get_storage().read_picture(size, file_name)
    except storage.NoSuchPicture:
        abort(404)
    answer = Response(content, content_type="image/webp")
    answer.last_modified = modified
    answer.set_etag(f"{int(modified):x}-{len(content):x}")  # as nginx makes it
    # What has a timestamp never changes: a new picture has another address.
    lasting = "public, max-age=86400, immutable"
    answer.headers["Cache-Control"] = lasting if "-" in file_name else "no-cache"
    # Games draw pictures on a canvas.
    answer.headers["Access-Control-Allow-Origin"] = "*"
    answer.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    return answer.make_conditional(request, accept_ranges=True, complete_length=len(content))


def picture_address(user: storage.User, size: str) -> str:
    """Where a player's picture is: `size` is a name in PICTURE_SIZES."""
    return f"/pfp/{size}/{user.picture_file}"


@files.get("/static/<file_name>")
def static_file(file_name: str) -> Response:
    """The style sheet and the like; no folders, so never a picture's temporary file."""
    if file_name.startswith("."):
        abort(404)
    return send_from_directory(os.path.join(RESOURCES, "static"), file_name)
