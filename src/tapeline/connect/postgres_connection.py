"""A connection to PostgreSQL that only reads, and its rows as lines of JSON."""

from __future__ import annotations

import json
import math
import os
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from tapeline.connect.clear_text import refuse_clear_postgres
from tapeline.errors import DeclarationError, OperationError
from tapeline.formats.json_line import RowWriter, exact_text
from tapeline.settings import PullSettings

if TYPE_CHECKING:
    import psycopg

OLDEST_SERVER = 130000  # FETCH FIRST ... WITH TIES
WHOLE_NUMBERS = ("smallint", "integer", "bigint")
MOMENT = "timestamp with time zone"
TIMES = ("date", "timestamp", "timestamptz")

COLUMN = """
select format_type(a.atttypid, a.atttypmod), a.attnotnull or c.relkind not in ('r', 'p'),
       coalesce(max(s.seqcache), 1), pg_is_in_recovery()
from pg_attribute a join pg_class c on c.oid = a.attrelid
left join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid
     and d.refobjsubid = a.attnum and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
left join pg_sequence s on s.seqrelid = d.objid
where c.oid = to_regclass(%s) and a.attname = %s and a.attnum > 0 and not a.attisdropped
group by 1, 2
"""


def check_address(settings: PullSettings, name: str) -> None:
    """Refuse an address that is none, that holds a password, or sends one in the clear."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        said = conninfo_to_dict(settings.address)
    except psycopg.ProgrammingError:
        raise DeclarationError(
            f"pull.{name}.address is not a PostgreSQL address. Write for example 'host=127.0.0.1 "
            "port=5432 dbname=office user=reader'."
        ) from None
    if said.get("password"):
        raise DeclarationError(
            f"pull.{name}.address contains a password. Put it into an environment variable and "
            f"name that variable in pull.{name}.secret_variable."
        )
    if settings.password_in_clear == "no":
        refuse_clear_postgres(said, os.environ, name)


def open_link(name: str, settings: PullSettings, secret: str) -> psycopg.Connection[Any]:
    """A connection whose times are in UTC, whose statements end in time, and which cannot write."""
    import psycopg
    from psycopg.types.json import set_json_loads

    said: dict[str, Any] = {"password": secret} if secret else {}
    link = psycopg.connect(
        settings.address,
        autocommit=True,
        connect_timeout=max(2, math.ceil(settings.timeout_seconds)),
        application_name=f"tapeline pull {name}",
        options="-c timezone=UTC -c datestyle=ISO -c default_transaction_read_only=on "
        f"-c statement_timeout={math.ceil(settings.timeout_seconds * 1000)}",
        **said,
    )
    for kind in TIMES:
        link.adapters.register_loader(kind, _time_loader())
    set_json_loads(partial(json.loads, parse_float=Decimal), link)
    return link


def growing_type(link: psycopg.Connection[Any], table: str, column: str) -> str:
    """The type of a column that only grows. Refuses, in words, what cannot keep that promise.

    `table` is quoted already.
    """
    if link.info.server_version < OLDEST_SERVER:
        raise OperationError("PostgreSQL 13 or newer is needed")
    found = link.execute(COLUMN, [table, column]).fetchone()
    if found is None:
        raise OperationError("the table or column does not exist, or this user cannot see it")
    kind, filled, cached, replica = found
    if kind not in (*WHOLE_NUMBERS, MOMENT):
        raise OperationError(
            f"the column is of type {kind}. Pull by an integer from a sequence or by a timestamptz "
            "with full precision; a timestamp without a time zone, or a coarse one, does not "
            "only grow"
        )
    if not filled:
        raise OperationError(
            "the column may be null, and rows without a value would be missed: make it not null"
        )
    if cached > 1:
        raise OperationError(
            f"the column's sequence has cache {cached}, so its numbers are out of order. Set the "
            "cache to 1"
        )
    if replica:
        raise OperationError(
            "this server is a replica, which does not show open transactions: use the primary"
        )
    return str(kind)


def words_of(error: psycopg.Error) -> str:
    """What PostgreSQL says, without the address at its beginning."""
    said = error.diag.message_primary or str(error)
    first = (said.strip().splitlines() or [type(error).__name__])[0]
    return first.rsplit("failed: ", 1)[-1].rstrip(".")


def _text(value: Any) -> str:
    """What the server has types for and JSON has not: an interval, a range, an address."""
    try:
        return exact_text(value)
    except ValueError:
        return str(value)


# A row as one line of JSON.
line_of = RowWriter(_text)


def _time_loader() -> type[psycopg.adapt.Loader]:
    """Keeps times as the server writes them: Python holds neither 'infinity' nor a year 12000."""
    from psycopg.types.string import TextLoader

    class TimeLoader(TextLoader):
        def load(self, data: Any) -> str:
            text = bytes(data).decode("ascii")
            return text.replace(" ", "T", 1).replace("+00", "Z", 1)

    return TimeLoader
