"""Days on which banks are closed, so that nothing is paid although an exchange may trade."""

from __future__ import annotations

from datetime import date, timedelta

# Where NSE and BSE traded and the banks of Mumbai were closed, beside the two days of every year:
# as NSE Clearing and the brokers published them. Other years have such days too, which nobody
# has looked up, and so may these: a state can move a holiday at a few days' notice.
MUMBAI_KNOWN = (
    date(2024, 4, 9),  # Gudi Padwa
    date(2024, 5, 23),  # Buddha Pournima
    date(2024, 9, 16),  # Id-E-Milad
    date(2025, 5, 12),  # Buddha Pournima
    date(2025, 9, 5),  # Id-E-Milad as planned
    date(2025, 9, 8),  # and where Maharashtra moved it
    date(2026, 1, 15),  # municipal elections
    date(2026, 3, 19),  # Gudi Padwa
    date(2026, 8, 26),  # Id-E-Milad
)


def federal_reserve(year: int) -> frozenset[date]:
    """The weekdays of a year on which the Federal Reserve is closed.

    A holiday on a Sunday is kept on the Monday. One on a Saturday is not kept on the Friday.
    """
    fixed = [date(year, 1, 1), date(year, 7, 4), date(year, 11, 11), date(year, 12, 25)]
    if year >= 2022:
        fixed.append(date(year, 6, 19))
    kept = {day + timedelta(days=1) if day.weekday() == 6 else day for day in fixed}
    floating = {
        _nth_weekday(date(year, 1, 1), 0, 3),  # Martin Luther King
        _nth_weekday(date(year, 2, 1), 0, 3),  # Washington
        _nth_weekday(date(year, 5, 25), 0, 1),  # Memorial Day: the Monday among the last seven
        _nth_weekday(date(year, 9, 1), 0, 1),  # Labor Day
        _nth_weekday(date(year, 10, 1), 0, 2),  # Columbus Day
        _nth_weekday(date(year, 11, 1), 3, 4),  # Thanksgiving
    }
    return _weekdays(kept | floating)


def t2(year: int) -> frozenset[date]:
    """The weekdays of a year on which T2, where euros are paid, is closed; so since 2002."""
    easter = easter_sunday(year)
    good_friday, easter_monday = easter - timedelta(days=2), easter + timedelta(days=1)
    fixed = {date(year, 1, 1), date(year, 5, 1), date(year, 12, 25), date(year, 12, 26)}
    return _weekdays({*fixed, good_friday, easter_monday})


def mumbai(year: int) -> frozenset[date]:
    """The weekdays of a year, as far as known, on which India's exchanges trade without banks.

    Every year 19 February (Shivaji Jayanti) and 1 April (the banks close their books); those
    that follow the moon are dated, and known for 2024, 2025 and 2026.
    """
    known = {day for day in MUMBAI_KNOWN if day.year == year}
    return _weekdays({date(year, 2, 19), date(year, 4, 1), *known})


def none_of_its_own(year: int) -> frozenset[date]:
    """Of a market whose exchange and banks are closed on the same days."""
    return frozenset()


def easter_sunday(year: int) -> date:
    """Easter of the Gregorian calendar, by the rule of Meeus, Jones and Butcher."""
    century, within = divmod(year, 100)
    golden = year % 19
    corrected = (century - (century + 8) // 25 + 1) // 3
    epact = (19 * golden + century - century // 4 - corrected + 15) % 30
    weekday = (32 + 2 * (century % 4) + 2 * (within // 4) - epact - within % 4) % 7
    late = (golden + 11 * epact + 22 * weekday) // 451
    month, day = divmod(epact + weekday - 7 * late + 114, 31)
    return date(year, month, day + 1)


def _weekdays(days: set[date]) -> frozenset[date]:
    return frozenset(day for day in days if day.weekday() < 5)


def _nth_weekday(start: date, weekday: int, nth: int) -> date:
    """The nth given weekday (Monday is 0) on or after a date."""
    return start + timedelta(days=(weekday - start.weekday()) % 7 + 7 * (nth - 1))
