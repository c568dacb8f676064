"""Text that a tokenizer's Unicode normalizer would change keeps its bytes, and the document says how often."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers
from trained_tokenizers import ATOMS, NFC_SHAPES, own

from connectors.building import Origin, Tiles
from longdoc.records import Document
from longdoc.tokenization.cache import TokenCache
from longdoc.tokenization.encode import encode_setting_aside
from longdoc.tokenization.unicode_form import num_changed
from longdoc.tokenization.vocabulary import Vocabulary

FORMS = {"NFC": normalizers.NFC(), "NFKC": normalizers.NFKC()}
# Marks, what they compose with, letters that are never composed, Hangul in parts, and what compatibility changes.
HARD = ["e", "\u0301", "\u0327", "\u0338", "<", "=", "\u212b", "\u1100", "\u1161", "\u11a8", "\uac00", "\u0958"]
HARD += ["ﬁ", "…", "，", "\xa0", "½", "\u0344", "\U0001d15e", "\u0f73", "\U00016121", "é", "中", "\n", " ", "a"]
texts = st.one_of(
    st.lists(st.sampled_from([*HARD, *ATOMS]), max_size=25).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=25),
)


@settings(deadline=None, max_examples=300)
@given(text=texts, form=st.sampled_from(["NFC", "NFKC"]))
@example(text="<\u0338", form="NFC")
@example(text="a\u0338<\u0338", form="NFC")
def test_a_text_has_places_exactly_where_the_normalizer_changes_it(text: str, form: str) -> None:
    assert (num_changed(text, form) == 0) == (FORMS[form].normalize_str(text) == text)


def test_places_are_counted() -> None:
    assert num_changed("cafe\u0301 cafe\u0301 café \u212b", "NFC") == 3
    assert num_changed("e\u0301", None) == 0
    assert num_changed("ﬁ", "NFC") == 0
    assert num_changed("ﬁ", "NFKC") == 1


def test_nothing_of_ascii_is_changed_or_joins_what_stands_before_it() -> None:
    ascii_text = "".join(map(chr, range(0x80)))
    every = "".join(chr(code) for code in range(0x80, 0x110000) if not 0xD800 <= code < 0xE000)
    for form, normalizer in FORMS.items():
        assert normalizer.normalize_str(ascii_text) == ascii_text, form
        assert normalizer.normalize_str("\n".join(every)).count("\n") == len(every) - 1, form
    # By the definition: whatever is composed of two, the second is none of ASCII.
    pairs = [unicodedata.decomposition(char).split() for char in every]
    assert not [pair for pair in pairs if len(pair) == 2 and "<" not in pair[0] and int(pair[1], 16) < 0x80]


of_nfc_shapes = pytest.mark.parametrize("shape", NFC_SHAPES, indirect=True, scope="session")


@of_nfc_shapes
@settings(deadline=None, max_examples=150)
@given(text=texts)
def test_text_in_the_normal_form_gets_the_ids_of_the_whole_tokenizer(
    vocabulary: Vocabulary, folder: Path, text: str
) -> None:
    normal = FORMS["NFC"].normalize_str(text)
    assert vocabulary.num_as_they_stand(normal) == 0
    assert vocabulary.encode(normal).tolist() == own(folder).encode(normal, add_special_tokens=False).ids
    assert vocabulary.decode(vocabulary.encode(text)) == text.encode("utf-8")


def repository(*contents: str) -> Document:
    tiles = Tiles()
    for unit, content in enumerate(contents):
        origin = Origin(path=b"f%d" % unit, encoding="utf-8", blob_id=f"{unit:040x}")
        tiles.add(content, kind="file", unit=unit, is_content=True, origin=origin)
    return Document(
        kind="repository",
        source_uri="memory",
        num_bytes_source=0,
        text=tiles.text(),
        segments=tuple(tiles.segments),
        warnings=("an older one",),
    )


@of_nfc_shapes
def test_a_document_says_how_many_places_are_encoded_as_they_stand(vocabulary: Vocabulary, tmp_path: Path) -> None:
    document = repository("cafe\u0301\n", "plain\n", "\u212b and e\u0301\n")
    for _ in range(2):  # the second time from the cache
        with TokenCache(tmp_path / "cache") as cache:
            told, sequence = encode_setting_aside(document, vocabulary, cache=cache)
        assert told.warnings == (
            "an older one",
            (
                "places in the text that the model's own tokenizer would change: 3. They are encoded as they stand (no "
                "NFC), so that no byte is lost; the model may never have been trained on such tokens."
            ),
        )
        assert vocabulary.decode(sequence.token_ids) == document.text
    assert told.text == document.text


@of_nfc_shapes
def test_a_document_in_the_normal_form_has_nothing_to_say(vocabulary: Vocabulary) -> None:
    document = repository("café\n", "plain\n")
    assert encode_setting_aside(document, vocabulary)[0] is document


def test_a_tokenizer_without_a_normalizer_has_nothing_to_say(trained_folders: dict[str, Path]) -> None:
    document = repository("cafe\u0301\n")
    assert encode_setting_aside(document, Vocabulary.load(trained_folders["llama3"]))[0] is document
