"""The documentation is complete and true: every command, setting and name is there, and exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

import tapeline
from tapeline import testing
from tapeline.cli import app
from tapeline.serve.feed import Feed
from tapeline.serve.metrics import metrics_of
from tapeline.settings import OTHER_VARIABLES, PullSettings, Settings
from tapeline.spark.conf import TUNING
from tapeline.testing import Books, plan_of
from tests.support.commands import COMMANDS
from tests.support.doc_pages import (
    CHANGELOG,
    OPERATE,
    PAGES,
    REFERENCE,
    REPOSITORY,
    blocks,
    name_of,
    prose,
    section,
    text_of,
)

GLOBAL_OPTIONS = {text for p in typer.main.get_command(app).params for text in p.opts}
SHELL_WORDS = {"pip", "cat", "cd", "cp", "git", "mkdir", "mv", "python", "source"}
HOUSE_STYLE = re.compile(r"\b(simply|just|easy|easily)\b", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.])/(home|root|tmp|work|opt|usr|var|Users|mnt)/")
# this machine's own loopback is no machine's address
ADDRESS = re.compile(r"https?://(?!127\.0\.0\.1)|\b[\w-]+\.(?:com|dev|io|net|org)\b")


def options_of(command: str) -> list[str]:
    known = [p for p in COMMANDS[command].params if p.param_type_name == "option"]
    return [text for p in known for text in (*p.opts, *p.secondary_opts)]


def options_said(command: str) -> set[str]:
    """The options in a command's own table."""
    cells = re.findall(r"^\| (`-.*?) \|", section(OPERATE, f"### tapeline {command}"), re.MULTILINE)
    return {option for cell in cells for option in re.findall(r"`(-[^`]+)`", cell)}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_a_section_with_exactly_its_options(command: str) -> None:
    assert options_said(command) == set(options_of(command))


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 70])
def test_every_exit_code_is_documented(code: int) -> None:
    assert re.search(rf"^\| {code} \|", section(OPERATE, "## Exit codes"), re.MULTILINE)


