"""Addresses of repositories: what they are taken apart into, and that no secret is left in what may be shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.address import is_address, parse_address, resolve_relative, shown, split_revision
from longdoc.errors import SourceError


@pytest.mark.parametrize(
    ("text", "uri", "login", "name"),
    [
        ("https://Example.ORG:443/o/r.git/", "https://example.org/o/r.git", (None, None), "r"),
        ("https://me:to%40ken@h/r", "https://h/r", ("me", "to@ken"), "r"),
        ("https://u:p@ss@h:8443/r", "https://h:8443/r", ("u", "p@ss"), "r"),
        ("https://token@h/r", "https://h/r", ("token", None), "r"),
        ("https://:token@h/r", "https://h/r", (None, "token"), "r"),
        ("http://a:b@[::1]:80/r", "http://[::1]/r", ("a", "b"), "r"),
        ("ssh://git@h:22/~me/r.git", "ssh://git@h/~me/r.git", (None, None), "r"),
        ("git@H.example:o/r.git", "git@h.example:o/r.git", (None, None), "r"),
        ("git@[::1]:r", "git@[::1]:r", (None, None), "r"),
        ("file://localhost/srv/a%20b.git", "file:///srv/a%20b.git", (None, None), "a b"),
        ("FILE:///srv/r", "file:///srv/r", (None, None), "r"),
    ],
)
def test_an_address_is_taken_apart(text: str, uri: str, login: tuple[str | None, str | None], name: str) -> None:
    address = parse_address(text)
    assert (address.uri, (address.username, address.password), address.name) == (uri, login, name)
    assert parse_address(uri).uri == uri


@pytest.mark.parametrize(
    ("argument", "split"),
    [
        ("https://h/o/r@v1.0", ("https://h/o/r", "v1.0")),
        ("https://u:p@h/o/r@HEAD~3", ("https://u:p@h/o/r", "HEAD~3")),
        ("https://u:p@h/r", ("https://u:p@h/r", None)),
        ("https://h/r@feature/x", ("https://h/r@feature/x", None)),
        ("https://u@h", ("https://u@h", None)),
        ("git@h:r", ("git@h:r", None)),
        ("git@h:r@v1", ("git@h:r", "v1")),
        ("git@h:o/r@v1", ("git@h:o/r", "v1")),
        ("file:///a@b/r@x@y", ("file:///a@b/r@x", "y")),
    ],
)
def test_a_revision_stands_behind_the_last_slash(argument: str, split: tuple[str, str | None]) -> None:
    assert split_revision(argument) == split


@pytest.mark.parametrize(
    ("parent", "url", "resolved"),
    [  # as git has it: https://github.com/git/git/blob/master/t/t0060-path-utils.sh
        ("ssh://hostname/repo", "../subrepo", "ssh://hostname/subrepo"),
        ("ssh://hostname:2222/repo", "../subrepo", "ssh://hostname:2222/subrepo"),
        ("user@host:path/to/repo", "../subrepo", "user@host:path/to/subrepo"),
        ("user@host:repo", "../subrepo", "user@host:subrepo"),
        ("file:///tmp/repo", "../subrepo", "file:///tmp/subrepo"),
        ("https://u:p@h/a/b", "./c", "https://h/a/b/c"),
        ("https://h/a/b", "../../c/", "https://h/c/"),
        ("https://h/a/b", "https://other/c", "https://other/c"),
    ],
)
def test_relative_addresses_of_submodules(parent: str, url: str, resolved: str) -> None:
    assert resolve_relative(parse_address(parent), url) == resolved


@pytest.mark.parametrize(
    "text", ["me:s3cr3t@h.example/o/r.git", "me:s3cr3t@h.example:o/r.git", ":s3/cr@3t@[::1]/r", "me:s3cr3t@h/r@v1"]
)
def test_an_address_whose_scheme_was_forgotten_is_no_path_and_keeps_its_password(text: str) -> None:
    assert is_address(text)
    with pytest.raises(SourceError, match=r" is no URL\. Use one of https://") as caught:
        parse_address(text)
    assert not any(part in str(caught.value) for part in ("me:", "s3", "3t@"))


PIECES = st.sampled_from(
    [
        *("https://", "http://", "ssh://", "file://", "git@", "h", "/", ":", "@", "..", "-o", "[::1]", "%0a", "%40"),
        *("\n", "\0", "::", "?", "#", "é", "\udcff", ":22", "a.git", "~", "\\", " "),
    ]
)


@given(st.lists(PIECES, max_size=9).map("".join))
def test_any_text_is_an_address_or_refused_and_its_password_is_gone(text: str) -> None:
    for candidate in (text, f"https://me:s3cr3t@{text}", f"ssh://s3cr3t:s3cr3t@{text}", f"https://a:s3cr3t{text}@h/x"):
        assert isinstance(is_address(candidate), bool)
        assert "s3cr3t" not in refusal_or_address(split_revision(candidate)[0]) + shown(candidate)


def refusal_or_address(url: str) -> str:
    """Whatever is said of an address to anybody."""
    try:
        address = parse_address(url)
    except SourceError as error:
        str(error).encode()
        return str(error)
    assert parse_address(address.uri).uri == address.uri
    assert not address.uri.startswith("-")
    return address.uri + repr(address)
