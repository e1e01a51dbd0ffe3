"""The archive of classes makes starts quick: only our own is used, and a wrong one does no harm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tapeline.cli import app
from tapeline.cli import setup as cli_setup
from tapeline.java import java_command, java_version, packaged_java
from tapeline.operate import class_archive as making
from tapeline.operate.doctor import machine
from tapeline.operate.setup import is_ready
from tapeline.spark import launch
from tapeline.spark.class_archive import SUFFIX, archive_of, is_trusted, to_use

JAVAS = [java for java in dict.fromkeys((java_command(), packaged_java())) if java]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir(mode=0o700)
    file = folder / f"of-this-java{SUFFIX}"
    file.write_bytes(b"classes")
    file.chmod(0o400)
    return file


def test_only_an_archive_that_nobody_else_can_write_is_used(archive: Path, tmp_path: Path) -> None:
    assert is_trusted(archive)
    assert f"-XX:SharedArchiveFile={archive}" in to_use(archive, 17)
    assert f"-XX:AOTCache={archive}" in to_use(archive, 25)
    for path, mode in ((archive, 0o420), (archive, 0o402), (archive.parent, 0o770)):
        kept = path.stat().st_mode
        path.chmod(mode)
        assert not is_trusted(archive)
        assert to_use(archive, 17) == ()
        path.chmod(kept)
    assert is_trusted(archive)
    linked = archive.parent / f"linked{SUFFIX}"
    linked.symlink_to(archive)
    assert not is_trusted(linked)
    assert not is_trusted(tmp_path / "missing")
    assert not is_trusted(tmp_path / "missing" / "missing")


def test_an_archive_of_another_user_is_not_used(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    else:
        os.chown(archive, 54321, -1)
    assert not is_trusted(archive)


def test_an_archive_belongs_to_its_java_jars_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"a jar")
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"")
    monkeypatch.setattr(launch, "spark_home", lambda: tmp_path)

    def now(options: str = "-XX:+UseParallelGC") -> Path:
        return archive_of(str(program), [jar], options)

    seen = [now(), now("-XX:+UseSerialGC")]
    jar.write_bytes(b"a newer jar")
    seen.append(now())
    (program.parents[1] / "release").write_text('JAVA_VERSION="21"')
    seen.append(now())
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "of-spark.jar").write_bytes(b"")
    seen.append(now())
    assert len(set(seen)) == len(seen)
    assert now() == seen[-1]


@pytest.mark.parametrize("java", JAVAS)
@pytest.mark.parametrize("content", [b"", b"no archive", bytes(1 << 20)])
def test_java_says_nothing_about_an_archive_that_it_refuses(
    archive: Path, java: str, content: bytes
) -> None:
    archive.chmod(0o600)
    archive.write_bytes(content)
    version = java_version() if java == java_command() else 25
    assert version is not None
    done = subprocess.run(
        [java, *to_use(archive, version), "-cp", str(archive.parent / "no.jar"), "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert [line.split()[0] for line in done.stderr.splitlines()] == [
        "openjdk",
        "OpenJDK",
        "OpenJDK",
    ]


@pytest.fixture
def made(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the next archive belongs: beside an older one."""
    wanted = archive.with_name(f"wanted{SUFFIX}")
    monkeypatch.setattr(making, "class_archive", lambda: wanted)
    return wanted


def test_a_new_archive_takes_the_place_of_older_ones(
    made: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def java_writes(command: list[str], **more: Any) -> None:
        asked.append(command)
        assert not any(name.startswith("TAPELINE_") for name in more["env"])
        Path(command[-1]).write_bytes(b"new classes")

    monkeypatch.setattr(making.subprocess, "run", java_writes)
    assert making.make_archive()
    assert making.make_archive()
    assert len(asked) == 1
    assert sorted(made.parent.iterdir()) == [made]
    assert made.stat().st_mode & 0o777 == 0o400


def test_an_archive_that_cannot_be_made_is_no_error(
    made: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(command: list[str], **_: Any) -> None:
        Path(command[-1]).write_bytes(b"half of the cla")
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(making.subprocess, "run", fails)
    assert not making.make_archive()
    assert sorted(made.parent.iterdir()) == [archive]


def test_setup_and_doctor_tell_a_missing_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_ready():
        pytest.skip("there are no jars")
    monkeypatch.setattr(machine, "archive_here", lambda: tmp_path / "missing")
    (finding,) = machine.class_archive()
    assert (finding.state, finding.remedy) == ("warning", "Run 'tapeline setup'.")
    monkeypatch.setattr(cli_setup, "_has_archive", lambda: False)
    checked = CliRunner().invoke(app, ["setup", "--check"])
    assert checked.exit_code == 3
    assert "No class archive: Spark starts more slowly. Run 'tapeline setup'." in checked.output
    monkeypatch.setattr(making, "make_archive", lambda: False)
    ended = CliRunner().invoke(app, ["setup"])
    assert ended.exit_code == 0
    assert "'tapeline setup' could not make it" in ended.output
