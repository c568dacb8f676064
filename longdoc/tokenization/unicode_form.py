"""The places of a text that a Unicode normalizer would change, found with the normalizer of the model's own tokenizer.

Owns the tiles that this is done in. A tile is a run of characters outside ASCII and the one before it. Nothing composes
over its edges: a character of ASCII never joins the one before it, and nothing decomposes into a part that does.
Python's own `unicodedata` carries another version of Unicode and is not asked.
"""

import re
from collections import Counter

from tokenizers import normalizers

_FORMS = {"NFC": normalizers.NFC, "NFKC": normalizers.NFKC}
_TILE = re.compile("[\x00-\x7f]?[^\x00-\x7f]+")


def num_changed(text: str, form: str | None) -> int:
    """The tiles of a text that a normalizer of the given form would change; 0 for no form."""
    if form is None or text.isascii():
        return 0
    normalize = _FORMS[form]().normalize_str
    tiles = Counter(_TILE.findall(text))
    # Most texts are left alone, and one call for all tiles is the quick way to know.
    together = "\n".join(tiles)
    if normalize(together) == together:
        return 0
    return sum(count for tile, count in tiles.items() if normalize(tile) != tile)
