"""The one door to pdfium: what a PDF and each of its pages say, as `connectors.pdf_records`.

Only `connectors.pdf_worker` comes through it, in a process of its own: pdfium is not thread-safe, and hostile files
have made it crash and hang. Takes pdfium's own order and its own text of the whole page, off-page text included
(`FPDFText_GetText`; its bounded sibling leaves that out). Renders nothing and runs no script.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

import pypdfium2
import pypdfium2.raw as c

from connectors.pdf_columns import Box, is_interleaved
from connectors.pdf_records import Bookmark, Fault, FileFacts, Line, Page, Record
from connectors.pdf_tags import Headings, read_tags
from connectors.pdf_texts import Shift, num_units, read_text, wide_text

_FORM_TEXTS = (c.FPDF_FORMFIELD_TEXTFIELD, c.FPDF_FORMFIELD_COMBOBOX, c.FPDF_FORMFIELD_LISTBOX)
_PASSWORD_FIELD = 1 << 13  # ISO 32000-1, table 228
_UNSEEN = c.FPDF_ANNOT_FLAG_HIDDEN | c.FPDF_ANNOT_FLAG_NOVIEW
_NO_REMARKS = (c.FPDF_ANNOT_LINK, c.FPDF_ANNOT_POPUP, c.FPDF_ANNOT_WIDGET)
_REASONS = {c.FPDF_ERR_PASSWORD: "encrypted", c.FPDF_ERR_SECURITY: "security_handler"}
_CAUSES = {c.FPDF_ERR_SUCCESS: "it has no pages", c.FPDF_ERR_FORMAT: "pdfium cannot make out its structure"}
_DEEPEST_OUTLINE = 64


def records(raw: bytes) -> Iterator[Record]:
    """The file, then its pages in order; or the fault that forbids it. `End` is not among them."""
    try:
        file = pypdfium2.PdfDocument(raw, autoclose=False)
    except pypdfium2.PdfiumError as error:
        cause = _CAUSES.get(error.err_code, str(error))
        yield Fault(reason=_REASONS.get(error.err_code, "damaged"), cause=cause)
        return
    file.init_forms()
    yield _facts(file)
    for index in range(len(file)):
        try:
            page = file[index]
            text_page = page.get_textpage()
        except pypdfium2.PdfiumError as error:
            yield Page(index=index, label=_label(file, index), fault=str(error))
            continue
        yield _page(file, index, page, text_page)
        text_page.close()
        page.close()


def _facts(file: Any) -> FileFacts:
    fields = {key: wide_text(c.FPDF_GetMetaText, file, key.encode()) for key in ("Title", "Author", "CreationDate")}
    count = c.FPDFDoc_GetAttachmentCount(file)
    return FileFacts(
        num_pages=len(file),
        info={key: value for key, value in fields.items() if value},
        language=wide_text(c.FPDFCatalog_GetLanguage, file),
        is_rebuilt=not c.FPDF_DocumentHasValidCrossReferenceTable(file),
        bookmarks=tuple(_bookmarks(file)),
        attachments=tuple(
            wide_text(c.FPDFAttachment_GetName, c.FPDFDoc_GetAttachment(file, index)) for index in range(count)
        ),
        is_xfa=c.FPDF_GetFormType(file) in (c.FORMTYPE_XFA_FULL, c.FORMTYPE_XFA_FOREGROUND),
    )


def _bookmarks(file: Any) -> Iterator[Bookmark]:
    """The outline in order. An entry that leads back to one before it ends its branch; so does one at depth 64."""
    seen: set[int] = set()
    pending = [c.FPDFBookmark_GetFirstChild(file, None)]
    while pending:
        entry = pending.pop()
        if not entry or (address := ctypes.addressof(entry.contents)) in seen:
            continue
        seen.add(address)
        page, top = _destination(file, entry)
        yield Bookmark(len(pending), wide_text(c.FPDFBookmark_GetTitle, entry), page, top)
        pending.append(c.FPDFBookmark_GetNextSibling(file, entry))
        if len(pending) < _DEEPEST_OUTLINE:
            pending.append(c.FPDFBookmark_GetFirstChild(file, entry))


def _destination(file: Any, entry: Any) -> tuple[int | None, float | None]:
    # Where the entry has an action in place of a destination, pdfium takes that of the action.
    target = c.FPDFBookmark_GetDest(file, entry)
    if not target:
        return None, None
    page = c.FPDFDest_GetDestPageIndex(file, target)
    has_x, has_y, has_zoom = (ctypes.c_int() for _ in range(3))
    x, y, zoom = (ctypes.c_float() for _ in range(3))
    known = c.FPDFDest_GetLocationInPage(target, has_x, has_y, has_zoom, x, y, zoom) and has_y.value
    return (page if page >= 0 else None), (float(y.value) if known else None)


def _label(file: Any, index: int) -> str:
    return wide_text(c.FPDF_GetPageLabel, file, index)


def _page(file: Any, index: int, page: Any, text_page: Any) -> Page:
    found = read_text(text_page)
    tags = read_tags(page)
    fields, remarks = _annotations(file, page)
    shift = Shift(found.text)
    return Page(
        index=index,
        label=_label(file, index),
        text=found.text.replace("\r\n", "\n"),
        lines=tuple(line._replace(start=shift(line.start)) for line in _lines(text_page, found.text, tags.headings)),
        hyphens=tuple(shift(hyphen) for hyphen in found.hyphens),
        num_unmapped=found.num_unmapped,
        has_marks=_has_marks(page),
        is_interleaved=is_interleaved(_boxes(text_page), page.get_width()),
        alt_texts=tags.alt_texts,
        form_fields=fields,
        annotations=remarks,
    )


def _lines(text_page: Any, text: str, headings: Headings) -> Iterator[Line]:
    """Each line of the text, set as its first visible character is."""
    start = unit = 0
    for line in text.split("\r\n"):
        indent = len(line) - len(line.lstrip())
        if indent < len(line):
            index = c.FPDFText_GetCharIndexFromTextIndex(text_page, unit + num_units(line[:indent]))
            yield _line(text_page, index, start, headings)
        start += len(line) + 2
        unit += num_units(line) + 2


def _line(text_page: Any, index: int, start: int, headings: Headings) -> Line:
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    c.FPDFText_GetCharBox(text_page, index, left, right, bottom, top)
    level = heading = None
    if headings and (shown := c.FPDFText_GetTextObject(text_page, index)):
        level, heading = headings.get(c.FPDFPageObj_GetMarkedContentID(shown), (None, None))
    size = round(_drawn_size(text_page, index), 1)
    return Line(start, size, c.FPDFText_GetFontWeight(text_page, index), round(top.value, 1), level, heading)


def _drawn_size(text_page: Any, index: int) -> float:
    """A font of size 1 under a matrix that makes it 12 is 12 high: many producers write text so."""
    matrix = c.FS_MATRIX()
    size = float(c.FPDFText_GetFontSize(text_page, index))
    if not c.FPDFText_GetMatrix(text_page, index, matrix):
        return size
    return size * float((matrix.c**2 + matrix.d**2) ** 0.5)


def _boxes(text_page: Any) -> Iterator[Box]:
    """Stretches of text in pdfium's order, as rectangles."""
    left, top, right, bottom = (ctypes.c_double() for _ in range(4))
    for index in range(c.FPDFText_CountRects(text_page, 0, -1)):
        if c.FPDFText_GetRect(text_page, index, left, top, right, bottom):
            yield Box(left.value, bottom.value, right.value, top.value)


