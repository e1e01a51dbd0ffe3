"""The settlement calendars against dates that were published or can be counted by hand."""

from __future__ import annotations

import csv
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tapeline import DeclarationError, OperationError
from tapeline.trades.holidays import easter_sunday, federal_reserve, mumbai, t2
from tapeline.trades.markets import CH, EU, GB, IN, KNOWN, US, Market, market_of, named
from tapeline.trades.own_days import extend_calendar, read_own_days
from tapeline.trades.reference import (
    MINOR_UNITS,
    cusip_check_digit,
    isin_check_digit,
    make_instruments,
    read_instruments,
    write_reference,
)
from tapeline.trades.settlement import (
    Settlement,
    latest_session,
    sessions,
    settlement_days,
    settlements,
)


def settlement(trade_date: str, venue: str = "XNYS") -> Settlement:
    day = date.fromisoformat(trade_date)
    return next(settlements(day, day, venue))


def settles(trade_date: str, venue: str = "XNYS") -> str:
    return str(settlement(trade_date, venue).settles_on)


@pytest.mark.parametrize(
    ("trade_date", "settles_on", "why"),
    [
        ("2024-10-10", "2024-10-11", "an ordinary Thursday"),
        ("2024-10-11", "2024-10-15", "the Friday before Columbus Day"),
        ("2024-10-14", "2024-10-15", "Columbus Day itself: the exchange trades"),
        ("2025-11-10", "2025-11-12", "the day before Veterans Day"),
        ("2025-11-11", "2025-11-12", "Veterans Day itself: the exchange trades"),
        (
            "2026-11-25",
            "2026-11-27",
            "the day before Thanksgiving; the day after is short but open",
        ),
        ("2026-11-26", "2026-11-30", "Thanksgiving: no session, so the next one's settlement"),
        ("2026-11-27", "2026-11-30", "the short Friday"),
        ("2026-07-02", "2026-07-06", "July 4 is a Saturday: exchange closed on Friday, banks open"),
        ("2026-07-03", "2026-07-07", "that Friday is no session: as Monday"),
        ("2026-07-04", "2026-07-07", "and so is the Saturday"),
        ("2026-04-02", "2026-04-06", "Thursday before Good Friday: the exchange is closed"),
        ("2026-04-03", "2026-04-07", "Good Friday is no session: as Monday"),
        ("2023-11-09", "2023-11-13", "T+2; Veterans Day on a Saturday closes no bank on Friday"),
        ("2022-12-23", "2022-12-28", "T+2 over Christmas on a Sunday, kept on Monday"),
        ("2026-12-31", "2027-01-04", "over the turn of the year"),
        ("2025-01-08", "2025-01-09", "an unscheduled closure settles what came before"),
        ("2025-01-09", "2025-01-13", "and has no trades of its own: as Friday"),
    ],
)
def test_a_trade_settles_on_the_day_the_market_pays(trade_date, settles_on, why):
    assert settles(trade_date) == settles_on, why


@pytest.mark.parametrize(
    ("trade_date", "settles_on"),
    [
        ("2017-09-01", "2017-09-07"),  # T+3, over Labor Day
        ("2017-09-05", "2017-09-07"),  # T+2: the first day of it shares the last day's settlement
        ("2024-05-23", "2024-05-28"),  # T+2, over Memorial Day
        ("2024-05-24", "2024-05-29"),  # T+2
        ("2024-05-27", "2024-05-29"),  # Memorial Day: as the next session
        ("2024-05-28", "2024-05-29"),  # T+1: the double settlement day
        ("2024-05-29", "2024-05-30"),
    ],
)
def test_the_cycle_changes_by_trade_date(trade_date, settles_on):
    assert settles(trade_date) == settles_on


