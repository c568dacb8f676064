"""Makes the best of XML that is not well-formed: repairs with a warning what has one remedy, and nothing else.

Owns the two remedies: a prefix that is not declared gets a namespace, and an ampersand that stands for itself is one.
What stays broken after them is refused as `connectors.xml_tree` refuses it; XHTML can then be written as HTML.
"""

import re
from collections.abc import Callable
from html import escape

from connectors.markup_names import VOID
from connectors.markup_tokens import Token, tokens
from connectors.xml_tree import Element, XmlError, parse_xml
from longdoc.records import display

_UNDECLARED = re.compile(r"Namespace prefix ([\w.-]+)")
_ROOT = re.compile(r"<(?![?!])[^\s>/]+")
_BARE_AMPERSAND = re.compile(r"&(?!(?:#[0-9]++|#x[0-9A-Fa-f]++|\w++);)")
_MOST_REPAIRS = 8
_NAMESPACES = {
    "epub": "http://www.idpf.org/2007/ops",
    "ops": "http://www.idpf.org/2007/ops",
    "xlink": "http://www.w3.org/1999/xlink",
    "svg": "http://www.w3.org/2000/svg",
    "m": "http://www.w3.org/1998/Math/MathML",
    "opf": "http://www.idpf.org/2007/opf",
    "dc": "http://purl.org/dc/elements/1.1/",
}


def parse_repaired(text: str, name: str, warn: Callable[[str], None]) -> Element:
    """The root of an XML document; `warn` is told of every repair of what `name` names. Raises `XmlError`."""
    for _ in range(_MOST_REPAIRS):
        try:
            return parse_xml(text)
        except XmlError as error:
            prefix = _UNDECLARED.search(str(error))
            repaired = _declare(text, prefix[1]) if prefix else _BARE_AMPERSAND.sub("&amp;", text)
            if error.reason == "unsafe" or repaired == text:
                raise
            text = repaired
            warn(f"{display(name)}: {error}. Read with what was meant.")
    return parse_xml(text)


def _declare(text: str, prefix: str) -> str:
    """The same document with a namespace for a prefix on its root element."""
    root = _ROOT.search(text)
    namespace = _NAMESPACES.get(prefix, "urn:undeclared")
    return text if root is None else f'{text[: root.end()]} xmlns:{prefix}="{namespace}"{text[root.end() :]}'


def as_html(text: str) -> str:
    """The same XHTML for a parser of HTML, which knows neither `<title/>` as a whole element nor CDATA sections."""
    source = text.encode("utf-8")
    return b"".join(_as_html(source[token.start : token.stop], token) for token in tokens(source, is_xml=True)).decode()


def _as_html(raw: bytes, token: Token) -> bytes:
    if token.kind == "cdata":
        inside = raw.removeprefix(b"<![CDATA[").removesuffix(b"]]>")
        return escape(inside.decode("utf-8"), quote=False).encode("utf-8")
    if token.kind == "start" and token.is_closed and not token.is_foreign and token.name not in VOID:
        return raw[:-2] + b"></" + token.name.encode("latin-1") + b">"
    return raw
