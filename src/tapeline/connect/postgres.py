"""Pulling rows from PostgreSQL, in the order of a column that only grows.

A row may be committed after one with a higher value: its transaction took its number earlier and
took its time. Whoever reads up to the highest value it sees loses that row. So a pull sets a mark
(the highest value, and all transactions that run at that moment), waits until every one of them has
ended, and only then reads up to the mark: whoever could still write a value below it has finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tapeline.connect.postgres_connection import (
    MOMENT,
    WHOLE_NUMBERS,
    check_address,
    growing_type,
    line_of,
    open_link,
    words_of,
)
from tapeline.connect.pulling import LaterError, Position, PulledPage
from tapeline.declare.duration import parse_duration
from tapeline.errors import DeclarationError, OperationError
from tapeline.extras import require
from tapeline.settings import PullSettings

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

WAIT_SECONDS = 0.2  # between two looks at the transactions that a mark waits for
FETCH_ROWS = 1_000

# Transactions of this database but our own. Vacuum writes no rows, where we may see that it is one.
RUNNING = """
select array_agg(l.virtualtransaction) from pg_locks l left join pg_stat_activity a using (pid)
where l.locktype = 'virtualxid' and l.granted and l.pid <> pg_backend_pid()
  and coalesce(a.datname = current_database(), true)
  and a.backend_type is distinct from 'autovacuum worker'
"""
STILL = """
select (select count(*) from pg_locks
        where locktype = 'virtualxid' and granted and virtualtransaction = any(%s))
     + (select count(*) from pg_prepared_xacts where database = current_database())
