"""Tokens of SentencePiece's models stand for exactly the text, whatever the text is."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trained_tokenizers import ATOMS, SENTENCEPIECE, change, ordinary, own

from longdoc.errors import DocumentError
from longdoc.tokenization.library_encoder import LibraryEncoder
from longdoc.tokenization.vocabulary import Vocabulary

WORDS = ["▁", "▁▁", "<0x41>", "<0x0A>", "<unk>", "<|endoftext|>", "\u2581a", "\t", "\x00", "\U0010ffff"]
texts = st.one_of(
    st.lists(st.sampled_from([*ATOMS, *WORDS]), max_size=30).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
hard = settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])


of_sentencepiece = pytest.mark.parametrize("shape", list(SENTENCEPIECE), indirect=True, scope="session")


@of_sentencepiece
@hard
@given(text=texts)
def test_tokens_tile_the_bytes_of_any_text(vocabulary: Vocabulary, text: str) -> None:
    token_ids = vocabulary.encode(text)
    assert vocabulary.decode(token_ids) == text.encode("utf-8")
    assert int(vocabulary.token_num_bytes[token_ids].sum()) == len(text.encode("utf-8"))
    control = {0, 1, 2}  # <|endoftext|>, <|im_start|>, <unk>
    assert not control.intersection(token_ids.tolist())


@of_sentencepiece
@hard
@given(text=texts)
def test_the_whole_tokenizer_gives_the_same_ids_but_for_the_space_before_a_text(
    vocabulary: Vocabulary, shape: str, folder: Path, text: str
) -> None:
    if not text or vocabulary.num_as_they_stand(text):
        return
    puts_space = shape == "llama2" or (shape.startswith("metaspace") and not text.startswith(" "))
    ours = vocabulary.encode(" " + text if puts_space else text)
    assert ours.tolist() == own(folder).encode(text, add_special_tokens=False).ids


@of_sentencepiece
def test_a_literal_sign_for_a_space_is_written_by_its_bytes(vocabulary: Vocabulary) -> None:
    token_ids = vocabulary.encode("a▁b").tolist()
    assert [vocabulary.token_bytes(token_id) for token_id in token_ids] == [b"a", b"\xe2", b"\x96", b"\x81", b"b"]
    assert vocabulary.num_as_they_stand("a▁b ▁▁ c") == 3
    assert vocabulary.num_as_they_stand("a b") == 0


@of_sentencepiece
def test_a_character_without_a_token_is_written_by_its_bytes(vocabulary: Vocabulary) -> None:
    token_ids = vocabulary.encode("🐋").tolist()
    assert [vocabulary.token_bytes(token_id) for token_id in token_ids[-4:]] == [bytes([b]) for b in "🐋".encode()]
    assert vocabulary.missing_bytes == b""


@of_sentencepiece
def test_words_that_look_like_tokens_of_bytes_are_text(vocabulary: Vocabulary) -> None:
    byte = (
        next(token_id for token_id in range(vocabulary.vocab_size) if vocabulary.token_bytes(token_id) == b"\xff") - 190
    )
    token_ids = vocabulary.encode("x = '<0x41>'").tolist()
    assert vocabulary.token_bytes(byte) == b"A"
    assert byte not in token_ids
    assert vocabulary.decode(token_ids) == b"x = '<0x41>'"


def test_control_tokens_that_merges_could_make_are_text(trained_folders: dict[str, Path], tmp_path: Path) -> None:
    merges = [["<", "u"], ["<u", "n"], ["<un", "k"], ["<unk", ">"]]
    source = trained_folders["gemma"]
    vocab = ordinary(source).get_vocab()
    names = [name for name in ("<", *"unk", ">", *map("".join, merges)) if name not in vocab]
    more = {name: len(vocab) + at for at, name in enumerate(names)}
    model = {"vocab": vocab | more, "merges": merges}
    folder = change(source, tmp_path, model=model)
    assert ordinary(folder).encode("<unk>").ids == [2]
    vocabulary = Vocabulary.load(folder)
    pieces = [vocabulary.token_bytes(token_id) for token_id in vocabulary.encode("<unk>")]
    assert pieces == [b"<", b"u", b"n", b"k", b">"]
    assert vocabulary.num_as_they_stand("<unk><unk>") == 2


def test_spaces_that_metaspace_splits_do_not_merge(trained_folders: dict[str, Path], tmp_path: Path) -> None:
    source = trained_folders["metaspace"]
    vocab = ordinary(source).get_vocab()
    both = {"vocab": vocab | {"▁▁": vocab.get("▁▁", len(vocab))}, "merges": [["▁", "▁"]]}
    step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}
    for is_split, pieces in ((True, [b" ", b" ", b"a"]), (False, [b"  ", b"a"])):
        folder = change(source, tmp_path / str(is_split), model=both, pre_tokenizer=step | {"split": is_split})
        vocabulary = Vocabulary.load(folder)
        assert vocabulary.can_be_cut
        assert [vocabulary.token_bytes(token_id) for token_id in vocabulary.encode("  a").tolist()] == pieces
        assert vocabulary.encode("  a").tolist() == ordinary(folder).encode("  a").ids


def test_a_character_of_its_own_in_the_place_of_a_byte_is_enough(
    trained_folders: dict[str, Path], tmp_path: Path
) -> None:
    # As in Gemma: the token of the byte 0x09 became that of the tab.
    vocab = ordinary(trained_folders["gemma"]).get_vocab()
    assert "\x0e" not in vocab
    renamed = {("\x0e" if token == "<0x0E>" else token): token_id for token, token_id in vocab.items()}
    vocabulary = Vocabulary.load(change(trained_folders["gemma"], tmp_path, model={"vocab": renamed}))
    (token_id,) = vocabulary.encode("\x0e").tolist()
    assert (token_id, vocabulary.token_bytes(token_id)) == (vocab["<0x0E>"], b"\x0e")


def test_line_ends_are_the_tokens_that_the_model_has_for_them(trained_folders: dict[str, Path]) -> None:
    vocabulary, library = Vocabulary.load(trained_folders["gemma"]), own(trained_folders["gemma"])
    for text in ("a\n\n\n\nb", "\n" * 9, "a \n\n \n\t\n\n"):
        assert vocabulary.encode(text).tolist() == library.encode(text).ids
    five = library.encode("\n\n\n\n\n").ids
    assert len(five) == 1


def test_an_engine_that_gives_up_is_an_error_of_the_document(
    trained_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        pass

    class Panicking:
        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> None:
            raise PanicException(texts[0])

    vocabulary = Vocabulary.load(trained_folders["deepseek"])
    assert isinstance(vocabulary._encoder, LibraryEncoder)
    monkeypatch.setattr(vocabulary._encoder, "_tokenizer", Panicking())
    with pytest.raises(DocumentError, match="pattern engine gave up on this text") as refusal:
        vocabulary.encode("a")
    assert (refusal.value.stage, refusal.value.reason) == ("encode", "tokenizer_panic")


def test_bytes_without_a_token_are_refused_by_the_library_too(trained_folders: dict[str, Path], tmp_path: Path) -> None:
    vocab = {token: at for token, at in ordinary(trained_folders["deepseek"]).get_vocab().items() if token != "Ą"}
    vocabulary = Vocabulary.load(change(trained_folders["deepseek"], tmp_path, model={"vocab": vocab}))
    assert (vocabulary.backend, vocabulary.missing_bytes) == ("tokenizers", b"\x04")
    with pytest.raises(DocumentError, match="byte 0x04 has no token in this model's vocabulary"):
        vocabulary.encode("a\x04b")
