"""ZIP archives: every byte is measured, members are what the standard library finds, and hostile ones go nowhere."""

import io
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zip_files import Record, handmade, zip_of

from connectors import archive as archive_module
from connectors.archive import Archive, MemberError, open_archive, reason_of
from connectors.archive_layout import MOST_MEMBERS, Member
from connectors.ledger import Ledger
from connectors.prose import Flow
from longdoc.errors import DocumentError

TEXT = b"Down the rabbit-hole. " * 40


REASONS = (
    "damaged",
    "directory",
    "duplicate",
    "encrypted",
    "too_large_when_expanded",
    "unsafe_name",
    "unsupported_compression",
)


def refusal(action: Callable[[], object]) -> str | None:
    """The reason with which an action is refused, None where it is not."""
    try:
        action()
    except (DocumentError, MemberError) as error:
        return error.reason
    return None


def read_whole(archive: Archive, member: Member) -> None:
    assert zlib.crc32(archive.read(member)) == member.crc32


def account(raw: bytes) -> dict[str, int]:
    """Bytes of the archive by kind of part, after checking that ledger and segments add up to the file."""
    archive = open_archive(raw, "book.zip")
    ledger, flow = Ledger(), Flow()
    archive.add_rest(ledger, flow, lambda member: "binary")
    top = [entry for entry in ledger.entries() if entry.parent is None]
    assert sum(entry.num_bytes for entry in top) == len(raw)
    tiles, _ = flow.lay_out()
    carried = [segment.num_bytes_source for segment in tiles.segments]
    assert carried == [entry.num_bytes for entry in top]
    assert all(segment.reason for segment in tiles.segments)
    sums: dict[str, int] = {}
    for entry in ledger.entries():
        if entry.num_bytes_content is None:
            sums[entry.kind] = sums.get(entry.kind, 0) + entry.num_bytes
        else:
            inside = [each.num_bytes for each in ledger.entries() if each.parent == entry.entry_index]
            assert sum(inside) == entry.num_bytes_content
    assert sum(sums.values()) == len(raw)
    return sums


def test_parts_have_the_sizes_that_the_format_gives_them() -> None:
    # APPNOTE 4.3.7: 30 bytes and the name; 4.3.12: 46 bytes and the name; 4.3.16: 22 bytes and the comment.
    raw = zip_of({"a.txt": b"12345", "bc.txt": b"678"}, method=zipfile.ZIP_STORED, comment=b"hello")
    assert account(raw) == {
        "local_header": 30 + 5 + 30 + 6,
        "data": 8,
        "central_directory": 46 + 5 + 46 + 6,
        "end_record": 22,
        "comment": 5,
    }


def test_descriptors_of_streamed_archives_are_parts_of_their_own() -> None:
    sums = account(zip_of({"a": TEXT, "b": TEXT}, stream=True))
    assert sums["data_descriptor"] == 2 * 16
    assert "gap" not in sums


@pytest.mark.parametrize(
    ("signature", "form"), [(b"", "<3L"), (b"PK\7\x08", "<3L"), (b"", "<LQQ"), (b"PK\7\x08", "<LQQ")]
)
def test_every_form_of_descriptor_is_known(signature: bytes, form: str) -> None:
    import struct

    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = deflater.compress(TEXT) + deflater.flush()
    descriptor = signature + struct.pack(form, zlib.crc32(TEXT), len(data), len(TEXT))
    raw = handmade([Record(name=b"a", content=TEXT, flags=8)], between=descriptor)
    assert account(raw)["data_descriptor"] == len(descriptor)


def test_bytes_before_between_and_behind_the_members_are_measured() -> None:
    records = [Record(name=b"a", content=TEXT), Record(name=b"b", content=TEXT)]
    raw = handmade(records, before=b"#!/bin/sh\n", between=b"....", behind=b"!!")
    sums = account(raw)
    assert (sums["prepended"], sums["gap"], sums["trailing"]) == (10, 8, 2)
    assert open_archive(raw, "x").read(open_archive(raw, "x").members[1]) == TEXT


def test_zip64_records_are_read_and_measured() -> None:
    raw = handmade([Record(name=b"a", content=TEXT, zip64=True), Record(name=b"b")], zip64=True, comment=b"c")
    sums = account(raw)
    assert (sums["zip64_end_record"], sums["zip64_end_locator"], sums["end_record"], sums["comment"]) == (56, 20, 22, 1)
    archive = open_archive(raw, "x")
    assert archive.read(archive.members[0]) == TEXT
    assert zipfile.ZipFile(io.BytesIO(raw)).read("a") == TEXT


def test_a_signature_in_the_comment_does_not_mislead() -> None:
    raw = zip_of({"a": TEXT}, comment=b"PK\5\6 and PK\5\6" + bytes(30))
    assert [member.path for member in open_archive(raw, "x").members] == [b"a"]
    account(raw)


names = st.text(st.characters(codec="utf-8", exclude_characters="\0/\\"), min_size=1, max_size=12)


