"""A topic of JSON messages as a topic of Avro messages, each exactly once.

What is not JSON, or not a trade, waits in quarantine. The schema file is called by its id in the
registry, so the messages carry the registry's header.
"""

from pyspark.sql import DataFrame

from tapeline import Kafka, Pipeline, Rows, Stream, option

TRADE = "trade_id string, traded_at timestamp, side string, quantity bigint, price decimal(18,4)"

pipeline = Pipeline("json_to_avro")
pipeline.source("incoming", Kafka(option("json_to_avro.from", "trades.json"), schema=TRADE))


@pipeline.table
def trades(incoming: Stream) -> DataFrame:
    """Every message that is a trade."""
    return incoming


@pipeline.sink(
    Kafka(option("json_to_avro.to", "trades.avro"), format="avro", schemas="schemas/7.avsc")
)
def converted(trades: Rows) -> Rows:
    """The same trades as Avro, keyed by trade."""
    return [{**trade, "_key": trade["trade_id"]} for trade in trades if trade["_sign"] > 0]
