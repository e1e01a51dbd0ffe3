"""The table in docs/performance.md, made from the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
BARS = {
    "micro_batch": [("ratio", "of one bare Delta append through Spark", "below 1")],
    "batch_sizes": [
        ("ratio", "of one bare Delta append of 20,000 through Spark", "-"),
        ("empty_ms", "ms to find that nothing is new", "-"),
        ("empty_spark_jobs", "Spark jobs to find that nothing is new", "0"),
        ("forked_cpu_seconds", "s of processor time of forked processes", "0"),
    ],
    "live_latency": [
        ("times_lower_than_default", "times lower than by hand, default settings", "at least 6"),
        ("times_lower_than_tuned", "times lower than by hand, tuned", "at least 3"),
    ],
    "rates": [
        ("p50_at_1000", "s at 1,000 trades a second, median", "0.8"),
        ("p99_at_1000", "s at 1,000 trades a second, 99 of 100", "2"),
        ("highest_rate", "trades a second, highest tried with p99 below 2 s", "-"),
    ],
    "burst": [
        ("drain_seconds", "s after the burst until files are in time again", "-"),
        ("longest_seconds", "s that a file took at most", "-"),
    ],
    "catch_up": [
        ("against_by_hand_tuned", "of the time of by hand, tuned", "at most 1"),
        ("against_batch_sums", "of the time of a batch job that only sums", "at most 2.5"),
        ("trades_per_cpu_second", "trades per second of one core, whole process tree", "-"),
        ("against_duckdb_cpu", "of the processor time of DuckDB that only sums, one thread", "-"),
    ],
    "peers": [
        ("against_flink", "of the time of PyFlink", "at most 1"),
        ("against_pathway", "of the time of Pathway", "at most 1"),
    ],
    "history": [("ratio", "20 days of history against 1", "at most 1.25")],
    "hundred_days": [("ratio", "100 days of history against 1", "flat")],
    "late_ages": [
        ("late_against_none", "with a trade an hour late against none", "-"),
        ("ratio_30d", "with a trade 30 days late against an hour", "at most 1.25"),
        ("ratio_365d", "with a trade 365 days late against an hour", "at most 1.25"),
    ],
    "questions": [
        ("report_100_days_ms", "ms, the whole summary", "-"),
        ("as_reported_100_days_ms", "ms, the whole summary as reported half-way", "-"),
        ("why_100_days_ms", "ms, the revisions of one window with their records", "-"),
        ("audit_full_100_days_ms", "ms, everything proved again", "-"),
    ],
    "backlog": [
        ("gigabytes", "GB of files processed with a heap of 2 GB", "5"),
        ("peak_rss_mb", "MB of memory at most, of all its processes", "-"),
        ("ratio_10", "10 days of history against 1, of 200,000 trades each", "at most 1.25"),
        ("ratio_100", "100 days of history against 1, of 200,000 trades each", "at most 1.25"),
    ],
    "corrections": [("ratio", "of the throughput without corrections", "above 0.8")],
    "guarantees": [
        ("against_no_register", "of the throughput without the register", "-"),
        ("against_no_proofs", "of the throughput without hashes of rows", "-"),
    ],
    "memory": [
        ("one_million", "MB of memory at most, 1 million trades", "-"),
        ("ten_million", "MB of memory at most, 10 million trades", "-"),
        ("bytes_a_key_more", "bytes more for each further trade", "-"),
    ],
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
    "chart_clients": [
        ("event_ms_of_500", "ms from a commit to the event of a client, of 500", "-"),
        ("missed", "commits that a client did not see", "0"),
        ("cores_for_500", "cores used by the server for 500 clients", "-"),
    ],
    "set_up": [
        ("set_up_seconds", "s for `make setup` on a fresh clone", "-"),
        ("first_number_seconds", "s for a new project and its first number after that", "-"),
        ("session_seconds", "s for a Spark session and its first job", "-"),
        ("plan_seconds", "s for `tapeline plan`", "-"),
        ("import_seconds", "s for `import tapeline`", "-"),
    ],
    "starts": [
        ("new_project_of_bare", "of a bare Spark session's processor time, new project", "0.8"),
        ("new_project_of_bare_wall", "of a bare Spark session's wall time, new project", "0.8"),
        ("new_project_of_before", "of the processor time before, new project", "0.5"),
        ("trades_of_before", "of the processor time before, 200 trades", "0.5"),
        ("plan_check_of_before", "of the processor time before, `plan --check`", "0.5"),
        ("help_seconds", "processor s for `--help`", "0.7"),
        ("plan_seconds", "processor s for `plan`", "0.7"),
        ("status_seconds", "processor s for `status`", "0.7"),
        ("report_seconds", "processor s for `report`", "0.7"),
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
    "kafka_burst": [
        ("most_records_in_a_batch", "records in a batch at most; the limit is 20,000", "20000"),
        ("in_time_again_seconds", "s after the burst until messages are in time again", "-"),
        ("most_lag_records", "messages that waited at most", "-"),
        ("lag_records_at_the_end", "messages that wait at the end", "0"),
        ("rss_ratio", "of memory, last quarter of the busy time against its second", "flat"),
    ],
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
            if key not in result["found"]:
                continue  # a result from before this was measured
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
