"""Where everything of a pipeline lives on disk, in the words people know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tapeline.books.table_id import TableId


@dataclass(frozen=True)
class Layout:
    """The folders below a pipeline's home."""

    home: Path

    def tape(self, source: str) -> Path:
        return self.home / "bronze" / source

    def tape_batches(self, source: str) -> Path:
        return self.home / "bronze" / f"{source}_batches"

    def table(self, table: TableId) -> Path:
        return self.home / table.path

    def register(self, table: str, generation: int = 1) -> Path:
        return self.table(TableId.register(table, generation))

    def journal(self, summary: str, generation: int = 1) -> Path:
        return self.table(TableId.journal(summary, generation))

    def links(self, summary: str, generation: int = 1) -> Path:
        return self.table(TableId.links(summary, generation))

    def balances(self, summary: str, generation: int = 1) -> Path:
        return self.table(TableId.balances(summary, generation))

    def reference(self, name: str) -> Path:
        return self.home / "reference" / name

    def intake(self, source: str) -> Path:
        return self.home / "intake" / source

    def checkpoint(self, source: str) -> Path:
        """Of books of earlier versions; the first start removes it."""
        return self.home / "checkpoints" / source

    def query(self, source: str) -> Path:
        """The checkpoint of a Structured Streaming query: state, as lasting as the tape."""
        return self.home / "queries" / source

    def pull(self, name: str) -> Path:
        """Where a pull stands in the system it asks."""
        return self.home / "pull" / f"{name}.json"

    def sink(self, name: str) -> Path:
        """How far a sink is that cannot keep it where it delivers."""
        return self.home / "sinks" / f"{name}.json"

    @property
    def pull_status(self) -> Path:
        """What a running `tapeline pull` says of itself; disposable."""
        return self.home / "pulling.json"

    def code(self, name: str) -> Path:
        """What the steps of some batches said."""
        return self.home / "code" / f"{name}.json"

    @property
    def builds(self) -> Path:
        """What was built, or is being built, when code was changed: a folder per generation."""
        return self.home / "generations"

    @property
    def reference_status(self) -> Path:
        """When references from outside were last read; disposable."""
        return self.home / "references.json"

    @property
    def schemas(self) -> Path:
        """The schemas that Avro on the tape was written with; as lasting as the tape."""
        return self.home / "schemas"

    @property
    def commits(self) -> Path:
        return self.home / "commits"

    @property
    def operator(self) -> Path:
        """Acts of people: records sent again, corrected or dismissed."""
        return self.home / "bronze" / "_operator"

    @property
    def status(self) -> Path:
        """What a running flow says of itself, for other processes; disposable."""
        return self.home / "status.json"

    @property
    def alerts(self) -> Path:
        """The alerts that the engine raised, so that none is told twice."""
        return self.home / "alerts.json"

    @property
    def paused(self) -> Path:
        """Who paused the flow; it rests while this file is there."""
        return self.home / "paused.json"

    @property
    def restored(self) -> Path:
        """The epoch that began when these books were restored from a backup."""
        return self.home / "restored.json"

    @property
    def snapshots(self) -> Path:
        """Where backups take their picture of the books; disposable."""
        return self.home / "snapshots"

    @property
    def log(self) -> Path:
        return self.home / "log"

    @property
    def audited(self) -> Path:
        """Through which batch the books were last found to balance; disposable."""
        return self.home / "audited.json"
