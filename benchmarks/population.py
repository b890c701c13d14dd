"""Create an installation with many players: `python -m benchmarks.population FOLDER --users N`.

Records, index entries and pictures are as the server writes them, but synced once, at the end. One
of ten players has uploaded a picture, which some share as hard links: the server replaces picture
files, and never writes into one. The pictures of the others are generated. The same id gives the
same player.
"""

import argparse
import functools
import io
import os
import random
import sys
from collections.abc import Callable

from PIL import Image

from identity.access.passwords import hash_password
from images.pictures import make_picture
from model.encoding import encode_values, record_as_dict
from model.errors import StorageError
from model.kinds import USERS
from model.records import ADMINISTRATOR, PICTURE_SIZES, PLAYER, Client, Grant, Session, User
from storage import Storage, open_storage
from storage.flat_files.disk import write_file
from storage.flat_files.entries import Entries
from storage.flat_files.layout import Layout

PASSWORD = "correct horse battery"  # everyone's
REDIRECT_URI = "https://game.example.org/callback"
FIRST_DAY = 1_700_000_000_000  # milliseconds: when the first player joined
FIRST_NAMES = ("Ada", "Bjørn", "Chloé", "Дмитрий", "Ελένη", "さくら", "민준", "José Luis")
WORDS = ("chess,", "at", "night", "and", "naïve", "“go”", "on", "Sundays;", "ask", "me", "🙂", "!")
FLAIRS = ("founder", "tester", "winner")
STEP = 1000  # players between two reports of progress
UPLOADERS = 10  # one of so many players has uploaded a picture
UPLOADS = 16  # different ones, of 12 KB: gzip finds what is repeated within 32 KB


def joined(user_id: int) -> int:
    """Return the time of a player's sign-up and of their picture, in milliseconds."""
    return FIRST_DAY + user_id * 60_000


def make_player(user_id: int, client_id: str, password_hash: str) -> User:
    """Return a player with random profile data who has allowed the client both scopes."""
    chance = random.Random(user_id)
    seen = joined(user_id) + chance.randrange(10**9)
    flairs = ["none", *chance.sample(FLAIRS, chance.choice((0, 0, 1, 3)))]
    return User(
        id=user_id,
        name=f"{FIRST_NAMES[user_id % len(FIRST_NAMES)]} {user_id}",
        email=f"Player{user_id}@example.org",
        password_hash=password_hash,
        mod_level=ADMINISTRATOR if user_id == 1 else PLAYER,
        bio=" ".join(chance.choices(WORDS, k=chance.choice((0, 5, 20, 60)))),
        flairs=flairs,
        equipped_flair=flairs[-1],
        play_ms=chance.randrange(10**9),
        last_heartbeat=seen,
        pfp_timestamp=joined(user_id),
        pfp_generated=user_id % UPLOADERS != 0,
        created=joined(user_id),
        grants={client_id: Grant(f"{chance.getrandbits(128):032x}", ["userinfo", "email"], seen)},
        sessions=[Session(f"{chance.getrandbits(128):032x}", seen, "Firefox on Linux")],
    )


def populate(
    folder: str,
    users: int,
    pictures: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Storage, Client, str]:
    """Create players in `folder`/data and `folder`/pictures, and a client with its secret.

    Without `pictures` nobody has uploaded one. `progress` is called with a line of text every STEP
    players. Returns the storage, the client and its secret. Raises StorageError if there are
    players already.
    """
    data, picture_folder = f"{folder}/data", f"{folder}/pictures"
    storage = open_storage(data, picture_folder)
    if storage.users.ids():
        raise StorageError(f"{data} has players already: name an empty folder")
    client, secret = storage.clients.register("Chess", [REDIRECT_URI], owner_id=None)
    password_hash, entries = hash_password(PASSWORD), Entries(Layout(data, picture_folder), USERS)
    for user_id in range(1, users + 1):
        user = make_player(user_id, client.id, password_hash)
        user.pfp_generated = user.pfp_generated or not pictures
        if not user.pfp_generated:
            _write_upload(picture_folder, user_id)
        record = encode_values(record_as_dict(user, stored=True))
        write_file(f"{data}/users/{user_id}.json", record, durable=False)
        entries.put_new(user)
        if user_id % STEP == 0:
            progress(f"{user_id:,} players")
    write_file(f"{data}/next_user_id", b"%d\n" % (users + 1))
    os.sync()
    return storage, client, secret


@functools.lru_cache(maxsize=UPLOADS)
def draw_upload(number: int) -> dict[str, bytes]:
    """Return one of UPLOADS pictures by size: patches of colour, in as many bytes as a photo."""
    pixels, png = random.Random(number).randbytes(3 * 20 * 20), io.BytesIO()
    image = Image.frombytes("RGB", (20, 20), pixels)
    image.resize((512, 512), Image.Resampling.BICUBIC).save(png, "PNG")
    return make_picture(png.getvalue())


def upload_of(user_id: int) -> int:
    """Return the number of a player's upload."""
    return user_id // UPLOADERS % UPLOADS


def _write_upload(folder: str, user_id: int) -> None:
    """Write the picture of the first of those who share it, and link it for the others."""
    number = upload_of(user_id)
    first = UPLOADERS * (number or UPLOADS)
    for size in PICTURE_SIZES:
        path = f"{folder}/{size}/{user_id}-{joined(user_id)}.webp"
        if user_id == first:
            write_file(path, draw_upload(number)[size], mode=0o644, durable=False)
        else:
            os.link(f"{folder}/{size}/{first}-{joined(first)}.webp", path)


def show_progress(text: str) -> None:
    """Show a line on the terminal in place of the previous one."""
    if sys.stderr.isatty():
        print(f"\r{text:30}\r", end="", file=sys.stderr, flush=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.population", description=__doc__)
    parser.add_argument("folder", help="gets a folder `data` and a folder `pictures`")
    parser.add_argument("--users", type=int, default=1000, metavar="N", help="default: 1000")
    parser.add_argument("--no-pictures", action="store_true", help="nobody has uploaded one")
    options = parser.parse_args()
    folder = os.path.abspath(options.folder)
    try:
        _, client, secret = populate(folder, options.users, not options.no_pictures, show_progress)
    except StorageError as error:
        sys.exit(str(error))
    print(f"{options.users:,} players, each with the password {PASSWORD!r}")
    print(f"client_id={client.id} client_secret={secret}")
    print(f"IDENTITY_DATA_DIR={folder}/data IDENTITY_PICTURE_DIR={folder}/pictures")


if __name__ == "__main__":
    main()
