"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from tapeline import testing
from tests.support.kafka import own, second_broker, topic  # noqa: F401 - fixtures for all tests
from tests.support.kafka_cluster import broker, cluster  # noqa: F401 - fixtures for all tests
from tests.support.postgres import Postgres, running_postgres
from tests.support.steps_once import StepsOnce

FIXTURES = Path(__file__).parent / "fixtures"
SHARED = Path(__file__).parents[2] / "shared" / "data"

# How long an example takes says nothing: the machine may be busy.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")

# A machine's own settings must not reach the tests.
for name in [n for n in os.environ if n.startswith("TAPELINE_") and n != "TAPELINE_JARS"]:
    del os.environ[name]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # A JVM takes its jars when it starts, and all tests share one.
    session = testing.spark(connectors=True)
    with StepsOnce(session):
        yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL that all tests of a run share; each makes a database of its own."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def fixtures() -> Path:
    return FIXTURES


@pytest.fixture
def shared() -> Path:
    """Input that may be read from beside the checkout but not committed."""
    if not SHARED.exists():
        pytest.skip("../shared/data is not beside this checkout")
    return SHARED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the JVM say so by using it."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
