"""The shared builder of transformed books: what sets text apart, where labels stand, which segment has the bytes."""

from itertools import pairwise

import pytest
from book_checks import check_document, mapped, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.ledger import Ledger
from connectors.prose import Flow
from longdoc.records import Document


def flow_of(*parts: tuple[int, bytes | None]) -> Flow:
    flow = Flow()
    for entry, (num_bytes, path) in enumerate(parts or ((10, None),)):
        flow.source(entry, transform="test", num_bytes=num_bytes, path=path)
    return flow


def document_of(flow: Flow, *sizes: int) -> Document:
    ledger = Ledger()
    for size in sizes or (10,):
        ledger.add("member", size)
    tiles, source_map = flow.lay_out()
    document = Document(
        kind="book",
        source_uri="file:///b",
        num_bytes_source=sum(sizes or (10,)),
        text=tiles.text(),
        segments=tuple(tiles.segments),
        ledger=ledger.entries(),
        source_map=source_map,
    )
    document.check()
    return document


def text_of(flow: Flow) -> str:
    return document_of(flow).text.decode()


def test_white_space_collapses_within_a_block_and_blocks_are_set_apart_by_a_blank_line() -> None:
    flow = flow_of()
    flow.block("/p[1]")
    flow.text("  one\n\t two ")
    flow.text(" three\r\n")
    flow.block("/p[2]")
    flow.text(" \n ")
    flow.block("/p[3]")
    flow.text("four\N{NO-BREAK SPACE} \N{NO-BREAK SPACE}five\N{IDEOGRAPHIC SPACE} ")
    document = document_of(flow)
    assert document.text.decode() == (
        "one two three\n\nfour\N{NO-BREAK SPACE} \N{NO-BREAK SPACE}five\N{IDEOGRAPHIC SPACE}"
    )
    assert [place for place, _ in mapped(document)] == ["/p[1]", "/p[3]"]


def test_kept_white_space_is_kept_and_its_newlines_count() -> None:
    flow = flow_of()
    flow.block("/pre")
    flow.exact("  a\r\n\r\tb \r\n\n\n")
    flow.block("/p")
    flow.text("c")
    assert text_of(flow) == "  a\n\n\tb \n\n\nc"


def test_line_breaks_hold_inside_a_block_and_not_at_its_edges() -> None:
    flow = flow_of()
    flow.block("/p")
    flow.line_break()
    flow.text(" a ")
    flow.line_break()
    flow.line_break()
    flow.text(" b ")
    flow.line_break()
    flow.block("/q")
    flow.text("c")
    assert text_of(flow) == "a\n\nb\n\nc"


def test_tables_are_rows_of_cells() -> None:
    flow = flow_of()
    flow.block("/p")
    flow.text("before")
    flow.begin_table("/table")
    for row in (["a", "b"], ["", "c"], [], ["d", "", "e", ""]):
        flow.row("/tr")
        for cell in row:
            flow.cell("/td")
            flow.block("/td/p")
            flow.text(cell)
            flow.block("/td")
    flow.end_table()
    flow.block("/p")
    flow.text("after")
    assert text_of(flow) == "before\n\na\tb\n\tc\nd\t\te\n\nafter"


def test_tables_stand_in_cells_and_captions_above_rows() -> None:
    flow = flow_of()
    flow.begin_table("/table")
    flow.begin("caption", "/caption")
    flow.text("Sums")
    flow.end()
    flow.row("/tr")
    flow.cell("/td")
    flow.text("x")
    flow.begin_table("/in")
    for text in ("1", "2"):
        flow.row("/in/tr")
        flow.cell("/in/td")
        flow.text(text)
    flow.end_table()
    flow.cell("/td[2]")
    flow.text("y")
    flow.row("/tr[2]")
    flow.cell("/td")
    flow.text("z")
    flow.end_table()
    document = document_of(flow)
    assert texts(document) == [("caption", "Sums\n\n"), ("text", "x\n\n1\n2\ty\nz")]