@pytest.mark.parametrize(
    ("notice", "schedule"),
    [
        (
            "NASD Notice to Members 99-83, Columbus Day 1999",
            "10-05>10-08 10-06>10-12 10-07>10-13 10-08>10-14 10-11>10-14 10-12>10-15",
        ),
        (
            "NASD Notice to Members 99-94, Christmas on a Saturday",
            "12-20>12-23 12-21>12-27 12-22>12-28 12-23>12-29 12-27>12-30",
        ),
    ],
)
def test_published_schedules_of_1999_are_met(notice, schedule):
    for pair in schedule.split():
        trade_date, settles_on = pair.split(">")
        assert settles(f"1999-{trade_date}") == f"1999-{settles_on}", notice


def test_trade_dates_that_settle_together_share_the_settlement():
    by_date = {
        str(one.trade_date): one for one in settlements(date(2024, 10, 10), date(2024, 10, 16))
    }
    assert by_date["2024-10-11"].settlement_id == "US-2024-10-15"
    assert by_date["2024-10-14"].settlement_id == "US-2024-10-15"
    assert by_date["2024-10-10"].settlement_id == "US-2024-10-11"


@pytest.mark.parametrize("market", KNOWN.values(), ids=KNOWN)
def test_every_calendar_date_has_one_settlement_after_it(market: Market):
    # The sessions of Bombay are listed until the end of 2026.
    first, last = date(2024, 1, 1), date(2026, 12, 29) if market is IN else date(2028, 12, 31)
    paid = set(settlement_days(first, date(2029, 1, 31), market))
    for venue in market.venues:
        found = list(settlements(first, last, venue.code))
        assert [one.trade_date for one in found] == [
            first + timedelta(days=days) for days in range((last - first).days + 1)
        ]
        for earlier, later in pairwise(found):
            assert earlier.settles_on <= later.settles_on
        for one in found:
            assert one.settles_on > one.trade_date
            assert one.settles_on in paid
            assert one.settles_on.weekday() < 5
            assert one.settles_on not in market.bank_holidays(one.settles_on.year)


def test_the_part_of_a_calendar_does_not_depend_on_its_bounds():
    whole = {one.trade_date: one for one in settlements(date(2023, 1, 1), date(2027, 12, 31))}
    for one in settlements(date(2024, 5, 20), date(2024, 6, 3)):
        assert whole[one.trade_date] == one


@pytest.mark.parametrize(
    ("trade_date", "settles_on", "why"),
    [
        ("2024-02-15", "2024-02-16", "an ordinary Thursday"),
        ("2024-02-16", "2024-02-20", "the Friday before Shivaji Jayanti"),
        ("2024-02-19", "2024-02-20", "Shivaji Jayanti itself: the exchanges trade"),
        ("2025-03-28", "2025-04-02", "Id on Monday, and on Tuesday the banks close their books"),
        ("2025-04-01", "2025-04-02", "the first of April itself: the exchanges trade"),
        ("2024-09-13", "2024-09-17", "Id-E-Milad on Monday, as the brokers told their clients"),
        ("2024-09-16", "2024-09-17", "Id-E-Milad itself"),
        ("2024-01-19", "2024-01-23", "over a special Saturday and a holiday on Monday"),
        ("2024-01-20", "2024-01-23", "that Saturday: a session, but nothing is paid on it"),
        ("2023-01-25", "2023-01-30", "T+2, over Republic Day: the last trade date of it"),
        ("2023-01-26", "2023-01-30", "Republic Day: as the next session"),
        ("2023-01-27", "2023-01-30", "T+1: the first day of it"),
        ("2022-06-06", "2022-06-08", "T+2 while shares went over to T+1 in groups"),
    ],
)
def test_a_trade_in_india_settles_on_the_day_its_banks_pay(trade_date, settles_on, why):
    for venue in ("XNSE", "XBOM"):
        assert settles(trade_date, venue) == settles_on, why


def test_two_trade_dates_paid_on_one_day_are_two_settlements_in_india():
    friday, monday = settlement("2024-02-16", "XNSE"), settlement("2024-02-19", "XNSE")
    assert str(friday.settles_on) == str(monday.settles_on) == "2024-02-20"
    assert (friday.settlement_id, monday.settlement_id) == ("IN-T2024-02-16", "IN-T2024-02-19")
    weekend = settlement("2024-02-17", "XNSE")
    assert weekend.settlement_id == "IN-T2024-02-19"  # as the next session


