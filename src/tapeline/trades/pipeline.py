"""The trade summary of a brokerage: total buy, total sell and the amount due, live."""

from __future__ import annotations

import json

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tapeline import (
    DeclarationError,
    Files,
    HttpPull,
    Kafka,
    Pipeline,
    Snapshot,
    Stream,
    expect_or_quarantine,
    option,
)
from tapeline.trades.markets import HOME, KNOWN, checked_zone, chosen
from tapeline.trades.reference import MINOR_UNITS

TRADE = """
    trade_id string, version int, event string, traded_at timestamp, side string,
    instrument string, quantity decimal(18,6), price decimal(18,8), currency string,
    client string, terminal string, fees decimal(20,4), trade_date date, settles_on date
"""
WINDOW = option("trades.window", "15 minutes")
CURRENCIES = option("trades.currencies", ",".join(sorted(MINOR_UNITS)))
MARKETS = chosen()
ZONE = checked_zone(option("trades.zone", MARKETS[0].zone))
MAIN_CURRENCY = option("trades.main_currency", MARKETS[0].currency)
TOPICS = option("trades.topics", "")  # where trades come from (default: the folder landing/)
CLIENT_DUE = option("trades.client_due", "no")  # one more Spark job and two tables per batch
if CLIENT_DUE not in ("yes", "no"):
    raise DeclarationError(f"trades.client_due must be yes or no, not '{CLIENT_DUE}'.")
CODES = ", ".join(f"'{code.strip().upper()}'" for code in CURRENCIES.split(","))

# The currency of each market has the days of that market, all other currencies those at home.
ZONE_OF = " ".join(f"when '{market.currency}' then '{market.zone}'" for market in MARKETS)
SAME_ZONE = f"and market_days.zone = case windows.currency {ZONE_OF} else '{MARKETS[0].zone}' end"
DAYS = Files(
    "reference/market_days_by_zone.csv",
    format="csv",
    schema="day date, starts_at timestamp, ends_at timestamp, zone string",
)
if MARKETS == HOME:
    SAME_ZONE = ""
    DAYS = Files(
        "reference/market_days.csv",
        format="csv",
        schema="day date, starts_at timestamp, ends_at timestamp",
    )

pipeline = Pipeline("trades")
if TOPICS:
    names = tuple(name.strip() for name in TOPICS.split(","))
    pipeline.source("raw_trades", Kafka(names, format="json", schema=TRADE))
else:
    pipeline.source("raw_trades", Files("landing/", format="json", schema=TRADE))
    # What is booked by hand is in the back office: `tapeline pull` brings it into the same folder.
    pipeline.pull("back_office", HttpPull("/trades"), into="raw_trades")
pipeline.reference("instruments", Files("reference/instruments.csv", format="csv"))
pipeline.reference("clients", Files("reference/clients.csv", format="csv"))
pipeline.reference(
    "currencies",
    Files("reference/currencies.csv", format="csv", schema="currency string, minor_units int"),
)
pipeline.reference(
    "settlement_calendar",
    Files(
        "reference/settlement_calendar.csv",
        format="csv",
        schema="venue string, trade_date date, settlement_id string, settles_on date",
    ),
)
pipeline.reference("market_days", DAYS)


