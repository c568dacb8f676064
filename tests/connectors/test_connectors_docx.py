"""DOCX books: every kind of text that Word shows, once and in its order, and nothing that it does not show."""

import pytest
from book_checks import mapped, texts
from docx_reading import REFERENCE, book, text, unread
from small_docx import members, p, part, r, table

FIELD = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'


def box(*content: str) -> str:
    return f"<w:txbxContent>{''.join(content)}</w:txbxContent>"


def alternatives(choice: str, fallback: str) -> str:
    return (
        f'<w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wps:txbx>{choice}</wps:txbx></w:drawing>'
        f"</mc:Choice><mc:Fallback><w:pict><v:textbox>{fallback}</v:textbox></w:pict></mc:Fallback>"
        "</mc:AlternateContent></w:r>"
    )


def test_headings_make_chapters() -> None:
    document = book(
        members(
            p("The Whale", style="Title"), p("by nobody"),
            p("Loomings", style="Heading1"), p("Call me Ishmael."), p("A section", style="Heading2"), p("more"),
            p("The Carpet-Bag", style="Heading1"), p("I stuffed a shirt."),
        )
    )  # fmt: skip
    assert [(s.kind, s.title) for s in document.segments if s.transform] == [
        ("front_matter", None),
        ("chapter", "Loomings"),
        ("chapter", "The Carpet-Bag"),
    ]
    assert document.title == "The Whale"
    assert texts(document)[1] == ("chapter", "Loomings\n\nCall me Ishmael.\n\nA section\n\nmore\n\n")


INHERITED = (
    '<w:style w:styleId="X"><w:name w:val="Own"/><w:basedOn w:val="Y"/></w:style>'
    '<w:style w:styleId="Y"><w:name w:val="heading 1"/></w:style>'
)


@pytest.mark.parametrize(
    "styles",
    [
        INHERITED,
        # An outline level of the style's own, by inheritance, by the built-in name behind a translated identifier.
        '<w:style w:styleId="X"><w:name w:val="Own"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>',
        '<w:style w:styleId="X"><w:name w:val="heading 1"/><w:basedOn w:val="X"/></w:style>',
    ],
)
def test_styles_say_what_a_heading_is(styles: str) -> None:
    document = book(members(p("One", style="X"), p("a"), p("Two", style="X"), p("b"), styles=styles))
    assert [s.title for s in document.segments if s.title] == ["One", "Two"]


def test_a_paragraph_of_its_own_level_is_a_heading_and_level_nine_is_none() -> None:
    level = '<w:outlineLvl w:val="{}"/>'
    body = [p("One", properties=level.format(0)), p("a"), p("Two", properties=level.format(0)), p("b")]
    document = book(members(*body, p("Plain", style="Heading1", properties=level.format(9))))
    assert [s.title for s in document.segments if s.title] == ["One", "Two"]


def test_a_style_goes_before_the_one_that_it_is_based_on() -> None:
    styles = (
        '<w:style w:styleId="H"><w:name w:val="heading 1"/></w:style><w:style w:styleId="X"><w:basedOn w:val="H"/>'
        '<w:pPr><w:outlineLvl w:val="9"/></w:pPr></w:style>'
    )
    document = book(members(p("One", style="H"), p("a"), p("Plain", style="X"), p("Two", style="H"), styles=styles))
    assert [s.title for s in document.segments if s.title] == ["One", "Two"]


def test_without_a_styles_part_words_own_identifiers_hold() -> None:
    files = members(p("One", style="Heading1"), p("a"), p("Two", style="Heading1"), p("b"))
    del files["word/styles.xml"]
    assert [s.title for s in book(files).segments if s.title] == ["One", "Two"]


def test_what_was_inserted_is_text_and_what_was_deleted_is_not() -> None:
    body = p(
        "<w:ins>" + r("new ") + "</w:ins>",
        "<w:del><w:r><w:delText>old </w:delText></w:r></w:del>",
        "<w:moveTo>" + r("here ") + "</w:moveTo>",
        "<w:moveFrom>" + r("there ") + "</w:moveFrom>",
        "kept",
    )
    document = book(members(body))
    assert document.text == b"new here kept"
    assert unread(document) == {"deleted": len("old there ")}