@given(
    members=st.dictionaries(names, st.binary(max_size=300), max_size=6),
    method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    comment=st.binary(max_size=40),
    stream=st.booleans(),
    before=st.binary(max_size=40),
)
@settings(max_examples=60)
def test_members_are_those_that_the_standard_library_finds(
    members: dict[str, bytes], method: int, comment: bytes, stream: bool, before: bytes
) -> None:
    if b"PK" in comment:
        return
    raw = before + zip_of(members, method=method, comment=comment, stream=stream)
    account(raw)
    archive = open_archive(raw, "x")
    with zipfile.ZipFile(io.BytesIO(raw)) as theirs:
        assert [member.name for member in archive.members] == theirs.namelist()
        for member in archive.members:
            if member.fault is None:
                assert archive.read(member) == theirs.read(member.name)


@given(data=st.data(), members=st.dictionaries(names, st.binary(max_size=80), min_size=1, max_size=4))
@settings(max_examples=150)
def test_a_mutated_archive_is_measured_whole_or_refused_with_a_reason(
    data: st.DataObject, members: dict[str, bytes]
) -> None:
    raw = bytearray(zip_of(members, stream=data.draw(st.booleans())))
    bounds = sorted(
        {0, len(raw), *(edge for e in open_archive(bytes(raw), "x").layout.extents for edge in (e.start, e.stop))}
    )
    for _ in range(data.draw(st.integers(0, 6))):
        near = data.draw(st.sampled_from(bounds)) + data.draw(st.integers(-2, 50))
        raw[near % len(raw)] = data.draw(st.sampled_from([0, 1, 0x50, 0x7F, 0xFF]) | st.integers(0, 255))
    cut = raw[: data.draw(st.sampled_from(bounds) | st.just(len(raw)))]
    refused = refusal(lambda: open_archive(bytes(cut), "x"))
    assert refused in (None, "damaged", "unsafe")
    if refused is None:
        account(bytes(cut))
        archive = open_archive(bytes(cut), "x")
        for member in archive.members:
            assert refusal(lambda member=member: read_whole(archive, member)) in (None, *REASONS)


@pytest.mark.parametrize(
    "name",
    [b"../a", b"a/../../b", b"/etc/passwd", b"C:/a", b"c:a", b"..\\a", b"a\\..\\b", b"a\0.txt", b"\\\\host\\a", b""],
)
def test_names_that_lead_out_of_the_archive_are_set_apart(name: bytes) -> None:
    raw = handmade([Record(name=name, content=TEXT), Record(name=b"ok", content=TEXT)])
    account(raw)
    archive = open_archive(raw, "x")
    assert archive.members[0].path == name
    with pytest.raises(MemberError) as refused:
        archive.read(archive.members[0])
    assert refused.value.reason == "unsafe_name"
    assert archive.find("ok") is archive.members[1]


def test_names_that_are_not_utf_8_keep_their_bytes() -> None:
    archive = open_archive(handmade([Record(name="Größe.txt".encode("cp437"), content=TEXT)]), "x")
    assert archive.members[0].path == b"Gr\x94\xe1e.txt"
    assert archive.find("Größe.txt") is archive.members[0]


def test_of_two_members_of_one_name_the_later_holds_and_the_other_has_a_reason() -> None:
    raw = handmade([Record(name=b"a", content=b"old"), Record(name=b"a", content=b"new")])
    account(raw)
    archive = open_archive(raw, "x")
    assert [member.fault for member in archive.members] == ["duplicate", None]
    found = archive.find("a")
    assert found is not None
    assert archive.read(found) == zipfile.ZipFile(io.BytesIO(raw)).read("a") == b"new"


def test_a_name_is_found_in_another_case_or_form_only_where_it_is_clear_which_is_meant() -> None:
    archive = open_archive(zip_of({"Text/Cafe\u0301.xhtml": b"1", "a.txt": b"2", "A.TXT": b"3"}), "x")
    found = archive.find("text/caf\u00e9.xhtml")
    assert found is not None
    assert archive.warnings == ["text/café.xhtml is named Text/Cafe\u0301.xhtml in the archive."]
    assert archive.find("a.Txt") is None
    assert archive.find("A.TXT") is archive.members[2]


def test_folders_and_names_with_backslashes() -> None:
    archive = open_archive(handmade([Record(name=b"a/"), Record(name=b"OEBPS\\c.xhtml", content=TEXT)]), "x")
    assert archive.members[0].fault == "directory"
    found = archive.find("OEBPS/c.xhtml")
    assert found is not None
    assert archive.read(found) == TEXT


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Record(name=b"a", content=TEXT, flags=1), "encrypted"),
        (Record(name=b"a", content=TEXT, method=14), "unsupported_compression"),
        (Record(name=b"a", content=TEXT, crc32=1), "damaged"),
        (Record(name=b"a", content=TEXT, data=b"\xff\xff\xff\xff"), "damaged"),
        (Record(name=b"a", content=TEXT, num_bytes_content=len(TEXT) + 1), "damaged"),
        (Record(name=b"a", content=TEXT, num_bytes_content=10), "damaged"),
        (Record(name=b"a", content=TEXT, at=5), "damaged"),
        (Record(name=b"a", content=TEXT, at=2**32 - 2), "damaged"),
    ],
)
def test_a_member_that_cannot_be_read_says_why(record: Record, reason: str) -> None:
    raw = handmade([record])
    account(raw)
    archive = open_archive(raw, "x")
    with pytest.raises(MemberError, match=r"^a ") as refused:
        archive.read(archive.members[0])
    assert refused.value.reason == reason


