"""Mutation testing: change one line of the product, and check that a test fails.

    python -m tests.mutants --sample 170 --seed 29          with the tests that start no process
    python -m tests.mutants --sample 170 --seed 29 --all    survivors also with all other tests

A mutant is a copy of the checkout with one change: a check left out, another boundary, "or" for
"and". It runs the tests that cover the changed line; a line that runs at import is covered by all
tests of its module. The command prints the mutants that live, and fails if more than 3 % do.
Log messages are not changed: no test promises their words.
"""

import argparse
import ast
import itertools
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from subprocess import DEVNULL

import coverage
import pytest

PACKAGES = ["identity", "pages", "commands", "serving", "storage", "images", "model"]
QUICK, OTHERS = "not (ci or live)", "ci or live"
LONGEST = 900  # seconds; a mutant whose tests take longer hangs, and counts as dead
CONFIGURATION = """
[run]
source = .
omit = tests/*, benchmarks/*
parallel = true
data_file = {0}
# A process that a test starts counts as part of the test.
patch = _exit, execv, fork, subprocess
context = ${{PYTEST_CURRENT_TEST-}}
"""
SWAPS = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.In: ast.NotIn, ast.Is: ast.IsNot}
SWAPS |= {ast.And: ast.Or, ast.Add: ast.Sub, ast.Mult: ast.FloorDiv}
SWAPS |= {new: old for old, new in SWAPS.items()}


@dataclass(frozen=True)
class Mutant:
    """A module with another piece of code in place of `node`, which is part of `statement`."""

    path: str
    statement: ast.stmt
    node: ast.AST
    new: str

    def __str__(self) -> str:
        old = ast.unparse(self.node).partition("\n")[0]
        return f"{self.path}:{self.node.lineno}: {old}  ->  {self.new}"

    def apply(self, root: Path) -> None:
        """Write the changed module into this checkout."""
        lines = (root / self.path).read_bytes().splitlines(keepends=True)
        before = lines[: self.node.lineno - 1]
        start = lines[self.node.lineno - 1][: self.node.col_offset]  # columns count bytes
        rest = lines[self.node.end_lineno - 1][self.node.end_col_offset :]
        after = lines[self.node.end_lineno :]
        (root / self.path).write_bytes(b"".join([*before, start, self.new.encode(), rest, *after]))


def find_mutants(root: Path) -> list[Mutant]:
    """Return every mutant of the product, in a fixed order."""
    modules = [
        *root.glob("*.py"),
        *(path for each in PACKAGES for path in (root / each).rglob("*.py")),
    ]
    found = []
    for path in sorted(modules):
        tree = ast.parse(path.read_bytes())
        name = str(path.relative_to(root))
        found += [Mutant(name, *change) for change in changes_under(tree, None)]
    return found


def changes_under(tree: ast.AST, statement: ast.stmt | None) -> Iterator[tuple]:
    """Yield the statement, the node and its new code for each change below a node."""
    for node in ast.iter_child_nodes(tree):
        inside = node if isinstance(node, ast.stmt) else statement
        if isinstance(node, ast.JoinedStr | ast.AnnAssign) or is_log_call(node):
            continue
        if not (isinstance(tree, ast.FunctionDef) and node is tree.returns):
            yield from ((inside, *change) for change in changes_of(node))
            yield from changes_under(node, inside)


def is_log_call(node: ast.AST) -> bool:
    """Return whether this statement only writes to the log."""
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("logger.")