def test_content_controls_links_and_simple_fields_are_text() -> None:
    controlled = "<w:sdt><w:sdtPr><w:alias w:val='no'/></w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>"
    field = '<w:fldSimple w:instr="PAGE">' + r("7") + "</w:fldSimple>"
    link, tag = "<w:hyperlink>" + r("link ") + "</w:hyperlink>", "<w:smartTag>" + r(" tag") + "</w:smartTag>"
    body = controlled.format(p("controlled")), p(controlled.format(r("inside ")), link, field, tag)
    assert text(*body) == "controlled\n\ninside link 7 tag"


def test_results_of_fields_are_text_and_their_codes_are_not() -> None:
    inner = FIELD.format("begin") + r("inner code") + FIELD.format("separate") + r("inner result") + FIELD.format("end")
    body = p("a ", FIELD.format("begin"), "<w:r><w:instrText>IF</w:instrText></w:r>", inner, FIELD.format("separate"),
             "result", FIELD.format("end"), " b")  # fmt: skip
    document = book(members(body))
    assert document.text == b"a result b"
    assert unread(document) == {"field_code": len("IF" + "inner code" + "inner result")}


def test_hidden_text_is_not_shown() -> None:
    body = p(
        "a",
        r("hidden", "<w:vanish/>"),
        r("b", '<w:vanish w:val="0"/>'),
        "<w:r><w:rPr><w:vanish/></w:rPr><w:tab/></w:r>",
    )
    document = book(members(body))
    assert document.text == b"ab"
    assert unread(document) == {"hidden": len("hidden")}


def test_text_boxes_stand_once_behind_their_paragraph() -> None:
    both = alternatives(box(p("boxed"), p("twice")), box(p("fallback")))
    document = book(members(p("before ", both, "after"), p("next")))
    assert document.text == b"before after\n\nboxed\n\ntwice\n\nnext"
    assert unread(document) == {"fallback": len("fallback")}


def test_an_old_text_box_and_a_fallback_without_a_choice_are_text() -> None:
    old = (
        "<w:r><w:pict><v:shape alt='A frame'><v:textbox>" + box(p("old box")) + "</v:textbox></v:shape></w:pict></w:r>"
    )
    alone = "<w:r><mc:AlternateContent><mc:Fallback><w:t>alone</w:t></mc:Fallback></mc:AlternateContent></w:r>"
    assert text(p("a", old), p(alone)) == "a\n\nold box\n\nalone\n\nA frame"


def test_boxes_nest() -> None:
    inner = "<w:r><w:pict>" + box(p("inner")) + "</w:pict></w:r>"
    outer = "<w:r><w:pict>" + box(p("outer", inner), table(("cell",))) + "</w:pict></w:r>"
    assert text(p("a", outer), p("b")) == "a\n\nouter\n\ninner\n\ncell\n\nb"


def test_tables_are_rows_of_cells() -> None:
    nested = p("outer") + table(("x", "y"))
    document = book(
        members(p("before"), table(("a", "b"), ("c", "d")), table(("one",), (p("two") + p("lines"),)), p("after"))
    )
    assert document.text == b"before\n\na\tb\nc\td\n\none\ntwo\nlines\n\nafter"
    assert text(table(("q", nested), ("r", "s"))).split() == ["q", "outer", "x", "y", "r", "s"]


def test_footnotes_stand_behind_the_paragraph_that_refers_to_them() -> None:
    document = book(
        members(
            p("One", style="Heading1"), p("a", REFERENCE.format("footnote", 2), " b"), p("c"),
            table((p("cell", REFERENCE.format("footnote", 3)), "next")),
            p("Two", style="Heading1"), p("d"),
            footnotes={"-1": p(), "2": p("first note"), "3": p("second note"), "4": p("referred to by nothing")},
        )
    )  # fmt: skip
    assert texts(document) == [
        ("chapter", "One\n\na b\n\n"),
        ("note", "first note\n\n"),
        ("chapter", "c\n\ncell\tnext\n\n"),
        ("note", "second note\n\n"),
        ("chapter", "Two\n\nd\n\n"),
        ("note", "referred to by nothing"),
    ]
    assert [s.unit for s in document.segments if s.transform] == [0, 0, 0, 0, 1, 2]
    assert document.warnings == ()


def test_endnotes_and_comments_stand_at_the_end() -> None:
    body = p("a", REFERENCE.format("endnote", 1), REFERENCE.format("comment", 0), "b"), p("c")
    document = book(members(*body, endnotes={"1": p("endnote")}, comments={"0": p("remark")}))
    assert texts(document) == [("text", "ab\n\nc\n\n"), ("note", "endnote\n\n"), ("comment", "remark")]


