"""HTML and XHTML books: what each element does to the text, encodings, chapters, metadata, and hostile pages."""

from pathlib import Path

import pytest
from book_checks import check_document, mapped, shingles, story, texts

from connectors.books import read_book
from longdoc.errors import DocumentError
from longdoc.records import Document


def read(page: str | bytes, name: str = "book.html") -> Document:
    raw = page.encode() if isinstance(page, str) else page
    document = read_book(raw, path=Path(name))
    check_document(document, raw)
    return document


def text_of(body: str) -> str:
    """The text of a page, which must be the same by the rules of HTML and of XML."""
    as_html = read(f"<!DOCTYPE html><title>T</title><body>{body}")
    as_xml = read(
        '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">'
        f"<head><title>T</title></head><body>{body}</body></html>"
    )
    assert as_xml.warnings == ()
    assert texts(as_xml) == texts(as_html)
    return as_html.text.decode()


# Each expected text follows from the rules that docs/connectors.md states.
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>One <b>two</b>\n  three</p><p>Four</p>", "One two three\n\nFour"),
        ("<div>a<p>b</p>c</div>d", "a\n\nb\n\nc\n\nd"),
        ("<p>a<br/>b <br/> c<br/></p><p>d</p>", "a\nb\nc\n\nd"),
        ("<p>a&#160;b&amp;c</p>", "a\N{NO-BREAK SPACE}b&c"),
        ("<p>x</p><pre>  a\n\tb\n</pre><p>y</p>", "x\n\n  a\n\tb\n\ny"),
        ("<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul><p>e</p>", "a\nb\nc\nd\n\ne"),
        ("<ol><li><p>a</p><p>b</p></li><li>c</li></ol>", "a\n\nb\n\nc"),
        ("<dl><dt>a</dt><dd>b</dd><dt>c</dt><dd>d</dd></dl>", "a\nb\nc\nd"),
        ("<table><tbody><tr><th>a</th><td>b</td></tr><tr><td><p>c</p></td><td></td><td>d</td></tr></tbody></table>x",
         "a\tb\nc\t\td\n\nx"),
        ("<details><summary>a</summary>b</details>", "a\n\nb"),
        ("<p>a<!-- c --><script>s</script><style>t</style><template>u</template>b</p>", "ab"),
        ('<p hidden="">a</p><p style="color: red; display: none">b</p><p style="visibility:hidden">c</p>d', "d"),
        ('<p hidden="until-found">a</p><p style="display: block">b</p>', "a\n\nb"),
        ("<p>a<q>b</q><sup>2</sup></p><hr/><p>c</p>", "abq2\n\nc".replace("q", "")),
        ("<select><option>a</option><option>b</option></select><button>c</button>", "a\nb\nc"),
        ("<video><p>no video</p></video><object>instead</object><noscript>n</noscript>", "no video\n\ninsteadn"),
        ("<p>a<wbr/>b<span> c</span></p>", "ab c"),
        ("<math><mi>x</mi><mo>=</mo><mn>2</mn></math>", "x=2"),
        ("<svg><text>drawn</text></svg>", "drawn"),
        ("<h1>A</h1><h2>B</h2>c", "A\n\nB\n\nc"),
    ],
)  # fmt: skip
def test_what_a_reader_sees_is_text(body: str, text: str) -> None:
    assert text_of(body) == text


@pytest.mark.parametrize(
    ("body", "segments"),
    [
        ('<p>a<img src="x" alt="A  rabbit"/>b</p><p>c</p>', [("text", "ab\n\nc\n\n"), ("alt_text", "A rabbit")]),
        ("<p><ruby>表<rp>(</rp><rt>ひょう</rt><rp>)</rp></ruby>示<ruby>日<rt>に</rt>本<rt>ほん</rt></ruby></p>",
         [("text", "表示日本\n\n"), ("ruby", "ひょう\nに\nほん")]),
        ('<figure><img alt="P"/><figcaption>Fig. 1</figcaption></figure><p>x</p>',
         [("caption", "Fig. 1\n\n"), ("text", "x\n\n"), ("alt_text", "P")]),
        ("<table><caption>Sums</caption><tbody><tr><td>1</td></tr></tbody></table>",
         [("caption", "Sums\n\n"), ("text", "1")]),
        ('<p>a<a epub:type="noteref" href="#n1">1</a></p><p id="n1">The note</p><p>b</p>',
         [("text", "a1\n\n"), ("note", "The note\n\n"), ("text", "b")]),
        ('<aside epub:type="footnote" hidden="">N</aside><p>a</p>', [("note", "N\n\n"), ("text", "a")]),
        ('<p>a</p><ol><li role="doc-endnote">N</li></ol>', [("text", "a\n\n"), ("note", "N")]),
        ('<div class="footnote"><p>N</p></div><p class="footnotes">a</p>', [("note", "N\n\n"), ("text", "a")]),
        ("<svg><title>Plan</title><desc>Of it</desc><text>x</text></svg>",
         [("text", "x\n\n"), ("alt_text", "Plan\nOf it")]),
        ('<math alttext="x squared"><msup><mi>x</mi><mn>2</mn></msup></math>',
         [("text", "x2\n\n"), ("alt_text", "x squared")]),
        ('<div hidden=""><img alt="no"/></div>a', [("text", "a")]),
    ],
)  # fmt: skip
def test_labelled_text_is_its_own_segment(body: str, segments: list[tuple[str, str]]) -> None:
    head = '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><head><title/></head>'
    for page in (f"<!DOCTYPE html><body>{body}", f"{head}<body>{body}</body></html>"):
        assert texts(read(page)) == segments


