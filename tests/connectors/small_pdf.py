"""Writes small PDFs by the specification (ISO 32000-1), object by object, so that tests know what is in them."""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
CATALOG, PAGES = 1, 2


@dataclass
class SmallPdf:
    """Objects by number. 1 is the catalogue and 2 the tree of pages; `add` gives the number of any other."""

    objects: dict[int, bytes] = field(default_factory=dict)
    pages: list[int] = field(default_factory=list)
    catalog: bytes = b""
    trailer: bytes = b""

    def add(self, body: bytes) -> int:
        number = max([PAGES, *self.objects]) + 1
        self.objects[number] = body
        return number

    def stream(self, content: bytes, extra: bytes = b"", *, deflate: bool = False) -> int:
        if deflate:
            content, extra = zlib.compress(content), extra + b" /Filter /FlateDecode"
        return self.add(b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), extra, content))

    def font(self, extra: bytes = b"/Encoding /WinAnsiEncoding", *, bold: bool = False) -> int:
        name = b"Helvetica-Bold" if bold else b"Helvetica"
        return self.add(b"<< /Type /Font /Subtype /Type1 /BaseFont /%s %s >>" % (name, extra))

    def page(self, content: bytes, *, font: int | None = None, resources: bytes = b"", extra: bytes = b"") -> int:
        fonts = b"/Font << /F1 %d 0 R >>" % (self.font() if font is None else font)
        body = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << %s %s >> /Contents %d 0 R %s >>"
        number = self.add(body % (fonts, resources, self.stream(content), extra))
        self.pages.append(number)
        return number

    def info(self, **texts: str) -> None:
        fields = b" ".join(b"/%s %s" % (name.encode(), text_string(text)) for name, text in texts.items())
        self.trailer += b" /Info %d 0 R" % self.add(b"<< %s >>" % fields)

    def outline(self, entries: Sequence[tuple[int, str, int, float | None]]) -> None:
        """Bookmarks as (level, title, index of the page, height on it): levels begin at 0 and grow by 1."""
        numbers = [self.add(b"") for _ in entries]
        root = self.add(b"")
        parents: list[int] = []
        children: dict[int, list[int]] = {root: []}
        above = [root]
        for number, (level, *_) in zip(numbers, entries, strict=True):
            above = above[: level + 1]
            parents.append(above[-1])
            children.setdefault(above[-1], []).append(number)
            above.append(number)
        for number, parent, (_, title, page, height) in zip(numbers, parents, entries, strict=True):
            siblings = children[parent]
            place = siblings.index(number)
            links = b"/Parent %d 0 R" % parent
            links += b" /Prev %d 0 R" % siblings[place - 1] if place else b""
            links += b" /Next %d 0 R" % siblings[place + 1] if place + 1 < len(siblings) else b""
            links += _ends(children.get(number, []))
            view = b"/Fit" if height is None else b"/XYZ 0 %g 0" % height
            dest = b"[%d 0 R %s]" % (self.pages[page], view)
            self.objects[number] = b"<< /Title %s %s /Dest %s >>" % (text_string(title), links, dest)
        self.objects[root] = b"<< /Type /Outlines %s >>" % _ends(children[root])
        self.catalog += b" /Outlines %d 0 R" % root

    def write(self, *, user_password: bytes | None = None, owner_password: bytes = b"owner") -> bytes:
        """The file, with the standard security handler's 40-bit RC4 where there is a user password (7.6.3)."""
        self.objects[CATALOG] = b"<< /Type /Catalog /Pages 2 0 R %s >>" % self.catalog
        kids = b" ".join(b"%d 0 R" % number for number in self.pages)
        self.objects[PAGES] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(self.pages))
        trailer = self.trailer
        key = None
        if user_password is not None:
            key, encrypt = _encryption(user_password, owner_password)
            trailer += b" /ID [<00> <00>] /Encrypt %s" % encrypt
        out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
        offsets: dict[int, int] = {}
        for number, body in sorted(self.objects.items()):
            offsets[number] = len(out)
            out += b"%d 0 obj\n%s\nendobj\n" % (number, _encrypted(body, number, key) if key else body)
        start = len(out)
        size = max(offsets) + 1
        out += b"xref\n0 %d\n0000000000 65535 f \n" % size
        out += b"".join(b"%010d 00000 n \n" % offsets[number] for number in range(1, size))
        out += b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, start)
        return bytes(out)


def text_string(text: str) -> bytes:
    """7.9.2.2: UTF-16 with a byte-order mark, here in hexadecimal."""
    return b"<FEFF%s>" % text.encode("utf-16-be").hex().encode()


def lines(*texts: str, size: float = 12, top: float = 720, left: float = 72, leading: float = 14) -> bytes:
    """A content stream that shows one line below the other."""
    shown = b" ".join(b"(%s) Tj T*" % _escaped(text) for text in texts)
    return b"BT /F1 %g Tf %g TL %g %g Td %s ET\n" % (size, leading, left, top, shown)


def to_unicode(pairs: dict[int, str]) -> bytes:
    """A ToUnicode CMap (9.10.3): codes of one byte to text."""
    rows = "\n".join(
        f"<{code:02X}> <{text.encode('utf-16-be', 'surrogatepass').hex()}>" for code, text in pairs.items()
    )
    return (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def\n"
        "1 begincodespacerange <00> <FF> endcodespacerange\n"
        f"{len(pairs)} beginbfchar\n{rows}\nendbfchar\nendcmap end end"
    ).encode()


def one_page(*texts: str) -> bytes:
    pdf = SmallPdf()
    pdf.page(lines(*texts))
    return pdf.write()


def _escaped(text: str) -> bytes:
    raw = text.encode("cp1252")
    return raw.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def _ends(children: list[int]) -> bytes:
    if not children:
        return b""
    return b" /First %d 0 R /Last %d 0 R /Count %d" % (children[0], children[-1], len(children))


def _rc4(key: bytes, content: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out = bytearray()
    i = j = 0
    for byte in content:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def _encryption(user: bytes, owner: bytes) -> tuple[bytes, bytes]:
    """The file's key and its encryption dictionary: algorithms 2, 3 and 4 of 7.6.3, revision 2."""
    permissions = (-4 & 0xFFFFFFFF).to_bytes(4, "little")
    owner_key = hashlib.md5((owner + _PADDING)[:32]).digest()[:5]
    o_entry = _rc4(owner_key, (user + _PADDING)[:32])
    key = hashlib.md5((user + _PADDING)[:32] + o_entry + permissions + b"\0").digest()[:5]
    u_entry = _rc4(key, _PADDING)
    entries = (o_entry.hex().encode(), u_entry.hex().encode())
    return key, b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P -4 >>" % entries


def _encrypted(body: bytes, number: int, key: bytes) -> bytes:
    """Algorithm 1, for streams only: strings that are encrypted have no part in what is tested."""
    if b"\nstream\n" not in body:
        return body
    head, _, rest = body.partition(b"\nstream\n")
    content = rest.removesuffix(b"\nendstream")
    object_key = hashlib.md5(key + number.to_bytes(3, "little") + b"\0\0").digest()[:10]
    return head + b"\nstream\n" + _rc4(object_key, content) + b"\nendstream"
