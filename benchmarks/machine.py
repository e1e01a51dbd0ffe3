"""Facts for the record: a figure without its machine is a rumour."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version

import psutil

from benchmarks.generate import REPOSITORY

PACKAGES = ("pyspark", "deltalake", "duckdb", "pyarrow", "numpy", "pandas", "psutil")


def facts() -> dict[str, object]:
    """The machine, its load, the versions and the commit, as JSON can hold them."""
    memory = psutil.virtual_memory()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_gib": round(memory.total / 2**30, 1),
        "memory_free_gib": round(memory.available / 2**30, 1),
        "load_average": [round(one, 2) for one in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": _first_line("java", "-version"),
        "packages": {name: version(name) for name in PACKAGES},
        "commit": _first_line("git", "rev-parse", "HEAD"),
        "uncommitted_changes": bool(_first_line("git", "status", "--porcelain")),
    }


def _first_line(*command: str) -> str | None:
    """The first line a command says, on stdout or (as Java does) on stderr; None if it fails."""
    try:
        said = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = (said.stdout or said.stderr).splitlines()
    return lines[0] if lines else None


def _processor() -> str | None:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else None


if __name__ == "__main__":
    print(json.dumps(facts(), indent=2))