def test_notes_of_one_identifier_and_notes_in_the_wrong_place_are_text() -> None:
    files = members(p("a", REFERENCE.format("footnote", 2)), footnotes={"2": p("one")})
    twice = (
        files["word/footnotes.xml"]
        .decode()
        .replace("</w:footnotes>", f'<w:footnote w:id="2">{p("two")}</w:footnote></w:footnotes>')
    )
    assert book(files | {"word/footnotes.xml": twice.encode()}).text == b"a\n\none\n\ntwo"
    outside = files["word/footnotes.xml"].decode().replace("</w:footnotes>", f"{p('outside')}</w:footnotes>")
    assert book(files | {"word/footnotes.xml": outside.encode()}).text == b"a\n\none\n\noutside"
    assert text(p("a"), "<w:footnote>" + p("lost") + "</w:footnote>", p("b")) == "a\n\nlost\n\nb"


def test_parts_that_are_referred_to_in_two_ways_are_read_once() -> None:
    section = '<w:sectPr><w:headerReference r:id="m"/><w:headerReference r:id="f"/></w:sectPr>'
    files = members(
        p("a", REFERENCE.format("footnote", 2), REFERENCE.format("endnote", 2)),
        section,
        footnotes={"2": p("note")},
        related={"m": ("header", "document.xml"), "f": ("header", "footnotes.xml"), "e": ("endnotes", "footnotes.xml")},
    )
    assert book(files).text == b"a\n\nnote"


def test_a_note_that_is_missing_is_told() -> None:
    document = book(members(p("a", REFERENCE.format("footnote", 9)), footnotes={"1": p("x")}))
    assert document.warnings == ("1 references to notes or comments lead to none.",)
    assert text(p("a", REFERENCE.format("endnote", 9))) == "a"


def test_headers_stand_once_at_the_end() -> None:
    section = '<w:sectPr><w:headerReference r:id="h1"/><w:footerReference r:id="h2"/></w:sectPr>'
    again = "<w:p><w:pPr>" + section + "</w:pPr></w:p>"
    document = book(
        members(p("a"), again, p("b"), section, headers={"h1": p("Running head"), "h2": p("Foot"), "h3": p("no")})
    )
    assert texts(document) == [("text", "a\n\nb\n\n"), ("page_header", "Running head\n\n"), ("page_footer", "Foot")]
    assert [s.path for s in document.segments if s.reason == "not_referenced"] == [b"word/h3.xml"]


def test_alt_texts_and_readings_stand_at_the_end_of_their_unit() -> None:
    picture = '<w:r><w:drawing><wp:docPr id="1" name="Picture 1" descr="A rabbit"/></w:drawing></w:r>'
    ruby = "<w:ruby><w:rubyPr/><w:rt>" + r("ひょう") + "</w:rt><w:rubyBase>" + r("表") + "</w:rubyBase></w:ruby>"
    document = book(
        members(p("One", style="Heading1"), p(picture, "text"), p(ruby, "示"), p("Two", style="Heading1"), p("end"))
    )
    assert texts(document) == [
        ("chapter", "One\n\ntext\n\n表示\n\n"),
        ("alt_text", "A rabbit\n\n"),
        ("ruby", "ひょう\n\n"),
        ("chapter", "Two\n\nend"),
    ]


def test_captions_stand_where_they_are() -> None:
    document = book(members(p("a"), p("Figure 1. A rabbit", style="Caption"), p("b")))
    assert texts(document) == [("text", "a\n\n"), ("caption", "Figure 1. A rabbit\n\n"), ("text", "b")]


def test_descriptions_of_tables_are_alt_texts() -> None:
    described = table(("a",)).replace("<w:tbl>", "<w:tbl><w:tblPr><w:tblDescription w:val='Letters'/></w:tblPr>")
    assert texts(book(members(described))) == [("text", "a\n\n"), ("alt_text", "Letters")]


def test_elements_that_stand_for_characters() -> None:
    run = "<w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:cr/><w:noBreakHyphen/><w:softHyphen/><w:t>d</w:t>"
    tab_stops = '<w:tabs><w:tab w:val="left" w:pos="9"/></w:tabs>'
    assert text(p(f"<w:r>{run}</w:r>", properties=tab_stops)) == "a\tb\nc\n\u2011\u00add"


def test_symbols_are_characters_and_private_ones_are_counted() -> None:
    sym = '<w:r><w:sym w:font="Symbol" w:char="{}"/></w:r>'
    document = book(members(p(sym.format("F061"), sym.format("03B1"), sym.format("zz"), sym.format("D800"))))
    assert document.text.decode() == "\uf061α"
    assert document.warnings == ("1 characters of symbol fonts stand as characters of the private use area.",)


