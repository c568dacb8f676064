"""Writes small DOCX packages by the specification (ECMA-376), so that tests know what is in them."""

from collections.abc import Mapping
from html import escape
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STRICT_W = "http://purl.oclc.org/ooxml/wordprocessingml/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PREFIXES = {
    "w": W,
    "r": OFFICE,
    "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
    "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
    "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
    "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
    "v": "urn:schemas-microsoft-com:vml",
    "c": "http://schemas.openxmlformats.org/drawingml/2006/chart",
    "dgm": "http://schemas.openxmlformats.org/drawingml/2006/diagram",
}
NAMESPACES = " ".join(f'xmlns:{prefix}="{uri}"' for prefix, uri in _PREFIXES.items())
DECLARATION = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
STYLES = "".join(
    f'<w:style w:type="paragraph" w:styleId="Heading{level}"><w:name w:val="heading {level}"/></w:style>'
    for level in (1, 2, 3)
) + (
    '<w:style w:type="paragraph" w:styleId="Title"><w:name w:val="Title"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="Caption"><w:name w:val="caption"/></w:style>'
)


def p(*content: str, style: str = "", properties: str = "") -> str:
    """A paragraph: strings that begin with `<` are markup, others the text of a run."""
    chosen = f'<w:pStyle w:val="{style}"/>' if style else ""
    runs = "".join(each if each.startswith("<") else r(each) for each in content)
    return f"<w:p><w:pPr>{chosen}{properties}</w:pPr>{runs}</w:p>"


def r(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{escape(text, quote=False)}</w:t></w:r>'


def table(*rows: tuple[str, ...]) -> str:
    cells = ("".join(f"<w:tc>{cell if cell.startswith('<') else p(cell)}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def part(root: str, content: str) -> str:
    return f"{DECLARATION}<{root} {NAMESPACES}>{content}</{root}>"


def relationships(targets: Mapping[str, tuple[str, str]]) -> str:
    """By identifier: the kind of relationship, and its target."""
    entries = "".join(
        f'<Relationship Id="{key}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for key, (kind, target) in targets.items()
    )
    return (
        f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{entries}</Relationships>'
    )


def members(
    *body: str,
    footnotes: Mapping[str, str] | None = None,
    endnotes: Mapping[str, str] | None = None,
    comments: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    styles: str = STYLES,
    more: Mapping[str, str | bytes] | None = None,
    related: Mapping[str, tuple[str, str]] | None = None,
    core: str = "",
) -> dict[str, bytes]:
    """The members of a package. Notes by identifier; headers by the identifier of their relationship."""
    leads = {"s1": ("styles", "styles.xml"), **(related or {})}
    files: dict[str, str | bytes] = {"word/styles.xml": part("w:styles", styles)}
    for kind, notes in (("footnote", footnotes), ("endnote", endnotes), ("comment", comments)):
        if notes is not None:
            inside = "".join(f'<w:{kind} w:id="{key}">{content}</w:{kind}>' for key, content in notes.items())
            files[f"word/{kind}s.xml"] = part(f"w:{kind}s", inside)
            leads[f"n{kind}"] = (f"{kind}s", f"{kind}s.xml")
    for key, content in (headers or {}).items():
        files[f"word/{key}.xml"] = part("w:hdr", content)
        leads[key] = ("header", f"{key}.xml")
    document = part("w:document", "<w:body>" + "".join(body) + "</w:body>")
    everything: dict[str, str | bytes] = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "_rels/.rels": relationships(
            {"d": ("officeDocument", "word/document.xml"), "c": ("metadata/core-properties", "docProps/core.xml")}
        ),
        "word/document.xml": document,
        "word/_rels/document.xml.rels": relationships(leads),
        **files,
        **(more or {}),
    }
    if core:
        everything["docProps/core.xml"] = (
            '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties"'
            f' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/">{core}'
            "</cp:coreProperties>"
        )
    return {name: content.encode() if isinstance(content, str) else content for name, content in everything.items()}


def write(files: Mapping[str, bytes]) -> bytes:
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(ZipInfo(name), content, ZIP_DEFLATED)
    return buffer.getvalue()
