"""Runs a pygame program unchanged: `python watch_pygame.py game.py`.

Prints a line of JSON for each frame that differs from the one before: the texts that the program
drew, and the file of a screenshot. Presses Enter whenever the file `press` appears.
"""

import json
import runpy
import sys
from itertools import count
from pathlib import Path

import pygame

press = Path("press")
numbers = count()
texts: list[str] = []
last = b""
show_frame = pygame.display.flip


class Font(pygame.font.Font):
    """A font that records the texts of a frame."""

    def render(self, text: str, *arguments, **options) -> pygame.Surface:
        texts.append(text)
        return super().render(text, *arguments, **options)


def flip() -> None:
    """Show a frame, and print it if it is new."""
    global last
    show_frame()
    window = pygame.display.get_surface()
    if (pixels := pygame.image.tobytes(window, "RGB")) != last:
        last, picture = pixels, f"{next(numbers)}.png"
        pygame.image.save(window, picture)
        print(json.dumps({"texts": texts, "picture": picture}), flush=True)
    texts.clear()
    if press.exists():
        press.unlink()
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_RETURN))


pygame.font.Font, pygame.display.flip = Font, flip
runpy.run_path(sys.argv[1], run_name="__main__")
