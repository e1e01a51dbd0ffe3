"""The machine's unit: the same sums by DuckDB on one thread.

python -m benchmarks.duckdb_sums --drop DIR [--reference DIR] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import sums
from benchmarks.clock import seconds_since_start

# A line that is no JSON, or no UTF-8, is skipped by the reader. Decimals have one digit more than
# their rule allows: DuckDB multiplies those of 18 digits in 64 bits, which overflow. Each branch of
# the CASE is cast: of decimals with 38 digits DuckDB would take the smallest scale.
QUERY = """
with lines as (
    select * from read_json($files, format = 'newline_delimited', ignore_errors = true,
        columns = {columns})
), good as (
    select
        trade_id, try_cast(traded_at as timestamptz) as traded_at, upper(side) as side, instrument,
        case when regexp_full_match(quantity, '[0-9]{{1,12}}([.][0-9]{{1,6}})?')
            then cast(quantity as decimal(19,6)) end as quantity,
        case when regexp_full_match(price, '[0-9]{{1,10}}([.][0-9]{{1,8}})?')
            then cast(price as decimal(19,8)) end as price,
        currency, upper(terminal) as terminal
    from lines
    where length(trade_id) between 1 and 64
        and (version is null or try_cast(version as int) >= 1)
        and (event is null or event = 'NEW')
        and length(client) > 0
        and (fees is null or regexp_full_match(fees, '[0-9]{{1,16}}([.][0-9]{{1,4}})?'))
), trades as (
    select distinct on (trade_id) * from good
    where side in ('BUY', 'SELL') and terminal in ('DESKTOP', 'WEB', 'MOBILE')
        and quantity > 0 and price > 0 and traded_at <= now() + interval 1 day
), amounts as (
    select
        time_bucket(interval 15 minutes, timezone('UTC', traded_at)) as window_start, terminal,
        currencies.currency, side,
        case minor_units
            when 0 then cast(round(quantity * price, 0) as decimal(28,4))
            when 2 then cast(round(quantity * price, 2) as decimal(28,4))
            when 3 then cast(round(quantity * price, 3) as decimal(28,4))
        end as amount
    from trades
    join read_csv($instruments, all_varchar = true) as instruments using (instrument)
    join read_csv($currencies, types = {{'minor_units': 'int'}}) as currencies
        on currencies.currency = coalesce(trades.currency, instruments.currency)
)
select
    window_start, terminal, currency,
    sum(case when side = 'BUY' then amount else 0 end) as total_buy,
    sum(case when side = 'SELL' then amount else 0 end) as total_sell,
    count(*) as trades
from amounts
group by all
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drop", type=Path, required=True)
    parser.add_argument("--reference", type=Path, help="default: beside the drop folder")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    import duckdb

    connection = duckdb.connect(config={"threads": asked.threads})
    ready = seconds_since_start()
    reference = asked.reference or asked.drop.parent / "reference"
    columns = "{" + ", ".join(f"{name}: 'varchar'" for name in sums.LINE_FIELDS) + "}"
    parameters = {
        "files": str(asked.drop / "*.jsonl"),
        "instruments": str(reference / "instruments.csv"),
        "currencies": str(reference / "currencies.csv"),
    }
    found = connection.execute(QUERY.format(columns=columns), parameters).fetchall()
    rows = [sums.row(one) for one in found]
    done = seconds_since_start()
    answer = {
        "event": "done",
        "arm": "duckdb_sums",
        "threads": asked.threads,
        "trades": sums.trades(rows),
        "checksum": sums.checksum(rows),
        "seconds_from_start": round(done, 3),
        "seconds_from_ready": round(done - ready, 3),
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
