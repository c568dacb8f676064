"""The one door to cron expressions: when an entry is due, in its own time zone.

Owns what an expression may be (five fields) and what its ticks are: instants in UTC, each once, in order. `cronsim`
reads the fields as Debian's cron does. Where clocks change, an expression with a fixed minute and hour (neither begins
with `*`) runs once a day all the same: at the first minute that exists, where its own does not, and the first of two
times where there are two. Any other expression follows the time that passes. Refuses expressions that never fire.
"""

import difflib
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from longdoc.errors import StartError

_NUM_FIELDS = 5
#: How far ahead a change of the clocks is worth a remark.
REMARK_DAYS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A cron expression in a time zone."""

    expression: str
    zone: ZoneInfo

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The ticks after an instant, in UTC; ends where none follows within 50 years."""
        last = moment
        for local in CronSim(self.expression, moment.astimezone(self.zone)):
            tick = local.astimezone(UTC)
            # In an hour that comes twice cronsim goes back to its first passing.
            if tick > last:
                last = tick
                yield tick

    def next_after(self, moment: datetime) -> datetime | None:
        """The first tick after an instant, in UTC."""
        return next(self.after(moment), None)

    def due(self, after: datetime, now: datetime) -> Iterator[datetime]:
        """The ticks that came after one instant and not after the other."""
        for tick in self.after(after):
            if tick > now:
                return
            yield tick

    @property
    def is_fixed(self) -> bool:
        """Whether it means times of the day, and not a stretch of time that passes: Debian's rule, see cron(8)."""
        minute, hour, *_ = self.expression.split()
        return not (minute.startswith("*") or hour.startswith("*"))

    def explained(self) -> str:
        """The expression in words."""
        return CronSim(self.expression, datetime(2000, 1, 1)).explain()


def parse_cron(expression: str, zone: ZoneInfo, now: datetime) -> Cron:
    """An expression in a zone. Raises `StartError` where it is none, or never fires."""
    fields = expression.split()
    if len(fields) != _NUM_FIELDS:
        raise StartError(
            f"cron {expression!r} is not five fields: minute, hour, day of the month, month, day of the week; "
            '"30 2 * * *" is every night at 2:30.'
        )
    cron = Cron(expression=expression, zone=zone)
    try:
        fires = cron.next_after(now) is not None
    except CronSimError as error:
        part = str(error).removeprefix("Bad ")
        # cronsim finds a day that no chosen month has while it reads the fields.
        if part == "day-of-month" and _reads(fields[2]):
            fires = False
        else:
            raise StartError(f"cron {expression!r}: the {part} is not one. crontab(5) says what it may be.") from None
    if not fires:
        raise StartError(f"cron {expression!r} never fires: no such day comes within 50 years.")
    return cron


def parse_zone(name: str) -> ZoneInfo:
    """A time zone by its IANA name. Raises `StartError` for another name, with the nearest."""
    try:
        return ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = zoneinfo.available_timezones()
        if not known:
            message = "this machine has no time zones; install the system's tzdata or pip install tzdata"
            raise StartError(f"timezone {name!r}: {message}.") from None
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else " Names are like Europe/Berlin or UTC."
        raise StartError(f"timezone {name!r} is not known.{hint}") from None


def clock_remarks(cron: Cron, now: datetime) -> list[str]:
    """What happens to a fixed time where clocks change in the next 400 days: it does not exist, or comes twice."""
    if not cron.is_fixed:
        return []
    remarks = []
    for change in _changes(cron.zone, now):
        before, after = (_naive(change + timedelta(seconds=offset), cron.zone) for offset in (-1, 0))
        before += timedelta(seconds=1)
        start, stop = sorted((before, after))
        nominal = next(CronSim(cron.expression, start - timedelta(seconds=1)), None)
        if nominal is None or nominal >= stop:
            continue
        if after > before:
            what, given = "does not exist; its tick is at", change.astimezone(cron.zone)
        else:
            what, given = "comes twice; its tick is the first,", nominal.replace(tzinfo=cron.zone)
        remarks.append(f"{nominal:%Y-%m-%d %H:%M} {what} {given:%H:%M %Z}")
    return remarks


def _changes(zone: ZoneInfo, now: datetime) -> Iterator[datetime]:
    """The instants at which the zone's offset changes, to the minute."""
    hour = timedelta(hours=1)
    start = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for number in range(REMARK_DAYS * 24):
        moment = start + number * hour
        if _offset(moment, zone) != _offset(moment + hour, zone):
            minutes = (moment + timedelta(minutes=minute) for minute in range(1, 61))
            yield next(each for each in minutes if _offset(each, zone) != _offset(moment, zone))


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()


def _naive(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)


def _reads(day_of_month: str) -> bool:
    """Whether cronsim understands a day of the month by itself."""
    try:
        CronSim(f"0 0 {day_of_month} * *", datetime(2000, 1, 1))
    except CronSimError:
        return False
    return True