@pipeline.table(
    key="trade_id",
    sequence_by="coalesce(version, 1)",
    apply_as_deletes="upper(event) = 'CANCEL'",
    time="traded_at",
    late_after="5 minutes",
)
@expect_or_quarantine(
    "trade_id is present, at most 64 characters",
    "trade_id is not null and length(trade_id) between 1 and 64",
)
@expect_or_quarantine("version is 1 or more", "version >= 1")
@expect_or_quarantine("event is NEW, CORRECT or CANCEL", "event in ('NEW', 'CORRECT', 'CANCEL')")
@expect_or_quarantine("traded_at is present", "traded_at is not null")
@expect_or_quarantine("side is BUY or SELL", "side in ('BUY', 'SELL')")
@expect_or_quarantine("instrument is present", "length(instrument) > 0")
@expect_or_quarantine("quantity is above zero", "quantity > 0")
@expect_or_quarantine("price is above zero", "price > 0")
@expect_or_quarantine("currency is known", f"currency is null or currency in ({CODES})")
@expect_or_quarantine("client is present", "length(client) > 0")
@expect_or_quarantine(
    "terminal is DESKTOP, WEB or MOBILE", "terminal in ('DESKTOP', 'WEB', 'MOBILE')"
)
@expect_or_quarantine("fees are zero or more", "fees >= 0")
@expect_or_quarantine(
    "settles_on is not before trade_date",
    "settles_on is null or trade_date is null or settles_on >= trade_date",
)
def trades(raw_trades: Stream) -> DataFrame:
    """One typed, checked row per trade."""
    return raw_trades.withColumns(
        {
            "version": F.coalesce("version", F.lit(1)),
            "event": F.coalesce(F.upper("event"), F.lit("NEW")),
            "side": F.upper("side"),
            "terminal": F.upper("terminal"),
            "currency": F.upper("currency"),
            "fees": F.coalesce("fees", F.lit(0).cast("decimal(20,4)")),
        }
    )


@pipeline.table
@expect_or_quarantine("instrument is known", "venue is not null")
@expect_or_quarantine("client is known", "segment is not null")
@expect_or_quarantine("currency has a minor unit", "minor_units is not null")
@expect_or_quarantine("the calendar has a settlement", "settlement_id is not null")
@expect_or_quarantine("settles_on is not before trade_date", "settles_on >= trade_date")
def enriched_trades(
    trades: Stream,
    instruments: Snapshot,
    clients: Snapshot,
    currencies: Snapshot,
    settlement_calendar: Snapshot,
) -> DataFrame:
    """Trades with their instrument, client, amount and settlement."""
    # A file of instruments may name the zone of each one's venue, in which its days begin.
    zoned = ["zone"] if "zone" in instruments.columns else []
    zone = _known_zone() if zoned else ZONE
    listed = instruments.select(
        "instrument", "isin", "symbol", "venue", F.col("currency").alias("quoted_in"), *zoned
    )
    calendar = settlement_calendar.withColumnRenamed("settles_on", "calendar_settles_on")
    local_day = F.to_date(F.from_utc_timestamp("traded_at", zone))
    return (
        trades.join(listed, "instrument", "left")
        .withColumns(
            {
                "currency": F.coalesce("currency", "quoted_in"),
                "trade_date": F.coalesce("trade_date", local_day),
            }
        )
        .join(clients.select("client", "segment"), "client", "left")
        .join(currencies, "currency", "left")
        .join(calendar, ["venue", "trade_date"], "left")
        .withColumns(
            {
                "settlement_id": F.when(F.col("settles_on").isNull(), F.col("settlement_id"))
                .otherwise(_own_settlement()),
                "settles_on": F.coalesce("settles_on", "calendar_settles_on"),
                "amount": _rounded(F.col("quantity") * F.col("price"), F.col("minor_units")),
            }
        )
        .drop("quoted_in", "calendar_settles_on", *zoned)
    )  # fmt: skip


@pipeline.summary(
    key=["window_start", "terminal", "currency"], time="window_start", width=WINDOW
)  # fmt: skip
def trade_summary(enriched_trades: Stream) -> DataFrame:
    """Money bought and sold in each quarter of an hour, by terminal and currency."""
    window_start = F.window("traded_at", WINDOW).start.alias("window_start")
    return enriched_trades.groupBy(window_start, "terminal", "currency").agg(
        F.sum(_when_side("BUY", F.col("amount"))).alias("total_buy"),
        F.sum(_when_side("SELL", F.col("amount"))).alias("total_sell"),
        F.sum("fees").alias("fees"),
        F.count("*").alias("trades"),
    )


