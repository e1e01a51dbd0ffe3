"""A newcomer follows the README, the ten minutes and the tutorial literally, in a terminal."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.doc_pages import README, REPOSITORY, START, TUTORIAL, blocks, with_block
from tests.support.terminal import Terminal

# What a clone on another machine would not find in its environment.
HIDDEN = ("TAPELINE_", "VIRTUAL_ENV", "PYTHON", "SPARK_", "PYSPARK_")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git would give away of this checkout, in a folder with a blank in its name."""
    target = tmp_path_factory.mktemp("new comer") / "tapeline"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, check=True).stdout
    packed = subprocess.run(
        ["tar", "--null", "--files-from=-", "--create"],
        cwd=REPOSITORY, input=names, capture_output=True, check=True,
    ).stdout  # fmt: skip
    target.mkdir()
    subprocess.run(["tar", "--extract"], cwd=target, input=packed, check=True)
    return target


@pytest.fixture
def terminal(clone: Path) -> Terminal:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(HIDDEN)}
    paths = [p for p in environment["PATH"].split(os.pathsep) if ".venv" not in p]
    return Terminal(clone.parent, environment | {"PATH": os.pathsep.join(paths)})


def follow(terminal: Terminal, page: Path, folder: Path) -> None:
    """Do all that a page says: files are written, commands typed, stated results compared."""
    written: dict[str, str] = {}
    for block in blocks(page):
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(with_block(written.get(block.file), block))
            written[block.file] = path.read_text()
        if block.kind != "console":
            continue
        for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, *expected = shown.rstrip("\n").split("\n")
            if shlex.split(command)[0] == "git":
                continue  # this is a clone
            code, printed = terminal.type(command)
            assert code == 0, f"{command}: {printed[-2000:]}"
            lines = {line.strip() for line in printed.splitlines()}
            missing = [x for x in expected if x != "..." and x.strip() not in lines]
            assert missing == [], f"{command}: {printed[-4000:]}"


@pytest.mark.slow
def test_from_a_clone_through_the_demo_to_a_pipeline_of_ones_own(
    clone: Path, terminal: Terminal
) -> None:
    assert "make demo SECONDS=40" in README.read_text()
    with terminal:
        assert terminal.type("cd tapeline")[0] == 0
        code, printed = terminal.type("make demo SECONDS=40", seconds=1_800)
        assert code == 0, printed[-3000:]
        assert "Open the chart at http://127.0.0.1:" in printed
        assert "The books balance." in printed
        assert terminal.type("cd ..")[0] == 0
        follow(terminal, START, clone.parent / "coffee")
        assert terminal.type("cd ..")[0] == 0
        follow(terminal, TUTORIAL, clone.parent / "brokerage")
