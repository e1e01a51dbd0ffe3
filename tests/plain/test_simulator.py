"""The simulator: decided by its seed, true to its rates, the same on the wire as in truth."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from tapeline import OperationError
from tapeline.trades.delivery import play, write_files, write_truth
from tapeline.trades.faults import KINDS
from tapeline.trades.lines import line
from tapeline.trades.markets import market_of, named
from tapeline.trades.oracle import Reference, expect, read_truth, window_start
from tapeline.trades.reference import make_instruments, write_reference
from tapeline.trades.simulator import Day, simulate

DAY = Day(seed=7, date=date(2026, 11, 13), trades=4_000)
WILD = replace(DAY, duplicates=0.1, broken=0.1, late=0.1, corrections=0.1)
MIDNIGHT = datetime(2026, 11, 13, tzinfo=ZoneInfo("America/New_York"))
SENT_GOOD = ("kept", "duplicate", "correct", "cancel", "unknown_instrument")


@pytest.fixture(scope="module")
def sents():
    return list(simulate(WILD))


def arrival(sent):
    return MIDNIGHT + timedelta(seconds=sent.offset_seconds)


def lateness(sent):
    return arrival(sent) - sent.traded_at


def test_the_same_seed_sends_the_same_bytes():
    assert [line(one) for one in simulate(WILD)] == [line(one) for one in simulate(WILD)]


def test_another_process_sends_the_same_bytes():
    program = (
        "from datetime import date; from hashlib import sha256\n"
        "from tapeline.trades.lines import line\n"
        "from tapeline.trades.simulator import Day, simulate\n"
        "day = Day(7, date(2026, 11, 13), 500, corrections=0.1)\n"
        "print(sha256(b''.join(map(line, simulate(day)))).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in "123"
    }
    assert len(digests) == 1


def test_another_seed_or_date_sends_other_trades():
    day = replace(DAY, trades=50)
    ids = [
        {one.trade_id for one in simulate(other)}
        for other in (day, replace(day, seed=8), replace(day, date=date(2026, 11, 12)))
    ]
    assert len(set.union(*ids)) == 150


def test_records_come_in_order_of_arrival_which_is_not_the_order_of_trading(sents):
    offsets = [one.offset_seconds for one in sents]
    assert offsets == sorted(offsets)
    traded = [one.traded_at for one in sents]
    assert traded != sorted(traded)


def test_the_rates_are_near_the_asked_ones():
    sent = list(simulate(replace(DAY, trades=40_000)))
    fates = Counter(one.fate.split(":")[0] for one in sent)
    broken = fates["broken"] + fates["unknown_instrument"]
    late = sum(one.fate == "kept" and lateness(one) > timedelta(minutes=5) for one in sent)
    assert fates["kept"] + broken == 40_000
    assert 300 < fates["duplicate"] < 500
    assert 150 < broken < 250
    assert 650 < late < 950
    assert not fates["correct"] + fates["cancel"]


def test_late_trades_have_a_tail_of_days(sents):
    days = Counter((MIDNIGHT.date() - one.traded_at.date()).days for one in sents)
    assert days[0] > 3_000
    assert sum(count for back, count in days.items() if back > 0) > 30
    assert max(days) > 7


def test_nothing_is_from_the_future_but_what_is_broken_that_way(sents):
    for one in sents:
        assert (lateness(one) < timedelta(0)) == (one.fate == "broken:future"), one


def test_a_days_trading_has_an_opening_burst_a_lull_and_a_closing_burst():
    per_window = Counter(window_start(one.traded_at) for one in simulate(replace(DAY, late=0)))
    counts = [count for start, count in sorted(per_window.items()) if start.year == 2026]
    assert len(counts) == 26
    assert counts[0] > 2 * counts[12]
    assert counts[-1] > 2 * counts[12]


def test_an_early_close_ends_the_day():
    short = simulate(Day(seed=1, date=date(2026, 11, 27), trades=500, broken=0))
    assert max(one.traded_at for one in short).isoformat() < "2026-11-27T18:00"


def test_a_day_without_a_session_is_refused():
    with pytest.raises(
        ValueError, match="2026-11-14 is not a trading day; the one before it is 2026-11-13"
    ):
        next(simulate(replace(DAY, date=date(2026, 11, 14))))


def test_a_duplicate_repeats_the_exact_bytes_later(sents):
    seen = set()
    duplicates = 0
    for one in sents:
        if one.fate == "duplicate":
            assert line(one) in seen
            duplicates += 1
        elif one.fate in SENT_GOOD:
            assert line(one) not in seen
        seen.add(line(one))
    assert duplicates > 300


def test_good_lines_say_what_the_truth_says(sents, tmp_path):
    write_truth(sents, tmp_path / "truth.jsonl")
    stated = Counter()
    for truth, one in zip(read_truth(tmp_path / "truth.jsonl"), sents, strict=True):
        if truth["fate"] not in SENT_GOOD:
            continue
        fields = json.loads(line(one))
        stated.update(fields.keys())
        assert fields["trade_id"] == truth["trade_id"]
        assert fields.get("version", 1) == truth["version"]
        assert fields.get("event", "NEW") == truth["event"]
        if set(fields) == {"trade_id", "version", "event"}:
            assert truth["event"] == "CANCEL"
            continue
        assert datetime.fromisoformat(fields["traded_at"]) == datetime.fromisoformat(
            truth["traded_at"]
        )
        assert Decimal(fields.get("fees", "0")) == Decimal(truth["fees"])
        for name in ("side", "terminal"):
            assert fields[name].upper() == truth[name]
        for name in ("instrument", "quantity", "price", "client"):
            assert fields[name] == truth[name]
        for name in ("currency", "trade_date"):
            assert fields.get(name) == truth[name]
    # The optional fields are there sometimes, so that their defaults are tried.
    for name in ("currency", "fees", "trade_date", "version"):
        assert 0 < stated[name] < stated["trade_id"]


def test_good_values_fit_their_types(sents):
    for one in sents:
        if one.fate not in SENT_GOOD:
            continue
        assert one.quantity > 0
        assert one.price > 0
        assert one.fees >= 0
        assert -one.quantity.as_tuple().exponent <= 6
        assert -one.price.as_tuple().exponent <= 4
        assert -one.fees.as_tuple().exponent <= 4
        assert "E" not in f"{one.quantity}{one.price}{one.fees}"


def test_every_kind_of_damage_occurs_and_shows_in_the_line(sents):
    broken = {
        one.fate.removeprefix("broken:"): line(one) for one in sents if one.fate not in SENT_GOOD
    }
    unknown = next(one for one in sents if one.fate == "unknown_instrument")
    assert {*broken, "unknown_instrument"} == set(KINDS)
    with pytest.raises(UnicodeDecodeError):
        broken["not_utf8"].decode()
    with pytest.raises(ValueError, match=r"Expecting|Unterminated|Invalid"):
        json.loads(broken["not_json"])
    assert json.loads(broken["unknown_side"])["side"].upper() == "HOLD"
    assert json.loads(broken["unknown_terminal"])["terminal"] == "FAX"
    assert Decimal(json.loads(broken["negative_quantity"])["quantity"]) < 0
    assert Decimal(json.loads(broken["zero_price"])["price"]) == 0
    assert Decimal(json.loads(broken["too_large"])["quantity"]) >= 10**12
    assert json.loads(broken["bad_currency"])["currency"] == "ZZZ"
    assert json.loads(broken["future"])["traded_at"][:4] == "2036"
    assert b"NaN" in broken["nan"]
    assert unknown.instrument not in {
        text for instrument in make_instruments(10_000) for text in instrument.spellings
    }
    for one in sents:
        assert b"\n" not in line(one)


def test_too_many_decimals_end_in_a_digit_that_counts(sents):
    for one in sents:
        if one.fate == "broken:too_many_decimals":
            fields = json.loads(line(one))
            places = {name: len(fields[name].partition(".")[2]) for name in ("quantity", "price")}
            assert places["quantity"] == 7 or places["price"] == 9


def test_versions_of_a_trade_are_whole_and_some_overtake_each_other(sents):
    arrived: dict[str, list[int]] = {}
    for one in sents:
        if one.fate in ("kept", "correct", "cancel"):
            arrived.setdefault(one.trade_id, []).append(one.version)
    changed = [versions for versions in arrived.values() if len(versions) > 1]
    assert len(changed) > 300
    for versions in arrived.values():
        assert sorted(versions) == list(range(1, len(versions) + 1))
    assert any(versions != sorted(versions) for versions in changed)


def test_files_hold_the_lines_in_order_and_nothing_hidden_stays(sents, tmp_path):
    paths = write_files(sents, tmp_path / "plain", lines_per_file=1_000)
    assert len(paths) == -(-len(sents) // 1_000)
    content = b"".join(path.read_bytes() for path in paths)
    assert content == b"".join(line(one) + b"\n" for one in sents)
    assert sorted((tmp_path / "plain").iterdir()) == sorted(paths)
    packed = write_files(sents, tmp_path / "packed", lines_per_file=1_000, gzip=True)
    assert b"".join(gzip.decompress(path.read_bytes()) for path in packed) == content
    assert all(path.name.endswith(".jsonl.gz") for path in packed)


class StoppedError(Exception):
    """The player was killed."""


class Timer:
    """A clock that passes by sleeping only, and may stop the player after some sleeps."""

    def __init__(self, sleeps=None):
        self.now, self.sleeps = 100.0, sleeps

    def sleep(self, seconds):
        if self.sleeps is not None:
            self.sleeps -= 1
            if self.sleeps < 0:
                raise StoppedError
        self.now += seconds

    def clock(self):
        return self.now


def delivered(folder):
    return Counter(
        one
        for path in folder.iterdir()
        if not path.name.startswith(".")
        for one in path.read_bytes().splitlines()
    )


def test_a_played_day_takes_its_seconds_and_delivers_everything(tmp_path):
    timer = Timer()
    everything = Counter(line(one) for one in simulate(DAY))
    assert play(DAY, tmp_path, 10, timer.sleep, timer.clock) == everything.total()
    assert 10 <= timer.now - 100 <= 11
    assert delivered(tmp_path) == everything
    assert 30 < len(list(tmp_path.glob("desktop-*"))) <= 41  # four a second
    assert play(DAY, tmp_path, 10, timer.sleep, timer.clock) == 0


@pytest.mark.parametrize("second_speed", [10, 3, 40])
def test_a_stopped_player_goes_on_where_it_was(tmp_path, second_speed):
    first, second = Timer(sleeps=7), Timer()
    with pytest.raises(StoppedError):
        play(DAY, tmp_path, 10, first.sleep, first.clock)
    before = delivered(tmp_path).total()
    everything = Counter(line(one) for one in simulate(DAY))
    assert 0 < before < everything.total()
    rest = play(DAY, tmp_path, second_speed, second.sleep, second.clock)
    assert rest == everything.total() - before
    assert delivered(tmp_path) == everything


@pytest.mark.parametrize("killed_at", range(0, 60, 7))
def test_a_player_killed_within_a_delivery_neither_loses_nor_repeats(
    tmp_path, monkeypatch, killed_at
):
    from tapeline.trades import delivery

    real, calls = delivery.os.replace, iter(range(1_000_000))

    def replace_or_die(source, target):
        if next(calls) == killed_at:
            raise StoppedError
        real(source, target)

    taken: Counter[bytes] = Counter()
    timer = Timer()
    monkeypatch.setattr(delivery.os, "replace", replace_or_die)
    with pytest.raises(StoppedError):
        play(DAY, tmp_path, 10, timer.sleep, timer.clock)
    # Meanwhile the intake takes away what was delivered.
    taken += delivered(tmp_path)
    for path in tmp_path.glob("*.jsonl"):
        if not path.name.startswith("."):
            path.unlink()
    play(DAY, tmp_path, 10, timer.sleep, timer.clock)
    assert taken + delivered(tmp_path) == Counter(line(one) for one in simulate(DAY))


def test_progress_of_another_day_is_refused(tmp_path):
    timer = Timer()
    play(replace(DAY, trades=10), tmp_path, 1, timer.sleep, timer.clock)
    with pytest.raises(OperationError, match=r"another day: \{'trades': 10\}"):
        play(DAY, tmp_path, 1, timer.sleep, timer.clock)


def test_each_market_trades_in_its_own_hours(tmp_path):
    markets = named("US,IN,EU,GB,CH")
    instruments = make_instruments(100, markets)
    sent = list(simulate(replace(DAY, late=0, broken=0), instruments))
    offsets = [one.offset_seconds for one in sent]
    assert offsets == sorted(offsets)
    assert len({one.trade_id for one in sent}) == DAY.trades
    venues = {text: one.venue for one in instruments for text in one.spellings}
    hours = {
        "US": ("14:30", "21:00"), "IN": ("03:45", "10:00"), "EU": ("08:00", "16:30"),
        "GB": ("08:00", "16:30"), "CH": ("08:00", "16:30"),
    }  # fmt: skip
    for name, (opens, closes) in hours.items():
        own = [s for s in sent if market_of(venues[s.instrument]).name == name]
        assert len({one.trade_id for one in own}) == DAY.trades // 5
        assert min(one.traded_at for one in own).isoformat()[:16] >= f"2026-11-13T{opens}"
        assert max(one.traded_at for one in own).isoformat()[:16] < f"2026-11-13T{closes}"
    timer = Timer()
    assert play(DAY, tmp_path, 10, timer.sleep, timer.clock, instruments) > DAY.trades
    expected = Counter(line(one) for one in simulate(DAY, instruments))
    assert delivered(tmp_path) == expected


def test_a_market_on_holiday_does_not_trade_unless_it_is_home():
    thanksgiving = replace(DAY, date=date(2026, 11, 26), trades=200, late=0)
    ids = {one.trade_id for one in simulate(thanksgiving, make_instruments(40, named("IN,US")))}
    assert len(ids) == 200
    assert not any("-US-" in trade_id for trade_id in ids)
    with pytest.raises(
        ValueError, match="2026-11-26 is not a trading day; the one before it is 2026-11-25"
    ):
        list(simulate(thanksgiving, make_instruments(40, named("US,IN"))))


def test_the_oracle_accounts_for_every_record(sents, tmp_path):
    write_reference(tmp_path, years=(2026, 2026))
    write_truth(sents, tmp_path / "truth.jsonl")
    expected = expect(read_truth(tmp_path / "truth.jsonl"), Reference.read(tmp_path))
    fates = Counter(one.fate.split(":")[0] for one in sents)
    assert expected.trades.total() == len(sents)
    assert expected.trades["duplicate"] == fates["duplicate"]
    assert expected.trades["quarantined"] == fates["broken"]
    assert expected.enriched_trades.total() == expected.trades["kept"]
    assert expected.enriched_trades["quarantined"] == fates["unknown_instrument"]
    booked = sum(window.trades for window in expected.windows.values())
    assert booked == expected.enriched_trades["kept"]
    for currency in ("USD", "EUR", "GBP", "JPY"):
        own = [money for (_, _, code), money in expected.windows.items() if code == currency]
        net = sum(one.total_buy - one.total_sell + one.fees for one in own)
        assert net == sum(v for (_, code), v in expected.due.items() if code == currency)


def test_the_oracle_rounds_once_half_up_and_lets_the_highest_version_stand(tmp_path):
    write_reference(tmp_path, years=(2026, 2026))
    symbol = next(one.symbol for one in make_instruments(9) if one.currency == "USD")
    new = {
        "fate": "kept",
        "offset_seconds": 1.0,
        "trade_id": "t1",
        "version": 1,
        "event": "NEW",
        "traded_at": "2026-11-13T15:59:59.999999+00:00",
        "side": "BUY",
        "instrument": symbol,
        "quantity": "0.5",
        "price": "10.01",  # 5.005, rounded to 5.01
        "currency": None,
        "client": "C000001",
        "terminal": "WEB",
        "fees": "0.0050",
        "trade_date": None,
    }
    sell = {**new, "trade_id": "t2", "side": "SELL", "trade_date": "2026-11-12"}
    changed = {**sell, "version": 2, "event": "CORRECT", "quantity": "1"}
    cancelled = {**new, "trade_id": "t3", "version": 2, "event": "CANCEL"}
    conflict = {**new, "price": "11"}
    repeat = {**new, "fate": "duplicate", "offset_seconds": 9.0}
    records = [changed, cancelled, new, sell, repeat, conflict, {**new, "trade_id": "t3"}]
    expected = expect(records, Reference.read(tmp_path))
    assert expected.trades == {
        "kept": 2,
        "applied": 1,
        "superseded": 2,
        "duplicate": 1,
        "quarantined": 1,
    }
    ((key, window),) = expected.windows.items()
    assert (key[0].isoformat(), *key[1:]) == ("2026-11-13T15:45:00+00:00", "WEB", "USD")
    assert (window.total_buy, window.total_sell) == (Decimal("5.01"), Decimal("10.01"))
    assert (window.fees, window.trades) == (Decimal("0.01"), 2)
    assert expected.due == {
        ("US-2026-11-16", "USD"): Decimal("5.015"),
        ("US-2026-11-13", "USD"): Decimal("-10.005"),
    }
