"""Tells DRM from what only looks like it: which members of an EPUB are encrypted, and by whose rules.

Owns `META-INF/encryption.xml` and the marks of protection schemes. Obfuscated fonts (the algorithms of the IDPF and of
Adobe) are no DRM, and neither is an encrypted picture; an encrypted page of the book is. Decrypts nothing.
"""

from dataclasses import dataclass
from urllib.parse import unquote

from connectors.archive import Archive
from connectors.epub_package import local_name, read_xml, resolve
from connectors.xml_tree import Element
from longdoc.errors import DocumentError
from longdoc.records import display

_ENCRYPTION = "META-INF/encryption.xml"
#: https://www.w3.org/TR/epub-33/#sec-font-obfuscation, and Adobe's method, by which only fonts are treated.
_OBFUSCATION = frozenset({"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"})
_SCHEMES = {
    "META-INF/rights.xml": "Adobe ADEPT",
    "META-INF/sinf.xml": "Apple FairPlay",
    "META-INF/license.lcpl": "Readium LCP",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """`encrypted` and `obfuscated` hold names of members; `scheme` is the name of a DRM scheme that left its mark."""

    encrypted: frozenset[str] = frozenset()
    obfuscated: frozenset[str] = frozenset()
    scheme: str | None = None

    def fault(self, subject: str, name: str) -> DocumentError:
        """The error of a book one of whose pages is encrypted."""
        by = f" by {self.scheme}" if self.scheme else ""
        cause = f"{display(subject)} is protected by DRM: its page {display(name)} is encrypted{by}."
        message = f"{cause} Get a copy without DRM from its seller or library, or leave it out."
        return DocumentError(message, stage="read", reason="drm", needs="a copy without DRM")


def read_protection(archive: Archive) -> Protection:
    """Which members are encrypted or obfuscated. Raises `DocumentError` where that cannot be told."""
    scheme = next((scheme for name, scheme in _SCHEMES.items() if archive.find(name)), None)
    member = archive.find(_ENCRYPTION)
    if member is None:
        return Protection(scheme=scheme)
    encrypted: set[str] = set()
    obfuscated: set[str] = set()
    for each in read_xml(archive, member).iter():
        if isinstance(each.tag, str) and local_name(each) == "encrypteddata":
            algorithm, names = _encrypted(each)
            (obfuscated if algorithm in _OBFUSCATION else encrypted).update(names)
    return Protection(encrypted=frozenset(encrypted), obfuscated=frozenset(obfuscated), scheme=scheme)


def _encrypted(element: Element) -> tuple[str, list[str]]:
    """The algorithm of one `EncryptedData` and the members it was applied to; URIs are relative to the root."""
    algorithm = ""
    names: list[str] = []
    for each in element.iter():
        if not isinstance(each.tag, str):
            continue
        # The key that the content's key is encrypted with has a method of its own, deeper in.
        if local_name(each) == "encryptionmethod" and each.getparent() is element:
            algorithm = each.get("Algorithm", "").strip()
        elif local_name(each) == "cipherreference" and (target := resolve("", each.get("URI", ""))):
            names += {target[0], unquote(target[0])}
    return algorithm, names
