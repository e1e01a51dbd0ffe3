"""Books and a server that the tests of the API share; nothing is fed to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokerage import Brokerage, opening_day


@pytest.fixture(scope="session")
def brokerage(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Brokerage:
    made = Brokerage(tmp_path_factory.mktemp("served books"))
    opening_day(made)
    return made


@pytest.fixture(scope="session")
def address(brokerage: Brokerage) -> Iterator[str]:
    with brokerage.served() as found:
        yield found


@pytest.fixture
def fresh(tmp_path: Path, spark: Any) -> Brokerage:
    """Books of one's own, to be fed."""
    return Brokerage(tmp_path)