def test_ranges_of_the_text_lead_to_their_elements() -> None:
    document = read("<body><div><p>a</p></div><div>b<p>c</p>d<p>e <img alt=f></p></div><table><tr><td>g<td>h</table>")
    assert mapped(document) == [
        ("/html/body/div[1]/p[1]", "a"),
        ("/html/body/div[2]", "b"),
        ("/html/body/div[2]/p[1]", "c"),
        ("/html/body/div[2]", "d"),
        ("/html/body/div[2]/p[2]", "e"),
        ("/html/body/table[1]/tbody[1]/tr[1]/td[1]", "g"),
        ("/html/body/table[1]/tbody[1]/tr[1]/td[2]", "h"),
        ("/html/body/div[2]/p[2]/img[1]", "f"),
    ]
    assert [entry.kind for entry in document.ledger] == ["file", "text", "markup"]
    assert [segment.transform for segment in document.segments] == ["html; charset=utf-8"] * 2


def test_head_elements_that_close_themselves_do_not_empty_xhtml() -> None:
    head = '<title/><script src="x.js"/><style/>'
    page = f'<html xmlns="http://www.w3.org/1999/xhtml"><head>{head}</head><body><p>All of it</p></body></html>'
    for name in ("a.xhtml", "a.html"):
        document = read(page, name)
        assert document.text == b"All of it"
        assert document.warnings == ()


def test_xhtml_that_is_not_well_formed_is_read_as_html_and_says_so() -> None:
    document = read('<?xml version="1.0"?><html><body><p>a<br>b</p>&nbsp;&unknown;</body></html>', "a.xhtml")
    assert document.text.decode() == "a\nb\n\n\N{NO-BREAK SPACE}&unknown;"
    (warning,) = document.warnings
    assert warning.startswith("Read as HTML, not as XML: not well-formed XML (")


def test_named_characters_need_no_dtd() -> None:
    page = '<html xmlns="http://www.w3.org/1999/xhtml"><body><p>a&nbsp;b&hellip;<![CDATA[]]></p></body></html>'
    assert read(page.replace("<![CDATA[]]>", ""), "a.xhtml").text.decode() == "a\N{NO-BREAK SPACE}b…"
    document = read(page, "a.xhtml")  # in CDATA an ampersand is one, so these are left alone and HTML reads the page
    assert document.text.decode().startswith("a\N{NO-BREAK SPACE}b…")


@pytest.mark.parametrize(
    ("raw", "text", "encoding"),
    [
        ("<p>é".encode(), "é", "utf-8"),
        ("<p>é".encode("utf-8-sig"), "é", "utf-8-sig"),
        ("<p>é".encode("utf-16"), "é", "utf-16"),
        ("<p>é".encode("utf-32"), "é", "utf-32"),
        ('<?xml version="1.0" encoding="UTF-16"?><html><p>é</p></html>'.encode("utf-16-le"), "é", "utf-16-le"),
        ('<?xml version="1.0"?><html><p>é</p></html>'.encode("utf-16-be"), "é", "utf-16-be"),
        ('<?xml version="1.0" encoding="windows-1251"?><html><p>Да</p></html>'.encode("cp1251"), "Да", "cp1251"),
        ('<meta charset="koi8-r"><p>Привет'.encode("koi8-r"), "Привет", "koi8-r"),
        ('<meta http-equiv=x content="text/html; charset=Shift_JIS"><p>日本'.encode("cp932"), "日本", "cp932"),
        ("<meta charset=gb2312><p>鎔基".encode("gb18030"), "鎔基", "gb18030"),
        ("<meta charset=iso-8859-1><p>“é”".encode("cp1252"), "“é”", "cp1252"),
        ("<meta charset=iso-2022-jp><p>日本".encode("iso2022_jp"), "日本", "iso2022_jp"),
        ("<meta charset=windows-1252><p>é".encode(), "é", "utf-8"),  # strict UTF-8 comes before a declaration
    ],
)  # fmt: skip
def test_encodings_are_found_in_their_order(raw: bytes, text: str, encoding: str) -> None:
    document = read(raw)
    assert document.text.decode() == text
    assert document.segments[0].transform == f"html; charset={encoding}"
    assert document.ledger[0].encoding == encoding


