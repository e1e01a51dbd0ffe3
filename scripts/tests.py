"""Run pytest in two processes, one per core of a small machine: `scripts/tests.py [arguments]`.

Both take test modules from one line (tests/support/two_ends.py) and have a Spark session, broker,
database and browser of their own. The first prints as it goes; the output of the second follows
when both have ended. Fails if one of them does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# These need the terminal or the memory of the last run, which two processes cannot share.
ALONE = re.compile(
    "--(pdb|trace|lf|last-failed|ff|failed-first|nf|sw|stepwise|co|collect-only|fixtures)|-s$"
)
NOTHING_SELECTED = 5


def main(arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest"]
    if any(ALONE.match(one) for one in arguments):
        return subprocess.run([*command, *arguments], check=False).returncode
    with tempfile.TemporaryDirectory(prefix="tests-") as folder:
        return _both([*command, "-p", "tests.support.two_ends", *_quiet(arguments)], Path(folder))


def _quiet(arguments: list[str]) -> list[str]:
    """Dots without a percentage: how much of the line a process will get is not known before."""
    return ["-o", "console_output_style=classic", *arguments]


def _both(command: list[str], folder: Path) -> int:
    claims, second_says = folder / "claims", folder / "second"
    claims.mkdir()
    environment = {**os.environ, "TESTS_CLAIMS": str(claims)}
    with second_says.open("w") as output:
        second = subprocess.Popen(
            [*command, "-p", "no:cacheprovider", "--color=no"],
            env={**environment, "TESTS_END": "last"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            first = subprocess.run(
                command, env={**environment, "TESTS_END": "first"}, check=False
            ).returncode
            second.wait()
        finally:
            second.terminate()
            second.wait()
    print("\nThe second process:\n", second_says.read_text(errors="replace"), sep="", flush=True)
    codes = [first, second.returncode]
    print(f"Two processes: {' and '.join(map(_outcome, codes))}.")
    return next((code for code in codes if code), 0)


def _outcome(code: int) -> str:
    return {0: "passed", NOTHING_SELECTED: "no tests selected"}.get(code, f"failed ({code})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
