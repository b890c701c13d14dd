"""Generated covers: a scene with a creature, different for each app.

The tags of a game may limit the scenes. The id of the app chooses one of them, the colours and the
creature, unless a word of the name ("star", "castle") asks for one. The same id, name and tags give
the same cover on every machine. It has no letters: at this size they are hard to read over a scene,
and the name stands beside it.
"""

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable

from PIL import Image, ImageDraw

from images.pictures import BODY_BITS, CONTRAST, HUES, colour_of, draw_face, encode_webp
from model.records import COVER_SIZES

WIDTH, HEIGHT = 40, 25  # cells
GROUND = 19  # the first row below the feet of the creature
INK, CREAM, LIGHT, WHITE = (23, 48, 43), (255, 240, 194), (255, 216, 119), (255, 255, 255)


def generate_cover(client_id: str, name: str, tags: Iterable[str] = ()) -> dict[str, bytes]:
    """Return the cover of an app, as webp files by size name."""
    view = View(client_id, name, tags)
    view.draw()
    # Lossless, where `quality` is how long the encoder searches: more of it saves no byte here.
    nearest = Image.Resampling.NEAREST
    return encode_webp(view.cells, COVER_SIZES, nearest, most_lossless=640, quality=0)


class View:
    """A cover that is being drawn, one pixel a cell.

    `shades` go from far to near. Coordinates are cells, and the last one is drawn as well.
    """

    def __init__(self, client_id: str, name: str, tags: Iterable[str] = ()) -> None:
        # `random` gives the same numbers only within a version of Python.
        self._number = int.from_bytes(hashlib.shake_256(client_id.encode()).digest(200))
        self.hue, self.night, rolled = self.roll(HUES), not self.roll(3), self.roll(len(SCENES))
        # Of several tags the one with the fewest scenes says most about the game.
        choices = [TAG_SCENES[tag] for tag in tags if tag in TAG_SCENES]
        scenes = min(choices, key=len, default=SCENES)
        words = ((each, SCENES[each]) for each in scenes if each in SCENES)
        asked = (each for each, some in words if re.search(rf"\b({some})", name, re.I))
        self.scene = next(asked, list(scenes)[rolled % len(scenes)])
        self.night |= self.scene in (draw_space, draw_cave)
        if self.scene is draw_desert:
            self.hue, self.night = 6 + self.hue * 40 // HUES, False  # sand
        elif self.night and self.scene is not draw_cave:
            self.hue = 290 + self.hue * 105 // HUES  # blue to purple: a dark yellow or red is mud
        self.sky = self.colour(0, 0.2 if self.night else 0.87)
        light = (0.27, 0.33, 0.39, 0.45) if self.night else (0.76, 0.66, 0.56, 0.46)
        self.shades = [self.colour(18 * n, each, 0.42) for n, each in enumerate(light)]
        self.cells = Image.new("RGB", (WIDTH, HEIGHT), self.sky)
        self.pen = ImageDraw.Draw(self.cells)

    def roll(self, sides: int) -> int:
        """Return the next number that follows from the client id, from 0 to `sides` - 1."""
        self._number, rolled = divmod(self._number, sides)
        return rolled

    def colour(self, turn: int, lightness: float, saturation: float = 0.55) -> tuple:
        """Return a colour whose hue is `turn` steps of HUES from that of the cover."""
        return colour_of(self.hue + turn, lightness, saturation)

    def draw(self) -> None:
        """Draw the sky, the scene, and in most scenes a creature in front of it."""
        if self.night:
            self.pen.point([(self.roll(WIDTH), self.roll(13)) for _ in range(14)], CREAM)
        if self.scene not in (draw_space, draw_cave, draw_board, draw_men):
            self.draw_sky()
        self.scene(self)
        if self.scene is draw_men:
            return
        body, place = self.roll(1 << BODY_BITS), (3 + self.roll(18), GROUND - 7)
        colour = self.colour(CONTRAST, 0.66 if self.night else 0.42, 0.62)
        face = draw_face(body, {".": INK, "#": colour, "o": WHITE})
        mask = draw_face(body, {".": 0, "#": 255, "o": 255}, "L")
        for x, y in ((-1, 0), (1, 0), (0, -1), (0, 1)):  # it stands out from whatever is behind it
            self.cells.paste(INK, (place[0] + x, place[1] + y), mask)
        self.cells.paste(face, place, mask)

    def box(self, left: int, top: int, right: int, bottom: int, colour: tuple) -> None:
        self.pen.rectangle((left, top, right, bottom), colour)

    # -- shapes at `x`, from the row `y`, so `wide`; `scatter` draws several ---------------

    def dash(self, x: int, y: int, wide: int, colour: tuple) -> None:
        self.box(x, y, x + wide, y, colour)

    def cloud(self, x: int, y: int, wide: int, colour: tuple) -> None:
        self.box(x, y + 1, x + wide, y + 1, colour)
        self.box(x + 1, y, x + wide - 2, y, colour)

    def tower(self, x: int, y: int, wide: int, colour: tuple) -> None:
        self.box(x, y, x + wide, GROUND, colour)

    def hill(self, x: int, y: int, wide: int, colour: tuple) -> None:
        self.pen.ellipse((x - wide, y, x + wide, 40), colour)

    def peak(self, x: int, y: int, wide: int, colour: tuple) -> None:
        self.pen.polygon([(x - wide, GROUND), (x, y), (x + wide, GROUND)], colour)

    def icicle(self, x: int, y: int, wide: int, colour: tuple) -> None:
        self.pen.polygon([(x - wide, 0), (x, y), (x + wide, 0)], colour)

    def scatter(self, number: int, shape: Callable, colour: tuple, y: int, wide: int) -> None:
        """Draw a shape so often, from row `y` or up to three lower, and up to twice as `wide`."""
        for _ in range(number):
            shape(self.roll(WIDTH), y + self.roll(4), wide + self.roll(wide), colour)

    # -- what several scenes have ------------------------------------------------------------------

    def draw_sky(self) -> None:
        """Draw the sun or the moon, and clouds."""
        x, y, size = 4 + self.roll(32), 3 + self.roll(3), 2 + self.roll(2)
        self.pen.ellipse((x - size, y - size, x + size, y + size), CREAM if self.night else LIGHT)
        if self.night:  # a crescent
            self.pen.ellipse((x - size + 2, y - size - 1, x + size + 1, y + size - 1), self.sky)
        self.scatter(3, self.cloud, self.colour(0, 0.3 if self.night else 0.96, 0.5), 1, 4)

    def draw_ground(self) -> None:
        """Draw the ground of the site's footer: a fringe of grass."""
        self.box(0, GROUND, WIDTH, HEIGHT, self.shades[3])
        self.box(0, GROUND, WIDTH, GROUND + 1, self.shades[2])
        blades = [(x, GROUND - 1) for x in range(WIDTH) if not self.roll(3)]
        self.pen.point(blades, self.shades[2])


