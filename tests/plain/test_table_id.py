"""Stored tables by kind, name and generation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapeline.books.layout import Layout
from tapeline.books.table_id import Kind, TableId


def test_the_first_generation_lies_where_books_always_had_it():
    found = [
        one("totals").path
        for one in (TableId.register, TableId.journal, TableId.links, TableId.balances)
    ]
    assert found == ["silver/totals", "gold/totals", "gold/totals_links", "gold/totals_balances"]


@pytest.mark.parametrize("kind", Kind)
def test_each_generation_has_a_folder_of_its_own(kind: Kind):
    paths = {TableId(kind, "totals", generation).path for generation in (1, 2, 3)}
    assert len(paths) == 3


def test_the_layout_puts_a_table_below_its_home():
    assert Layout(Path("/books")).table(TableId.links("a")) == Path("/books/gold/a_links")