def test_members_that_share_their_data_are_refused() -> None:
    # The trick of https://www.bamsoftware.com/hacks/zipbomb/: one kernel, many directory entries.
    raw = handmade([Record(name=b"a", content=TEXT), Record(name=b"b", content=TEXT, at=0)])
    with pytest.raises(DocumentError, match=r"x is a ZIP archive whose parts overlap at byte 0") as refused:
        open_archive(raw, "x")
    assert refused.value.reason == "unsafe"


def test_expansion_is_bounded_as_a_ratio_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "FREELY_EXPANDED", 100_000)
    raw = zip_of({"a": bytes(99_000), "b": bytes(2_000), "c": b"c"})
    archive = open_archive(raw, "bomb.epub")
    assert len(archive.read(archive.members[0])) == 99_000
    with pytest.raises(
        DocumentError, match=r"^bomb\.epub expands to more than 100,000 bytes, from 3\d\d \(at b\)"
    ) as refused:
        archive.read(archive.members[1])
    assert refused.value.reason == "too_large_when_expanded"
    monkeypatch.setattr(archive_module, "FREELY_EXPANDED", 0)
    archive = open_archive(raw, "bomb.epub")
    with pytest.raises(DocumentError, match=r"more than 7\d,\d\d\d bytes"):  # 200 times the file
        archive.read(archive.members[0])
    monkeypatch.setattr(archive_module, "FREELY_EXPANDED", 1 << 20)
    monkeypatch.setattr(archive_module, "MOST_EXPANDED", 50_000)
    with pytest.raises(DocumentError, match=r"more than 50,000 bytes"):
        open_archive(raw, "bomb.epub").read(archive.members[0])


def test_a_member_that_states_less_than_it_holds_is_not_expanded_further() -> None:
    raw = handmade([Record(name=b"a", content=bytes(50_000_000), num_bytes_content=10)])
    archive = open_archive(raw, "x")
    tracemalloc.start()
    try:
        with pytest.raises(MemberError, match="a does not hold the 10 bytes that the directory states"):
            archive.read(archive.members[0])
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "raw", [b"", b"PK\5\6", b"PK\3\4" + bytes(100), zip_of({"a": TEXT})[:-1], b"PK\5\6" + b"\xff" * 18]
)
def test_an_archive_without_a_directory_is_damaged(raw: bytes) -> None:
    with pytest.raises(
        DocumentError, match=r"^x is no whole ZIP archive: the directory at its end is missing"
    ) as refused:
        open_archive(raw, "x")
    assert refused.value.reason == "damaged"


def test_an_empty_archive_is_an_archive() -> None:
    assert account(zip_of({})) == {"end_record": 22}


def test_a_directory_that_states_another_number_of_members_leaves_a_warning() -> None:
    archive = open_archive(handmade([Record(name=b"a")], num_entries=3), "x")
    assert archive.warnings == ["The archive's directory states 3 members and lists 1."]


def test_more_members_than_any_book_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_MEMBERS == 200_000
    monkeypatch.setattr("connectors.archive_layout.MOST_MEMBERS", 3)
    account(handmade([Record(name=b"%d" % number) for number in range(3)]))
    with pytest.raises(DocumentError, match="more than 3 members") as refused:
        open_archive(handmade([Record(name=b"%d" % number) for number in range(4)]), "x")
    assert refused.value.reason == "unsafe"


@pytest.mark.parametrize(
    ("name", "media_type", "reason"),
    [
        ("a.jpg", "image/jpeg", "image"),
        ("a", "font/woff2", "font"),
        ("a.otf", "application/vnd.ms-opentype", "font"),
        ("a.css", "text/css", "style"),
        ("a.js", "text/javascript; charset=utf-8", "script"),
        ("a.mp3", "", "audio"),
        ("A.PNG", "", "image"),
        ("a.smil", "application/smil+xml", "media_overlay"),
        ("toc.ncx", "", "metadata"),
        ("a.xyz", "application/octet-stream", "binary"),
    ],
)
def test_what_is_no_text_has_a_word_for_it(name: str, media_type: str, reason: str) -> None:
    assert reason_of(name, media_type) == reason


@pytest.mark.books
def test_a_real_archive_is_measured_and_read_whole(books: Path) -> None:
    raw = (books / "alice.epub").read_bytes()
    sums = account(raw)
    archive = open_archive(raw, "alice.epub")
    with zipfile.ZipFile(books / "alice.epub") as theirs:
        infos = theirs.infolist()
        assert sums["data"] == sum(each.compress_size for each in infos)
        assert sums["central_directory"] == len(raw) - theirs.start_dir - sums["end_record"]
        assert [archive.read(member) for member in archive.members] == [theirs.read(each) for each in infos]
