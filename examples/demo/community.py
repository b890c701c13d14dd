"""The five players of the demo, and their pictures."""

import io
from dataclasses import dataclass

from PIL import Image

SIDE = 16  # width and height of a face below, in characters
SCALE = 16  # width and height of a character in the uploaded picture, in pixels
COLOURS = {
    "#": "#e8934a",
    "b": "#8a5a3c",
    "c": "#f3e3c3",
    "d": "#5d6b7a",
    "g": "#7ef0c1",
    "k": "#1c2026",
    "n": "#c4505a",
    "o": "#f2a93b",
    "p": "#f0a3a8",
    "r": "#d5433f",
    "s": "#aebccb",
    "t": "#d9b48a",
    "v": "#8d6fd1",
    "w": "#ffffff",
}


@dataclass(frozen=True)
class Member:
    """A player of the demo: fields of `model.records.User`, and the best score in the game."""

    name: str
    bio: str
    flair: str
    play_minutes: int
    last_played: int  # minutes ago
    score: int
    background: str
    face: str  # the left half, one character per pixel; the right half is its mirror image
    mod_level: int = 0

    def picture(self) -> bytes:
        """Return the face as a PNG file."""
        image = Image.new("RGB", (SIDE, SIDE), self.background)
        for y, row in enumerate(self.face.split()):
            for x, character in enumerate(row):
                if character in COLOURS:
                    colour = tuple(bytes.fromhex(COLOURS[character][1:]))
                    image.putpixel((x, y), colour)
                    image.putpixel((SIDE - 1 - x, y), colour)
        output = io.BytesIO()
        image.resize((SIDE * SCALE,) * 2, Image.Resampling.NEAREST).save(output, "PNG")
        return output.getvalue()


GAME_OWNER = "chidi"  # registered the game
COMMUNITY = (
    Member(
        name="ada",
        bio="I keep this place running. Tell me when something breaks.",
        flair="keeper of the keys",
        play_minutes=2_750,
        last_played=3,
        score=212,
        background="#bfe3e0",
        mod_level=2,
        face="""
        ........
        .#......
        .##.....
        .#p#....
        .#p#####
        .#######
        .#######
        ##ww####
        ##wk####
        ########
        #pp###nn
        #######n
        .####n##
        ..####nn
        ....####
        ........
        """,
    ),
    Member(
        name="bruno",
        bio="Beep. I read every rule twice, and then I help you with them.",
        flair="beta tester",
        play_minutes=1_184,
        last_played=47,
        score=158,
        background="#f6d9a8",
        mod_level=1,
        face="""
        .......r
        .......r
        .......d
        ..ssssss
        .sssssss
        .skkkkkk
        .skggkkk
        dskggkkk
        dskkkkkk
        .skkkggg
        .sssssss
        ..ssssss
        .....ddd
        ...sssss
        ..ssssrs
        ..ssssss
        """,
    ),
    Member(
        name="chidi",
        bio="Up late. I made the Space Game, and emi is better at it.",
        flair="night owl",
        play_minutes=3_906,
        last_played=640,
        score=271,
        background="#2f3a5f",
        face="""
        ........
        .b......
        .bb.....
        .bbbbbbb
        .bwwwwbb
        .wwwwwwb
        .wwkkwwb
        .wwkkwwo
        .bwwwwbo
        .bbbbbbb
        bbbttttt
        bbttbttb
        bbtttttt
        .bbtbttb
        ..bbbbbb
        ....oo..
        """,
    ),
    Member(
        name="dalia",
        bio="New here. I grow mushrooms and collect high scores, in this order.",
        flair="none",
        play_minutes=58,
        last_played=1_500,
        score=97,
        background="#cfe8b9",
        face="""
        ........
        .....rrr
        ...rrrrr
        ..rrwwrr
        .rrrwwrr
        .rrrrrrr
        rrrrrrww
        rwwrrrww
        rwwrrrrr
        rrrrrrrr
        ..cccccc
        ...ccccc
        ...cckcc
        ...ccccp
        ...ccccc
        ....cccc
        """,
    ),
    Member(
        name="emi",
        bio="Eight arms, one keyboard.\nSpeedruns on Sundays; ask me for the replay.",
        flair="speedrunner",
        play_minutes=12_640,
        last_played=5_200,
        score=318,
        background="#f9c9d4",
        face="""
        ........
        ....vvvv
        ..vvvvvv
        ..vvvvvv
        .vvvvvvv
        .vvvvvvv
        .vvwwvvv
        .vvwkvvv
        .vvvvvvv
        .vvvvvvp
        ..vvvvvv
        .vvvvvvv
        vvv.vv.v
        vv..vv.v
        .vv..vv.
        ........
        """,
    ),
)
