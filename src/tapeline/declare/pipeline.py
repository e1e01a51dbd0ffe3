"""A pipeline: a list of named steps. Declaring starts nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from tapeline.declare.alert import Alert, Severity, alert_of
from tapeline.declare.duration import parse_duration
from tapeline.declare.expectations import ATTRIBUTE, DECLARED, Expectation
from tapeline.declare.options import OF_SELECT, check_summary_options, check_table_options
from tapeline.declare.select import Select
from tapeline.declare.signature import about, annotated, last_name
from tapeline.declare.sink import Sink, sink_input
from tapeline.declare.where import Where, caller, function_where
from tapeline.declare.windows import parts_of, windows_in, with_window_parts
from tapeline.errors import DeclarationError, did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tapeline.operate.handle import Handle

    Stream = DataFrame
    Snapshot = DataFrame
else:

    class Stream:
        """In a step's signature: what is new."""

    class Snapshot:
        """In a step's signature: the whole table as it stands."""


StepFunction = TypeVar("StepFunction", bound=Callable[..., Any])
NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
FUTURE_AFTER = "5 minutes"
LATE_AFTER = "5 minutes"


class Connector(Protocol):
    """Where data comes from; connect/ has one class per system."""

    @property
    def path(self) -> str: ...


@dataclass(frozen=True)
class Input:
    """One parameter of a step: the table it names and how it is read."""

    name: str
    kind: Literal["stream", "snapshot"]


@dataclass(frozen=True)
class DeclaredSource:
    """A named stream of raw records."""

    name: str
    connector: Any
    where: Where
    expect_every: str | None = None  # without a delivery for so long an alert is raised


@dataclass(frozen=True)
class Reference:
    """A named table of facts that steps join to."""

    name: str
    connector: Any
    where: Where


@dataclass(frozen=True)
class Pull:
    """An outside system whose records are brought into the drop folder of a source."""

    name: str
    system: Any
    into: str
    where: Where


@dataclass(frozen=True)
class Step:
    """What tables and summaries have in common: a plain function of tables."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Input, ...]
    where: Where

    @property
    def stream(self) -> str:
        """The one input that is read as a stream."""
        return next(i.name for i in self.inputs if i.kind == "stream")

    @property
    def snapshots(self) -> tuple[str, ...]:
        return tuple(i.name for i in self.inputs if i.kind == "snapshot")

    @property
    def about(self) -> str:
        """The first line of the docstring, or what a step in SQL says of itself."""
        return self.function.about if isinstance(self.function, Select) else about(self.function)


@dataclass(frozen=True)
class Table(Step):
    """Records that count; with a key the same record counts once."""

    key: tuple[str, ...] = ()
    key_optional: bool = False  # a record without a key is kept, and is never the same as another
    content_ignores: tuple[str, ...] = ()  # columns in which a repeat may differ
    sequence_by: str | None = None  # of the records of a key, the highest stands
    apply_as_deletes: str | None = None  # a record for which this holds takes its key out
    time: str | None = None
    late_after: str = LATE_AFTER
    future_after: str = FUTURE_AFTER
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True)
class Summary(Step):
    """Measures that add up, per key."""

    key: tuple[str, ...] = ()
    time: str | None = None
    width: str | None = None


@dataclass(frozen=True)
class View:
    """One SELECT over summaries, tables and references, computed when asked."""

    name: str
    sql: str
    where: Where


@dataclass(frozen=True)
class Page:
    """A page of a pipeline's own: what stands between the frame of every page, and its script."""

    name: str
    title: str
    html: Path
    where: Where
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def script(self) -> Path:
        """The script beside it."""
        return self.html.with_suffix(".js")


