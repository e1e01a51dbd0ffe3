"""A commits row as a typed value: its text is the same before and after, of any version."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeline.books.commit import Commit, Counts, TapePosition, TapeRange
from tapeline.books.commits import read_commits
from tapeline.store.delta import StagedFile

ARCHIVES = Path(__file__).parents[1] / "fixtures" / "books"


def text_of(body: dict[str, Any]) -> str:
    """As every version has written it: hashes are computed over this text."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize("name", ["calls", "sales", "trades"])
def test_rows_of_old_books_are_written_as_they_were(name: str, tmp_path: Path) -> None:
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    rows = read_commits(tmp_path / name / "tapeline-data" / name / "commits")
    decided = [row for row in rows if row.decides]
    assert len(decided) >= 2
    for row in decided:
        body = json.loads(row.body)
        assert row.commit.to_json() == row.body
        assert row.commit.model_extra == {}
        assert row.commit.records == sum(tape["records"] for tape in body["tapes"].values())
        assert {n: one.last for n, one in row.commit.positions.items()} == {
            n: one["last"] for n, one in body["positions"].items()
        }
        assert [file.as_dict() for file in row.commit.files] == body["files"]
        assert row.decision.staged.keys() == {file["table"] for file in body["files"]}


def test_what_a_newer_version_says_is_kept() -> None:
    body = {
        "acted": 7,
        "buckets": {"trades": 2},
        "tables": {"trades": {"rows": 1, "verdicts": {"kept": 1}, "skipped": [1, None]}},
        "tapes": {"raw": {"first": 1, "last": 2, "sealed": {"by": "x"}}},
        "files": [
            {
                "table": "t",
                "name": "n",
                "rows": 1,
                "size": 2,
                "batch": 3,
                "hash": "",
                "sorted": True,
            }
        ],
    }
    commit = Commit.from_json(text_of(body))
    assert commit.to_json() == text_of(body)
    assert (commit.acted, commit.tables["trades"].verdicts) == (7, {"kept": 1})


def test_what_an_older_version_does_not_say_has_a_default_and_stays_unsaid() -> None:
    commit = Commit.from_json('{"tapes":{"raw":{"first":1,"last":2}}}')
    assert commit.to_json() == '{"tapes":{"raw":{"first":1,"last":2}}}'
    assert (commit.files, commit.clocks, commit.acted, commit.shape) == ([], {}, 0, None)
    assert (commit.tapes["raw"].records, commit.tapes["raw"].columns) == (0, [])
    assert commit.total("trades") == Counts()
    assert Commit().to_json() == "{}"


def test_what_made_a_batch_is_written_with_it() -> None:
    commit = Commit(acted=0).made_by(1, {"trades": "2:f"})
    assert commit.to_json() == '{"acted":0,"fingerprints":{"trades":"2:f"},"shape":1}'


words = st.text(st.characters(), max_size=8)  # any text that Python has, halves of pairs too
counts = st.dictionaries(words, st.integers(-(2**70), 2**70), max_size=3)


@given(
    commit=st.builds(
        Commit,
        tapes=st.dictionaries(
            words,
            st.builds(TapeRange, first=st.integers(), last=st.integers(), columns=st.lists(words)),
            max_size=2,
        ),
        positions=st.dictionaries(words, st.builds(TapePosition, last=st.integers()), max_size=2),
        files=st.lists(
            st.builds(
                StagedFile,
                table=words,
                name=words,
                rows=st.integers(),
                size=st.integers(),
                batch=st.integers(),
                hash=words,
            ),
            max_size=2,
        ),
        tables=st.dictionaries(words, st.builds(Counts, verdicts=counts, reasons=counts)),
        totals=st.dictionaries(words, st.builds(Counts, measures=st.dictionaries(words, words))),
        clocks=counts,
    )
)
def test_any_commit_is_read_as_it_was_written(commit: Commit) -> None:
    assert Commit.from_json(commit.to_json()) == commit
    assert text_of(json.loads(commit.to_json())) == commit.to_json()