def _has_marks(page: Any) -> bool:
    count = c.FPDFPage_CountObjects(page)
    return any(c.FPDFPageObj_GetType(c.FPDFPage_GetObject(page, i)) != c.FPDF_PAGEOBJ_TEXT for i in range(count))


def _annotations(file: Any, page: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What stands in form fields, and what readers wrote beside or onto the page."""
    fields: list[str] = []
    remarks: list[str] = []
    for index in range(c.FPDFPage_GetAnnotCount(page)):
        annotation = c.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        kind = c.FPDFAnnot_GetSubtype(annotation)
        if c.FPDFAnnot_GetFlags(annotation) & _UNSEEN:
            pass
        elif kind == c.FPDF_ANNOT_WIDGET:
            fields.append(_field_value(file, annotation))
        elif kind not in _NO_REMARKS:
            remarks.append(wide_text(c.FPDFAnnot_GetStringValue, annotation, b"Contents"))
        c.FPDFPage_CloseAnnot(annotation)
    return tuple(filter(str.strip, fields)), tuple(filter(str.strip, remarks))


def _field_value(file: Any, annotation: Any) -> str:
    form = file.formenv
    if not form or c.FPDFAnnot_GetFormFieldType(form, annotation) not in _FORM_TEXTS:
        return ""
    if c.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD_FIELD:
        return ""
    return wide_text(c.FPDFAnnot_GetFormFieldValue, form, annotation)
