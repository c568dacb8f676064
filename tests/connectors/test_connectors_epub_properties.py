"""Generated, mutated and real EPUBs: pages in order, every byte accounted for, never anything but a reason."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from book_checks import check_document, mutations, read_or_refuse, shingles, story
from epub_books import EPUB3, PATH, Chapter, Epub, boundaries, chapter, encryption, read, texts, xhtml
from hypothesis import given, settings
from hypothesis import strategies as st
from zip_files import zip_of

from connectors.epub import read_epub
from longdoc.records import Segment

# --- Properties

words = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=8)
file_names = st.text(
    st.characters(codec="utf-8", categories=["L", "N"]) | st.sampled_from(" -_.~!'()&;,+%#[]@"), min_size=1, max_size=10
).filter(lambda name: set(name) - set(". "))


@st.composite
def books(draw: st.DrawFn) -> tuple[Epub, list[str], list[str | None]]:
    """A book, and the texts and the titles that its pages have, in reading order."""
    names = draw(st.lists(file_names, min_size=1, max_size=5, unique_by=lambda n: n.casefold()))
    linear = draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    bodies = [" ".join(draw(st.lists(words, min_size=1, max_size=5))) for _ in names]
    chapters = [
        Chapter(
            name=f"{number}{name}.xhtml",
            content=xhtml(f"<p>{body.replace('&', '&amp;').replace('<', '&lt;')}</p>"),
            linear=is_linear,
        )
        for number, (name, body, is_linear) in enumerate(zip(names, bodies, linear, strict=True))
    ]
    titles = [draw(st.none() | words.map(lambda w: f"T{w}")) for _ in names]
    nav, depth = [], -1
    for page, title in zip(chapters, titles, strict=True):
        if title is not None:
            depth = draw(st.integers(0, depth + 1))
            nav.append((title, quote(page.name), depth))
    order = [n for n in range(len(names)) if linear[n]] + [n for n in range(len(names)) if not linear[n]]
    kind = draw(st.sampled_from(["nav", "ncx"]))
    folder = draw(st.sampled_from(["", "OEBPS/", "a b/é/"]))
    book = Epub(chapters=chapters, folder=folder, **{kind: nav})  # type: ignore[arg-type]
    return book, [bodies[n] for n in order], [titles[n] for n in order]


@given(built=books(), stream=st.booleans())
@settings(max_examples=60)
def test_generated_books_give_their_pages_in_order_and_every_byte(
    built: tuple[Epub, list[str], list[str | None]], stream: bool
) -> None:
    book, bodies, titles = built
    document = read(book.raw(stream=stream))
    found = texts(document)
    assert [text for _, _, text in found] == bodies
    assert [title for _, title, _ in found] == titles
    assert document.warnings == ()
    assert sum(entry.num_bytes for entry in document.ledger if entry.parent is None) == len(book.raw(stream=stream))


RICH = Epub(
    chapters=[
        chapter(
            0, '<h1>I</h1><p>A<a epub:type="noteref" href="c1.xhtml#n">1</a></p><table><tr><td>a</td></tr></table>'
        ),
        chapter(1, '<p id="n">Note &amp; more.</p>', linear=False),
    ],
    nav=[("I", "c0.xhtml", 0)],
    ncx=[("I", "c0.xhtml", 0)],
    metadata=EPUB3,
    members={
        "OEBPS/f.otf": b"f",
        "META-INF/encryption.xml": encryption("http://www.idpf.org/2008/embedding", "OEBPS/f.otf"),
    },
)


@given(data=st.data())
@settings(max_examples=150)
def test_mutated_parts_of_a_book_end_in_a_document_or_a_reason(data: st.DataObject) -> None:
    parts = RICH.parts()
    name = data.draw(st.sampled_from(sorted(parts)))
    content = bytearray(parts[name])
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        snippet = data.draw(
            st.sampled_from(
                [b"", b"<", b">", b"&", b'"', b"</p>", b"<!--", b"]]>", b"\0", b"\xff", b"<p>", b"#", b"../"]
            )
        )
        content[at : at + data.draw(st.integers(0, 20))] = snippet
    read_or_refuse(zip_of({**parts, name: bytes(content)}), str(PATH))


@given(data=st.data(), stream=st.booleans())
@settings(max_examples=150)
def test_mutated_and_truncated_archives_end_in_a_document_or_a_reason(data: st.DataObject, stream: bool) -> None:
    raw = RICH.raw(stream=stream)
    read_or_refuse(data.draw(mutations(raw, boundaries(raw))), str(PATH))


@given(raw=st.binary(max_size=200) | st.binary(max_size=100).map(lambda tail: b"PK\3\4" + tail))
@settings(max_examples=60)
def test_random_bytes_under_the_name_of_an_epub_end_in_a_document_or_a_reason(raw: bytes) -> None:
    read_or_refuse(raw, str(PATH))


# --- The real book


def chapters_of(segments: Sequence[Segment]) -> list[str | None]:
    return [segment.title for segment in segments if segment.kind == "chapter" and segment.is_content]


@pytest.mark.books
def test_alice_has_her_chapters_her_story_and_every_byte(books: Path) -> None:
    path = books / "alice.epub"
    raw = path.read_bytes()
    document = read_epub(raw, path=path)
    check_document(document, raw)
    assert chapters_of(document.segments) == [
        "I: Down the Rabbit-Hole",
        "II: The Pool of Tears",
        "III: A Caucus-Race and a Long Tale",
        "IV: The Rabbit Sends in a Little Bill",
        "V: Advice from a Caterpillar",
        "VI: Pig and Pepper",
        "VII: A Mad Tea-Party",
        "VIII: The Queen’s Croquet-Ground",
        "IX: The Mock Turtle’s Story",
        "X: The Lobster Quadrille",
        "XI: Who Stole the Tarts?",
        "XII: Alice’s Evidence",
    ]
    assert document.title == "Alice’s Adventures in Wonderland"
    assert (document.authors, document.language, document.warnings) == (("Lewis Carroll",), "en-GB", ())
    wanted = shingles(story((books / "alice.txt").read_text(encoding="utf-8")))
    assert len(wanted & shingles(document.text.decode())) >= 0.98 * len(wanted)


@pytest.mark.books
@given(data=st.data())
@settings(max_examples=25)
def test_alice_mutated_ends_in_a_document_or_a_reason(books: Path, data: st.DataObject) -> None:
    raw = (books / "alice.epub").read_bytes()
    read_or_refuse(data.draw(mutations(raw, boundaries(raw))), str(PATH))
