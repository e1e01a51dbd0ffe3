"""The settlement calendar against dates that were published or can be counted by hand."""

from __future__ import annotations

import csv
from datetime import date, timedelta
from itertools import pairwise

import pytest

from tapeline.trades.reference import (
    MINOR_UNITS,
    cusip_check_digit,
    isin_check_digit,
    make_instruments,
    read_instruments,
    write_reference,
)
from tapeline.trades.settlement import (
    bank_holidays,
    cycle_days,
    latest_session,
    sessions,
    settlement_days,
    settlements,
)


def settles(trade_date: str) -> str:
    day = date.fromisoformat(trade_date)
    return str(next(settlements(day, day)).settles_on)


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


def test_every_calendar_date_has_one_settlement_after_it():
    first, last = date(2024, 1, 1), date(2027, 12, 31)
    found = list(settlements(first, last))
    assert [one.trade_date for one in found] == [
        first + timedelta(days=days) for days in range((last - first).days + 1)
    ]
    paid = set(settlement_days(first, date(2028, 1, 31)))
    for earlier, later in pairwise(found):
        assert earlier.settles_on <= later.settles_on
    for one in found:
        assert one.settles_on > one.trade_date
        assert one.settles_on in paid
        assert one.settlement_id == f"US-{one.settles_on}"


def test_the_part_of_a_calendar_does_not_depend_on_its_bounds():
    whole = {one.trade_date: one for one in settlements(date(2023, 1, 1), date(2027, 12, 31))}
    for one in settlements(date(2024, 5, 20), date(2024, 6, 3)):
        assert whole[one.trade_date] == one


def test_the_federal_reserve_keeps_eleven_holidays_but_not_on_fridays_before_saturdays():
    assert len(bank_holidays(2025)) == 11
    assert date(2026, 7, 3) not in bank_holidays(2026)
    assert date(2023, 1, 2) in bank_holidays(2023)  # New Year on a Sunday
    assert date(2021, 6, 18) not in bank_holidays(2021)
    assert date(2026, 6, 19) in bank_holidays(2026)
    assert date(2026, 5, 25) in bank_holidays(2026)
    assert date(2026, 10, 12) in bank_holidays(2026)


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
    assert [cycle_days(date(year, 1, 2)) for year in (2010, 2020, 2026)] == [3, 2, 1]


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
