"""The TOML file of a schedule: entries under `[entries.NAME]`, defaults for all of them at the top.

Owns its options (those of `longdoc run` by the same names, and `cron`, `timezone`, `enabled`, `deadline`,
`takeover-after`), which of them an entry needs, and that every mistake is found at once. Relative paths start at the
file's own folder. Refuses standard input as a source, and two entries that would write two models to one output.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from longdoc.cluster.address import check_form
from longdoc.config import COUNT, FLAG, JOB_OPTIONS, TEXT, RunConfig, add_option, read_toml
from longdoc.errors import StartError
from longdoc.model.sources import check_name
from longdoc.records import display
from longdoc.scheduling.cron import Cron, clock_remarks, parse_cron, parse_zone
from longdoc.store.output import check_ours
from longdoc.store.publish import local_folder
from longdoc.store.schemas import OUTPUTS

#: Options of an entry beside those of a run, and what their values are. Seconds are whole.
ENTRY_OPTIONS = {
    **dict.fromkeys(("cron", "timezone"), TEXT),
    **dict.fromkeys(("deadline", "takeover_after"), COUNT),
    "enabled": FLAG,
}
#: Options of the file as a whole.
FILE_OPTIONS = {"runs_at_once": COUNT}
DEFAULT_ZONE = "UTC"
#: Seconds without a sign of life after which another scheduler takes over.
TAKEOVER_SECONDS = 300
#: A shorter deadline would be missed by a machine that is merely busy.
LEAST_TAKEOVER_SECONDS = 5
#: Each run takes the whole machine.
RUNS_AT_ONCE = 1
KINDS = ("auto", "book", "repository")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENTRIES = "entries"
# What decides which model and which tables an output holds.
_DEFAULT_MODEL = str(next(each.default for each in fields(RunConfig) if each.name == "model"))
_OF_THE_OUTPUT = {"model": _DEFAULT_MODEL, "outputs": OUTPUTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry: what is run, when, and how long a sign of life may be missing.

    `sources` may hold passwords and is shown nowhere. `options` are all others of the run. `deadline` is in seconds,
    None for none.
    """

    name: str
    cron: Cron
    sources: tuple[str, ...] = field(repr=False)
    output: str
    folder: Path
    options: Mapping[str, Any]
    deadline: int | None
    takeover_after: int
    enabled: bool

    @property
    def root(self) -> Path:
        """The output's folder, one path for one folder however it is written."""
        return _root(self.folder, self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What a file says. `remarks` are worth a look and no mistake."""

    path: Path
    entries: tuple[Entry, ...]
    runs_at_once: int
    remarks: tuple[str, ...]

    def entry(self, name: str) -> Entry:
        """An entry by its name. Raises `StartError` where there is none."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise StartError(
            f"{self.path} has no entry {name!r}; it has {', '.join(entry.name for entry in self.entries)}."
        )


