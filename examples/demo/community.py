"""The twelve players of the demo, and their pictures."""

from dataclasses import dataclass

from PIL import Image

from images.pictures import SIZES, encode_webp

SIDE = 16  # width and height of a face below, in characters
COLOURS = {
    "#": "#e8934a",
    "a": "#6fb04e",
    "b": "#8a5a3c",
    "c": "#f3e3c3",
    "d": "#5d6b7a",
    "g": "#7ef0c1",
    "i": "#33415e",
    "k": "#1c2026",
    "n": "#c4505a",
    "o": "#f2a93b",
    "p": "#f0a3a8",
    "r": "#d5433f",
    "s": "#aebccb",
    "t": "#d9b48a",
    "v": "#8d6fd1",
    "w": "#ffffff",
    "y": "#f6cf4f",
}


@dataclass(frozen=True)
class Member:
    """A player of the demo: fields of `model.records.User`, and the best score in the game."""

    name: str
    bio: str
    flair: str
    play_minutes: int
    joined: float  # days ago
    last_played: int  # minutes ago
    score: int  # 0: has not flown yet
    background: str
    face: str  # the left half, one character per pixel; the right half is its mirror image
    mod_level: int = 0

    def pictures(self) -> dict[str, bytes]:
        """Return the face as webp files, by size name."""
        image = Image.new("RGB", (SIDE, SIDE), self.background)
        for y, row in enumerate(self.face.split()):
            for x, character in enumerate(row):
                if character in COLOURS:
                    colour = tuple(bytes.fromhex(COLOURS[character][1:]))
                    image.putpixel((x, y), colour)
                    image.putpixel((SIDE - 1 - x, y), colour)
        nearest = Image.Resampling.NEAREST  # flat colours stay flat
        return encode_webp(image, SIZES["picture"], nearest, most_lossless=256)


COMMUNITY = (
    Member(
        name="ada",
        bio="I keep this place running. Tell me when something breaks.",
        flair="keeper of the keys",
        play_minutes=2_750,
        joined=210.4,
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
        joined=204.5,
        last_played=47,
        score=158,
        background="#f6d9a8",
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
        joined=188.2,
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
        joined=2.7,
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
        joined=171.8,
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
    Member(
        name="finn",
        bio="I slide more than I walk. Chess on Tuesdays, fish on all days.",
        flair="chess club",
        play_minutes=1_932,
        joined=160.3,
        last_played=900,
        score=0,
        background="#bcd9f2",
        face="""
        ........
        .....iii
        ...iiiii
        ..iiiiii
        ..iiiwwi
        .iiiwwww
        .iiiwkww
        .iiiwwwo
        .iiiiwoo
        .iiiiwwo
        iiiiwwww
        iiiwwwww
        iiiwwwww
        .iiwwwww
        ..iiwwww
        ...ooo..
        """,
    ),
    Member(
        name="gita",
        bio="I water the garden every evening. Please do not pick the flowers.",
        flair="green thumb",
        play_minutes=4_410,
        joined=130.2,
        last_played=35,
        score=0,
        background="#f2dcc0",
        face="""
        ........
        .d......
        .dd.....
        .dpd...d
        .dppdddd
        .ddddddd
        .ddddddd
        .dyyyddd
        .dykyddd
        .ddddddd
        dwdddwwp
        .ddddwww
        dwdddwkw
        ..dddwwk
        ...ddddw
        ........
        """,
    ),
    Member(
        name="hugo",
        bio="I am large and I lean on things. Sorry about the chat.",
        flair="none",
        play_minutes=640,
        joined=96.2,
        last_played=2_900,
        score=0,
        background="#d8e6c8",
        face="""
        ........
        ..bb....
        .bbbb...
        .bttbbbb
        .bbtbbbb
        ..bbbbbb
        .bbbbbbb
        .bbkkbbb
        .bbkkbbb
        .bbbbbbt
        .bbbbbtt
        .pbbbttk
        .ppbbttt
        ..bbbttk
        ...bbbtt
        .....bbb
        """,
    ),
    Member(
        name="iris",
        bio="Small, red, seven dots. I made Snake Island on a rainy weekend.",
        flair="none",
        play_minutes=2_205,
        joined=61.1,
        last_played=220,
        score=0,
        background="#d9ecf7",
        face="""
        ....k...
        .....k..
        ......kk
        .....kkk
        ....kkww
        ....kkwk
        ...rkkkk
        ..rrrrrk
        .rrrrrrk
        .rrkkrrk
        .rrkkrrk
        .rrrrrrk
        .rrrrrrk
        ..rrkkrk
        ...rkkrk
        ....rrrk
        """,
    ),
    Member(
        name="jun",
        bio="Half asleep, half bamboo. I play when the rice is done.",
        flair="none",
        play_minutes=311,
        joined=33.7,
        last_played=1_300,
        score=0,
        background="#cdeadb",
        face="""
        ........
        .kk.....
        kkkk.www
        kkkwwwww
        .kwwwwww
        .wwwwwww
        .wwkkkww
        .wkkwkww
        .wkkkkww
        .wwkkwww
        .wwwwwwk
        ..wwwwwk
        ..pwwwww
        ...wwwwk
        ..kkwwww
        .kkkkwww
        """,
    ),
    Member(
        name="kofi",
        bio="The mane is real. So are my scores.",
        flair="speedrunner",
        play_minutes=5_020,
        joined=20.9,
        last_played=75,
        score=940,
        background="#fbe6b0",
        face="""
        ..bb.bbb
        .bbbbbbb
        bbb####b
        bb######
        bb##yyyy
        b##yyyyy
        b#yyyyyy
        bbykkyyy
        bbykkyyy
        b#yyyyyy
        b##yyyww
        bb#yywwk
        bb##ywww
        .bb##wwk
        .bbb###w
        ..bbb.bb
        """,
    ),
    Member(
        name="ゆき",
        bio="はじめまして！ I jump from stone to stone, and read the rules in two languages.",
        flair="none",
        play_minutes=96,
        joined=5.2,
        last_played=410,
        score=0,
        background="#f4e3f1",
        face="""
        ........
        ..aaa...
        .aawwa..
        .awkka..
        .awkkaaa
        .aaaaaaa
        aaaaaaaa
        aaaaaaaa
        aaaaaaaa
        akaaaaaa
        aakkaaaa
        .apakkkk
        .apaaaaa
        ..aacccc
        ...acccc
        .aaa.aaa
        """,
    ),
)
