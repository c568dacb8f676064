"""Addresses of remote repositories: which are allowed, what git is given, and what everybody else may see.

Owns the forms of a repository's URL: `https://`, `http://`, `ssh://` and `file://`, and ssh's short form
`user@host:path`. A name and a password in an address are taken out of it at once; what is left is the canonical
address, which is what git, messages, tables and file names are given. Refuses every other protocol, remote helpers
(`ext::`), whatever could be read as an option, and white space and control characters.
"""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from longdoc.errors import SourceError
from longdoc.records import display, without_credentials

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HELPER = re.compile(r"[A-Za-z0-9+.-]*::")
_SCP_LIKE = re.compile(r"(?P<user>[^/:\s@]+)@(?P<host>\[[0-9A-Fa-f:.]+\]|[^/:\s@\[]+):(?P<path>.+)", re.DOTALL)
# An address whose scheme was forgotten: no path of a file looks so, and it holds a password.
_BARE_LOGIN = re.compile(r"[^/:\s@]*:\S*@(?=(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)[:/])")
_PARTS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>/.*)?", re.DOTALL)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/\\-][^\[\]:@/\\]*)(?::(?P<port>[0-9]{1,5}))?")
_USER = re.compile(r"[A-Za-z0-9_.+~%][A-Za-z0-9_.+~%$-]*")
_DEFAULT_PORTS = {"http": "80", "https": "443", "ssh": "22"}
_LOOPBACK = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]")
SCHEMES = ("https", "http", "ssh", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One remote repository. `uri` is its canonical address; only the last two fields hold a secret.

    `username` and `password` are those of an http address, percent-decoded. The user of an ssh address is part of
    `uri`: it chooses the repository, and opens nothing without a key.
    """

    uri: str
    scheme: str
    host: str
    path: str
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        """Scheme, host and port: whom a password is for."""
        return self.uri[: len(self.uri) - len(self.path)]

    @property
    def name(self) -> str:
        """The repository's own name: the last part of its path, without `.git`."""
        return unquote(self.path, errors="surrogateescape").rpartition("/")[2].removesuffix(".git")


def is_address(argument: str) -> bool:
    """Whether an argument has the form of an address, allowed or not, rather than that of a path."""
    return any(form.match(argument) for form in (_URL, _HELPER, _SCP_LIKE, _BARE_LOGIN))


def split_revision(argument: str) -> tuple[str, str | None]:
    """`URL@revision` as the address and the revision, which is None where there is none.

    Split only at an `@` after the last `/` of the path: any other `@` belongs to the address.
    """
    scp = _SCP_LIKE.fullmatch(argument)
    parts = _PARTS.fullmatch(argument)
    path_start = scp.start("path") if scp else parts.start("path") if parts else -1
    if path_start < 0:
        return argument, None
    last = max(argument.rfind("/"), path_start - 1)
    at = argument.rfind("@", last + 1)
    return (argument, None) if at < 0 else (argument[:at], argument[at + 1 :])


def parse_address(text: str) -> Address:
    """The repository that an address names. Raises `SourceError` for one that is not allowed, without its secrets."""
    if any(ord(char) <= 0x20 or ord(char) == 0x7F or 0xD800 <= ord(char) <= 0xDFFF for char in text):
        cause = "holds white space, a control character or a byte that is not UTF-8"
        raise _refusal(text, cause, "Write such characters as %20 and the like.")
    if text.startswith("-") or _HELPER.match(text):
        raise _refusal(text, "would make git run another program", f"Use one of {_listed()}.")
    if scp := _SCP_LIKE.fullmatch(text):
        return _ssh_short(text, scp)
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise _refusal(text, "is no URL", f"Use one of {_listed()}, or user@host:path.")
    scheme = parts["scheme"].lower()
    if scheme not in SCHEMES:
        hint = " git:// proves neither who answers nor what they send." if scheme == "git" else ""
        raise _refusal(
            text, f"uses the protocol {display(scheme)}, which is not allowed", f"Use one of {_listed()}.{hint}"
        )
    if scheme == "file":
        return _file(text, parts)
    return _network(text, scheme, parts)


def resolve_relative(parent: Address, url: str) -> str:
    """A submodule's URL, which may be relative (`./`, `../`), as git resolves it against its parent's address.

    See https://git-scm.com/docs/gitmodules, submodule.<name>.url. The result is not checked yet.
    """
    if not url.startswith(("./", "../")):
        return url
    is_scp = _SCP_LIKE.fullmatch(parent.uri) is not None
    base, rest = parent.path.rstrip("/"), url
    while rest.startswith(("./", "../")):
        if rest.startswith("../"):
            base = base.rpartition("/")[0]
        rest = rest.partition("/")[2]
    joined = rest if is_scp and not base else f"{base}/{rest}"
    return parent.uri[: len(parent.uri) - len(parent.path)] + joined


def _ssh_short(text: str, scp: re.Match[str]) -> Address:
    if _USER.fullmatch(scp["user"]) is None or scp["host"].startswith("-") or scp["path"].startswith("-"):
        raise _refusal(text, "would be read as an option", "Write it as ssh://user@host/path.")
    host = scp["host"].lower()
    path = scp["path"].rstrip("/") or "/"
    return Address(uri=f"{scp['user']}@{host}:{path}", scheme="ssh", host=host, path=path)


def _file(text: str, parts: re.Match[str]) -> Address:
    if parts["authority"].lower() not in ("", "localhost") or not (parts["path"] or "").strip("/"):
        raise _refusal(text, "names no file of this machine", "Write it as file:///path/of/the/repository.")
    path = parts["path"].rstrip("/")
    return Address(uri=f"file://{path}", scheme="file", host="", path=path)


def _network(text: str, scheme: str, parts: re.Match[str]) -> Address:
    login, at, place = parts["authority"].rpartition("@")
    host = _HOST.fullmatch(place)
    path = (parts["path"] or "").rstrip("/")
    if host is None or not path:
        raise _refusal(text, "names no host and repository", f"Write it as {scheme}://host/path/of/the/repository.")
    if "?" in path or "#" in path:
        raise _refusal(text, "has a query or a fragment", "Leave out what follows the path; git adds its own.")
    name = host["host"].lower()
    port = host["port"]
    origin = f"{name}:{port}" if port and port != _DEFAULT_PORTS[scheme] else name
    if scheme == "ssh":
        return _ssh(text, login if at else None, origin, name, path)
    username, password = _login(text, login) if at else (None, None)
    if password is not None and scheme == "http" and not _LOOPBACK.fullmatch(name):
        raise _refusal(text, "would send a password that everybody on the way can read", "Use https.")
    uri = f"{scheme}://{origin}{path}"
    return Address(uri=uri, scheme=scheme, host=name, path=path, username=username, password=password)


def _ssh(text: str, user: str | None, origin: str, host: str, path: str) -> Address:
    if user is not None and ":" in user:
        raise _refusal(text, "holds a password, and ssh takes none", "Use a key, and leave the password out.")
    if user is not None and _USER.fullmatch(user) is None:
        raise _refusal(text, "has a user name that is none", "Write it as ssh://user@host/path.")
    login = "" if user is None else f"{user}@"
    return Address(uri=f"ssh://{login}{origin}{path}", scheme="ssh", host=host, path=path)


def _login(text: str, login: str) -> tuple[str | None, str | None]:
    username, colon, password = login.partition(":")
    decoded = [unquote(part) for part in (username, password)]
    # git hands them to its credential helpers line by line.
    if any(ord(char) < 0x20 for part in decoded for char in part):
        raise _refusal(text, "has a name or password with a control character in it", "Check how it was encoded.")
    return decoded[0] or None, decoded[1] if colon else None


def _refusal(text: str, cause: str, action: str) -> SourceError:
    return SourceError(f"{shown(text)} {cause}. {action}")


def shown(text: str) -> str:
    """An address that may be of any form, for a message: without what could be a secret."""
    if _URL.match(text):
        # To the last @: a password that was not encoded may hold anything. A query may hold a token.
        text = re.split(r"[?#]", re.sub(r"(?<=://).*@", "", text, flags=re.DOTALL), maxsplit=1)[0]
    elif bare := _BARE_LOGIN.match(text):
        text = text[bare.end() :]
    return display(without_credentials(text))


def _listed() -> str:
    return ", ".join(f"{scheme}://" for scheme in SCHEMES)