def test_white_space_is_kept() -> None:
    assert text(p("  two  spaces "), p("\u00a0"), p("   "), p("a\u3000b")) == "  two  spaces \n\n\u00a0\n\na\u3000b"
    assert text(p("<w:r><w:t>line\nend</w:t></w:r>")) == "line end"


def test_entries_of_lists_stand_on_lines() -> None:
    entry = '<w:numPr><w:numId w:val="1"/></w:numPr>'
    body = [p("before"), p("one", properties=entry), p("two", properties=entry), p("after")]
    assert text(*body) == "before\n\none\ntwo\n\nafter"


def test_equations_keep_their_brackets_and_signs() -> None:
    def m(letters: str) -> str:
        return f"<m:r><m:t>{letters}</m:t></m:r>"

    pair = f"<m:d><m:e>{m('x')}</m:e><m:e>{m('y')}</m:e></m:d>"
    square = f'<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val="]"/></m:dPr><m:e>{m("z")}</m:e></m:d>'
    total = f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:e>{m("n")}</m:e></m:nary>'
    assert text(p(f"<m:oMath>{m('f')}{pair}{square}{total}</m:oMath>")) == "f(x|y)[z]∑n"


def test_charts_and_diagrams_say_their_words() -> None:
    names = "<c:f>Sheet1!A1</c:f><c:strCache><c:pt><c:v>North</c:v></c:pt></c:strCache>"
    numbers = "<c:numCache><c:pt><c:v>12</c:v></c:pt></c:numCache>"
    title = "<c:title><a:p><a:r><a:t>Sales</a:t></a:r></a:p></c:title>"
    series = f"<c:ser><c:cat><c:strRef>{names}</c:strRef></c:cat><c:val><c:numRef>{numbers}</c:numRef></c:val></c:ser>"
    chart = part("c:chartSpace", f"<c:chart>{title}{series}</c:chart>")
    diagram = part("dgm:dataModel", "<dgm:t><a:p><a:r><a:t>Step</a:t></a:r></a:p></dgm:t>")
    frames = '<w:r><w:drawing><c:chart r:id="f1"/></w:drawing><w:drawing><dgm:relIds r:dm="f2"/></w:drawing></w:r>'
    document = book(
        members(
            p("a", frames), p("b"),
            more={"word/charts/chart1.xml": chart, "word/diagrams/data1.xml": diagram},
            related={"f1": ("chart", "charts/chart1.xml"), "f2": ("diagramData", "diagrams/data1.xml")},
        )
    )  # fmt: skip
    assert texts(document) == [("text", "a\n\n"), ("figure", "Sales\nNorth\n\n"), ("figure", "Step\n\n"), ("text", "b")]
    assert unread(document, b"word/charts/chart1.xml") == {"metadata": len("Sheet1!A1" + "12")}


def test_documents_inside_are_told() -> None:
    document = book(
        members(
            p("a"), '<w:altChunk r:id="k"/>', p("b"),
            more={"word/afchunk.htm": b"<p>other</p>", "word/embeddings/sheet.xlsx": b"PK"},
            related={"k": ("aFChunk", "afchunk.htm")},
        )
    )  # fmt: skip
    assert document.warnings == ("Another document that belongs into this one is not read: word/afchunk.htm.",)
    assert [s.reason for s in document.segments if s.path in (b"word/afchunk.htm", b"word/embeddings/sheet.xlsx")] == [
        "embedded",
        "embedded",
    ]


def test_the_source_map_leads_to_elements() -> None:
    controlled = "<w:sdt><w:sdtContent>" + p("c") + "</w:sdtContent></w:sdt>"
    boxed = "<w:r><w:pict>" + box(p("box")) + "</w:pict></w:r>"
    document = book(members(p("a"), controlled, table(("x", "y")), p("b", boxed)))
    assert mapped(document) == [
        ("/w:document/w:body/w:p[1]", "a"),
        ("/w:document/w:body/w:sdt[1]/w:sdtContent/w:p[1]", "c"),
        ("/w:document/w:body/w:tbl[1]/w:tr[1]/w:tc[1]/w:p[1]", "x"),
        ("/w:document/w:body/w:tbl[1]/w:tr[1]/w:tc[2]/w:p[1]", "y"),
        ("/w:document/w:body/w:p[2]", "b"),
        ("/w:document/w:body/w:p[2]//w:txbxContent[1]/w:p[1]", "box"),
    ]
