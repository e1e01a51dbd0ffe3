"""Makes the archive of classes: a process runs a small pipeline, and Java writes what it loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tapeline.operate.runner import Runner
from tapeline.plan import load_pipeline, resolve
from tapeline.settings import Settings
from tapeline.spark.class_archive import SUFFIX, is_trusted
from tapeline.spark.internals import end_jvm
from tapeline.spark.jvm import class_archive
from tapeline.spark.session import build_session

TRAINING = "tapeline.spark.training"
RECORDS = 400
START = datetime(2026, 3, 2, 9, tzinfo=UTC)
# A machine that needs longer would not gain by an archive.
LIMIT_SECONDS = 900


def make_archive() -> bool:
    """Make the archive if it is missing or was made for something else. Whether there is one.

    Spark starts without it, so whatever goes wrong here is no error.
    """
    archive = class_archive()
    if is_trusted(archive):
        return True
    with tempfile.TemporaryDirectory(prefix="classes.", dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("TAPELINE_", "SPARK_"))}
        command = [sys.executable, "-m", __name__, str(made)]
        try:
            subprocess.run(command, cwd=folder, env=ours, capture_output=True, check=True,
                           timeout=LIMIT_SECONDS)  # fmt: skip
            made.chmod(0o400)
            made.replace(archive)
        except (OSError, subprocess.SubprocessError):
            return False
    for other in archive.parent.glob(f"*{SUFFIX}"):
        if other != archive:
            other.unlink(missing_ok=True)
    return is_trusted(archive)


def train(archive: Path) -> None:
    """Run the training pipeline, then wait until Java has written the archive."""
    with tempfile.TemporaryDirectory(prefix="training.") as folder:
        project = Path(folder)
        _write_records(project)
        settings = Settings(project=project, root=project / "books")
        plan = resolve(load_pipeline(TRAINING, settings))
        session = build_session(settings, plan.name, short=True, make_archive=archive)
        with Runner(plan, settings, session=session) as runner:
            runner.run_once()
        session.stop()
        end_jvm()


def _write_records(project: Path) -> None:
    for name in ("orders", "visits", "reference"):
        (project / name).mkdir()
    with (project / "orders" / "orders.jsonl").open("w") as file:
        for number in range(RECORDS):
            file.write(json.dumps(_order(number)) + "\n")
    lines = [f"v{n},shop{n % 3},{START + timedelta(minutes=n)},{n % 7}" for n in range(RECORDS)]
    visits = "\n".join(["visit_id,shop,came_at,visitors", *lines])
    (project / "visits" / "visits.csv").write_text(f"{visits}\n")
    shops = ["shop,zone,opened,minor_units", "shop0,UTC,2020-01-01,2", "shop1,UTC,2021-05-01,0"]
    (project / "reference" / "shops.csv").write_text("\n".join([*shops, ""]))


def _order(number: int) -> dict[str, object]:
    """Most are right; some come twice, are corrected, cancelled, or break a rule."""
    return {
        "order_id": f"o{number % (RECORDS - 20)}",
        "version": 1 + number // (RECORDS - 20),
        "event": "CANCEL" if number % 50 == 49 else "NEW",
        "placed_at": str(START + timedelta(minutes=number)),
        "shop": f"shop{number % 3}",
        "amount": "x" if number == 7 else f"{number % 11}.25",
        "price": number / 8,
        "due": "2026-03-09",
        "customer": {"name": f"n{number}", "country": "UZ"},
        "lines": [{"item": "tea", "pieces": number % 5}, {"item": "rice", "pieces": 2}],
    }


if __name__ == "__main__":
    train(Path(sys.argv[1]))
