"""Uploaded pictures: what the forms for a player's picture and an app's cover share."""

import io
from typing import BinaryIO

from flask import request
from werkzeug.exceptions import RequestEntityTooLarge

from identity.http.context import get_storage
from identity.http.limits import PICTURES, AttemptLimit, picture_place
from model.errors import (
    BrokenPicture,
    DecoderNotStarted,
    NotAPicture,
    PictureRefused,
    TooManyBytes,
    TooManyPixels,
)
from model.records import User
from model.words import say
from pages.kit.forms import FormRefused
from storage.files import storage_error_from
from storage.users import Images

FORM_AROUND_PICTURE = 64 * 1024  # bytes
PICTURE_STATUS = {
    TooManyBytes: 413,
    NotAPicture: 415,
    TooManyPixels: 422,
    BrokenPicture: 400,
    DecoderNotStarted: 503,
}


def read_images(player: User, kind: str) -> Images:
    """Return what the player uploaded in the field of this kind, as webp files by size.

    The kind is "picture", "cover" or "logo".

    Raises FormRefused, TooManyAttempts, Busy, StorageFailed.
    """
    # Imported here: Pillow takes memory that a worker rarely needs.
    from images.pictures import MAX_BYTES, make_picture, require_usable_upload

    request.max_content_length = MAX_BYTES + FORM_AROUND_PICTURE
    try:
        upload = read_upload(kind)
        require_usable_upload(upload)
        limits = [AttemptLimit("picture of", str(player.id), PICTURES)]
        with picture_place(player.id, limits):  # around `read`: a waiting upload takes no memory
            return make_picture(upload.read(), kind)
    except RequestEntityTooLarge as error:
        problem = say("This file is larger than 8 MB. Choose a smaller one.")
        raise FormRefused({kind: problem}, 413) from error
    except PictureRefused as error:
        raise FormRefused({kind: str(error)}, PICTURE_STATUS[type(error)]) from error


def read_upload(field: str) -> BinaryIO:
    """Return the uploaded file, or an empty one. Raises RequestEntityTooLarge, StorageFailed."""
    try:
        upload = request.files.get(field)
        return upload.stream if upload else io.BytesIO()
    except OSError as error:  # Werkzeug puts more than 500 kB into a temporary file
        # If Python finds no folder for it, the error does not say why; the storage does.
        get_storage().require_health()
        raise storage_error_from(error) from error
