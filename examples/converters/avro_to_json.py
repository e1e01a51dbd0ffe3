"""A topic of Avro messages as a topic of JSON messages, each exactly once.

The messages carry the registry's header; `schemas/` holds a file for each id that they name. What
no schema can read, or is not a trade, waits in quarantine.
"""

from pyspark.sql import DataFrame

from tapeline import Kafka, Pipeline, Rows, Stream, option

TRADE = "trade_id string, traded_at timestamp, side string, quantity bigint, price decimal(18,4)"

pipeline = Pipeline("avro_to_json")
pipeline.source(
    "incoming",
    Kafka(
        option("avro_to_json.from", "trades.avro"), format="avro", schema=TRADE, schemas="schemas/"
    ),
)


@pipeline.table
def trades(incoming: Stream) -> DataFrame:
    """Every message that is a trade."""
    return incoming


@pipeline.sink(Kafka(option("avro_to_json.to", "trades.json")))
def converted(trades: Rows) -> Rows:
    """The same trades as JSON, keyed by trade."""
    own = [name.split()[0] for name in TRADE.split(", ")]
    return [
        {**{name: trade[name] for name in own}, "_key": trade["trade_id"]}
        for trade in trades
        if trade["_sign"] > 0
    ]