def settings_of(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for item in fields(values):
        value = getattr(values, item.name)
        if is_dataclass(value):
            yield from settings_of(value, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", value


@pytest.mark.parametrize(("name", "default"), list(settings_of(Settings())))
def test_every_setting_is_documented_with_its_variable_and_default(name: str, default: Any) -> None:
    text = section(OPERATE, "## Settings")
    row = re.search(rf"^\| `{re.escape(name)}` \|.*$", text, re.MULTILINE)
    assert row, name
    if name not in ("project", "pipeline", "pull", "spark.conf"):
        assert f"`TAPELINE_{name.replace('.', '_').upper()}`" in row[0]
        shown = str(default).lower() if isinstance(default, bool) else str(default)  # as in TOML
        assert re.search(rf"\| `?{re.escape(shown)}`? \|", row[0]), default


@pytest.mark.parametrize(("name", "default"), list(settings_of(PullSettings())))
def test_every_setting_of_a_pull_is_documented(name: str, default: Any) -> None:
    text = section(OPERATE, "## Pulling from other systems")
    row = re.search(rf"^\| `pull.<name>.{re.escape(name)}` \|.*$", text, re.MULTILINE)
    assert row, name
    assert f"`TAPELINE_PULL_<NAME>_{name.upper()}`" in row[0]
    assert re.search(rf"\| `?{re.escape(str(default))}`? \|", row[0]), default


def test_every_other_variable_is_documented() -> None:
    assert [name for name in OTHER_VARIABLES if f"`{name}`" not in text_of(OPERATE)] == []


def test_every_spark_setting_has_its_reason() -> None:
    text = section(OPERATE, "## What each Spark setting is for")
    said = dict(re.findall(r"^\| `([\w.-]+)` \| `([^`]+)` \| \S", text, re.MULTILINE))
    assert said.keys() == TUNING.keys()
    assert [key for key, value in said.items() if not TUNING[key].endswith(value)] == []


@pytest.mark.parametrize("name", tapeline.__all__)
def test_every_public_name_has_a_heading(name: str) -> None:
    headings = re.findall(r"^### (.*)$", section(REFERENCE, "## tapeline"), re.MULTILINE)
    assert name in re.split(r"[, ]+", " ".join(headings))


def test_every_public_name_for_tests_is_documented() -> None:
    text = section(REFERENCE, "## tapeline.testing")
    headings = " ".join(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert sorted(re.split(r"[, ]+", headings)) == sorted(testing.__all__)
    for kind in (testing.Trial, testing.Deployment):
        methods = [n for n, value in vars(kind).items() if n[0] != "_" and callable(value)]
        assert [name for name in methods if f"`{name}(" not in text] == []


def shown_commands(sheet: Path) -> list[str]:
    """Commands in console blocks, in crontabs and in the running text."""
    inside = [b.text for b in blocks(sheet) if b.kind in ("console", "bash", "text")]
    found = re.findall(r"^(?:\$ |.*&& )(.*)$", "\n".join(inside), re.MULTILINE)
    return found + re.findall(r"`((?:tapeline|make) [^`]+)`", prose(sheet))


def refusal(command: str) -> str | None:
    """Why a shown command cannot be run, or None."""
    words = shlex.split(re.split(r" \d?>", command)[0])
    if words[0] == "make":
        makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
        targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
        wrong = [w for w in words[1:] if w not in targets and not re.fullmatch(r"[A-Z]+=.*", w)]
        return f"make has no {wrong}" if wrong else None
    if words[0] != "tapeline":
        return None if words[0] in SHELL_WORDS else f"{words[0]} is not a command of the docs"
    if words[1].startswith("-"):
        return None if words[1] in GLOBAL_OPTIONS else f"tapeline has no option {words[1]}"
    name = next((n for n in (" ".join(words[1:3]), words[1]) if n in COMMANDS), None)
    if name is None:
        group = any(known.startswith(f"{words[1]} ") for known in COMMANDS)
        return None if group and len(words) == 2 else f"tapeline has no command {words[1]}"
    known = [*options_of(name), "--help"]
    wrong = [w for w in words[2:] if w.startswith("-") and w not in known]
    return f"tapeline {name} has no {wrong}" if wrong else None


@pytest.mark.parametrize("sheet", [*PAGES, CHANGELOG], ids=name_of)
def test_every_shown_command_exists(sheet: Path) -> None:
    refused = {command: refusal(command) for command in shown_commands(sheet)}
    assert {command: why for command, why in refused.items() if why} == {}


def test_every_metric_is_documented(tmp_path: Path) -> None:
    books = Books(plan_of("tapeline.trades", Settings()), tmp_path)
    text = bytes(metrics_of(books, Feed(books, 1)).body).decode()
    names = set(re.findall(r"^# HELP (\w+)", text, re.MULTILINE))
    assert len(names) > 10
    assert [name for name in sorted(names) if f"`{name}`" not in text_of(OPERATE)] == []


def anchors(sheet: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(sheet), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("sheet", [*PAGES, CHANGELOG], ids=name_of)
def test_every_relative_link_resolves(sheet: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(sheet)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (sheet.parent / path).resolve() if path else sheet
        assert file.exists(), target
        assert file.is_relative_to(REPOSITORY), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("sheet", PAGES, ids=name_of)
def test_no_page_names_a_machine_or_an_address(sheet: Path) -> None:
    assert MACHINE_PATH.findall(text_of(sheet)) == []
    assert ADDRESS.findall(text_of(sheet)) == []


@pytest.mark.parametrize("sheet", [*PAGES, CHANGELOG], ids=name_of)
def test_every_page_keeps_the_house_style(sheet: Path) -> None:
    assert HOUSE_STYLE.findall(prose(sheet)) == []
