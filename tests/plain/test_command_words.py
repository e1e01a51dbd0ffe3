"""What the command line says to somebody who is new to it; nothing here needs a JVM."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tapeline import DeclarationError, OperationError
from tapeline.books import quarantine
from tapeline.cli import app, main
from tapeline.cli.options import DEMO, OWN, target_of
from tapeline.errors import QuestionError
from tapeline.plan import load_pipeline
from tapeline.settings import Settings
from tapeline.store.lock import WriterLock
from tapeline.terminal import as_words

PIPELINE = """
from tapeline import Files, Pipeline, Stream

pipeline = Pipeline("shop")
pipeline.source("raw_sales", Files("drop/", schema="`Order No` string, money decimal(12,2)"))


@pipeline.table(key="Order No")
def sales(raw_sales: Stream):
    return raw_sales
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / OWN).write_text(PIPELINE)
    return tmp_path


def test_a_project_s_own_pipeline_need_not_be_named(shop: Path, tmp_path: Path) -> None:
    assert target_of("", shop) == OWN
    with pytest.raises(DeclarationError, match=r"has no pipeline\.py.*--project.*tapeline new"):
        target_of("", tmp_path / "elsewhere")
    assert target_of(DEMO, shop) == DEMO  # what is said is meant
    said = CliRunner().invoke(app, ["plan", "--project", str(shop)])
    assert "pipeline shop" in said.output


def test_the_version_is_said() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.startswith("tapeline 0.")


@pytest.mark.parametrize(
    ("target", "text", "words"),
    [
        ("pipeline.py", "def (", r"pipeline\.py:1: SyntaxError"),
        ("gone.py", "", "no such file in .*--project"),
        ("..", "", "is a folder"),
    ],
)
def test_a_pipeline_that_cannot_be_loaded_is_named(
    tmp_path: Path, target: str, text: str, words: str
) -> None:
    (tmp_path / OWN).write_text(text)
    with pytest.raises(DeclarationError, match=words):
        load_pipeline(target, Settings(project=tmp_path))


def test_books_that_cannot_be_written_name_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperationError, match="setting 'root' or --root"):
        WriterLock(tmp_path / "file" / "shop")


def test_a_path_that_cannot_be_used_is_named_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("sys.argv", ["tapeline", "new", "shop", "--folder", str(tmp_path / "file")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    assert "Not a directory. Choose another path" in capsys.readouterr().err


def test_a_question_that_the_books_cannot_answer_ends_with_exit_code_2(shop: Path) -> None:
    where = ["--project", str(shop)]
    for words in (
        ["report", "sale"],
        ["why", "sales", "1"],
        ["sql", "select 1 frm sales"],
        ["quarantine", "show", "nowhere"],
        ["export", "sales", "sales.xlsx"],
    ):
        error = CliRunner().invoke(app, [*words, *where]).exception
        assert isinstance(error, QuestionError), words
        assert error.exit_code == 2


def test_a_status_shows_a_pause_at_once_and_speaks_in_words(shop: Path) -> None:
    where = ["--project", str(shop)]
    CliRunner().invoke(app, ["pause", *where, "--who", "ann", "--note", "lunch"])
    shown = CliRunner().invoke(app, ["status", *where]).output
    assert "who ann, note lunch" in shown
    assert "{" not in shown
    moment = datetime(2026, 11, 13, 10, 31, 5, tzinfo=UTC).isoformat()
    facts = {"raw_sales": {"lag_records": 12000, "problem": None, "since": moment, "late": False}}
    assert as_words(facts) == "raw_sales: lag_records 12,000, since 2026-11-13 10:31:05, late no"


@pytest.mark.parametrize("words", [[], ["plan"], ["quarantine"], ["quarantine", "list"]])
def test_help_has_a_short_name_and_flags_show_no_type(words: list[str]) -> None:
    said = CliRunner().invoke(app, [*words, "-h"])
    assert said.exit_code == 0
    assert said.output == CliRunner().invoke(app, [*words, "--help"]).output
    assert "<bool>" not in said.output


def test_books_in_an_object_store_are_refused(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPELINE_ROOT", "s3a://bucket/books")
    said = CliRunner().invoke(app, ["plan", "--project", str(shop)])
    assert "'s3a://bucket/books'" in str(said.exception)
    assert "local disk" in str(said.exception)


def test_a_record_of_the_largest_size_is_shown(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich's search for words to colour never ended in such a record."""
    record = b'{"a": "' + b"x" * 1024 * 1024
    facts = {"record": record, "message": None, "delivery": "f", "line": 1, "quarantined": []}
    monkeypatch.setattr(quarantine, "show", lambda *_: {**facts, "acts": []})
    words = ["quarantine", "show", "raw_sales:1:1", "--project", str(shop)]
    said = CliRunner().invoke(app, words)
    assert record.decode() in said.output
