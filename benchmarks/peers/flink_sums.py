"""PyFlink on the same files: trades judged and counted once, sums kept, both in files.

Its own environment runs it: .venv-peers/flink/bin/python -m benchmarks.peers.flink_sums
--drop DIR --reference DIR --out DIR. One streaming job in SQL, so no row ever visits Python.
It keeps no raw records and no quarantine, and takes no checkpoints: with one every ten seconds it
failed on 300,000 trades, was restarted, and did not come to an end.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import EnvironmentSettings, StreamTableEnvironment

from benchmarks import sums
from benchmarks.clock import seconds_since_start
from benchmarks.peers.arguments import answer, asked

# As an expert sets them on a machine of two cores: updates of a sum are put together for a second.
SETTINGS = {
    "parallelism.default": str(len(os.sched_getaffinity(0))),
    "taskmanager.memory.process.size": "4g",
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "table.local-time-zone": "UTC",
}

TABLES = """
create table lines ({line}, arrived as proctime()) with (
    'connector' = 'filesystem', 'path' = '{drop}',
    'format' = 'json', 'json.ignore-parse-errors' = 'true');
create table instruments (instrument string, currency string) with (
    'connector' = 'filesystem', 'path' = '{out}/reference/instruments.csv', 'format' = 'csv');
create table currencies (currency string, minor_units int) with (
    'connector' = 'filesystem', 'path' = '{out}/reference/currencies.csv', 'format' = 'csv');
create table trades ({trade}) with (
    'connector' = 'filesystem', 'path' = '{out}/trades', 'format' = 'debezium-json');
create table sums (
    window_start bigint, terminal string, currency string,
    total_buy decimal(38,4), total_sell decimal(38,4), trades bigint) with (
    'connector' = 'filesystem', 'path' = '{out}/sums', 'format' = 'debezium-json');
create view good as
    select trade_id,
        unix_timestamp(
            concat(substring(traded_at, 1, 10), ' ', substring(traded_at, 12, 8),
                ' ', replace(regexp_extract(traded_at, '(Z|[+-][0-9:]+)$', 1), 'Z', '+00:00')),
            'yyyy-MM-dd HH:mm:ss XXX') as traded_at,
        upper(side) as side, instrument, try_cast(quantity as decimal(18,6)) as quantity,
        try_cast(price as decimal(18,8)) as price, currency, upper(terminal) as terminal, arrived
    from lines
    where char_length(trade_id) between 1 and 64
        and (version is null or try_cast(version as int) >= 1)
        and (event is null or event = 'NEW')
        and regexp(traded_at, '{time}')
        and upper(side) in ('BUY', 'SELL') and upper(terminal) in ('DESKTOP', 'WEB', 'MOBILE')
        and regexp(quantity, '^[0-9]{{1,12}}([.][0-9]{{1,6}})?$')
        and regexp(price, '^[0-9]{{1,10}}([.][0-9]{{1,8}})?$')
        and char_length(client) > 0 and position('\ufffd' in client) = 0
        and (fees is null or regexp(fees, '^[0-9]{{1,16}}([.][0-9]{{1,4}})?$'));
create view once as
    select * from (
        select *, row_number() over (partition by trade_id order by arrived) as repeated from good
        where quantity > 0 and price > 0 and traded_at <= unix_timestamp() + 86400
    ) where repeated = 1;
create view amounts as
    select traded_at, terminal, side, coalesce(t.currency, i.currency) as currency,
        cast(case c.minor_units
            when 0 then round(quantity * price, 0)
            when 2 then round(quantity * price, 2)
            when 3 then round(quantity * price, 3)
        end as decimal(28,4)) as amount
    from once t join instruments i on t.instrument = i.instrument
    join currencies c on c.currency = coalesce(t.currency, i.currency)
"""
TRADE = """
    trade_id string, traded_at bigint, terminal string, side string, instrument string,
    quantity decimal(18,6), price decimal(18,8), currency string"""
TIME = "^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9][.0-9]*(Z|[+-][0-9:]+)$"
INTO_TRADES = """
insert into trades
    select trade_id, traded_at, terminal, side, instrument, quantity, price, currency
    from once"""
INTO_SUMS = """
insert into sums
    select traded_at / 900 * 900, terminal, currency,
        sum(case when side = 'BUY' then amount else 0 end),
        sum(case when side = 'SELL' then amount else 0 end), count(*)
    from amounts group by traded_at / 900 * 900, terminal, currency"""


def main() -> None:
    given = asked(__doc__)
    without_headings(given.reference, given.out / "reference")
    environment = StreamExecutionEnvironment.get_execution_environment()
    tables = StreamTableEnvironment.create(environment, EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        tables.get_config().set(name, value)
    line = ", ".join(f"{name} string" for name in sums.LINE_FIELDS)
    places = {"drop": given.drop.resolve(), "out": given.out.resolve()}
    text = TABLES.format(line=line, trade=TRADE, time=TIME, **places)
    for statement in text.split(";\n"):
        tables.execute_sql(statement)
    ready = seconds_since_start()
    both = tables.create_statement_set()
    both.add_insert_sql(INTO_TRADES)
    both.add_insert_sql(INTO_SUMS)
    both.execute().wait()
    print(answer("flink", last_sums(given.out / "sums"), ready), flush=True)


def without_headings(reference: Path, into: Path) -> None:
    """Flink's CSV has no headings: two columns of each reference table, and nothing else."""
    into.mkdir(parents=True)
    wanted = {"instruments": ("instrument", "currency"), "currencies": ("currency", "minor_units")}
    for name, columns in wanted.items():
        with (reference / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            rows = [[row[one] for one in columns] for row in csv.DictReader(file)]
        with (into / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)


def last_sums(folder: Path) -> Iterator[sums.Row]:
    """The sums that stand after all changes; those of one key lie in one file, in order."""
    standing: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in sorted(folder.rglob("part-*")):
        with path.open(encoding="utf-8") as file:
            for text in file:
                change = json.loads(text, parse_float=str)
                row = change["after"] or change["before"]
                key = row["window_start"], row["terminal"], row["currency"]
                if change["after"]:
                    standing[key] = row
                else:
                    standing.pop(key)
    for row in standing.values():
        start = sums.utc(row["window_start"])
        yield sums.row((start, *(row[name] for name in sums.COLUMNS[1:])))


if __name__ == "__main__":
    main()