@dataclass
class Pipeline:
    """A list of named steps; `plan` says what it means, `run` makes it happen."""

    name: str
    final_after: str = "1 day"
    sources: dict[str, DeclaredSource] = field(default_factory=dict)
    references: dict[str, Reference] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    summaries: dict[str, Summary] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    pages: dict[str, Page] = field(default_factory=dict)
    pulls: dict[str, Pull] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_name(self.name, caller())

    @property
    def declared(self) -> Mapping[str, DeclaredSource | Reference | Table | Summary | View]:
        """Everything that has a name, by its name."""
        return MappingProxyType(
            {**self.sources, **self.references, **self.tables, **self.summaries, **self.views}
        )

    def source(self, name: str, connector: Any, expect_every: str | None = None) -> None:
        """Declare where raw records come from.

        `expect_every`, such as "15 minutes": without a delivery for so long an alert is raised.
        """
        where = self._claim(name)
        if expect_every is not None:
            _check_duration(where, expect_every)
        self.sources[name] = DeclaredSource(name, connector, where, expect_every)

    def reference(self, name: str, connector: Any) -> None:
        """Declare a table of facts; it is stored in versions and pinned per batch."""
        where = self._claim(name)
        self.references[name] = Reference(name, connector, where)

    def pull(self, name: str, system: Any, into: str) -> None:
        """Declare an outside system that `tapeline pull` asks for what is new.

        Its records go into the drop folder of the source `into`, which takes JSON lines.
        """
        where = self._claim(name)
        self.pulls[name] = Pull(name, system, into, where)

    def view(self, name: str, sql: str) -> None:
        """Declare one SELECT over summaries, tables and references.

        It must be valid in Spark and in DuckDB.
        """
        where = self._claim(name)
        self.views[name] = View(name, sql, where)

    def page(self, title: str, html: str | Path, **facts: str) -> None:
        """Declare a page that `tapeline serve` shows, with the script of the same name beside it.

        The path is relative to the file that declares it. The script finds the facts as data
        attributes of the element around the page: main_currency as dataset.mainCurrency.
        """
        where = caller()
        for name in facts:
            self._check_name(name, where)
        path = Path(where.file).absolute().parent / html
        self._check_name(path.stem, where)
        for needed in (path, path.with_suffix(".js")):
            if not needed.is_file():
                raise DeclarationError(
                    f"{where}: page '{title}' needs {needed}, which does not exist."
                )
        self.pages[path.stem] = Page(path.stem, title, path, where, MappingProxyType(facts))

    @overload
    def table(self, function: StepFunction, /) -> StepFunction: ...
    @overload
    def table(
        self,
        name: str,
        /,
        *,
        sql: str,
        about: str = "",
        expect: Sequence[Expectation] = (),
        key: str | Sequence[str] = (),
        key_optional: bool = False,
        content_ignores: str | Sequence[str] = (),
        sequence_by: str | None = None,
        apply_as_deletes: str | None = None,
        time: str | None = None,
        late_after: str = LATE_AFTER,
        future_after: str = FUTURE_AFTER,
    ) -> None: ...
    @overload
    def table(
        self,
        *,
        key: str | Sequence[str] = (),
        key_optional: bool = False,
        content_ignores: str | Sequence[str] = (),
        sequence_by: str | None = None,
        apply_as_deletes: str | None = None,
        time: str | None = None,
        late_after: str = LATE_AFTER,
        future_after: str = FUTURE_AFTER,
    ) -> Callable[[StepFunction], StepFunction]: ...
    def table(self, *args: Any, **said: Any) -> Any:
        """Declare a table: one row, or several, per record that counts.

        `key` names columns of the input, or columns that the step makes: the same record counts
        once. With `key_optional` a record without a key is kept. `content_ignores` names columns
        in which a repeat may differ. `sequence_by`, an SQL expression, orders the records of a
        key: the highest one stands. `apply_as_deletes`, an SQL condition, says which records take
        their key out.

        Above a function it declares the function. With a name and `sql` it declares a SELECT in
        Spark's dialect, with `expect` for its expectations and `about` for its sentence.
        """
        check_table_options(args, said)
        if "sql" in said:
            options = {name: value for name, value in said.items() if name not in OF_SELECT}
            select = Select(args[0], said["sql"], caller(), said.get("about", ""))
            return self._add_table(select, select.where, said.get("expect", ()), options)

        def declare(function: StepFunction) -> StepFunction:
            where = function_where(function)
            self._add_table(function, where, getattr(function, ATTRIBUTE, ()), said)
            setattr(function, DECLARED, "table")
            return function

        return declare(*args) if args else declare

    def _add_table(
        self,
        function: Callable[..., Any],
        where: Where,
        expectations: Sequence[Expectation],
        said: Mapping[str, Any],
    ) -> None:
        name = _name_of(function)
        self._claim(name, where)
        lists = {name: _names(said.get(name, ())) for name in ("key", "content_ignores")}
        options = {**said, **lists}
        for option in ("late_after", "future_after"):
            _check_duration(where, options.get(option, LATE_AFTER))
        self.tables[name] = Table(
            name,
            function,
            _inputs(function, where),
            where,
            expectations=tuple(expectations),
            **options,
        )

    @overload
    def summary(
        self, *, key: str | Sequence[str], time: str | None = None, width: str | None = None
    ) -> Callable[[StepFunction], StepFunction]: ...
    @overload
    def summary(
        self,
        name: str,
        /,
        *,
        sql: str,
        key: str | Sequence[str],
        time: str | None = None,
        width: str | None = None,
        about: str = "",
    ) -> None: ...
    def summary(self, *args: Any, **said: Any) -> Any:
        """Declare a summary: sums, counts and averages per key.

        A key that names a window(...) becomes two columns, its start and its end. `time` is the
        column of the key that is a time, `width` how long its windows are. Above a function it
        declares the function, with a name and `sql` a SELECT in Spark's dialect.
        """
        check_summary_options(args, said)
        options = {name: value for name, value in said.items() if name not in OF_SELECT}
        if "sql" in said:
            select = Select(args[0], said["sql"], caller(), said.get("about", ""))
            return self._add_summary(select, select.where, **options)

        def declare(function: StepFunction) -> StepFunction:
            where = function_where(function)
            if getattr(function, ATTRIBUTE, ()):
                raise DeclarationError(
                    f"{where}: {function.__name__}() is a summary, and expectations belong to "
                    "tables. Put them on the table that it reads."
                )
            self._add_summary(function, where, **options)
            setattr(function, DECLARED, "summary")
            return function

        return declare

    def _add_summary(
        self,
        function: Callable[..., Any],
        where: Where,
        key: str | Sequence[str],
        time: str | None = None,
        width: str | None = None,
    ) -> None:
        name = _name_of(function)
        self._claim(name, where)
        if width is not None:
            _check_duration(where, width)
        inputs = _inputs(function, where)
        if isinstance(function, Select):
            windows = function.parsed.windows
        else:
            windows = windows_in(function)
        columns = with_window_parts(windows, _names(key))
        starts = parts_of(time)[0] if time in _names(key) and time not in columns else time
        self.summaries[name] = Summary(name, function, inputs, where, columns, starts, width)

    def sink(self, connector: Any) -> Callable[[StepFunction], StepFunction]:
        """Declare where rows of a table (Rows) or changes of a summary or view (Changes) go.

        The function gets what one batch brought, as a list of dictionaries in a fixed order, and
        gives what is sent of it. It may set `_key` and `_headers` of a message.
        """
        if isfunction(connector):
            raise DeclarationError(
                f"{function_where(connector)}: {connector.__name__}() has @pipeline.sink without a "
                "destination. Write for example @pipeline.sink(Console())."
            )

        def declare(function: StepFunction) -> StepFunction:
            where = self._claim(function.__name__, function_where(function))
            reads, kind = sink_input(function, where)
            self.sinks[function.__name__] = Sink(
                function.__name__, function, connector, reads, kind, where
            )
            return function

        return declare

    @overload
    def alert(self, severity: StepFunction, /) -> StepFunction: ...
    @overload
    def alert(self, severity: Severity = "warning") -> Callable[[StepFunction], StepFunction]: ...
    def alert(self, severity: Any = "warning") -> Any:
        """Declare an alert: a function that says whether it is active for a row or number (Each).

        It is raised once per key, when it becomes active, and closed when it no longer is. The
        docstring is its sentence; a sink may send it (Alerts).
        """

        def declare(function: StepFunction) -> StepFunction:
            where = self._claim(function.__name__, function_where(function))
            self.alerts[function.__name__] = alert_of(function, chosen, where)
            return function

        chosen: Severity = "warning" if isfunction(severity) else severity
        return declare(severity) if isfunction(severity) else declare

    def start(
        self,
        spark: SparkSession | None = None,
        project: str | Path = ".",
        root: str | Path | None = None,
        every: str | None = None,
    ) -> Handle:
        """Run this pipeline on a thread of its own, in a script or a notebook.

        `spark` is the session to use (default: a new one), `project` the folder with
        tapeline.toml, `root` the folder of the books, `every` an interval (default: as soon as
        there is new input).
        """
        # By its name: what runs a pipeline is loaded when somebody runs it, and knows this room.
        handle: Handle = import_module("tapeline.operate.handle").start(
            self, spark, project, root, every
        )
        return handle

    def _claim(self, name: str, where: Where | None = None) -> Where:
        where = where or caller()
        self._check_name(name, where)
        taken = {**self.declared, **self.pulls, **self.sinks, **self.alerts}
        if name in taken:
            other = taken[name].where
            raise DeclarationError(
                f"{where}: '{name}' is already used at {other}. Choose another name."
            )
        return where

    @staticmethod
    def _check_name(name: str, where: Where) -> None:
        if not NAME.fullmatch(name):
            raise DeclarationError(
                f"{where}: '{name}' cannot be a name. Use at most 63 lower case letters, digits "
                "and '_', starting with a letter."
            )


def _name_of(function: Callable[..., Any]) -> str:
    return function.name if isinstance(function, Select) else function.__name__


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _check_duration(where: Where, text: str) -> None:
    try:
        parse_duration(text)
    except DeclarationError as error:
        raise DeclarationError(f"{where}: {error}") from None


def _inputs(function: Callable[..., Any], where: Where) -> tuple[Input, ...]:
    if isinstance(function, Select):  # which of them are references is known in the end
        return tuple(Input(name, "stream") for name in function.parsed.names)
    inputs = []
    for name, text in annotated(function).items():
        kind = last_name(text).lower()
        if kind not in ("stream", "snapshot"):
            said = "" if text == "_empty" else f" as '{text}'"
            raise DeclarationError(
                f"{where}: {function.__name__}() reads '{name}'{said}. Annotate it as Stream (new "
                f"rows) or Snapshot (the whole table).{did_you_mean(kind, ())}"
            )
        inputs.append(Input(name, "stream" if kind == "stream" else "snapshot"))
    return tuple(inputs)
