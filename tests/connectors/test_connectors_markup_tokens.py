"""Tokens of HTML and XML: where each ends by the standards, every byte in one, and the counts made of them."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.decode import decode_bytes
from connectors.ledger import Ledger
from connectors.markup import decode_markup
from connectors.markup_scan import add_markup, count_markup
from connectors.markup_tokens import tokens


def cut(text: str, *, is_xml: bool = False) -> list[tuple[str, str]]:
    source = text.encode()
    found = list(tokens(source, is_xml=is_xml))
    assert b"".join(source[token.start : token.stop] for token in found) == source
    assert all(token.start < token.stop for token in found)
    return [(token.kind, source[token.start : token.stop].decode()) for token in found]


# Expected values are those of https://html.spec.whatwg.org/#tokenization, read state by state.
@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a<b>c</b>", [("text", "a"), ("start", "<b>"), ("text", "c"), ("end", "</b>")]),
        ("a < b <3 </", [("text", "a < b <3 </")]),
        ('<p title=">">x', [("start", '<p title=">">'), ("text", "x")]),
        ("<p title = '>'>x", [("start", "<p title = '>'>"), ("text", "x")]),
        ("<p a=b'>'x>y", [("start", "<p a=b'>"), ("text", "'x>y")]),
        ('<p "> x', [("start", '<p ">'), ("text", " x")]),
        ('<a =">"> x', [("start", '<a =">'), ("text", '"> x')]),
        ('<p a="x> y', [("declaration", '<p a="x> y')]),
        ("<a <b>x", [("start", "<a <b>"), ("text", "x")]),
        ("<!-->x", [("comment", "<!-->"), ("text", "x")]),
        ("<!--->x", [("comment", "<!--->"), ("text", "x")]),
        ("<!-- a --!>x", [("comment", "<!-- a --!>"), ("text", "x")]),
        ("<!-- a -- > b -->x", [("comment", "<!-- a -- > b -->"), ("text", "x")]),
        ("<!-- never ends <b>", [("comment", "<!-- never ends <b>")]),
        ("</>x</ b>y", [("comment", "</>"), ("text", "x"), ("comment", "</ b>"), ("text", "y")]),
        ("<?xml a?>x<?b>y", [("declaration", "<?xml a?>"), ("text", "x"), ("declaration", "<?b>"), ("text", "y")]),
        ("<![CDATA[ a > b ]]>", [("declaration", "<![CDATA[ a >"), ("text", " b ]]>")]),
        ("<svg><![CDATA[ > ]]></svg>", [("start", "<svg>"), ("cdata", "<![CDATA[ > ]]>"), ("end", "</svg>")]),
        ("<title><b></title>", [("start", "<title>"), ("raw", "<b>"), ("end", "</title>")]),
        ("<style></STYLE x>", [("start", "<style>"), ("end", "</STYLE x>")]),
        ("<style></stylex></style>", [("start", "<style>"), ("raw", "</stylex>"), ("end", "</style>")]),
        ("<plaintext></plaintext>", [("start", "<plaintext>"), ("raw", "</plaintext>")]),
        ("<script>1<!--<script></script>-->2</script>", [
            ("start", "<script>"), ("raw", "1<!--<script></script>-->2"), ("end", "</script>")]),
        ("<script>1<!--</script>2", [("start", "<script>"), ("raw", "1<!--"), ("end", "</script>"), ("text", "2")]),
        ("<svg><title>a<b></title>", [("start", "<svg>"), ("start", "<title>"), ("text", "a"), ("start", "<b>"),
                                       ("end", "</title>")]),
    ],
)  # fmt: skip
def test_html_is_cut_as_the_tokenizer_cuts_it(text: str, kinds: list[tuple[str, str]]) -> None:
    assert cut(text) == kinds


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("<a><![CDATA[<b>]]></a>", [("start", "<a>"), ("cdata", "<![CDATA[<b>]]>"), ("end", "</a>")]),
        ("<script>a<b/></script>", [("start", "<script>"), ("text", "a"), ("start", "<b/>"), ("end", "</script>")]),
        ("<?a > ?><b/>", [("declaration", "<?a > ?>"), ("start", "<b/>")]),
        ("<!DOCTYPE a [<!ENTITY b ']>'> <!-- \" ]> --> <?c ]> ?> ]><a/>", [
            ("declaration", "<!DOCTYPE a [<!ENTITY b ']>'> <!-- \" ]> --> <?c ]> ?> ]>"), ("start", "<a/>")]),
        ("<!DOCTYPE a SYSTEM 'x>y'><a/>", [("declaration", "<!DOCTYPE a SYSTEM 'x>y'>"), ("start", "<a/>")]),
        ("<!-- a --!> b --><a/>", [("comment", "<!-- a --!> b -->"), ("start", "<a/>")]),
    ],
)  # fmt: skip
def test_xml_is_cut_by_its_own_rules(text: str, kinds: list[tuple[str, str]]) -> None:
    assert cut(text, is_xml=True) == kinds


@settings(max_examples=200)
@given(
    pieces=st.lists(
        st.sampled_from(
            ["<", ">", "</", "/>", "<!--", "-->", "--!>", "<![CDATA[", "]]>", '"', "'", "=", " ", "a", "<b", "<script>",
             "</script", "<svg>", "</svg>", "<title>", "<?", "?>", "<!DOCTYPE", "[", "]", "\0", "é", "<textarea", "\n"]
        ),
        max_size=30,
    ),
    is_xml=st.booleans(),
)  # fmt: skip
def test_every_byte_is_in_one_token_and_counted_once(pieces: list[str], is_xml: bool) -> None:
    text = "".join(pieces)
    cut(text, is_xml=is_xml)
    counts = count_markup(decode_bytes(text.encode()), is_xml=is_xml)
    assert sum(counts.values()) == len(text.encode())


# What a document of these pieces holds is known from how it was made. The first is its text, the rest is not.
PIECES = st.sampled_from(
    [
        *(("text", text, "", "") for text in ("a", " b < c ", "é日", "&amp;", "'\"", "]]>x")),
        *(("markup", tag, "", "") for tag in ("<b>", "</i>", "<br/>", '<a href="x>y">', "<p class='a\"b'>")),
        *(("comment", comment, "", "") for comment in ("<!-- <b> -->", "<!---->", "<!-- é -->")),
        *(("script", script, "<script>", "</script>") for script in ("var a = '<b>';", "1 < 2", "")),
        *(("style", style, "<style>", "</style>") for style in ("p > b {}", "/* é */")),
        ("hidden", "x", "<div hidden>", "</div>"),
        ("hidden", "é ", "<i style='color:red; display:none'>", "</i>"),
        ("text", "x", "<i hidden=until-found>", "</i>"),
        ("text", "x", "<i style='display:block'>", "</i>"),
        ("text", "x", "<aside role=doc-footnote hidden>", "</aside>"),
        ("template", "x", "<template>", "</template>"),
        ("metadata", "T<b>", "<title>", "</title>"),
        ("text", "T", "<svg><title>", "</title></svg>"),
    ]
)


@settings(max_examples=150)
@given(
    pieces=st.lists(PIECES, min_size=1, max_size=12),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be-bom", "iso2022_jp", "cp1252"]),
)
def test_counts_are_those_of_the_pieces_a_page_was_made_of(
    pieces: list[tuple[str, str, str, str]], encoding: str
) -> None:
    codec = encoding.removesuffix("-bom")
    mark = b"\xfe\xff" if encoding.endswith("-bom") else b""
    # In ISO-2022-JP an escape sequence belongs to the character behind it, so this page keeps to ASCII.
    keep = {"iso2022_jp": "ascii", "cp1252": "cp1252"}.get(encoding, "utf-8")
    declared = ("markup", "<meta charset=windows-1252>", "", "") if encoding == "cp1252" else ("text", "", "", "")
    wanted: Counter[str] = Counter()
    page = ""
    for kind, inside, before, behind in (declared, *pieces):
        for name, text in (("markup", before), (kind, inside), ("markup", behind)):
            held = text.encode(keep, errors="ignore").decode(keep)
            page += held
            width = len(held.encode(codec)) - len("".encode(codec))
            wanted[name] += width
    raw = mark + page.encode(codec)
    decoded = decode_markup(raw)
    assert decoded.text == page
    counts = count_markup(decoded, is_xml=False)
    assert {kind: size for kind, size in counts.items() if size} == {
        kind: size for kind, size in wanted.items() if size
    }
    ledger = Ledger()
    entry = ledger.add("file", len(raw), num_bytes_content=len(raw))
    add_markup(ledger, decoded, parent=entry, is_xml=False)
    assert sum(each.num_bytes for each in ledger.entries() if each.parent == entry) == len(raw)


def test_what_leaves_its_end_out_hides_no_more_than_itself() -> None:
    page = (
        "<ul><li hidden>a<li>b</ul>c<table><tr><td hidden>d<td>e</table>f<p hidden>g<b>h</b><p>i<div><p hidden>j</div>k"
    )
    counts = count_markup(decode_bytes(page.encode()), is_xml=False)
    assert (counts["hidden"], counts["text"]) == (len("adghj"), len("bcefik"))


@pytest.mark.parametrize(
    "page",
    ["<" * 1_000_000, "<a " * 300_000, '<a b="' * 200_000, "<!--" * 300_000, "<script><!-- <script>" * 60_000,
     "<a " + "x=y " * 300_000 + ">", "<svg>" * 60_000, "<!DOCTYPE [" * 100_000, "<!DOCTYPE [>" * 30_000, "<!DOCTYPE ["
     + "<!--" * 300_000, "<title></titl" * 100_000, "<a" + " " * 1_000_000, "<li hidden><ul>" * 60_000],
    ids=lambda page: page[:12],
)  # fmt: skip
@pytest.mark.parametrize("is_xml", [False, True])
def test_no_page_takes_the_square_of_its_length(page: str, is_xml: bool) -> None:
    # What is quadratic would take minutes here; no time is asserted, the whole suite would not end.
    assert sum(count_markup(decode_bytes(page.encode()), is_xml=is_xml).values()) == len(page)
