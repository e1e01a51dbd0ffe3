"""The table in docs/performance.md, made from the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
BARS = {
    "micro_batch": [("ratio", "of one bare Delta append through Spark", "below 1")],
    "live_latency": [
        ("times_lower_than_default", "times lower than by hand, default settings", "at least 6"),
        ("times_lower_than_tuned", "times lower than by hand, tuned", "at least 3"),
    ],
    "catch_up": [
        ("against_by_hand_tuned", "of the time of by hand, tuned", "at most 1"),
        ("against_batch_sums", "of the time of a batch job that only sums", "at most 2.5"),
    ],
    "history": [("ratio", "20 days of history against 1", "at most 1.25")],
    "hundred_days": [("ratio", "100 days of history against 1", "flat")],
    "backlog": [
        ("gigabytes", "GB of files worked off with a heap of 2 GB", "5"),
        ("peak_rss_mb", "MB of memory at most, of all its processes", "-"),
        ("ratio_10", "10 days of history against 1, of 200,000 trades each", "at most 1.25"),
        ("ratio_100", "100 days of history against 1, of 200,000 trades each", "at most 1.25"),
    ],
    "corrections": [("ratio", "of the throughput without corrections", "above 0.8")],
    "recovery": [
        ("batches", "batches until the flow is where it was", "at most 3"),
        ("against_first_batch", "of the time of the first batch of any start", "-"),
    ],
    "serve_load": [
        ("commit_to_event_ms", "ms from a commit to the event of a client, of 200", "below 300"),
        ("missed", "commits that a client did not see", "0"),
        ("server_cores", "cores used by the server", "below 1"),
        ("server_rss_mb", "MB of memory used by the server", "below 500"),
    ],
    "serve_page": [("cold_seconds", "s of server time, the first time", "below 1")],
    "to_the_browser": [("p50_seconds", "s from the rename to the number in the browser", "-")],
    "kafka_ingest": [
        ("ratio", "of the rate of Spark's bare stream, Kafka to Delta", "at least 0.8")
    ],
    "kafka_latency": [
        ("p50_seconds", "s from the acknowledgement to the number, median", "0.8"),
        ("p99_seconds", "s from the acknowledgement to the number, 99 of 100", "2"),
        ("times_lower_than_tuned", "times lower than by hand, tuned", "-"),
    ],
    "kafka_delivery": [("ratio", "of the rate of Spark's at-least-once sink", "at least 0.5")],
    "soak": [("drift", "last hundred batches against the second", "at most 1.1")],
}


def rows(results: Path) -> list[str]:
    lines = ["| question | measured | value | bar | machine |", "|---|---|---|---|---|"]
    for name, bars in BARS.items():
        path = results / f"{name}.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text())
        for key, words, bar in bars:
            bound = key == "times_lower_than_default" and result["found"].get("lower_bounds")
            said = f"{words} (a lower bound: it did not keep up)" if bound else words
            lines.append(_row(result, result["found"][key], said, bar))
    return lines


def _row(result: dict[str, Any], ratio: float, words: str, bar: str) -> str:
    machine = result["machine"]
    where = f"{machine['cores']} cores, load {machine['load_average'][0]}, {machine['commit'][:8]}"
    asked = f"{result['question']} (scale {result['scale']:g}, {result['rounds']} rounds)"
    return f"| {asked} | {words} | **{ratio:g}** | {bar} | {where} |"


def write_table(results: Path) -> None:
    """Put the table between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(rows(results))
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write_table(Path(__file__).parent / "results")