def read_schedule(path: Path, now: datetime) -> Schedule:
    """The schedule of a file. Raises `StartError` with every mistake in it, one a line."""
    table = read_toml(path, f"schedule {path}")
    reading = _Reading(path=path, now=now)
    schedule = reading.schedule(table)
    if reading.problems:
        raise StartError("\n".join(f"schedule {path}: {problem}" for problem in reading.problems))
    return schedule


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One reading of a file, with the mistakes found so far."""

    path: Path
    now: datetime
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def schedule(self, table: dict[str, Any]) -> Schedule:
        tables = table.pop(_ENTRIES, {})
        if not isinstance(tables, dict) or not all(isinstance(entry, dict) for entry in tables.values()):
            self.problems.append("entries must be tables: write [entries.NAME] above an entry's options.")
            tables = {}
        elif not tables:
            self.problems.append("it has no entry: write [entries.NAME], with cron, sources and output below it.")
        known = {**JOB_OPTIONS, **ENTRY_OPTIONS, **FILE_OPTIONS}
        defaults = self._options("the defaults", table, known)
        runs_at_once = self._counted("the defaults", defaults.pop("runs_at_once", RUNS_AT_ONCE), "runs-at-once", 1)
        entries = [self._entry(name, defaults, given) for name, given in tables.items()]
        found = tuple(entry for entry in entries if entry is not None)
        self._compare(found)
        return Schedule(path=self.path, entries=found, runs_at_once=runs_at_once, remarks=tuple(self.remarks))

    def _options(self, where: str, table: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for name, value in table.items():
            try:
                add_option(options, name, value, known)
            except StartError as error:
                self.problems.append(f"{where}: {error}")
        return options

    def _entry(self, name: str, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Entry | None:
        where, before = f"entry {display(name)}", len(self.problems)
        if _NAME.fullmatch(name) is None:
            self.problems.append(f"{where}: a name is letters, digits, dots, dashes and underscores, at most 64.")
        options = {**defaults, **self._options(where, given, {**JOB_OPTIONS, **ENTRY_OPTIONS})}
        own = {option: options.pop(option, None) for option in ENTRY_OPTIONS}
        cron = self._cron(where, own)
        sources = self._sources(where, options.pop("sources", []))
        output = self._output(where, options.pop("output", None))
        deadline = own["deadline"]
        takeover = TAKEOVER_SECONDS if own["takeover_after"] is None else own["takeover_after"]
        self._counted(where, takeover, "takeover-after", LEAST_TAKEOVER_SECONDS)
        if deadline is not None:
            self._counted(where, deadline, "deadline", 1)
        self._check_run(where, output, options)
        if len(self.problems) > before or cron is None:
            return None
        return Entry(
            name=name,
            cron=cron,
            sources=sources,
            output=output,
            folder=self._folder,
            options=options,
            deadline=deadline,
            takeover_after=takeover,
            enabled=own["enabled"] is not False,
        )

    @property
    def _folder(self) -> Path:
        return self.path.absolute().parent

    def _cron(self, where: str, own: Mapping[str, Any]) -> Cron | None:
        if own["cron"] is None:
            self.problems.append(f'{where}: it has no cron; "30 2 * * *" is every night at 2:30.')
        try:
            zone = parse_zone(DEFAULT_ZONE if own["timezone"] is None else own["timezone"])
            cron = None if own["cron"] is None else parse_cron(own["cron"], zone, self.now)
        except StartError as error:
            self.problems.append(f"{where}: {error}")
            return None
        if cron is not None:
            self.remarks += [f"{where}: {remark}" for remark in clock_remarks(cron, self.now)]
        return cron

    def _sources(self, where: str, sources: list[str]) -> tuple[str, ...]:
        if not sources:
            self.problems.append(f'{where}: it has no sources; name repositories, or "@list.txt", one a line.')
        for source in sources:
            if not source or source != source.strip() or len(source.splitlines()) > 1:
                # It is a line of a list, see `longdoc.scheduling.tick_run`; not shown, for it may hold a password.
                self.problems.append(f"{where}: a source is empty, or holds white space at an end or a line break.")
            elif source in ("-", "@-"):
                self.problems.append(f"{where}: source {source} is standard input, and nobody is there to give it.")
            elif source.startswith("@") and not (self._folder / source[1:]).is_file():
                self.problems.append(f"{where}: there is no list {display(str(self._folder / source[1:]))}.")
        return tuple(sources)

    def _output(self, where: str, output: str | None) -> str:
        if output is None:
            self.problems.append(f"{where}: it has no output; name the folder to write to.")
            return ""
        with self._noted(where):
            # The scheduler writes below the output before a run does, and must not write into anything else.
            check_ours(str(_root(self._folder, output)))
        return output

    def _check_run(self, where: str, output: str, options: Mapping[str, Any]) -> None:
        if options.get("kind", "auto") not in KINDS:
            self.problems.append(f"{where}: kind {options['kind']} is not one of {', '.join(KINDS)}.")
        names = {each.name for each in fields(RunConfig)}
        chosen = {name: value for name, value in options.items() if name in names}
        if chosen.get("ring_size") == "auto":
            chosen["ring_size"] = None
        if "outputs" in chosen:
            chosen["outputs"] = tuple(chosen["outputs"])
        with self._noted(where):
            RunConfig(output=output, **chosen)
        with self._noted(where):
            if chosen.get("address", "auto") != "auto":
                check_form(chosen["address"])
        with self._noted(where):
            self._check_model(chosen.get("model", _DEFAULT_MODEL))

    def _check_model(self, model: str) -> None:
        """Raise `ModelError` for what is no name; a folder or file may be on storage that comes later."""
        if not model.startswith(("/", "~", ".")) and ("\0" in model or not (self._folder / model).exists()):
            check_name(model)

    @contextlib.contextmanager
    def _noted(self, where: str) -> Iterator[None]:
        try:
            yield
        except StartError as error:
            self.problems.append(f"{where}: {error}")

    def _counted(self, where: str, value: int, name: str, least: int) -> int:
        if value < least:
            self.problems.append(f"{where}: {name} is {value}; it is at least {least}.")
        return value

    def _compare(self, entries: tuple[Entry, ...]) -> None:
        """Entries of one output must agree on what it holds."""
        first: dict[Path, Entry] = {}
        for entry in entries:
            other = first.setdefault(entry.root, entry)
            for name, default in _OF_THE_OUTPUT.items():
                ours, theirs = (_shown(each.options.get(name, default)) for each in (entry, other))
                if ours != theirs:
                    cause = f"it has {name} {ours}, and entry {other.name}, which writes to the same output, {theirs}"
                    self.problems.append(f"entry {entry.name}: {cause}. Give each an output of its own.")


def _root(folder: Path, output: str) -> Path:
    local_folder(output)
    # Not Path.absolute, which keeps `..`: two entries of one output must be seen to be that.
    return Path(os.path.realpath(folder / Path(output)))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(sorted(value))
