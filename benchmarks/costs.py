"""What the guarantees cost: corrections, the register, the proofs, and memory."""

from __future__ import annotations

from benchmarks.generate import Input, make
from benchmarks.scenarios import LIMIT_SECONDS, Facts, environment, ours, ratio, right


def corrections(scale: float, rounds: int) -> Facts:
    """What do corrections cost? A backlog with 0.5 % corrections against one without."""
    plain, corrected = make("million", scale), make("million", scale, corrections=0.005)
    found: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(rounds):
        for name, made in (("without", plain), ("with", corrected)):
            found[name].append(_rate(made))
    return {
        "unit": "records a second, from ready",
        **found,
        "ratio": ratio(found["with"], found["without"]),
    }


def guarantees(scale: float, rounds: int) -> Facts:
    """What do the register and the proofs cost? A clean backlog with and without each."""
    made = make("million", scale, clean=True)
    found: dict[str, list[float]] = {"with_all": [], "no_register": [], "no_proofs": []}
    for _ in range(rounds):
        found["with_all"].append(_rate(made))
        found["no_register"].append(_rate(made, "--without", "register"))
        found["no_proofs"].append(_rate(made, "--without", "proofs"))
    return {
        "unit": "records a second, from ready",
        **found,
        "against_no_register": ratio(found["with_all"], found["no_register"]),
        "against_no_proofs": ratio(found["with_all"], found["no_proofs"]),
    }


def _rate(made: Input, *more: str) -> float:
    """Records a second of a backlog, from ready; no number without the right answer."""
    one = right(ours("once", made, *more), made)
    return round(made.lines / one["seconds_from_ready"], 1)


def memory(scale: float, rounds: int) -> Facts:
    """Does memory grow with the trades? One and ten million, ten million keys, 2 GB of heap."""
    sizes = {"one_million": make("million", scale), "ten_million": make("ten_million", scale)}
    found: dict[str, Facts] = {}
    with environment({"TAPELINE_INTAKE_KEEP": "delete"}):
        for name, made in sizes.items():
            found[name] = right(ours("once", made, limit_seconds=4 * LIMIT_SECONDS), made)
    peaks = {name: one["peak_rss_mb"] for name, one in found.items()}
    return {
        "unit": "MB of memory at most, of all processes",
        **peaks,
        "ratio": round(peaks["ten_million"] / peaks["one_million"], 3),
        "bytes_a_key_more": round(
            (peaks["ten_million"] - peaks["one_million"])
            * 2**20
            / (sizes["ten_million"].trades - sizes["one_million"].trades)
        ),
        "runs": list(found.values()),
    }
