"""Whether a page's text seems to be read across its columns. Geometry only; knows no PDF library.

Owns the two signs of it: lines with a wide gap at the same place, row after row, and lines that go from side to side
down the page. Tables look the same, and there it is the right order: what is found here is a suspicion to report.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple


class Box(NamedTuple):
    """A stretch of text on the page, in points; `bottom` is less than `top`."""

    left: float
    bottom: float
    right: float
    top: float


class _Row(NamedTuple):
    """Stretches side by side, in the order of the text, and the widest gap between two neighbours."""

    box: Box
    gap_left: float
    gap_right: float


# A gap counts where it is wider than any space, and where a column's worth of text stands on both sides.
_WIDER_THAN_A_SPACE = 1.5
_NARROWEST_GAP = 10.0
_OF_A_COLUMN = 0.15
_ROWS = 5
_SIDES_CHANGED = 8


def is_interleaved(boxes: Iterable[Box], page_width: float) -> bool:
    """Whether stretches of text, in the order in which they are read, jump between columns line by line."""
    rows = list(_rows(boxes))
    column = _OF_A_COLUMN * page_width
    return _has_gutter(rows, column) or _changes_sides(rows, column)


def _rows(boxes: Iterable[Box]) -> Iterator[_Row]:
    row: _Row | None = None
    for box in boxes:
        if row is not None and _is_beside(row.box, box):
            gap_left, gap_right = row.gap_left, row.gap_right
            if box.left - row.box.right > gap_right - gap_left:
                gap_left, gap_right = row.box.right, box.left
            around = row.box
            whole = Box(around.left, min(around.bottom, box.bottom), box.right, max(around.top, box.top))
            row = _Row(whole, gap_left, gap_right)
            continue
        if row is not None:
            yield row
        row = _Row(box, box.right, box.right)
    if row is not None:
        yield row


def _is_beside(row: Box, box: Box) -> bool:
    shared = min(row.top, box.top) - max(row.bottom, box.bottom)
    return box.left >= row.right - 1 and shared > 0.4 * min(row.top - row.bottom, box.top - box.bottom)


def _has_gutter(rows: list[_Row], column: float) -> bool:
    """Rows that follow each other and have one gap in common."""
    num_rows, left, right = 0, 0.0, 0.0
    for row in rows:
        box = row.box
        wide = max(_NARROWEST_GAP, _WIDER_THAN_A_SPACE * (box.top - box.bottom))
        is_split = row.gap_left - box.left >= column and box.right - row.gap_right >= column
        if not is_split or row.gap_right - row.gap_left < wide:
            num_rows = 0
            continue
        both = max(left, row.gap_left), min(right, row.gap_right)
        if num_rows == 0 or both[1] - both[0] < wide / 2:
            num_rows, left, right = 1, row.gap_left, row.gap_right
        else:
            num_rows, (left, right) = num_rows + 1, both
        if num_rows >= _ROWS:
            return True
    return False


def _changes_sides(rows: list[_Row], column: float) -> bool:
    """Rows that stand beside the one before them, now right, now left of it, and ever lower."""
    num_changes, was_right = 0, None
    for above, row in pairwise(rows):
        is_wide = min(above.box.right - above.box.left, row.box.right - row.box.left) >= column
        is_apart = row.box.left > above.box.right or row.box.right < above.box.left
        is_right = row.box.left > above.box.right
        if not (is_wide and is_apart) or row.box.bottom > above.box.top or is_right == was_right:
            num_changes, was_right = 0, None
            continue
        num_changes, was_right = num_changes + 1, is_right
        if num_changes >= _SIDES_CHANGED:
            return True
    return False