def test_alt_texts_and_readings_stand_at_the_end_of_their_unit() -> None:
    flow = flow_of()
    flow.unit("chapter", "One")
    flow.block("/p")
    flow.text("a ")
    flow.aside("ruby", " r1 ", "/rt[1]")
    flow.aside("alt_text", "p1\np1", "/img[1]")
    flow.text("b")
    flow.begin("note", "/aside")
    flow.text("n")
    flow.end()
    flow.block("/p[2]")
    flow.text("c")
    flow.aside("ruby", "r2", "/rt[2]")
    flow.aside("alt_text", " ", "/img[2]")
    flow.unit("chapter", "Two")
    flow.block("/p[3]")
    flow.text("d")
    document = document_of(flow)
    assert [(s.unit, s.kind, s.title, s.is_content) for s in document.segments] == [
        (0, "chapter", "One", True),
        (0, "note", None, False),
        (0, "chapter", None, False),
        (0, "alt_text", None, False),
        (0, "ruby", None, False),
        (1, "chapter", "Two", True),
    ]
    assert document.text.decode() == "a b\n\nn\n\nc\n\np1 p1\n\nr1\nr2\n\nd"
    assert mapped(document) == [
        ("/p", "a b"), ("/aside", "n"), ("/p[2]", "c"), ("/img[1]", "p1 p1"), ("/rt[1]", "r1"), ("/rt[2]", "r2"),
        ("/p[3]", "d"),
    ]  # fmt: skip


def test_each_part_of_the_source_has_its_bytes_on_one_segment() -> None:
    flow = Flow()
    flow.source(0, transform="epub", num_bytes=3, path=b"cover.xhtml")
    flow.source(1, transform="epub", num_bytes=5, path=b"c1.xhtml", sha256="0" * 64)
    flow.unit("chapter", "One")
    flow.block("/p")
    flow.text("a")
    flow.textless("image", reason="image", path=b"a.png", num_bytes=7)
    flow.source(2, transform="epub", num_bytes=11, path=b"c2.xhtml")
    flow.block("/p")
    flow.text("b")
    flow.begin("note", "/aside")
    flow.text("c")
    flow.end()
    document = document_of(flow, 3, 5, 11, 7)
    assert [(s.path, s.kind, s.reason, s.num_bytes_source) for s in document.segments] == [
        (b"cover.xhtml", "member", "no_text", 3),
        (b"c1.xhtml", "chapter", None, 5),
        (b"c2.xhtml", "chapter", None, 11),
        (b"c2.xhtml", "note", None, 0),
        (b"a.png", "image", "image", 7),
    ]
    assert [s.source_sha256 for s in document.segments] == [None, "0" * 64, None, None, None]
    assert [each.entry_index for each in document.source_map] == [1, 2, 2]


def test_headings_have_levels_titles_and_bodies() -> None:
    flow = flow_of()
    flow.heading(1, "/h1")
    flow.text("The ")
    flow.line_break()
    flow.text("book")
    flow.aside("ruby", "reading", "/rt")
    flow.end_heading()
    flow.heading(2, "/h2")
    flow.aside("alt_text", "Chapter as a picture", "/img")
    flow.end_heading()
    flow.anchor("start")
    flow.block("/p")
    flow.text("a")
    found = flow.headings()
    assert [(h.level, h.title, h.has_body) for h in found] == [
        (1, "The book", False),
        (2, "Chapter as a picture", True),
    ]
    assert flow.anchors == {(0, "start"): found[1].block + 1}
    flow.unit_at(found[1].block, "chapter", found[1].title)
    assert texts(document_of(flow)) == [
        ("front_matter", "The\nbook\n\n"), ("ruby", "reading\n\n"), ("chapter", "a\n\n"),
        ("alt_text", "Chapter as a picture"),
    ]  # fmt: skip


def test_only_what_stands_aside_can_be_put_aside() -> None:
    with pytest.raises(ValueError, match="note does not stand aside"):
        flow_of().aside("note", "x", "/p")