@pytest.mark.parametrize("label", ["base64", "nope", "utf-7", "cp037", "unicode_escape", "rot13", "idna"])
def test_declarations_that_cannot_be_are_passed_over(label: str) -> None:
    document = read(f"<meta charset={label}><p>Plain + words".encode() + b"\xe9")
    assert "Plain + words" in document.text.decode()


def test_chapters_are_the_headings_that_say_so() -> None:
    document = read(
        "<title>t</title><h1>The Book</h1><h2>By Someone</h2><h2>Contents</h2><p>I, II</p><h2>PREFACE.</h2><p>p</p>"
        "<h2>CHAPTER I. One</h2><p>a</p><h3>Inside</h3><p>b</p><h2>CHAPTER II. Two</h2><p>c</p><h2>Notes</h2><p>d</p>"
    )
    assert [(s.kind, s.title) for s in document.segments] == [
        ("front_matter", None),
        ("section", "PREFACE."),
        ("chapter", "CHAPTER I. One"),
        ("chapter", "CHAPTER II. Two"),
        ("section", "Notes"),
    ]


def test_parts_stand_above_chapters_with_names_of_their_own() -> None:
    document = read("<h1>One</h1><h2>Sea</h2><p>a</p><h2>Land</h2><p>b</p><h1>Two</h1><h2>Air</h2><p>c</p><h3>x</h3>d")
    assert [(s.kind, s.title) for s in document.segments] == [
        ("part", "One"), ("chapter", "Sea"), ("chapter", "Land"), ("part", "Two"), ("chapter", "Air"),
    ]  # fmt: skip


def test_a_page_without_headings_is_one_text() -> None:
    assert [(s.kind, s.title) for s in read("<p>a<p>b").segments] == [("text", None)]


def test_gutenbergs_own_text_is_boilerplate_even_inside_one_block() -> None:
    document = read(
        "<pre>Title: Sea\n\nAuthor: A. Sailor\n\nLanguage: French\n\n"
        "*** START OF THIS PROJECT GUTENBERG EBOOK SEA ***\n\nProduced by hand\n</pre>"
        "<h2>CHAPTER I</h2>a<h2>CHAPTER II</h2>b<pre>\nEnd of the Project Gutenberg EBook of Sea\n\n"
        "*** END OF THIS PROJECT GUTENBERG EBOOK SEA ***\nThe licence</pre>"
    )
    assert [s.kind for s in document.segments] == ["boilerplate", "front_matter", "chapter", "chapter", "boilerplate"]
    assert (document.title, document.authors, document.language) == ("Sea", ("A. Sailor",), "fr")
    assert texts(document)[1][1].strip() == "Produced by hand"


def test_the_head_says_what_the_book_is() -> None:
    document = read(
        '<html lang="de"><head><title>Page title</title><meta name="DC.Title" content="The  Title">'
        '<meta name=dc.creator content="A B"><meta name=author content="C D"><meta name="DCTERMS.issued" content=1900>'
        "<meta name=dc.publisher content=P><meta name=dc.identifier content=urn:x>"
        "<meta name=dc.identifier content=urn:y></head><p>a"
    )
    assert (document.title, document.authors, document.language) == ("The Title", ("A B", "C D"), "de")
    assert (document.identifiers, document.publisher, document.date) == (("urn:x", "urn:y"), "P", "1900")
    assert read("<title> Page\n title </title><p>a").title == "Page title"
    assert read("<h1>Heading</h1><p>a").title == "Heading"
    assert read("<p>a", "of/the file.html").title == "the file"


@pytest.mark.parametrize("page", ["<p> \n</p>", "<title>T</title>", "<img src=x>", "<script>a</script>", "<p hidden>a"])
def test_a_page_without_text_has_its_reason(page: str) -> None:
    with pytest.raises(DocumentError, match="holds no text that a reader sees") as caught:
        read(page)
    assert caught.value.reason == "empty"


BOMB = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    ("declarations", "cause"),
    [
        (f'<!ENTITY a0 "ha">{BOMB}', "its entities expand without bound"),
        ('<!ENTITY a9 "&b;"><!ENTITY b "&a9;">', "its entities expand without bound"),
        ('<!ENTITY a9 SYSTEM "file:///etc/passwd">', "it wants text from outside itself, which is never fetched"),
        ('<!ENTITY % a9 SYSTEM "http://127.0.0.1:9/x">%a9;', "it wants text from outside itself"),
    ],
)
def test_entities_that_grow_or_reach_outside_are_refused(declarations: str, cause: str) -> None:
    page = f'<?xml version="1.0"?><!DOCTYPE html [{declarations}]><html><body><p>&a9;</p></body></html>'
    with pytest.raises(DocumentError, match=cause) as caught:
        read(page)
    assert caught.value.reason == "unsafe"