def test_the_schedule_that_bombay_published_for_september_2025_is_met():
    schedule = "09-01>09-02 09-02>09-03 09-03>09-04 09-04>09-09 09-05>09-09 09-08>09-10 09-09>09-10"
    for pair in schedule.split():
        trade_date, settles_on = pair.split(">")
        assert settles(f"2025-{trade_date}", "XBOM") == f"2025-{settles_on}"


@pytest.mark.parametrize("venue", ["XETR", "XPAR", "XAMS", "XLON", "XSWX"])
def test_europes_change_to_one_day_makes_a_double_settlement_day(venue):
    name = market_of(venue).name
    dates = ("2027-10-07", "2027-10-08", "2027-10-09", "2027-10-11", "2027-10-12")
    assert [settles(day, venue) for day in dates] == [
        "2027-10-11", "2027-10-12", "2027-10-12", "2027-10-12", "2027-10-13",
    ]  # fmt: skip
    friday, monday = settlement("2027-10-08", venue), settlement("2027-10-11", venue)
    assert friday.settlement_id == monday.settlement_id == f"{name}-2027-10-12"


@pytest.mark.parametrize(
    ("venue", "trade_date", "settles_on", "why"),
    [
        ("XETR", "2026-04-01", "2026-04-07", "T+2 over Good Friday and Easter Monday"),
        ("XLON", "2026-04-01", "2026-04-07", "and in London"),
        ("XETR", "2026-04-29", "2026-05-04", "T+2 over the first of May"),
        ("XLON", "2026-04-29", "2026-05-01", "which is a day like others in London"),
        ("XLON", "2026-04-30", "2026-05-05", "where the first Monday of May is none"),
        ("XSWX", "2026-04-29", "2026-05-04", "Zurich keeps the first of May"),
        ("XSWX", "2026-05-13", "2026-05-18", "and Ascension Day"),
        ("XETR", "2026-05-13", "2026-05-15", "which Frankfurt does not"),
        ("XETR", "2026-12-22", "2026-12-24", "Christmas Eve: no session in Frankfurt, T2 is open"),
        ("XPAR", "2026-12-24", "2026-12-29", "a session in Paris, paid after the holidays"),
        ("XETR", "2026-12-24", "2026-12-30", "none in Frankfurt: as the 28th"),
        ("XETR", "2028-04-13", "2028-04-18", "T+1 over Easter"),
        ("XLON", "2022-09-15", "2022-09-20", "the funeral of a queen closed exchange and banks"),
        ("XETR", "2024-05-28", "2024-05-30", "the American change is not Europe's"),
    ],
)
def test_a_trade_in_europe_settles_by_its_own_markets_holidays(venue, trade_date, settles_on, why):
    assert settles(trade_date, venue) == settles_on, why


def test_t2_closes_on_six_days_of_which_easter_moves():
    assert [str(easter_sunday(year)) for year in (1999, 2008, 2011, 2024, 2026, 2038)] == [
        "1999-04-04", "2008-03-23", "2011-04-24", "2024-03-31", "2026-04-05", "2038-04-25",
    ]  # fmt: skip
    assert sorted(map(str, t2(2025))) == [
        "2025-01-01", "2025-04-18", "2025-04-21", "2025-05-01", "2025-12-25", "2025-12-26",
    ]  # fmt: skip


def test_indias_banks_close_on_weekdays_that_are_sessions_or_none():
    assert date(2024, 2, 19) in mumbai(2024)
    assert date(2023, 2, 19) not in mumbai(2023)  # a Sunday
    for year in (2024, 2025, 2026):
        traded = {one.date for one in sessions(date(year, 1, 1), date(year, 12, 31), "XNSE")}
        # One day of elections closed the exchanges too, which the library may learn.
        assert mumbai(year) - {date(2026, 1, 15)} <= traded