"""


@dataclass(frozen=True)
class PostgresPull:
    """Rows of a PostgreSQL table or view, by a column that only grows. Where it is, is a setting.

    Delivers: every row once, whatever the order of commits, when the writing transaction takes the
    value from a sequence (exact) or from the server's clock (rows rest for `settle` first). A row
    whose value was raised comes again.
    """

    table: str
    column: str
    columns: Sequence[str] = ()
    records_per_page: int = 5_000
    settle: str = "1 second"

    def __post_init__(self) -> None:
        require("postgres", "PostgresPull")
        parse_duration(self.settle)
        if not 1 <= len(self.table.split(".")) <= 2 or not all(self.table.split(".")):
            raise DeclarationError(
                f"PostgresPull: '{self.table}' is not a table name. Write 'trades' or "
                "'office.trades'."
            )
        if self.records_per_page < 1:
            raise DeclarationError("PostgresPull: records_per_page must be at least 1.")

    @property
    def asks(self) -> str:
        return f"{self.table} by {self.column}"

    def reader(self, name: str, settings: PullSettings, secret: str) -> PostgresReader:
        return PostgresReader(self, name, settings, secret)


@dataclass(frozen=True)
class Mark:
    """What can be read once the transactions that ran when it was set have ended."""

    highest: str
    transactions: Sequence[str]
    since: float


class PostgresReader:
    """Reads page by page over one connection, which writes nothing."""

    def __init__(
        self,
        pull: PostgresPull,
        name: str,
        settings: PullSettings,
        secret: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        from psycopg import sql

        check_address(settings, name)
        self._pull = pull
        self._name = name
        self._what = f"pull '{name}': {pull.asks}"
        self._settings = settings
        self._secret = secret
        self._monotonic = monotonic
        self._connection: psycopg.Connection[Any] | None = None
        self._table = sql.Identifier(*pull.table.split("."))
        self._column = sql.SQL("t.{}").format(sql.Identifier(pull.column))
        self._type = ""
        self._mark: Mark | None = None

    def page(self, position: Position | None) -> PulledPage:
        with self._connected() as connection:
            mark = self._mark or self._set_mark(connection, position)
            if mark is None:
                return PulledPage((), position, behind=0)
            if not self._has_come(connection, mark):
                return PulledPage((), position, WAIT_SECONDS)
            lines, last = self._read(connection, mark, position)
            if last is None:  # what the mark saw has been deleted since
                self._mark = None
                return PulledPage((), position)
            behind = int(mark.highest) - int(last) if self._type in WHOLE_NUMBERS else None
            if last == mark.highest:
                self._mark = None
                return PulledPage(tuple(lines), {"after": last}, None, 0)
            return PulledPage(tuple(lines), {"after": last}, 0.0, behind)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._mark = None

    def _set_mark(
        self, connection: psycopg.Connection[Any], position: Position | None
    ) -> Mark | None:
        """The highest value first, then who runs: so none that may write below it is missed."""
        from psycopg import sql

        rested: sql.SQL | sql.Composed = sql.SQL("")
        if self._type == MOMENT:
            seconds = parse_duration(self._pull.settle).total_seconds()
            rested = sql.SQL(" and {} <= clock_timestamp() - make_interval(secs => {})").format(
                self._column, seconds
            )
        query = sql.SQL("select max({})::text from {} as t where {}{}").format(
            self._column, self._table, self._beyond(position), rested
        )
        highest = self._one(connection, query)
        if highest is None:
            return None
        running = self._one(connection, sql.SQL(RUNNING)) or []
        self._mark = Mark(highest, running, self._monotonic())
        return self._mark

    def _has_come(self, connection: psycopg.Connection[Any], mark: Mark) -> bool:
        from psycopg import sql

        running = self._one(connection, sql.SQL(STILL), [list(mark.transactions)])
        if running and self._monotonic() - mark.since > self._settings.timeout_seconds:
            raise LaterError(
                f"{self._what}: {running} transactions have been running for more than "
                f"{self._settings.timeout_seconds:g} s and may still add earlier rows. The pull "
                "continues when they have ended. Look for them in pg_stat_activity."
            )
        return not running

    def _read(
        self, connection: psycopg.Connection[Any], mark: Mark, position: Position | None
    ) -> tuple[list[bytes], str | None]:
        """Rows up to the mark, never a part of those that share a value; and the last value."""
        lines: list[bytes] = []
        size, whole, before, last = 0, 0, None, None  # whole: lines of values before the last one
        with connection.transaction(), connection.cursor(name="tapeline_pull") as cursor:
            cursor.itersize = FETCH_ROWS
            cursor.execute(self._page_query(position, mark))
            names = [column.name for column in cursor.description or ()][1:]
            for value, *row in cursor:
                if value != last:
                    whole, before, last = len(lines), last, value
                lines.append(line_of(dict(zip(names, row, strict=True))))
                size += len(lines[-1])
                if size > self._settings.answer_bytes:
                    self._refuse_large(whole, value)
                    return lines[:whole], before
        return lines, last

    def _refuse_large(self, whole: int, value: str) -> None:
        if not whole:
            raise OperationError(
                f"the rows with {value} have more than {self._settings.answer_bytes:,} bytes. "
                f"Raise pull.{self._name}.answer_bytes, or pull by a column with fewer equal values"
            )

    def _page_query(self, position: Position | None, mark: Mark) -> sql.Composed:
        from psycopg import sql

        columns = sql.SQL(", ").join(
            sql.SQL("t.{}").format(sql.Identifier(column)) for column in self._pull.columns
        )
        return sql.SQL(
            "select {}::text, {} from {} as t where {} and {} <= {}::{} order by {} "
            "fetch first {} rows with ties"
        ).format(
            self._column,
            columns if self._pull.columns else sql.SQL("t.*"),
            self._table,
            self._beyond(position),
            self._column,
            mark.highest,
            sql.SQL(self._type),
            self._column,
            self._pull.records_per_page,
        )

    def _beyond(self, position: Position | None) -> sql.Composable:
        from psycopg import sql

        if position is None:
            return sql.SQL("true")
        after = sql.Literal(position["after"])
        return sql.SQL("{} > {}::{}").format(self._column, after, sql.SQL(self._type))

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection; what goes wrong with it in words that hold neither address nor secret."""
        import psycopg

        try:
            if self._connection is None:
                self._connection = open_link(self._name, self._settings, self._secret)
                table = self._table.as_string(self._connection)
                self._type = growing_type(self._connection, table, self._pull.column)
            yield self._connection
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise LaterError(f"pull '{self._name}': PostgreSQL: {words_of(error)}.") from None
        except psycopg.Error as error:
            self.close()
            raise OperationError(
                f"{self._what}: {words_of(error)}. Correct the declaration, or give this user read "
                "access."
            ) from None
        except LaterError:
            raise
        except OperationError as error:
            self.close()
            raise OperationError(f"{self._what}: {error}.") from None

    @staticmethod
    def _one(
        connection: psycopg.Connection[Any],
        query: sql.SQL | sql.Composed,
        values: Sequence[Any] | None = None,
    ) -> Any:
        found = connection.execute(query, values).fetchone()
        return found[0] if found else None
