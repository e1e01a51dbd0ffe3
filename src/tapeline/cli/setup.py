"""The command that fetches what Python packages do not bring."""

from __future__ import annotations

from typing import Annotated

import typer

from tapeline.cli.commands import Commands
from tapeline.cli.options import AsJson, err, out, print_json
from tapeline.java import java_command, java_version, listed_jars, wanted_folder
from tapeline.show import readable
from tapeline.words import counted

app = Commands()


@app.command()
def setup(
    check: Annotated[
        bool, typer.Option("--check", help="Download nothing. Exit with 3 if something is missing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Download the jars that Spark needs and verify them. Run it once after the installation."""
    from tapeline.operate.setup import fetch_jars, is_ready

    ready = is_ready()
    if not ready and not check:
        if not as_json:
            err.print("Downloading jars (about a minute) ...")
        fetch_jars()
        ready = True
    folder, jars = wanted_folder(), len(listed_jars())
    if as_json:
        facts = {"ready": ready, "folder": str(folder), "jars": jars}
        print_json({**facts, "java": java_command(), "java_version": java_version()})
    elif ready:
        where = readable(str(folder))
        out.print(f"Ready: {counted(jars, 'jar')} in {where}, Java {java_version() or 'missing'}.")
    else:
        out.print(f"Not ready: jars are missing in {readable(str(folder))}. Run 'tapeline setup'.")
    if not ready:
        raise typer.Exit(3)