def test_an_entry_needs_its_parent_first() -> None:
    with pytest.raises(ValueError, match="entry 0 lies in entry 3, which does not exist yet"):
        Ledger().add("text", 1, parent=3)


WORDS = st.sampled_from(["a", " b ", "\n", "c\nd", " ", "\N{NO-BREAK SPACE}", "é", "日", "", "\t", "e  f"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["text", "exact", "break", "block", "line", "heading", "note", "caption", "alt_text", "ruby", "unit",
             "part", "table", "row", "cell", "end", "textless"]
        ),
        WORDS,
    ),
    max_size=40,
)  # fmt: skip


class Steps:
    """Feeds a flow any steps in an order that a tree could have given, and notes the visible characters."""

    def __init__(self) -> None:
        self.flow = Flow()
        self.ends: list[str] = []
        self.num_rows: list[int] = []
        self.sizes: list[int] = []
        self.num_textless = 0
        self.seen = 0
        self.part("")

    def part(self, _: str) -> None:
        self.flow.source(len(self.sizes), transform="test", num_bytes=7, path=b"m%d" % len(self.sizes))
        self.sizes.append(7)

    def take(self, step: str, word: str) -> None:
        flow, place = self.flow, f"/{self.seen}"
        steps = {
            "text": lambda: flow.text(word),
            "exact": lambda: flow.exact(word),
            "break": flow.line_break,
            "block": lambda: flow.block(place),
            "line": lambda: flow.block(place, 1),
            "note": lambda: self.label(step, place),
            "caption": lambda: self.label(step, place),
            "alt_text": lambda: flow.aside(step, word, place),
            "ruby": lambda: flow.aside(step, word, place),
            "unit": lambda: flow.unit("chapter", word),
            "part": lambda: self.part(word),
            "textless": self.textless,
            "heading": lambda: self.heading(place),
            "end": self.end,
        }
        steps.get(step, lambda: self.table(step, place))()

    def label(self, label: str, place: str) -> None:
        self.flow.begin(label, place)
        self.ends.append("label")

    def textless(self) -> None:
        self.flow.textless("image", reason="image", num_bytes=3)
        self.num_textless += 1

    def heading(self, place: str) -> None:
        if "heading" not in self.ends:
            self.flow.heading(1, place)
            self.ends.append("heading")

    def table(self, step: str, place: str) -> None:
        if step == "table":
            self.flow.begin_table(place)
            self.ends.append("table")
            self.num_rows.append(0)
        elif self.ends and self.ends[-1] == "table":
            if step == "row" or not self.num_rows[-1]:
                self.flow.row(place)
                self.num_rows[-1] += 1
            if step == "cell":
                self.flow.cell(place)

    def end(self) -> None:
        if not self.ends:
            return
        kind = self.ends.pop()
        if kind == "table":
            self.num_rows.pop()
        {"label": self.flow.end, "heading": self.flow.end_heading, "table": self.flow.end_table}[kind]()


@settings(max_examples=150)
@given(steps=STEPS)
def test_any_steps_give_a_document_that_balances_and_loses_no_character(steps: list[tuple[str, str]]) -> None:
    run = Steps()
    wanted: list[str] = []
    for step, word in steps:
        run.seen += 1
        run.take(step, word)
        if step in ("text", "exact", "alt_text", "ruby"):
            wanted += "".join(word.split(" ")).replace("\n", "").replace("\t", "")
    while run.ends:
        run.end()
    document = document_of(run.flow, *run.sizes, *[3] * run.num_textless)
    check_document(document, b"\0" * document.num_bytes_source)
    visible = [char for char in document.text.decode() if char not in " \n\t"]
    assert sorted(visible) == sorted(wanted)
    covered = "".join(text for _, text in mapped(document))
    assert [char for char in covered if char not in " \n\t"] == visible
    assert not document.text.startswith(b"\n") or any(step == "exact" for step, _ in steps)
    for earlier, later in pairwise(document.segments):
        if earlier.num_lines and later.num_lines and later.unit != earlier.unit:
            assert document.text[: earlier.text_byte_stop].endswith(b"\n\n")