def test_sessions_that_nobody_knows_have_no_settlement():
    found = list(settlements(date(2026, 12, 1), date(2027, 1, 31), "XBOM"))
    assert str(found[-1].trade_date) == "2026-12-30"  # paid on the last day that is known
    assert list(settlements(date(2027, 1, 1), date(2027, 1, 31), "XBOM")) == []


def test_markets_are_chosen_by_name():
    assert named("us, in,EU,US") == (US, IN, EU)
    with pytest.raises(DeclarationError, match="'USA' is not a market"):
        named("USA")
    assert market_of("XTKS") is US
    assert {market.currency for market in (US, IN, EU, GB, CH)} == {
        "USD", "INR", "EUR", "GBP", "CHF",
    }  # fmt: skip


def test_the_federal_reserve_keeps_eleven_holidays_but_not_on_fridays_before_saturdays():
    assert len(federal_reserve(2025)) == 11
    assert date(2026, 7, 3) not in federal_reserve(2026)
    assert date(2023, 1, 2) in federal_reserve(2023)  # New Year on a Sunday
    assert date(2021, 6, 18) not in federal_reserve(2021)
    assert date(2026, 6, 19) in federal_reserve(2026)
    assert date(2026, 5, 25) in federal_reserve(2026)
    assert date(2026, 10, 12) in federal_reserve(2026)


def test_an_early_close_is_a_session_of_three_and_a_half_hours():
    (session,) = sessions(date(2026, 11, 27), date(2026, 11, 27))
    assert session.closes_at - session.opens_at == timedelta(hours=3, minutes=30)
    assert session.opens_at.utcoffset() == timedelta(0)


def test_the_latest_session_lies_before_today():
    assert latest_session(date(2026, 11, 16)) == date(2026, 11, 13)
    assert latest_session(date(2026, 11, 14)) == date(2026, 11, 13)
    assert latest_session(date(2027, 1, 1)) == date(2026, 12, 31)


def test_dates_before_the_known_cycles_are_refused():
    with pytest.raises(ValueError, match="1996"):
        next(settlements(date(1990, 1, 1), date(1990, 1, 2)))
    with pytest.raises(ValueError, match="2015 are not known in EU"):
        next(settlements(date(2014, 12, 1), date(2014, 12, 2), "XETR"))
    assert [US.cycle_days(date(year, 1, 2)) for year in (2010, 2020, 2026)] == [3, 2, 1]


def test_check_digits_are_those_of_real_securities():
    for isin in ("US0378331005", "GB0002634946", "AU0000XVGZA3", "DE0007164600", "JP3633400001"):
        assert isin_check_digit(isin[:-1]) == int(isin[-1])
    for cusip in ("037833100", "17275R102", "38259P508"):
        assert cusip_check_digit(cusip[:-1]) == int(cusip[-1])


def test_instruments_have_right_check_digits_and_several_currencies():
    instruments = make_instruments(500)
    for one in instruments:
        assert len(one.isin) == 12
        assert isin_check_digit(one.isin[:-1]) == int(one.isin[-1])
    currencies = [one.currency for one in instruments]
    assert currencies.count("USD") == 475
    assert set(currencies) == {"USD", "EUR", "GBP", "JPY"}
    assert make_instruments(40) == instruments[:40]


