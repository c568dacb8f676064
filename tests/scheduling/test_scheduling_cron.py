"""When cron expressions are due, where clocks change too. Expected times: cron(8) of Debian, and the IANA zones."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest

from longdoc.errors import StartError
from longdoc.scheduling.cron import clock_remarks, parse_cron, parse_zone

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
# Europe/Berlin: 2027-03-28 02:00 CET becomes 03:00 CEST, 2027-10-31 03:00 CEST becomes 02:00 CET.
SPRING, AUTUMN = datetime(2027, 3, 27, 12, tzinfo=UTC), datetime(2027, 10, 30, 12, tzinfo=UTC)


def cron(expression, zone="Europe/Berlin"):
    return parse_cron(expression, parse_zone(zone), NOW)


def ticks(expression, after, count, zone="Europe/Berlin"):
    return [f"{tick:%d %H:%M}" for tick in islice(cron(expression, zone).after(after), count)]


def test_ticks_are_in_the_zone_of_the_entry():
    assert ticks("30 2 * * *", NOW, 2) == ["30 01:30", "01 01:30"]
    assert ticks("30 2 * * *", NOW, 2, "Asia/Kolkata") == ["29 21:00", "30 21:00"]


def test_a_time_that_does_not_exist_is_run_at_the_first_that_does():
    # 02:30 of the 28th: at 03:00 CEST, which is 01:00 UTC; once.
    assert ticks("30 2 * * *", SPRING, 3) == ["28 01:00", "29 00:30", "30 00:30"]
    assert ticks("0,30 2-3 * * *", SPRING, 3) == ["28 01:00", "28 01:30", "29 00:00"]


def test_a_time_that_comes_twice_is_run_the_first_time_only():
    # 02:30 of the 31st is at 00:30 UTC (CEST) and at 01:30 UTC (CET).
    assert ticks("30 2 * * *", AUTUMN, 2) == ["31 00:30", "01 01:30"]


def test_it_is_not_run_again_by_a_scheduler_that_starts_in_the_second_of_the_two_hours():
    between = datetime(2027, 10, 31, 1, 10, tzinfo=UTC)
    assert ticks("30 2 * * *", between, 1) == ["01 01:30"]


def test_expressions_of_passing_time_follow_it_through_both_changes():
    for start in (SPRING, AUTUMN):
        found = list(islice(cron("*/15 * * * *").after(start), 96))
        assert {later - sooner for sooner, later in pairwise(found)} == {timedelta(minutes=15)}


def test_due_is_after_one_moment_and_up_to_another():
    first = datetime(2026, 11, 29, 13, 0, tzinfo=UTC)
    hourly = cron("0 * * * *", "UTC")
    assert list(hourly.due(NOW, first - timedelta(seconds=1))) == []
    assert list(hourly.due(NOW, first)) == [first]
    assert list(hourly.due(first, first + timedelta(hours=2))) == [first + timedelta(hours=n) for n in (1, 2)]
    assert list(hourly.due(first, NOW)) == []


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("61 * * * *", "cron '61 * * * *': the minute is not one. crontab(5) says what it may be."),
        ("0 0 * * MON-XYZ", "cron '0 0 * * MON-XYZ': the day-of-week is not one. crontab(5) says what it may be."),
        ("0 0 x * *", "cron '0 0 x * *': the day-of-month is not one. crontab(5) says what it may be."),
        ("0 0 30 2 *", "cron '0 0 30 2 *' never fires: no such day comes within 50 years."),
        ("* * */20 * 1L", "cron '* * */20 * 1L' never fires: no such day comes within 50 years."),
        (
            "0 * * * * *",
            (
                "cron '0 * * * * *' is not five fields: minute, hour, day of the month, month, day of the week; "
                '"30 2 * * *" is every night at 2:30.'
            ),
        ),
    ],
)
def test_what_is_no_expression_is_refused(expression, message):
    with pytest.raises(StartError) as refused:
        cron(expression)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Europe/Berln", "timezone 'Europe/Berln' is not known. Did you mean Europe/Berlin?"),
        ("../../etc/passwd", "timezone '../../etc/passwd' is not known. Names are like Europe/Berlin or UTC."),
        ("", "timezone '' is not known. Names are like Europe/Berlin or UTC."),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest(name, message):
    with pytest.raises(StartError) as refused:
        parse_zone(name)
    assert str(refused.value) == message


def test_clock_changes_are_told_of_fixed_times_they_touch():
    assert clock_remarks(cron("30 2 * * *"), NOW) == [
        "2027-03-28 02:30 does not exist; its tick is at 03:00 CEST",
        "2027-10-31 02:30 comes twice; its tick is the first, 02:30 CEST",
    ]
    for expression, zone in (("30 4 * * *", "Europe/Berlin"), ("*/5 * * * *", "Europe/Berlin"), ("30 2 * * *", "UTC")):
        assert clock_remarks(cron(expression, zone), NOW) == []
    # Lord Howe Island moves by half an hour, at 02:00 local time.
    remarks = clock_remarks(cron("15 2 * * *", "Australia/Lord_Howe"), NOW)
    assert [remark.partition(";")[0] for remark in remarks] == ["2027-10-03 02:15 does not exist"]
