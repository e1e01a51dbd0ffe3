"""The command line as a process: `tapeline`, or `python -m tapeline`."""

from tapeline.cli import main
from tapeline.cli.pandas_aside import this_process_is_ours


def command() -> None:
    this_process_is_ours()
    main()


if __name__ == "__main__":
    command()