# -- the scenes ------------------------------------------------------------------------------------


def draw_hills(view: View) -> None:
    view.scatter(3, view.hill, view.shades[0], 11, 7)
    view.scatter(3, view.hill, view.shades[1], 14, 7)
    view.draw_ground()


def draw_space(view: View) -> None:
    x, y, size = 22 + view.roll(12), 5 + view.roll(4), 2 + view.roll(3)
    view.pen.ellipse((x - size, y - size, x + size, y + size), view.colour(90, 0.6))
    view.box(x - size - 2, y, x + size + 2, y, view.colour(130, 0.75))  # a ring
    view.box(0, GROUND, WIDTH, HEIGHT, view.shades[2])
    view.scatter(6, view.dash, view.shades[0], GROUND + 2, 2)  # craters


def draw_sea(view: View) -> None:
    view.box(0, 14, WIDTH, HEIGHT, view.shades[1])
    view.scatter(9, view.dash, view.shades[0], 15, 2)
    view.scatter(9, view.dash, view.shades[2], GROUND + 2, 2)
    view.pen.ellipse((1, GROUND, 38, GROUND + 9), view.colour(256, 0.72, 0.45))  # an island


def draw_city(view: View) -> None:
    view.scatter(12, view.tower, view.shades[0], 5, 3)
    view.scatter(8, view.tower, view.shades[1], 9, 4)
    for window in itertools.product(range(1, WIDTH, 2), range(11, GROUND - 1, 2)):
        if view.cells.getpixel(window) == view.shades[1] and not view.roll(3):
            view.pen.point(window, LIGHT)
    view.box(0, GROUND, WIDTH, HEIGHT, view.shades[3])


def draw_forest(view: View) -> None:
    for shade, top in zip(view.shades, (6, 9, 12), strict=False):
        view.scatter(9, view.peak, shade, top, 3)
    view.draw_ground()


def draw_desert(view: View) -> None:
    view.scatter(1, view.peak, view.shades[0], 8, 12)
    view.scatter(1, view.peak, view.shades[1], 10, 12)
    view.box(0, GROUND - 1, WIDTH, HEIGHT, view.shades[2])
    view.scatter(6, view.dash, view.shades[3], GROUND + 1, 3)
    x = 30 + view.roll(4)
    for arm in ((0, 11, 1, 17), (-2, 13, -2, 15), (-1, 15, 0, 15), (3, 12, 3, 14), (1, 14, 3, 14)):
        view.box(x + arm[0], arm[1], x + arm[2], arm[3], view.colour(200, 0.4))  # of a cactus