@pipeline.summary(key=["settlement_id", "settles_on", "currency"])
def settlement_due(enriched_trades: Stream) -> DataFrame:
    """What each settlement is made of, by currency."""
    return enriched_trades.groupBy("settlement_id", "settles_on", "currency").agg(
        F.sum(_when_side("BUY", F.col("amount"))).alias("bought"),
        F.sum(_when_side("SELL", F.col("amount"))).alias("sold"),
        F.sum("fees").alias("fees"),
        F.count("*").alias("trades"),
    )


if CLIENT_DUE == "yes":

    @pipeline.summary(key=["settlement_id", "settles_on", "client", "currency"])
    def client_due(enriched_trades: Stream) -> DataFrame:
        """What each client's part of a settlement is made of, by currency."""
        return enriched_trades.groupBy("settlement_id", "settles_on", "client", "currency").agg(
            F.sum(_when_side("BUY", F.col("amount"))).alias("bought"),
            F.sum(_when_side("SELL", F.col("amount"))).alias("sold"),
            F.sum("fees").alias("fees"),
            F.count("*").alias("trades"),
        )

    # One client's receivable does not pay another's payable: the two are added up apart.
    pipeline.view(
        "client_totals",
        """
        select settlement_id, settles_on, currency,
               sum(case when due > 0 then due else 0 end) as payable,
               sum(case when due < 0 then -due else 0 end) as receivable,
               count(*) as clients
        from (select *, bought - sold + fees as due from client_due) as clients
        group by settlement_id, settles_on, currency
        order by settles_on, settlement_id, currency
        """,
    )


pipeline.view(
    "running_totals",
    f"""
    with windows as (
        select window_start, currency, sum(total_buy) as total_buy, sum(total_sell) as total_sell,
               cast(sum(trades) as bigint) as trades
        from trade_summary group by window_start, currency
    )
    select market_days.day, windows.window_start, windows.currency,
           total_buy, total_sell, total_buy - total_sell as net_to_settle,
           sum(total_buy) over running as running_buy,
           sum(total_sell) over running as running_sell,
           sum(total_buy - total_sell) over running as running_net,
           trades
    from windows
    left join market_days on windows.window_start >= market_days.starts_at
        and windows.window_start < market_days.ends_at
        {SAME_ZONE}
    window running as (
        partition by market_days.day, windows.currency order by windows.window_start
        rows between unbounded preceding and current row
    )
    order by windows.currency, windows.window_start
    """,
)

pipeline.view(
    "due",
    """
    select settlement_id, settles_on, currency, bought, sold, fees,
           bought - sold as net_to_settle,
           bought - sold + fees as due,
           case when bought - sold + fees >= 0 then 'pay in' else 'receive' end as direction,
           trades
    from settlement_due order by settles_on, settlement_id, currency
    """,
)

FACTS = {
    "zone": ZONE,
    "zones": json.dumps({market.currency: market.zone for market in MARKETS}),
    "main_currency": MAIN_CURRENCY,
}
pipeline.page("Trade summary", "pages/trade_summary.html", **FACTS)
pipeline.page("Settlement", "pages/settlement.html", **FACTS, client_due=CLIENT_DUE)


def _when_side(side: str, amount: Column) -> Column:
    return F.when(F.col("side") == side, amount).otherwise(0)


def _rounded(amount: Column, minor_units: Column) -> Column:
    """Rounded once, half up, to the currency's minor unit."""
    whole, cents, thousandths = (F.round(amount, places) for places in (0, 2, 3))
    rounded = F.when(minor_units == 0, whole).when(minor_units == 3, thousandths).otherwise(cents)
    return rounded.cast("decimal(27,4)")


def _known_zone() -> Column:
    """The zone of an instrument, or none: one that Spark does not know would stop every batch."""
    known = sorted({ZONE, *(market.zone for market in KNOWN.values())})
    zone = F.col("zone")
    return F.when(zone.isNull(), ZONE).when(zone.isin(*known), zone)


def _own_settlement() -> Column:
    """A trade that names its own settlement day settles apart from the calendar's."""
    market = F.substring_index("settlement_id", "-", 1)
    return F.concat(market, F.lit("-"), F.col("settles_on").cast("string"))
