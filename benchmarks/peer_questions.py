"""The backlog against other engines, each in an environment of its own (`make peers`).

They do less: neither keeps the raw records, a quarantine, or what a sum was before.
"""

from __future__ import annotations

from benchmarks.generate import REPOSITORY, make
from benchmarks.scenarios import Facts, arm, each, fresh_root, ours, ratio, right

ENVIRONMENTS = REPOSITORY / ".venv-peers"
PEERS = ("flink", "pathway")


def peers(scale: float, rounds: int) -> Facts:
    """How fast is a backlog processed, against PyFlink and Pathway on the same files and cores?"""
    made = make("million", scale)
    places = ["--drop", str(made.drop), "--reference", str(made.reference)]
    found: dict[str, list[Facts]] = {"tapeline": [], **{name: [] for name in PEERS}}
    for _ in range(rounds):
        found["tapeline"].append(right(ours("once", made), made))
        for name in PEERS:
            python = ENVIRONMENTS / name / "bin" / "python"
            if not python.exists():
                raise RuntimeError(f"{name} is not installed: run `make peers` first")
            with fresh_root(name) as root:
                words = [*places, "--out", str(root / "out")]
                one = arm(f"benchmarks.peers.{name}_sums", *words, python=python)
            found[name].append(right(one, made))
    whole = each(found, "seconds_from_start")
    return {
        "unit": f"seconds for {made.lines:,} records, from the start of the process",
        **whole,
        "from_ready": each(found, "seconds_from_ready"),
        "cpu_seconds": each(found, "cpu_seconds"),
        "peak_rss_mb": each(found, "peak_rss_mb"),
        **{f"against_{name}": ratio(whole["tapeline"], whole[name]) for name in PEERS},
    }