def changes_of(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield each node to replace, and its new code."""
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in SWAPS:
            yield node, f"({ast.unparse(ast.Compare(left, [SWAPS[type(op)]()], [right]))})"
        case ast.BoolOp(op, values):
            yield node, f"({ast.unparse(ast.BoolOp(SWAPS[type(op)](), values))})"
        case ast.BinOp(left, op, right) if type(op) in SWAPS:
            yield node, f"({ast.unparse(ast.BinOp(left, SWAPS[type(op)](), right))})"
        case ast.UnaryOp(ast.Not(), operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(bool(value)):
            yield node, str(not value)
        case ast.Constant(int(value)):
            yield node, str(value + 1)
        case ast.Raise() | ast.Expr(ast.Call()):
            yield node, "pass"
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, "None"
        case ast.If(test):
            yield test, "False"


# -- which tests cover a line -------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record the lines from here on for this test: this module is a plugin of the measured run."""
    if current := coverage.Coverage.current():
        current.switch_context(item.nodeid)
    return (yield)


def measure(root: Path, marker: str, folder: Path) -> coverage.CoverageData:
    """Run the tests with this marker; return which of them cover each line."""
    configuration = folder / "configuration"
    configuration.write_text(CONFIGURATION.format(folder / "data"))
    options = ["-q", "-n", "auto", "--dist", "loadfile", "-p", "tests.mutants", "-m", marker]
    command = ["-m", "coverage", "run", f"--rcfile={configuration}", "-m", "pytest", *options]
    # A test that fails because it is measured (of memory, say) has covered its lines all the same.
    subprocess.run([sys.executable, *command], cwd=root)
    measured = coverage.Coverage(str(folder / "data"), config_file=str(configuration))
    measured.combine()
    return measured.get_data()


def names_of_tests(contexts: Iterable[str]) -> set[str]:
    """Return the ids of the tests in these contexts."""
    # "tests/test_token.py::test_x (setup)|" of a process, "|tests/test_token.py::test_x" of pytest
    names = (part for each in contexts for part in each.split("|") if "::" in part)
    return {name.removesuffix(" (setup)").removesuffix(" (call)") for name in names}


def tests_for(mutant: Mutant, measured: coverage.CoverageData, root: Path) -> list[str]:
    """Return the ids of the tests that cover a mutant."""
    contexts = measured.contexts_by_lineno(str(root / mutant.path))
    lines = range(mutant.statement.lineno, mutant.node.end_lineno + 1)
    found = {each for line in lines for each in contexts.get(line, ())} - {""}
    found = found or {each for line in contexts.values() for each in line}
    return sorted(names_of_tests(found))


def has_failure(copy: Path, tests: list[str], *options: str) -> bool:
    """Return whether one of these tests fails in this copy."""
    (copy / "chosen").write_text("\n".join(tests))
    run = f"{sys.executable} -m pytest -x -q -p no:cacheprovider @chosen".split(" ")
    try:
        return bool(
            subprocess.run([*run, *options], cwd=copy, stdout=DEVNULL, timeout=LONGEST).returncode
        )
    except subprocess.TimeoutExpired:
        return True


# -- the command --------------------------------------------------------------------------------


def copy_checkout(root: Path, copy: Path) -> Path:
    """Copy the files that git knows."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True)
    pack = ["tar", "--create", "--null", "--files-from=-"]
    packed = subprocess.run(pack, cwd=root, input=files.stdout, check=True, capture_output=True)
    copy.mkdir()
    subprocess.run(["tar", "--extract"], cwd=copy, input=packed.stdout, check=True)
    return copy


def survivors(root: Path, folder: Path, mutants: list[Mutant], marker: str) -> list[Mutant]:
    """Return the mutants that live with the tests of this marker."""
    copies = SimpleQueue()
    # Tests that start servers share both processors, and a server: whole files run, one at a time.
    jobs, options = (2, []) if marker == QUICK else (1, ["-n", "3", "--dist", "loadfile"])
    for number in range(jobs):
        copies.put(copy_checkout(root, folder / f"copy {number}"))
    checkout = folder / "measured"
    measured = measure(copy_checkout(root, checkout), marker, folder)

    def lives(mutant: Mutant) -> bool:
        tests = tests_for(mutant, measured, checkout)
        # A server that several tests share is covered by the first of them.
        tests = sorted({each.split("::")[0] if "/live/" in each else each for each in tests})
        copy = copies.get()
        mutant.apply(copy)
        lived = not tests or not has_failure(copy, tests, "-m", marker, *options)
        (copy / mutant.path).write_bytes((root / mutant.path).read_bytes())
        copies.put(copy)
        print("lived" if lived else "died ", mutant, flush=True)
        return lived

    with ThreadPoolExecutor(jobs) as pool:
        return list(itertools.compress(mutants, pool.map(lives, mutants)))


def main() -> int:
    """Run the sample, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=170, help="how many mutants (170)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the sample (1)")
    parser.add_argument("--all", action="store_true", help="survivors also with all other tests")
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent
    mutants = random.Random(options.seed).sample(find_mutants(root), options.sample)
    lived = mutants
    for marker in (QUICK, OTHERS) if options.all else (QUICK,):
        with tempfile.TemporaryDirectory() as folder:
            lived = survivors(root, Path(folder), lived, marker)
        print(f"{len(lived)} of {options.sample} mutants live with the tests {marker!r}:")
        print("\n".join(map(str, lived)))
    return len(lived) > options.sample * 0.03


if __name__ == "__main__":
    sys.exit(main())