def draw_cave(view: View) -> None:
    view.box(0, 0, WIDTH, HEIGHT, view.colour(0, 0.14, 0.4))
    view.scatter(12, view.icicle, view.shades[0], 6, 2)
    view.scatter(12, view.icicle, view.shades[1], 2, 2)
    for turn in (100, 200, 300):
        view.scatter(2, view.peak, view.colour(turn, 0.65, 0.7), 14, 1)  # crystals
    view.draw_ground()


def draw_castle(view: View) -> None:
    x, (hill, _, wall, gate) = 22 + view.roll(8), view.shades
    view.hill(x, 14, 16, hill)
    for left, top in ((x - 7, 7), (x + 5, 6 + view.roll(3)), (x - 1, 4)):
        view.tower(left, top, 3, wall)
        view.pen.point([(left - 1, top - 1), (left + 1, top - 1), (left + 3, top - 1)], wall)
        view.pen.point((left + 1, top + 3), LIGHT)
    view.tower(x - 6, 11, 12, wall)
    view.tower(x - 1, 14, 3, gate)
    view.box(x + 1, 0, x + 1, 3, gate)
    view.box(x + 2, 0, x + 4, 1, view.colour(HUES // 2, 0.55, 0.7))  # a flag
    view.draw_ground()


def draw_road(view: View) -> None:
    view.scatter(4, view.peak, view.shades[0], 7, 8)
    view.box(0, 12, WIDTH, HEIGHT, view.shades[1])
    tar, red = view.colour(0, 0.35, 0.12), view.colour(HUES // 2, 0.5, 0.7)
    for row in range(12, HEIGHT):
        half, is_white = 2 + (row - 12) * 5 // 4, row % 4 < 2
        view.box(19 - half, row, 20 + half, row, WHITE if is_white else red)
        view.box(20 - half, row, 19 + half, row, tar)
        view.box(19, row, 20, row, WHITE if is_white else tar)


def draw_board(view: View) -> None:
    blocks = [view.colour(60, 0.62, 0.5), *view.shades[1:3], *[view.sky] * 3]
    for x, y in itertools.product(range(0, WIDTH, 4), range(0, 12, 4)):
        view.box(x, y, x + 2, y + 2, blocks[view.roll(len(blocks))])
    for x, y in itertools.product(range(WIDTH), range(12, HEIGHT)):  # squares, smaller far away
        column, row = ((2 * x - 39) * 4 // (y - 4) + 40) // 2, (y - 12) * (y - 9) // 26
        view.pen.point((x, y), view.shades[0 if (column + row) % 2 else 2])


def draw_men(view: View) -> None:
    for x, y in itertools.product(range(0, WIDTH, 5), range(0, HEIGHT, 5)):
        view.box(x, y, x + 4, y + 4, view.shades[(x + y) // 5 % 2 * 2])
        if (x + y) % 2 and y != 10 and view.roll(5):  # in the middle of the board there are none
            view.pen.ellipse((x, y, x + 4, y + 4), INK)
            colour = CREAM if y < 10 else view.colour(CONTRAST, 0.5, 0.62)
            view.pen.ellipse((x + 1, y + 1, x + 3, y + 3), colour)


SCENES = {  # and the words, or their beginnings, that ask for each
    draw_hills: "farm|garden|grass|bee|flower|golf|hill|sheep",
    draw_space: "space|star|moon|planet|rocket|galax|asteroid|alien|orbit",
    draw_sea: r"seas?\b|ocean|ship|boat|fish|pirat|island|water|wave|swim",
    draw_city: "city|town|tower|bot|robot|cyber|taxi|street|build",
    draw_forest: "forest|tree|wood|wolf|bear|mushroom|elf|jungle",
    draw_desert: "desert|sand|sun|pyramid|camel|cactus|west",
    draw_cave: "cave|dungeon|mine|dig|gem|crystal|under|maze|dark",
    draw_castle: "castle|king|queen|knight|dragon|quest|kingdom|wizard|war",
    draw_road: r"road|rac|cars?\b|kart|drive|speed|run|turbo",
    draw_board: "board|chess|card|puzzle|word|quiz|block|tile|tetr|number|draughts",
}
# For each tag that says something about the look of a game.
TAG_SCENES = {
    "action": (draw_city, draw_cave, draw_space, draw_castle),
    "adventure": (draw_forest, draw_desert, draw_cave, draw_sea, draw_castle),
    "arcade": (draw_space, draw_city, draw_sea, draw_board),
    "board": (draw_men,),
    "cards": (draw_board,),
    "platformer": (draw_hills, draw_cave, draw_forest, draw_desert),
    "puzzle": (draw_board,),
    "quiz": (draw_board, draw_hills),
    "racing": (draw_road,),
    "role-playing": (draw_castle, draw_forest, draw_cave),
    "simulation": (draw_hills, draw_city, draw_sea),
    "strategy": (draw_castle, draw_hills, draw_desert),
}