def test_entities_of_its_own_are_expanded() -> None:
    page = '<?xml version="1.0"?><!DOCTYPE html [<!ENTITY me "Lewis">]><html><body><p>&me; C.</p></body></html>'
    assert read(page).text == b"Lewis C."


def test_a_text_node_of_any_length_is_whole() -> None:
    words = "word " * 2_400_000
    assert len(read(f"<p>{words}</p>").text) == len(words) - 1
    page = f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body><p>{words}</p></body></html>'
    assert len(read(page, "a.xhtml").text) == len(words) - 1


@pytest.mark.parametrize(
    ("page", "num_texts", "warning"),
    [
        ("<div>x" * 100_000, 100_000, "Elements are nested deeper than 512"),
        ("<table><tr><td>x" * 20_000, 20_000, "Elements are nested deeper than 512"),
        ("<ul><li>x" * 30_000, 30_000, "Elements are nested deeper than 512"),
        ("<p " + " ".join(f'a{n}=">"' for n in range(50_000)) + ">x", 1, "An element has more than 100 attributes"),
        ("".join(f"<p><font color={n}>x" for n in range(10_000)), 10_000, "Formatting elements are never closed"),
        ("".join(f"<font size={n}>" for n in range(400)) + "<p>x" * 3_000, 3_000, "Formatting elements are never"),
        ("<b>" * 30_000 + "<div>x</div>" * 30_000, 30_000, "Formatting elements are never closed"),
        ("<a href=y>x" * 50_000, 50_000, None),
        ("<p>x" * 50_000, 50_000, None),
        ("<svg>x" * 30_000, 30_000, "Elements are nested deeper than 512"),
    ],
    ids=lambda value: str(value)[:14],
)  # fmt: skip
def test_pages_made_to_stall_parsers_are_read_whole(page: str, num_texts: int, warning: str | None) -> None:
    document = read(page)
    assert document.text.count(b"x") == num_texts
    assert any(each.startswith(warning) for each in document.warnings) if warning else not document.warnings


def test_deep_xhtml_is_read() -> None:
    page = f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{"<div>x" * 1_900}{"</div>" * 1_900}</body></html>'
    document = read(page)
    assert (document.text.count(b"x"), document.warnings) == (1_900, ())
    assert max(len(place) for place, _ in mapped(document)) < 600


@pytest.mark.books
def test_alice_in_html_is_the_story_with_its_chapters(books: Path) -> None:
    raw = (books / "alice.htm").read_bytes()
    document = read(raw, str(books / "alice.htm"))
    chapters = [segment.title for segment in document.segments if segment.kind == "chapter"]
    assert chapters == [
        "CHAPTER I. Down the Rabbit-Hole", "CHAPTER II. The Pool of Tears",
        "CHAPTER III. A Caucus-Race and a Long Tale", "CHAPTER IV. The Rabbit Sends in a Little Bill",
        "CHAPTER V. Advice from a Caterpillar", "CHAPTER VI. Pig and Pepper", "CHAPTER VII. A Mad Tea-Party",
        "CHAPTER VIII. The Queen’s Croquet-Ground", "CHAPTER IX. The Mock Turtle’s Story",
        "CHAPTER X. The Lobster Quadrille", "CHAPTER XI. Who Stole the Tarts?", "CHAPTER XII. Alice’s Evidence",
    ]  # fmt: skip
    assert [s.kind for s in document.segments][:2] == ["boilerplate", "front_matter"]
    assert document.segments[-1].kind == "boilerplate"
    assert (document.title, document.authors, document.language) == (
        "Alice's Adventures in Wonderland", ("Lewis Carroll",), "en",
    )  # fmt: skip
    wanted = shingles(story((books / "alice.txt").read_text("utf-8-sig")))
    assert len(wanted & shingles(document.text.decode())) >= 0.99 * len(wanted)


@pytest.mark.books
def test_moby_dick_in_html_has_every_chapter_and_the_words_of_the_text(books: Path) -> None:
    document = read((books / "moby-dick.htm").read_bytes(), str(books / "moby-dick.htm"))
    chapters = [segment.title for segment in document.segments if segment.kind == "chapter"]
    assert [title.split(".")[0] for title in chapters if title] == [f"CHAPTER {n}" for n in range(1, 136)]
    assert document.segments[-2].title == "Epilogue"
    text = (books / "moby-dick.txt").read_text("utf-8-sig")
    wanted = shingles(text[text.index("Call me Ishmael") : text.index("only found another orphan")])
    assert len(wanted & shingles(document.text.decode())) >= 0.99 * len(wanted)
