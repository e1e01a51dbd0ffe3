"""What is printed: strangers' text stays text, and no terminal obeys it."""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tapeline.cli import main
from tapeline.operate.log import Log
from tapeline.operate.notify import Notifier
from tapeline.settings import LogSettings, NotifySettings
from tapeline.show import as_json, as_table, readable
from tapeline.terminal import Terminal, as_words, json_text, lines, one_line, styled, write_exact
from tests.support.hostile import HOSTILE, obeyed

SOURCES = Path(__file__).parents[2] / "src" / "tapeline"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def printed(*things: object) -> str:
    """What a terminal that knows colours gets to see, without the colours."""
    file = io.StringIO()
    Terminal(file=file, force_terminal=True, width=500).print(*things)
    return COLOUR.sub("", file.getvalue())


def hostile_table() -> Table:
    table = Table(HOSTILE, title=HOSTILE, caption=HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(styled(HOSTILE, "red"))
    return table


@pytest.mark.parametrize(
    "thing",
    [
        HOSTILE,
        hostile_table(),
        styled(HOSTILE, "bold"),
        Text(HOSTILE),
        Panel(HOSTILE, title=styled(HOSTILE, "bold")),
        as_table(pa.table({one_line(HOSTILE): [HOSTILE], "b": [HOSTILE.encode()]}), HOSTILE),
    ],
    ids=["text", "table", "styled", "own text", "panel", "rows"],
)
def test_no_control_reaches_a_terminal_and_markup_is_text(thing: object) -> None:
    shown = printed(thing)
    assert obeyed(shown) == []
    assert r"\[/x]" in shown
    assert "[link=http://x]" in shown


def test_a_cell_has_one_line() -> None:
    assert readable("two\nlines\u2028and\ta tab\r") == r"two\nlines\u2028and\ta tab\r"
    assert as_words({"a": "two\nlines", "b\n": "c"}) == r"a two\nlines, b\n c"
    assert lines("two\nlines\x1b") == "two\nlines" + r"\x1b"


def test_json_holds_the_exact_value_and_no_control_character() -> None:
    text = json_text({HOSTILE: [HOSTILE, "é\ud800"]})
    assert obeyed(text) == []
    assert "é" in text
    assert json.loads(text) == {HOSTILE: [HOSTILE, "é\ud800"]}
    assert json.loads(as_json(pa.table({"a": [HOSTILE]}))) == [{"a": HOSTILE}]
    assert obeyed(as_json(pa.table({"a": [HOSTILE]}))) == []


@pytest.mark.parametrize("form", ["human", "json"])
def test_the_log_of_a_run_has_one_harmless_line_per_event(form: str, tmp_path: Path) -> None:
    log = Log(tmp_path, LogSettings(format=form), lambda: datetime.now(UTC))  # type: ignore[arg-type]
    log.say("incident", error=HOSTILE, file=HOSTILE + "\n", notes={"a": HOSTILE})
    log.close()
    (line,) = (tmp_path / "run.log").read_text().splitlines()
    assert obeyed(line) == []


def test_a_message_to_a_person_is_harmless_and_exact(tmp_path: Path) -> None:
    told = tmp_path / "told"
    write = f"import sys; open({str(told)!r}, 'wb').write(sys.stdin.buffer.read())"
    notifier = Notifier(NotifySettings(command=f'{sys.executable} -c "{write}"'))
    notifier.tell({"error": HOSTILE})
    notifier.close(60)
    assert obeyed(told.read_text()) == []
    assert json.loads(told.read_text()) == {"error": HOSTILE}


@pytest.mark.parametrize(
    "words",
    [
        ["report", HOSTILE],
        ["report", "trades", "--format", HOSTILE],
        [HOSTILE],
        ["report", "trades", f"--{HOSTILE}"],
        ["plan", f"{HOSTILE}.py"],
        ["calendar", "US", f"{HOSTILE}.csv"],
    ],
    ids=["name", "option's value", "command", "option", "file", "path"],
)
def test_a_refusal_is_harmless(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("/", "%") if ".py" in word or ".csv" in word else word for word in words]
    monkeypatch.setattr(sys, "argv", ["tapeline", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (2, 3)
    said = capsys.readouterr()
    assert obeyed(said.out + said.err) == []
    assert "error:" in said.err


def test_a_bug_is_printed_harmlessly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ValueError(HOSTILE)

    monkeypatch.setattr("tapeline.cli.option_groups.books_of", broken)
    monkeypatch.setattr(sys, "argv", ["tapeline", "report", "trades"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert obeyed(said) == []
    assert "ValueError" in said


WITHOUT_US = """
import logging, sys, threading
from tapeline.cli import main
from tests.support.hostile import HOSTILE
def fails():
    raise ValueError(HOSTILE)
sys.argv = ["tapeline", "--version"]
try:
    main()
except SystemExit:
    logging.getLogger("of.a.library").warning("logged %s", HOSTILE)
    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()
"""


def test_what_python_itself_prints_is_harmless() -> None:
    """The traceback of a thread, and a library's log that nobody set up."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_US],
        cwd=SOURCES.parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert obeyed(done.stderr) == []
    assert r"logged \[/x][link=" in done.stderr
    assert r"ValueError: \[/x][link=" in done.stderr


def test_nothing_prints_around_the_terminal() -> None:
    """Whoever adds a way of printing decides here whether it is harmless."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("print", "Text", "typer.echo", "typer.secho", "sys.stdout.write",
                              "sys.stderr.write", "Text.from_markup", "rprint"):  # fmt: skip
                    found.add((str(path.relative_to(SOURCES)), called))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rich"):
                found |= {
                    (str(path.relative_to(SOURCES)), one.name)
                    for one in node.names
                    if one.name in ("Console", "escape", "print", "Markup", "Text")
                }
    assert found == {
        ("terminal.py", "Console"),
        ("terminal.py", "Text"),
        ("terminal.py", "sys.stdout.write"),
        ("operate/sample.py", "Text"),  # the format of that name
        ("cli/__init__.py", "typer.echo"),  # the version
        ("cli/operate.py", "typer.echo"),  # a service file, which refuses what is not printable
        ("cli/options.py", "sys.stdout.write"),  # JSON
        ("connect/destinations.py", "sys.stdout.write"),  # JSON
        ("formats/named.py", "Text"),  # the format of that name, not rich's text
    }


def test_csv_on_a_terminal_has_plain_line_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write_exact("a,b\r\n1,\x1b[2J\r\n")
    assert capsys.readouterr().out == "a,b\n1,\\x1b[2J\n"
