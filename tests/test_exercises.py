"""The exercises: each attack succeeds without its check, and only then."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from exercises.__main__ import exercises, play_both
from exercises.checks import EXERCISES
from exercises.playing import ROOT, Begin, running

NUMBERS = range(1, len(EXERCISES) + 1)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(exercises, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_exercises_are_listed_with_their_sources():
    lines = run().splitlines()[: len(EXERCISES)]
    assert len(lines) >= 15
    for number, line in zip(NUMBERS, lines, strict=True):
        assert re.fullmatch(rf" ?{number}  .*  (RFC|W3C) .*", line)


@pytest.mark.parametrize("number", NUMBERS)
def test_solution_is_code_of_the_server(number):
    printed = run(str(number), "--solve")
    solutions = re.findall(r"^(\S+), line (\d+):\n\n(.+)", printed, re.MULTILINE)
    assert len(solutions) == printed.count("In its place:")
    for path, line, code in solutions:
        assert code in Path(ROOT, path).read_text().splitlines()[int(line) - 1]


@pytest.fixture(scope="module")
def whole() -> Iterator[Begin]:
    """A server with all checks, on which each play has a new community."""
    with running([]) as begin:
        yield begin


@pytest.mark.load
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: each.attack.__name__)
def test_attack_succeeds_without_its_check_only(exercise, whole):
    assert play_both(exercise, lambda _: None, whole)


@pytest.mark.load
def test_exercise_prints_requests_and_both_results():
    printed = run("1")
    assert "$ curl -b ada" in printed
    assert "The attack succeeds." in printed.partition("== With the check")[0]
    assert "The attack is refused." in printed.partition("== With the check")[2]