def test_instruments_of_several_markets_stand_side_by_side():
    markets = (US, IN, EU, GB, CH)
    instruments = make_instruments(500, markets)
    assert make_instruments(40, markets) == instruments[:40]
    assert len({text for one in instruments for text in one.spellings}) == 1000
    for place, market in enumerate(markets):
        own = instruments[place :: len(markets)]
        assert {one.venue for one in own} == {venue.code for venue in market.venues}
        for one in own:
            assert isin_check_digit(one.isin[:-1]) == int(one.isin[-1])
            assert market is US or one.currency == market.currency
    countries = {one.isin[:2] for one in instruments if one.currency == "EUR"}
    assert countries >= {"DE", "FR", "NL"}


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_the_reference_finds_an_instrument_by_either_spelling(tmp_path):
    write_reference(tmp_path, years=(2026, 2026), instruments=50, clients=20)
    found = {row["instrument"]: row for row in rows(tmp_path / "instruments.csv")}
    assert len(found) == 100
    for one in make_instruments(50):
        assert found[one.isin]["symbol"] == found[one.symbol]["symbol"] == one.symbol
    assert read_instruments(tmp_path / "instruments.csv") == make_instruments(50)
    clients = rows(tmp_path / "clients.csv")
    assert clients[0]["client"] == "C000001"
    assert len({row["client"] for row in clients}) == 20
    currencies = {row["currency"]: row["minor_units"] for row in rows(tmp_path / "currencies.csv")}
    assert (currencies["USD"], currencies["JPY"], currencies["KWD"]) == ("2", "0", "3")
    assert {one.currency for one in make_instruments(500)} <= set(MINOR_UNITS)


def test_the_settlement_calendar_holds_every_venue_and_date_once(tmp_path):
    write_reference(tmp_path, years=(2026, 2027), instruments=50, clients=20)
    calendar = {
        (row["venue"], row["trade_date"]): row for row in rows(tmp_path / "settlement_calendar.csv")
    }
    assert len(calendar) == len(rows(tmp_path / "settlement_calendar.csv")) == 2 * 730
    assert calendar["XNAS", "2026-11-13"]["settlement_id"] == "US-2026-11-16"
    assert {one.venue for one in make_instruments(50)} == {"XNYS", "XNAS"}


def test_with_several_markets_instruments_and_days_name_their_zone(tmp_path):
    write_reference(tmp_path, (2024, 2024), instruments=50, clients=20, markets=(US, IN, EU))
    zones = {(row["venue"], row["zone"]) for row in rows(tmp_path / "instruments.csv")}
    assert zones == {
        ("XNYS", "America/New_York"), ("XNAS", "America/New_York"), ("XNSE", "Asia/Kolkata"),
        ("XBOM", "Asia/Kolkata"), ("XETR", "Europe/Berlin"), ("XPAR", "Europe/Berlin"),
        ("XAMS", "Europe/Berlin"),
    }  # fmt: skip
    days = {(row["zone"], row["day"]): row for row in rows(tmp_path / "market_days_by_zone.csv")}
    assert len(days) == 3 * 366
    assert days["Asia/Kolkata", "2024-02-19"]["starts_at"] == "2024-02-18T18:30:00Z"
    assert days["Europe/Berlin", "2024-03-31"]["ends_at"] == "2024-03-31T22:00:00Z"  # 23 hours
    calendar = {
        (row["venue"], row["trade_date"]): row["settlement_id"]
        for row in rows(tmp_path / "settlement_calendar.csv")
    }
    assert len(calendar) == 7 * 366
    assert calendar["XNSE", "2024-02-16"] == "IN-T2024-02-16"
    assert calendar["XPAR", "2024-02-16"] == "EU-2024-02-20"
    assert calendar["XNAS", "2024-02-16"] == "US-2024-02-21"  # T+2, Washington's birthday


