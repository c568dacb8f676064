"""Talks to remote repositories: which refs they have, and fetching from them into a repository of the cache.

Owns the environment and the options of git on the network, the credentials it is handed, how long it may be silent,
what a person sees of a long fetch, and what each failure means. The user's own configuration of git holds (proxies,
credential helpers, ssh); that of a repository at hand does not. Names and passwords travel in the environment: no
command line, file or message has them. Refuses to prompt.
"""

import functools
import os
import re
import selectors
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import IO

from connectors.address import Address
from connectors.git import DamagedError, cleaned, execute, refuse_killed, run
from longdoc.errors import InfrastructureError, SourceError
from longdoc.records import display

#: The name under which a repository of the cache knows where its objects come from.
REMOTE = "longdoc"
#: Seconds that git may say nothing. Servers send a sign of life every few seconds.
SILENCE_SECONDS = 120.0
_FIRST_NOTE_SECONDS, _NOTE_SECONDS = 3.0, 10.0
# Ends a line of git's progress, which overwrites it, or a message.
_LINE_END = re.compile(rb"[\r\n]")
_PROGRESS = re.compile(r"(?:remote: )?[A-Z][a-z]+ [a-z]+: ")
# What the user's own configuration may turn an address into, never less safe than what was asked for.
_PROTOCOLS = {"https": "https:ssh", "http": "http:https:ssh", "ssh": "ssh", "file": "file"}
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15"
# Reads the environment, so that nothing secret is on a command line; git runs it with sh.
_HELPER = (
    '!f() { test "$1" = get && '
    'printf "username=%s\\npassword=%s\\n" "$LONGDOC_GIT_USERNAME" "$LONGDOC_GIT_PASSWORD"; }; f'
)
_FETCH = (
    *("-c", "fetch.recurseSubmodules=false", "-c", "fetch.writeCommitGraph=false", "-c", "fetch.unpackLimit=1"),
    *("-c", "fetch.prune=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
)
_FETCH_OPTIONS = ("--progress", "--no-tags", "--no-write-fetch-head", "--refmap=", "--no-auto-maintenance", "--stdin")


class RemoteError(SourceError):
    """A remote repository cannot be read now. `is_lasting`: trying again will not help."""

    def __init__(self, message: str, *, is_lasting: bool = True, said: str = "") -> None:
        super().__init__(message)
        self.is_lasting = is_lasting
        self.said = said

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and Ray pickles them.
        return (_remote_error, (str(self), self.is_lasting, self.said))


def _remote_error(message: str, is_lasting: bool, said: str) -> RemoteError:
    return RemoteError(message, is_lasting=is_lasting, said=said)


def list_refs(address: Address) -> dict[str, str]:
    """Every ref of a remote by its full name, `HEAD` too; a tag of a tag stands for what it names in the end.

    Raises `RemoteError`.
    """
    # Outside of any repository: the one at hand must not say how its remotes are reached.
    arguments = [f"--git-dir={os.devnull}", "ls-remote", "-q", "--", address.uri]
    output = _talk(address, arguments, what="listing its branches and tags")
    refs: dict[str, str] = {}
    for line in output.decode("utf-8", errors="surrogateescape").splitlines():
        # <object> TAB <ref>; <ref>^{} is what an annotated tag names in the end, and comes after it.
        object_id, _, name = line.partition("\t")
        refs[name.removesuffix("^{}")] = object_id
    return refs


def fetch(
    git_dir: str,
    address: Address,
    wanted: Iterable[str],
    options: Sequence[str],
    *,
    what: str,
    settings: Sequence[str] = (),
) -> None:
    """Fetch refspecs or object ids into a repository of the cache. Raises `RemoteError`, `InfrastructureError`.

    Raises `DamagedError` where it is the repository of the cache that git complains of. `options` are those of
    `git fetch`, `settings` are of git's configuration; `what` is done, for people.
    """
    with TemporaryFile() as refspecs:
        refspecs.writelines(f"{refspec}\n".encode() for refspec in wanted)
        refspecs.seek(0)
        set_for_now = [part for setting in settings for part in ("-c", setting)]
        arguments = [*_FETCH, *set_for_now, f"--git-dir={git_dir}", "fetch", *_FETCH_OPTIONS, *options, REMOTE]
        try:
            _talk(address, arguments, what=what, stdin=refspecs)
        except RemoteError as error:
            if any(_DAMAGE.search(line) for line in error.said.splitlines() if not line.startswith("remote:")):
                raise DamagedError(str(error), git_dir) from error
            raise


def find_login(address: Address) -> tuple[str, str] | None:
    """The name and password that the user's credential helpers know for an address, or None. Nobody is asked."""
    asked = "".join(f"{name}={value}\n" for name, value in (
        ("protocol", address.scheme), ("host", address.origin.partition("://")[2]), ("username", address.username),
    ) if value)  # fmt: skip
    with TemporaryFile() as question:
        question.write(f"{asked}\n".encode())
        question.seek(0)
        status, output, _ = run(
            [f"--git-dir={os.devnull}", "credential", "fill"], stdin=question, environment={"SSH_ASKPASS": ""}
        )
    found = dict(line.partition("=")[::2] for line in output.decode("utf-8", errors="replace").splitlines())
    return (found["username"], found["password"]) if status == 0 and {"username", "password"} <= found.keys() else None


def note(message: str) -> None:
    """A line for whoever watches, on standard error."""
    sys.stderr.write(f"{display(message)}\n")
    sys.stderr.flush()


def _talk(address: Address, arguments: list[str], *, what: str, stdin: IO[bytes] | None = None) -> bytes:
    """Run git on the network: its output. Raises `RemoteError`, or `InfrastructureError` for the machine."""
    # A group of its own, without a terminal: it can be ended as a whole, and nothing in it can ask anybody.
    process = execute(
        arguments, environment=_environment(address), as_process=True, istream=stdin, start_new_session=True
    )
    watched = _Watched(address=address, what=what)
    try:
        output = watched.read(process.proc.stdout, process.proc.stderr)
        status = process.proc.wait()
    finally:
        _end(process.proc.pid, process.proc.poll() is None)
        process.proc.wait()
        process.proc.stdout.close()
        process.proc.stderr.close()
    if status != 0:
        error = "\n".join(watched.said)
        if status < 0 and not error:
            refuse_killed(status, "")
        raise _failure(address, error, what)
    for moved in filter(None, map(_MOVED.search, watched.said)):
        _note_once(f"{address.uri} has moved to {moved[1]}; it is read from there, under the address that was given")
    if any("filtering not recognized" in line for line in watched.said):
        _note_once(f"{address.uri}: the server cannot leave files out, so all files of a commit are fetched")
    return output


@functools.cache
def _note_once(message: str) -> None:
    note(message)


def _end(process_id: int, is_running: bool) -> None:
    if is_running:
        os.killpg(process_id, signal.SIGKILL)


@dataclass(slots=True)
class _Watched:
    """What a git on the network writes while it runs: its output, its messages, and the progress a person is shown."""

    address: Address
    what: str
    said: list[str] = field(default_factory=list)
    _pending: bytes = b""
    _next_note: float = field(default_factory=lambda: time.monotonic() + _FIRST_NOTE_SECONDS)

    def read(self, stdout: IO[bytes], stderr: IO[bytes]) -> bytes:
        """All that comes until both are closed. Raises `RemoteError` after a long silence."""
        output = []
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stderr, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(timeout=SILENCE_SECONDS)
                if not ready:
                    raise self._silence()
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    if not piece:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is stdout:
                        output.append(piece)
                    else:
                        self._hear(piece)
        self._hear(b"\n")
        return b"".join(output)

    def _hear(self, piece: bytes) -> None:
        *lines, self._pending = _LINE_END.split(self._pending + piece)
        for line in filter(None, map(cleaned, lines)):
            if _PROGRESS.match(line):
                self._show(line)
            else:
                self.said.append(line)
        del self.said[:-50]

    def _show(self, line: str) -> None:
        now = time.monotonic()
        if now >= self._next_note:
            self._next_note = now + _NOTE_SECONDS
            note(f"{self.address.uri}: {self.what}: {line.removeprefix('remote: ')}")

    def _silence(self) -> RemoteError:
        message = f"{self.address.uri}: {self.what}: nothing came for {SILENCE_SECONDS:.0f} seconds. Check the network"
        return RemoteError(f"{message} and whether the server is up, then run again.", is_lasting=False)


def _environment(address: Address) -> dict[str, str]:
    environment = {
        "GIT_ALLOW_PROTOCOL": _PROTOCOLS[address.scheme],
        # A program that asks in a window would wait for a person; SSH_ASKPASS is such a one wherever it is set.
        "SSH_ASKPASS": "",
        **_configuration(address),
    }
    if address.scheme == "ssh" and not {"GIT_SSH_COMMAND", "GIT_SSH"} & os.environ.keys() and not _has_ssh_command():
        environment["GIT_SSH_COMMAND"] = _SSH
    if address.password is not None or address.username is not None:
        environment["LONGDOC_GIT_USERNAME"] = address.username or ""
        environment["LONGDOC_GIT_PASSWORD"] = address.password or ""
    return environment


def _has_ssh_command() -> bool:
    status, _, _ = run([f"--git-dir={os.devnull}", "config", "--get", "core.sshCommand"])
    return status == 0


def _configuration(address: Address) -> dict[str, str]:
    """Settings that hold for one process, after those that the user hands over in the same way."""
    settings = []
    scope = f"credential.{address.origin}"
    if address.password is not None:
        # An empty helper forgets the user's own, which would be told to store the password.
        settings += [(f"{scope}.helper", ""), (f"{scope}.helper", _HELPER)]
    elif address.username is not None:
        # Hosts that take a token for a name want no password; the user's own helpers come first and may know one.
        settings += [(f"{scope}.username", address.username), (f"{scope}.helper", _HELPER)]
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdecimal() else 0
    named = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for place, (name, value) in enumerate(settings, start=first):
        named |= {f"GIT_CONFIG_KEY_{place}": name, f"GIT_CONFIG_VALUE_{place}": value}
    return named


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """One kind of failure: what git or ssh prints for it, and what it means for a person."""

    pattern: str
    cause: str
    action: str
    is_lasting: bool = True


_MOVED = re.compile(r"redirecting to (\S+)")
_NETWORK = "Check the address and the network or proxy, then run again."
_CAUSES = (
    _Cause(
        pattern=r"Could not resolve (host|proxy)|Name or service not known|name resolution",
        cause="its host is not known",
        action=_NETWORK,
        is_lasting=False,
    ),
    _Cause(
        pattern=r"Authentication failed|could not read (Username|Password)|Permission denied|error: 40[13]|"
        r"Host key verification failed|Access denied|terminal prompts disabled",
        cause="it does not let this user in",
        action="Put a name and password (or token) in the address, set up a credential helper of git, or an ssh key.",
    ),
    _Cause(
        pattern=r"dubious ownership",
        cause="it belongs to another user, so git does not trust it",
        action="Add the exception that git names, if you do.",
    ),
    _Cause(
        pattern=r"certificate|SSL peer",
        cause="its certificate is not trusted",
        action="Add the authority to the machine's certificates (git reads http.sslCAInfo).",
    ),
    _Cause(
        pattern=r"transport '[^']*' not allowed",
        cause="git's own settings forbid the protocol, or lead to another one",
        action="Check protocol.* and url.*.insteadOf in git's configuration.",
    ),
    _Cause(
        pattern=r"not found|does not appear to be a git repo|is this a git repository|not a git repository|"
        r"No such file or directory|not valid",
        cause="there is no git repository that this user can see",
        action="Check the spelling, and whether it is private.",
    ),
    _Cause(
        pattern=r"unable to access|[Cc]onnect|timed out|hung up|early EOF|reset by peer|RPC failed|"
        r"Operation too slow|No route to host|unreachable|error: 5\d\d",
        cause="the connection failed",
        action=_NETWORK,
        is_lasting=False,
    ),
)
# What git says of a repository of the cache that is not as it was left. Where it was the server's fault after all, the
# fetch into a new one fails alike.
_DAMAGE = re.compile(
    r"inflate|corrupt|does not match index|too small|wrong index|bad (object|tree|config|shallow)|broken|garbage"
    r"|did not send all necessary objects|not a git repository: '|'longdoc' does not appear|is empty$"
    r"|unable to (read|resolve|unpack) |unresolved delta|missing (blob|tree|commit)|invalid (object|sha1|index)"
)
_DISK = re.compile(r"No space left|Disk quota|Read-only file system|Input/output error|Out of memory|Cannot allocate")


def _failure(address: Address, error: str, what: str) -> SourceError | InfrastructureError:
    if _DISK.search(error):
        return InfrastructureError(
            f"{address.uri}: {what}: git says {error!r}. Make room in the cache folder (LONGDOC_CACHE), then run again."
        )
    for each in _CAUSES:
        if re.search(each.pattern, error):
            message = f"{address.uri}: {what}: {each.cause}: git says {error!r}. {each.action}"
            return RemoteError(message, is_lasting=each.is_lasting, said=error)
    message = f"{address.uri}: {what} failed: git says {error!r}. `git ls-remote` with this address shows more."
    return RemoteError(message, said=error)
