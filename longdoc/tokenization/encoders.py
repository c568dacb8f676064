"""What a vocabulary encodes with: one interface for tiktoken and the `tokenizers` library.

Owns what both must turn into an error of the document: a pattern engine that gives up.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from longdoc.errors import DocumentError
from longdoc.records import Int32s

T = TypeVar("T")


class Encoder(Protocol):
    """Ordinary text to the ids of one model.

    `bytes_of_id` says what each id stands for, `missing_bytes` which bytes have no token, `can_be_cut` whether text
    may be cut at the seams of `seams.cut`, `backend` who does it: tiktoken or tokenizers.
    """

    @property
    def backend(self) -> str: ...  # noqa: D102
    @property
    def bytes_of_id(self) -> tuple[bytes, ...]: ...  # noqa: D102
    @property
    def missing_bytes(self) -> bytes: ...  # noqa: D102
    @property
    def can_be_cut(self) -> bool: ...  # noqa: D102

    def encode(self, text: str, longest_run: int) -> Int32s:
        """Token ids, int32 [N]. Raises `DocumentError` where a byte has no token, and `UnicodeEncodeError`."""
        ...

    def num_apart(self, text: str) -> int:
        """The characters and words that are encoded apart, since their own token stands for something else."""
        ...


def or_document_error(encode: Callable[[], T]) -> T:
    """What `encode` returns. Raises `DocumentError` where a pattern engine gives up."""
    try:
        return encode()
    except BaseException as error:
        # Some versions raise ValueError, others panic; the class of a panic is no Exception and cannot be imported.
        if not isinstance(error, ValueError) and type(error).__name__ != "PanicException":
            raise
        raise DocumentError(
            "the tokenizer's pattern engine gave up on this text, most often for a very long run of white space; "
            "leave it out or use another model",
            stage="encode",
            reason="tokenizer_panic",
        ) from error


def byte_without_token(byte: int) -> DocumentError:
    """The error of a text with a byte that has no token."""
    return DocumentError(
        f"byte 0x{byte:02x} has no token in this model's vocabulary; leave it out or use another model",
        stage="encode",
        reason="byte_without_token",
    )