def test_the_same_call_writes_the_same_bytes_and_leaves_a_users_file_alone(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write_reference(one, years=(2026, 2026), instruments=50, clients=20)
    two.mkdir()
    (two / "clients.csv").write_text("client,segment,base_currency,opened_on\n")
    written = write_reference(two, years=(2026, 2026), instruments=50, clients=20)
    assert sorted(path.name for path in written) == [
        "currencies.csv",
        "instruments.csv",
        "market_days.csv",
        "settlement_calendar.csv",
    ]
    for path in written:
        assert path.read_bytes() == (one / path.name).read_bytes()
    assert (two / "clients.csv").read_text().count("\n") == 1
    assert write_reference(two, years=(2020, 2029)) == ()


INDIA_2027 = """day,what
2027-01-26,no session
2027-03-22,no payment
2027-05-01,session
2027-10-29,no session
"""


@pytest.mark.parametrize(
    ("trade_date", "settlement_id", "settles_on", "why"),
    [
        ("2026-12-31", "IN-T2026-12-31", "2027-01-01", "the first date that no calendar settles"),
        ("2027-01-25", "IN-T2027-01-25", "2027-01-27", "the Monday before Republic Day"),
        ("2027-01-26", "IN-T2027-01-27", "2027-01-28", "no session: as the next one"),
        ("2027-02-18", "IN-T2027-02-18", "2027-02-22", "Shivaji Jayanti is a Friday: banks closed"),
        ("2027-02-19", "IN-T2027-02-19", "2027-02-22", "and the exchange trades, apart"),
        ("2027-03-19", "IN-T2027-03-19", "2027-03-23", "nothing is paid on the Monday"),
        ("2027-05-01", "IN-T2027-05-01", "2027-05-03", "a session on a Saturday"),
        ("2027-12-30", "IN-T2027-12-30", "2027-12-31", "the last one that is known"),
    ],
)
def test_days_of_ones_own_let_a_calendar_reach_further(
    tmp_path: Path, trade_date: str, settlement_id: str, settles_on: str, why: str
) -> None:
    calendar, days = tmp_path / "settlement_calendar.csv", tmp_path / "days.csv"
    calendar.write_text(
        "venue,trade_date,settlement_id,settles_on\n"
        "XNYS,2026-12-31,US-2027-01-04,2027-01-04\n"
        "XNSE,2026-12-30,IN-T2026-12-30,2026-12-31\nXBOM,2026-12-30,mine,2026-12-31\n"
    )
    before = calendar.read_text().splitlines()
    days.write_text(INDIA_2027)
    done = extend_calendar(calendar, IN, read_own_days(days))
    assert (done.first, done.last) == (date(2026, 12, 31), date(2027, 12, 30))
    lines = calendar.read_text().splitlines()
    assert lines[:4] == before
    assert len(lines) == 4 + done.rows
    for venue in ("XNSE", "XBOM"):
        assert f"{venue},{trade_date},{settlement_id},{settles_on}" in lines, why


@pytest.mark.parametrize(
    ("days", "words"),
    [
        ("day,what\n2027-01-26,holiday\n", r"days.csv, line 2: .*no session, no payment, session"),
        ("day,what\n26.1.2027,no session\n", "line 2: write a date such as"),
        ("date,what\n", "no column 'day'"),
        ("day,what\n", "contains no day"),
        ("day,what\n2028-01-26,no session\n", "known until 2026, .* no day of 2027"),
        ("day,what\n2026-01-15,no payment\n", "already ends on 2026-12-30"),
    ],
)
def test_days_that_say_too_little_are_refused(tmp_path: Path, days: str, words: str) -> None:
    calendar = tmp_path / "settlement_calendar.csv"
    calendar.write_text(
        "venue,trade_date,settlement_id,settles_on\n"
        "XNSE,2026-12-30,a,2026-12-31\nXBOM,2026-12-30,a,2026-12-31\n"
    )
    before = calendar.read_text()
    (tmp_path / "days.csv").write_text(days)
    with pytest.raises(OperationError, match=words):
        extend_calendar(calendar, IN, read_own_days(tmp_path / "days.csv"))
    assert calendar.read_text() == before


def test_days_can_be_made_anew_from_a_date_on(tmp_path: Path) -> None:
    write_reference(tmp_path, years=(2026, 2026), clients=1, markets=named("IN"))
    (tmp_path / "days.csv").write_text("day,what\n2026-11-20,no payment\n")
    own = read_own_days(tmp_path / "days.csv")
    calendar = tmp_path / "settlement_calendar.csv"
    before = calendar.read_text().splitlines()
    extend_calendar(calendar, IN, own, date(2026, 11, 16))
    changed = set(calendar.read_text().splitlines()) - set(before)
    assert changed == {
        "XNSE,2026-11-19,IN-T2026-11-19,2026-11-23",
        "XBOM,2026-11-19,IN-T2026-11-19,2026-11-23",
    }
