"""The built wheel works on a machine that has Python and no Java, outside of any checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("src", "pyproject.toml", "README.md", "LICENSE")
# What Hadoop, Spark and a shell script may call; no Java among it.
TOOLS = ("bash", "sh", "chmod", "readlink", "ls", "id", "uname", "cat", "env", "dirname", "ps")
OURS = ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "TAPELINE_JARS", "PYTHONPATH", "VIRTUAL_ENV")


class Machine:
    """A virtual environment with Tapeline in it, and an environment without Java."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "env" / "bin"
        (folder / "tools").mkdir()
        for name in TOOLS:
            found = shutil.which(name)
            if found:
                (folder / "tools" / name).symlink_to(found)
        kept = {name: value for name, value in os.environ.items() if name not in OURS}
        path = f"{self.bin}{os.pathsep}{folder / 'tools'}"
        self.environment = {**kept, "PATH": path, "COLUMNS": "160"}
        assert shutil.which("java", path=path) is None

    def run(self, *words: str, folder: Path | None = None, code: int = 0) -> str:
        done = subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=folder or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if code else "")


def constraints(folder: Path) -> Path:
    """The versions of the lock, so that pip takes what it has in its cache."""
    lock = (ROOT / "requirements.lock").read_text()
    pins = re.findall(r"^([A-Za-z0-9._-]+==[^ \\;]+)", lock, re.MULTILINE)
    assert len(pins) > 50
    file = folder / "constraints.txt"
    file.write_text("\n".join(pins))
    return file


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder = tmp_path_factory.mktemp("machine")
    sources = folder / "sources"
    sources.mkdir()
    for name in BUILT_FROM:
        copy: Any = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, sources / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = folder / "wheels"
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(sources)]
    subprocess.run(build, check=True)
    (wheel,) = wheels.glob("tapeline-*.whl")
    shutil.rmtree(sources)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    made = Machine(folder)
    install = [str(made.bin / "python"), "-m", "pip", "install", "--quiet"]
    chosen = ["-c", str(constraints(folder)), f"{wheel}[java,serve,trades]"]
    subprocess.run([*install, *chosen], check=True, cwd=folder)
    return made


@pytest.fixture(scope="module")
def project(machine: Machine) -> Path:
    """A new project, whose records were processed once."""
    before = machine.run("tapeline", "setup", "--check", code=3)
    assert "Run 'tapeline setup'" in before
    ready = json.loads(machine.run("tapeline", "setup", "--json"))
    assert ready["ready"]
    assert Path(ready["folder"]) == machine.folder / "env" / "share" / "tapeline" / "jars"
    assert Path(ready["java"]).is_relative_to(machine.folder / "env")
    machine.run("tapeline", "new", "shop")
    shop = machine.folder / "shop"
    done = json.loads(machine.run("tapeline", "run", "--once", "--json", folder=shop))
    assert done["records"] == 5
    return shop


@pytest.mark.slow
def test_jars_are_private_and_verified(machine: Machine, project: Path) -> None:
    folder = machine.folder / "env" / "share" / "tapeline" / "jars"
    assert folder.stat().st_mode & 0o077 == 0
    assert "Ready: 55 jars" in machine.run("tapeline", "setup")
    jar = next(folder.glob("hadoop-bare-naked-local-fs-*.jar"))
    whole = jar.read_bytes()
    jar.write_bytes(whole[:-1])
    said = machine.run("tapeline", "run", "--once", folder=project, code=3)
    assert "different from jars.sha256" in said
    assert "'tapeline setup'" in " ".join(said.split())
    jar.write_bytes(whole)


@pytest.mark.slow
def test_a_report_shows_the_books(machine: Machine, project: Path) -> None:
    rows = json.loads(machine.run("tapeline", "report", "totals", "--json", folder=project))
    assert sum(row["records"] for row in rows) == 5
    assert "The books balance" in machine.run("tapeline", "audit", folder=project)


@pytest.mark.slow
def test_what_is_not_installed_is_named(machine: Machine) -> None:
    said = machine.run("python", "-c", "import tapeline; tapeline.Kafka('trades')", code=1)
    assert "pip install 'tapeline[kafka]'" in said


@pytest.fixture
def served(machine: Machine, project: Path) -> Iterator[str]:
    server = subprocess.Popen(
        [str(machine.bin / "tapeline"), "serve", "--port", "0", "--json"],
        cwd=project,
        env={**machine.environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = server.stdout.readline()
            assert line, "the server ended"
            text += line
        yield json.loads(text)["address"]
    finally:
        server.terminate()
        server.wait(60)
        if server.stdout is not None:
            server.stdout.close()


@pytest.mark.slow
def test_pages_are_served(served: str) -> None:
    with urllib.request.urlopen(f"{served}/api/read/totals", timeout=60) as answer:
        assert answer.status == 200
    with urllib.request.urlopen(f"{served}/", timeout=60) as page:
        assert b"<title>" in page.read()  # pages and scripts are in the wheel, too


@pytest.mark.slow
def test_the_demo_runs(machine: Machine) -> None:
    said = machine.run("tapeline", "demo", "--seconds", "25", "--trades", "500")
    assert "The books balance" in said
