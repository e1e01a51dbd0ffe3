"""python -m tapeline: the command line."""

from tapeline.cli import main

main()
