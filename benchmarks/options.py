"""The options that the benchmark commands share."""

import argparse

LONGEST = 15  # seconds of a measurement: codes are issued before it, and expire after a minute


def make_parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with --rounds, --seconds and --save."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    # Many short rounds: the machine drifts little between two measurements that are compared.
    counts = range(1, 100)
    parser.add_argument(
        "--rounds", type=int, choices=counts, default=15, metavar="N", help="default: 15"
    )
    help_text = "about the length of each measurement; default: 0.5"
    parser.add_argument("--seconds", type=_seconds, default=0.5, metavar="S", help=help_text)
    help_text = "replace the results in this file, such as docs/performance.json"
    parser.add_argument("--save", metavar="FILE", help=help_text)
    return parser


def _seconds(text: str) -> float:
    if not 0 < float(text) <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {LONGEST}")
    return float(text)
