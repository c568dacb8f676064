"""Which commit of a remote repository a revision names, found with as little of its history as can be.

Owns the order in which names are looked up, which is git's own (https://git-scm.com/docs/gitrevisions): a whole object
id, a ref, an abbreviated id; then `~` and `^` count from there. A branch or tag costs one listing of the refs, and the
whole id of a commit that is in the cache nothing at all. Refuses what means nothing at a remote: paths (`HEAD:a`),
ranges, searches, and the log of where a branch once was (`main@{1}`).
"""

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from connectors.address import Address
from connectors.clones import Uses
from connectors.git import run
from connectors.git_cache import (
    ALL_HISTORY,
    ALL_REFS,
    ensure_commit,
    has_commit,
    history,
    is_unknown,
    objects_dir,
)
from connectors.remote import RemoteError, list_refs
from longdoc.errors import SourceError
from longdoc.records import display

_WHOLE_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT_ID = re.compile(r"(?:.*-g)?[0-9a-f]{4,63}")
_COUNTED = re.compile(r"(?P<base>.*?)(?P<steps>(?:[~^]\d*|\^\{commit\}|\^\{\})+)")
_STEP = re.compile(r"~(?P<back>\d*)|\^(?P<parent>\d*)")
_SHOWN = 5
_PREFIXES = ("", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/")
# What no name of a ref may hold: https://git-scm.com/docs/git-check-ref-format
_NO_NAME = re.compile(r"^-|\.\.|@\{|:|[\0-\x20\x7f?*\[\\]|[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What a revision starts from: an object id at the remote, and a ref that names it, if any does."""

    object_id: str
    ref: str | None


def resolve_remote(
    address: Address, revision: str | None, is_known: Callable[[str], bool] = lambda commit_id: False
) -> str:
    """The commit id that a revision (None: the remote's HEAD) names now; the commit is then in the cache.

    A commit for which `is_known` is not fetched: whoever asks does not want to read it.

    Raises `SourceError` for a revision that names no commit, `RemoteError` where the remote cannot be read.
    """
    wanted = "HEAD" if revision in (None, "@") else str(revision)
    if not wanted or _NO_NAME.search(wanted):
        raise _unknown(address, wanted, {}, "a remote has branches, tags and commits, and ~ and ^ count from them")
    if _WHOLE_ID.fullmatch(wanted) and has_commit(address, wanted) and _peeled(address, wanted) == wanted:
        return wanted
    refs = list_refs(address)
    if not refs:
        raise SourceError(f"{address.uri} has no commits yet. Push something to it, then run again.")
    if base := _base(refs, wanted):
        if is_known(base.object_id):
            return base.object_id
        return _fetched(address, wanted, base, refs)
    if wanted == "HEAD":
        cause = f"{address.uri}: its HEAD names a branch that is not there. Choose another with --revision:"
        raise SourceError(f"{cause} {_listed(_short_names(refs))}.")
    return _counted(address, wanted, refs)


def _base(refs: dict[str, str], name: str) -> _Base | None:
    if _WHOLE_ID.fullmatch(name):
        ref = next((ref for ref, object_id in refs.items() if object_id == name), None)
        return _Base(object_id=name, ref=ref)
    for prefix in _PREFIXES:
        if object_id := refs.get(prefix + name):
            return _Base(object_id=object_id, ref=prefix + name)
    return None


def _fetched(address: Address, wanted: str, base: _Base, refs: dict[str, str]) -> str:
    """The commit that an object is, or that it is a tag of; in the cache by then."""
    try:
        with Uses() as uses:
            uses.hold(address)
            ensure_commit(address, base.object_id, base.ref)
            commit_id = _peeled(address, base.object_id)
            if commit_id is not None:
                ensure_commit(address, commit_id, base.ref)
    except RemoteError as error:
        if is_unknown(error):
            raise _unknown(address, wanted, refs, f"git says {error.said!r}") from error
        raise
    if commit_id is None:
        raise _unknown(address, wanted, refs, "it names an object that is no commit")
    return commit_id


def _peeled(address: Address, object_id: str) -> str | None:
    """The commit that an object in the cache is, or a tag of; None where it is neither."""
    command = [f"--git-dir={objects_dir(address)}", "rev-parse", "--verify", "--quiet", "--end-of-options"]
    status, output, _ = run([*command, f"{object_id}^{{commit}}"])
    return output.decode("ascii").strip() if status == 0 else None


def _counted(address: Address, wanted: str, refs: dict[str, str]) -> str:
    """The commit that is some steps behind another, or that an abbreviated id names: its history is fetched first."""
    match = _COUNTED.fullmatch(wanted)
    name, steps = (match["base"] or "HEAD", match["steps"]) if match else (wanted, "")
    base = _base(refs, "HEAD" if name == "@" else name)
    if base is not None:
        tips, start, depth = [f"+{base.object_id}:refs/longdoc/base"], base.object_id, _depth(steps)
    elif _SHORT_ID.fullmatch(name):
        tips, start, depth = list(ALL_REFS), name, ALL_HISTORY
    else:
        raise _unknown(address, wanted, refs, "no branch, tag or commit has that name")
    with history(address, tips, depth, like=next(iter(refs.values()))) as git_dir:
        expression = f"{start}{steps}^{{commit}}"
        status, output, error = run([f"--git-dir={git_dir}", "rev-parse", "--verify", "--end-of-options", expression])
    if status != 0:
        raise _unknown(address, wanted, refs, f"git says {error!r}")
    commit_id = output.decode("ascii").strip()
    return _fetched(address, wanted, _Base(object_id=commit_id, ref=None), refs)


def _depth(steps: str) -> int:
    """How many commits of a history the steps lead through, at most."""
    walked = 0
    for step in _STEP.finditer(steps):
        walked += 1 if step["back"] is None else int(step["back"] or 1)
    return min(1 + walked, ALL_HISTORY)


def _unknown(address: Address, wanted: str, refs: dict[str, str], cause: str) -> SourceError:
    names = _short_names(refs)
    near = difflib.get_close_matches(wanted, names, n=3)
    # A branch that was renamed has no likeness to its old name.
    hint = f" Near it: {_listed(near)}." if near else f" It has {_listed(names)}." if names else ""
    message = f"{address.uri} has no commit that {display(wanted)!r} names: {cause}.{hint}"
    return SourceError(f"{message} `git ls-remote` with this address lists what it has.")


def _short_names(refs: dict[str, str]) -> list[str]:
    """Branches, then tags, then all other refs, by the names that people use."""
    order = sorted(refs, key=lambda name: (not name.startswith("refs/heads/"), not name.startswith("refs/tags/")))
    return [name.removeprefix("refs/heads/").removeprefix("refs/tags/") for name in order]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(display, names[:_SHOWN])) + more
