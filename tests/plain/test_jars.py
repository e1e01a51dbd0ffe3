"""No jar reaches a JVM unless it is one of the list, and holds what the list says."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pyspark
import pytest
from pyspark.find_spark_home import _find_spark_home

from tapeline import java
from tapeline.broker import process
from tapeline.errors import OperationError
from tapeline.java import LIST, compared_jars, jars_folder, listed_jars, named_jar
from tapeline.operate.doctor.machine import jars
from tapeline.operate.setup import IVY_FILE
from tapeline.settings import Settings
from tapeline.spark import session
from tapeline.spark.jvm import BARE_FILE_SYSTEM, CONNECTORS, bare_file_system, connector_jars
from tapeline.spark.session import build_session

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the jars that a test may change."""
    found = jars_folder()
    if found is None:
        pytest.skip("there are no jars: run 'make setup'")
    (tmp_path / "jars" / "broker").mkdir(parents=True)
    for name in listed_jars():
        (tmp_path / "jars" / name).symlink_to(found / name)
    monkeypatch.setenv("TAPELINE_JARS", str(tmp_path / "jars"))
    return tmp_path / "jars"


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test asks for: no JVM starts with what should have been refused."""

    class Builder:
        def __getattr__(self, name: str) -> object:
            raise AssertionError("Spark was started")

    monkeypatch.setattr(session.SparkSession, "builder", Builder())


def change(jar: Path) -> None:
    content = jar.read_bytes()
    jar.unlink()
    jar.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def test_the_current_folder_is_not_asked_for_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAPELINE_JARS", raising=False)
    (tmp_path / ".jars").mkdir()
    monkeypatch.chdir(tmp_path)
    assert jars_folder() != tmp_path / ".jars"


def test_no_spark_beside_the_current_folder_is_started(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark looks for ../bin/spark-submit and ../jars first, unless it is told where Spark is."""
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.delenv("SPARK_HOME")
    for foreign in ("bin", "jars", "here"):
        (tmp_path / "other" / foreign).mkdir(parents=True)
    (tmp_path / "other" / "bin" / "spark-submit").write_text("of somebody else")
    monkeypatch.chdir(tmp_path / "other" / "here")
    assert _find_spark_home() == str(tmp_path / "other")
    with pytest.raises(AssertionError, match="Spark was started"):  # by `no_jvm`
        build_session(Settings())
    assert _find_spark_home() == str(Path(pyspark.__file__).parent)


@pytest.mark.parametrize("prefix", [BARE_FILE_SYSTEM, *CONNECTORS["avro"], *CONNECTORS["kafka"]])
def test_a_changed_jar_of_spark_is_refused_before_spark_starts(folder: Path, prefix: str) -> None:
    change(folder / named_jar(prefix))
    with pytest.raises(OperationError, match=f"different from jars.sha256: {prefix}.*tapeline set"):
        build_session(Settings(), connectors=CONNECTORS)


def test_a_jar_that_sorts_first_is_not_taken_in_its_place(folder: Path) -> None:
    for prefix in (BARE_FILE_SYSTEM, *CONNECTORS["avro"]):
        (folder / f"{prefix}-0.jar").write_bytes(b"of somebody else")
        (folder / f"{prefix}0.jar").write_bytes(b"of somebody else")
    taken = [*bare_file_system(), *connector_jars(["avro"])]
    assert [jar.name for jar in taken] == [
        named_jar(BARE_FILE_SYSTEM),
        named_jar(CONNECTORS["avro"][0]),
    ]


def test_a_jar_that_is_not_listed_is_refused(folder: Path) -> None:
    (folder / "own.jar").write_bytes(b"of somebody else")
    with pytest.raises(OperationError, match=r"not on the list of known jars.*own\.jar"):
        compared_jars(["own.jar"])


@pytest.mark.parametrize("content", [None, "", "a word too many here\n"])
def test_without_a_list_no_jar_is_loaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    other = tmp_path / "jars.sha256"
    if content is not None:
        other.write_text(content)
    monkeypatch.setattr(java, "LIST", other)
    for start in (process._class_path, lambda: build_session(Settings())):
        with pytest.raises(OperationError, match=r"jars\.sha256.*no jar can be verified"):
            start()
    (finding,) = jars()
    assert finding.state == "error"
    assert "no jar can be verified" in finding.words


def test_the_broker_gets_its_jars_by_name(folder: Path) -> None:
    (folder / "broker" / "added.jar").write_bytes(b"of somebody else")
    found = process._class_path().split(":")
    wanted = [name for name in listed_jars() if name.startswith("broker/")]
    assert found == [str(folder / name) for name in wanted]
    (finding,) = jars()
    assert (finding.state, "broker/added.jar" in finding.words) == ("warning", True)


def test_a_changed_jar_of_the_broker_is_refused(folder: Path) -> None:
    change(folder / next(name for name in listed_jars() if name.startswith("broker/log4j-core")))
    with pytest.raises(OperationError, match=r"different from jars\.sha256: broker/log4j-core"):
        process._class_path()


def test_without_jars_the_message_says_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_JARS", str(tmp_path / "not there"))
    with pytest.raises(OperationError, match=r"jars are missing: .*tapeline setup.*TAPELINE_JARS"):
        build_session(Settings(), connectors=["avro"])


def test_the_list_is_installed_with_the_package() -> None:
    packages = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert LIST.parent == Path(java.__file__).parent
    assert LIST.name in packages["package-data"]["tapeline"]
    assert IVY_FILE.name in packages["package-data"]["tapeline"]
    assert IVY_FILE.parent == LIST.parent


def test_a_folder_as_set_up_made_it_is_well(folder: Path) -> None:
    (finding,) = jars()
    assert finding.state == "ok"
    shutil.rmtree(folder)
    (finding,) = jars()
    assert finding.state == "error"
