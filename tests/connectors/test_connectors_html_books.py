"""HTML books of known make, and damaged ones: the text is what was put in, or the fault has a reason."""

from pathlib import Path

import pytest
from book_checks import check_document, mutations, read_or_refuse
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.books import read_book

PAGE = (
    '<!DOCTYPE html><html lang=en><head><meta charset=utf-8><title>T &amp; U</title><style>p{}</style></head><body>'
    '<h1>Book</h1><h2 id=c1>CHAPTER I. One</h2><p>Some <b>bold</b> text<br>é 日 <img alt="A picture" src=x></p>'
    "<!-- comment --><table><caption>Cap</caption><tr><td>1<td>2</table><ul><li>a<li>b</ul><script>if (a<b) {}</script>"
    '<h2>CHAPTER II. Two</h2><pre>\n kept\n</pre><ruby>日<rp>(<rt>に<rp>)</ruby><p hidden>no</p><svg><title>s</title>'
    "<![CDATA[x]]></svg><aside epub:type=footnote>note</aside><textarea>t</textarea></body></html>"
).encode()  # fmt: skip
EDGES = tuple(index for index, byte in enumerate(PAGE) if byte in b"<>\"&;='-!")


@settings(max_examples=150)
@given(raw=mutations(PAGE, EDGES), name=st.sampled_from(["a.html", "a.htm", "a.xhtml", "a.txt", "a.md", "a.epub"]))
def test_damaged_pages_balance_or_have_a_reason(raw: bytes, name: str) -> None:
    read_or_refuse(raw, name)


@settings(max_examples=100)
@given(raw=st.binary(max_size=400), name=st.sampled_from(["a.html", "a.xhtml"]))
def test_random_bytes_balance_or_have_a_reason(raw: bytes, name: str) -> None:
    read_or_refuse(raw, name)


@pytest.mark.books
@settings(max_examples=8)
@given(data=st.data())
def test_a_damaged_alice_balances(books: Path, data: st.DataObject) -> None:
    raw = (books / "alice.htm").read_bytes()
    read_or_refuse(data.draw(mutations(raw)), "alice.htm")


# Pages whose text is known from how they were made: the same trees in the terse HTML of hands and as XHTML.
LEAVES = st.sampled_from(["word", "two words", "é", "日本", "a\N{NO-BREAK SPACE}b", "x < y & z", "--"])


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> tuple[str, str, list[str]]:
    """The HTML and XHTML of some blocks, and their texts in order."""
    html, xhtml, wanted = "", "", []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["p", "div", "section", "blockquote", "ul", "table"] if depth else ["p"]))
        if kind in ("div", "section", "blockquote"):
            inner_html, inner_xhtml, inner = draw(trees(depth=depth - 1))
            html, xhtml = html + f"<{kind}>{inner_html}</{kind}>", xhtml + f"<{kind}>{inner_xhtml}</{kind}>"
            wanted += inner
            continue
        leaves = draw(st.lists(LEAVES, min_size=1, max_size=3)) if kind != "p" else [draw(LEAVES)]
        written = [leaf.replace("&", "&amp;").replace("<", "&lt;") for leaf in leaves]
        if kind == "p":
            html, xhtml = html + f"<p>{written[0]}", xhtml + f"<p>{written[0]}</p>"
            wanted += leaves
        elif kind == "ul":
            html += "<ul>" + "".join(f"<li>{each}" for each in written) + "</ul>"
            xhtml += "<ul>" + "".join(f"<li>{each}</li>" for each in written) + "</ul>"
            wanted += ["\n".join(leaves)]
        else:
            html += "<table><tr>" + "".join(f"<td>{each}" for each in written) + "</table>"
            xhtml += "<table><tbody><tr>" + "".join(f"<td>{each}</td>" for each in written) + "</tr></tbody></table>"
            wanted += ["\t".join(leaves)]
    return html, xhtml, wanted


@settings(max_examples=80)
@given(tree=trees(), encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_generated_books_give_their_own_text_in_html_and_xhtml(tree: tuple[str, str, list[str]], encoding: str) -> None:
    html, xhtml, wanted = tree
    for page in (
        f"<!DOCTYPE html><title>T</title>{html}",
        f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>T</title></head><body>{xhtml}</body></html>',
    ):
        raw = page.encode(encoding)
        document = read_book(raw, path=Path("book.html"))
        check_document(document, raw)
        assert document.text.decode() == "\n\n".join(wanted)
        assert document.warnings == ()
