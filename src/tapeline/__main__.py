"""The command line as a process: `tapeline`, or `python -m tapeline`."""

import atexit
import gc
import os
import sys
import threading
from contextlib import suppress

# What a command imports stays until its end: there is little to collect, and much to look at.
gc.set_threshold(100_000, 20, 20)
# numpy's algebra starts a thread per core when it is imported: a tenth of what a question costs.
# What users compute in a run may want them.
if sys.argv[1:2] != ["run"]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tapeline.cli import main  # noqa: E402 - after what makes importing quick
from tapeline.cli.pandas_aside import this_process_is_ours  # noqa: E402


def command() -> None:
    this_process_is_ours()
    try:
        main()
    except SystemExit as ended:
        leave(ended.code)
        raise


def leave(code: object) -> None:
    """End now, unless somebody has to be waited for.

    Taking apart what was imported takes longer than many commands.
    """
    waiting = [t for t in threading.enumerate() if t is not threading.main_thread()]
    if any(not thread.daemon for thread in waiting) or not isinstance(code, int | None):
        return
    with suppress(OSError, ValueError):  # a reader that is gone, or closed: as every program ends
        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()
        os._exit(code or 0)


if __name__ == "__main__":
    command()
