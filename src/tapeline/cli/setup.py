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
        bool, typer.Option("--check", help="Change nothing. Exit with 3 if something is missing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Download the jars that Spark needs, verify them and make starts quick. Run it once."""
    from tapeline.operate.setup import fetch_jars, is_ready

    ready, quick = is_ready(), False
    if not ready and not check:
        if not as_json:
            err.print("Downloading jars (about a minute) ...")
        fetch_jars()
        ready = True
    if ready:
        quick = _has_archive() or (not check and _make_archive(as_json))
    folder, jars = wanted_folder(), len(listed_jars())
    if as_json:
        facts = {"ready": ready, "folder": str(folder), "jars": jars, "class_archive": quick}
        print_json({**facts, "java": java_command(), "java_version": java_version()})
    elif not ready:
        out.print(f"Not ready: jars are missing in {readable(str(folder))}. Run 'tapeline setup'.")
    else:
        where = readable(str(folder))
        out.print(f"Ready: {counted(jars, 'jar')} in {where}, Java {java_version() or 'missing'}.")
        if not quick:
            todo = "Run 'tapeline setup'." if check else "'tapeline setup' could not make it."
            out.print(f"No class archive: Spark starts more slowly. {todo}")
    if not ready or (check and not quick):
        raise typer.Exit(3)


def _has_archive() -> bool:
    from tapeline.spark.class_archive import is_trusted
    from tapeline.spark.jvm import class_archive

    return java_command() is not None and is_trusted(class_archive())


def _make_archive(as_json: bool) -> bool:
    if java_command() is None:
        return False
    from tapeline.operate.class_archive import make_archive

    if not as_json:
        err.print("Making the class archive, so that Spark starts quickly (about a minute) ...")
    return make_archive()
