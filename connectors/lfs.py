"""Git LFS: the content that pointers (`connectors.lfs_pointers`) stand for.

Owns the batch API (https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md), and what was downloaded, which lies
in the cache by its SHA-256. Every object is as long as its pointer says and has its hash, or it is refused. A password
goes to the host it is for and nowhere else; nothing is read from an address that is not http or https.
"""

import base64
import hashlib
import http.client
import json
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from connectors.address import Address
from connectors.lfs_pointers import Pointer
from connectors.remote import RemoteError, find_login, note
from longdoc.errors import InfrastructureError
from longdoc.files import make_folder, sha256_file
from longdoc.records import display, without_credentials

_MEDIA_TYPE = "application/vnd.git-lfs+json"
_AT_ONCE = 100
_SECONDS = 60.0
_LARGEST_ANSWER = 16 << 20
_CHUNK = 1 << 20
_IS_GONE = (404, 410, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class LfsStore:
    """Where the content of one repository's pointers is: folders to look in, one to keep downloads in, and a server.

    `url` is the server's; None where there is none. `address` is the repository's own, for its name and password.
    """

    folders: tuple[Path, ...]
    download_folder: Path | None = None
    url: str | None = None
    address: Address | None = None

    def find(self, pointer: Pointer) -> Path | None:
        """The file that holds the content, or None where it is not on this machine. Its length is right."""
        for folder in (*self.folders, *([self.download_folder] if self.download_folder else [])):
            path = folder / pointer.oid[:2] / pointer.oid[2:4] / pointer.oid
            if path.is_file() and path.stat().st_size == pointer.size and sha256_file(path) == pointer.oid:
                return path
        return None

    def ensure(self, pointers: Iterable[Pointer]) -> set[str]:
        """Download what is not on this machine: the oids that the server does not have either.

        Raises `RemoteError` where it cannot be asked, or sends anything else; `InfrastructureError` for a full disk.
        """
        missing = {pointer.oid: pointer for pointer in pointers if self.find(pointer) is None}
        if not missing or self.url is None or self.download_folder is None:
            return set(missing)
        total = sum(pointer.size for pointer in missing.values())
        note(f"{self.url}: downloading {len(missing):,} LFS objects, {total:,} bytes")
        server, gone = _Server(url=self.url, address=self.address), set()
        for batch in _batches(list(missing.values())):
            for pointer, action in server.ask(batch):
                if action is None:
                    gone.add(pointer.oid)
                else:
                    _keep(self.download_folder, pointer, server.download(pointer, action))
        return gone


def server_url(address: Address) -> str | None:
    """The server of a repository's LFS objects by its address, as git-lfs guesses it; None for files."""
    if address.scheme == "file":
        return None
    base = address.uri if address.scheme in ("http", "https") else f"https://{address.host}/{address.path.lstrip('/')}"
    return f"{base if base.endswith('.git') else f'{base}.git'}/info/lfs"


def _batches(pointers: Sequence[Pointer]) -> Iterator[Sequence[Pointer]]:
    for start in range(0, len(pointers), _AT_ONCE):
        yield pointers[start : start + _AT_ONCE]


@dataclass(slots=True)
class _Server:
    """One server of LFS objects."""

    url: str
    address: Address | None
    _login: tuple[str, str] | None = field(default=None, repr=False)
    _has_asked: bool = False

    def ask(self, pointers: Sequence[Pointer]) -> list[tuple[Pointer, Mapping[str, Any] | None]]:
        """For each object how it is downloaded, or None where the server does not have it."""
        objects = [{"oid": pointer.oid, "size": pointer.size} for pointer in pointers]
        body = json.dumps({"operation": "download", "transfers": ["basic"], "objects": objects}).encode("ascii")
        headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
        with self._open(f"{self.url}/objects/batch", headers, body) as response:
            raw = response.read(_LARGEST_ANSWER)
        try:
            answers = {each["oid"]: each for each in json.loads(raw)["objects"]}
            return [(pointer, self._action(pointer, answers[pointer.oid])) for pointer in pointers]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._fault("its answer is not that of an LFS server") from error

    def _action(self, pointer: Pointer, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if error := answer.get("error"):
            if error["code"] in _IS_GONE:
                return None
            raise self._fault(f"object {pointer.oid}: {str(error.get('message'))!r}, code {error['code']}")
        action: Mapping[str, Any] = answer["actions"]["download"]
        return action

    def download(self, pointer: Pointer, action: Mapping[str, Any]) -> Iterator[bytes]:
        """The content, piece by piece; never more than the pointer says."""
        headers = {str(name): str(value) for name, value in (action.get("header") or {}).items()}
        length = 0
        with self._open(str(action["href"]), headers, None) as response:
            while piece := response.read(_CHUNK):
                length += len(piece)
                if length > pointer.size:
                    raise self._fault(f"object {pointer.oid} is longer than the {pointer.size} bytes of its pointer")
                yield piece

    def _open(self, url: str, headers: Mapping[str, str], body: bytes | None) -> IO[bytes]:
        """Ask, and ask again with a password where one is wanted and known for this very host."""
        self._check(url)
        is_own = _origin(url) == _origin(self.url)
        for _ in range(2):
            sent = dict(headers)
            if is_own and self._login and "authorization" not in {name.lower() for name in headers}:
                sent["Authorization"] = _basic(*self._login)
            try:
                request = urllib.request.Request(url, data=body, headers=sent)  # noqa: S310, checked above
                answer: IO[bytes] = _opener().open(request, timeout=_SECONDS)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 401 and is_own and self._find_login():
                    continue
                lasting = error.code < 500
                raise self._fault(f"it answers {error.code} {error.reason}", is_lasting=lasting) from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                # Not its whole text: of a header it may repeat the value.
                cause = getattr(error, "reason", None) or type(error).__name__
                raise self._fault(str(cause), is_lasting=False) from error
            return answer
        raise self._fault("it does not let this user in")

    def _find_login(self) -> bool:
        """Whether there is a name and password that was not tried yet."""
        if self._has_asked:
            return False
        self._has_asked = True
        own = self.address
        if own is not None and own.password is not None and _origin(own.uri) == _origin(self.url):
            self._login = (own.username or "", own.password)
        else:
            parts = urlsplit(self.url)
            self._login = find_login(Address(uri=self.url, scheme=parts.scheme, host=parts.netloc, path=parts.path))
        return self._login is not None

    def _check(self, url: str) -> None:
        scheme = urlsplit(url).scheme
        if scheme != "https" and not (scheme == "http" and self.url.startswith("http://")):
            raise self._fault(f"it names an address of the protocol {scheme!r}, which is not allowed")

    def _fault(self, cause: str, *, is_lasting: bool = True) -> RemoteError:
        action = "Run again, or leave out --lfs to read the pointers alone."
        # A server may repeat what it was sent, or drive a terminal.
        said = display(without_credentials(cause))
        return RemoteError(f"{self.url}: LFS objects cannot be fetched: {said}. {action}", is_lasting=is_lasting)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the same host with the password, to others without; never from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.URLError("it leads from https to an address without")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and _origin(newurl) != _origin(req.full_url):
            following.remove_header("Authorization")
        return following


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def _basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")


def _keep(folder: Path, pointer: Pointer, pieces: Iterator[bytes]) -> None:
    """Write an object under its hash, in one step, once it is known to be what the pointer says."""
    place = folder / pointer.oid[:2] / pointer.oid[2:4] / pointer.oid
    try:
        make_folder(place.parent)
        descriptor, name = tempfile.mkstemp(dir=place.parent)
    except OSError as error:
        raise _disk(place, error) from error
    temporary = Path(name)
    try:
        digest, length = hashlib.sha256(), 0
        with os.fdopen(descriptor, "wb") as file:
            for piece in _read(pieces, pointer):
                digest.update(piece)
                length += len(piece)
                file.write(piece)
        if (length, digest.hexdigest()) != (pointer.size, pointer.oid):
            cause = f"{length} bytes with SHA-256 {digest.hexdigest()} came"
            raise RemoteError(f"LFS object {pointer.oid} of {pointer.size} bytes is damaged at its server: {cause}.")
        temporary.replace(place)
    except OSError as error:
        raise _disk(place, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _read(pieces: Iterator[bytes], pointer: Pointer) -> Iterator[bytes]:
    """The pieces; a connection that fails is no fault of the disk that they are written to."""
    try:
        yield from pieces
    except (OSError, http.client.HTTPException) as error:
        message = f"LFS object {pointer.oid} did not come whole: {error}. Check the network, then run again."
        raise RemoteError(message, is_lasting=False) from error


def _disk(place: Path, error: OSError) -> InfrastructureError:
    message = f"{place} cannot be written: {error.strerror}. Make room, or name another cache folder"
    return InfrastructureError(f"{message} with LONGDOC_CACHE, then run again.")
