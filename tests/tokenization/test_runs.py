"""White space in runs too long for the pattern engine is cut so that the token ids stay the model's own."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers
from trained_tokenizers import ATOMS, SENTENCEPIECE, ordinary, split

from longdoc.errors import DocumentError
from longdoc.tokenization.vocabulary import Vocabulary

# U+001C is white space to Python and not to the pattern engines.
run = st.one_of(
    st.integers(1, 30).map(lambda n: " " * n),
    st.text(" \n\r\t\v\xa0\u3000\x1c", min_size=1, max_size=30),
    st.text(" \n", min_size=1, max_size=30),
)
text_with_runs = st.lists(st.one_of(run, st.sampled_from(ATOMS)), max_size=12).map("".join)


# Every way in which patterns treat white space, and the library.
of_kinds_of_white_space = pytest.mark.parametrize(
    "shape", ["gpt2", "digits", "llama3", "o200k", "neox", "gemma"], indirect=True, scope="session"
)


@of_kinds_of_white_space
@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=text_with_runs, longest=st.integers(2, 12))
def test_cut_runs_encode_as_uncut_ones(vocabulary: Vocabulary, text: str, longest: int) -> None:
    assert vocabulary.encode(text, longest_run=longest).tolist() == vocabulary.encode(text).tolist()


@of_kinds_of_white_space
@pytest.mark.parametrize("length", [7, 8, 9, 15, 16, 17, 24])
@pytest.mark.parametrize("around", ["{}", "a{}", "{}b", "!{}b", "a{}1", "a{}\n", "a{}\nb", "a\n{}b", "!\n{}/"])
def test_runs_around_the_limit_encode_as_the_tokenizers_library_does(
    vocabulary: Vocabulary, oracle: Tokenizer, around: str, length: int
) -> None:
    for white in (" ", "\n", "\t ", "\r\n"):
        text = around.format((white * length)[:length])
        assert vocabulary.encode(text, longest_run=8).tolist() == oracle.encode(text, add_special_tokens=False).ids


@of_kinds_of_white_space
def test_a_run_that_no_engine_can_match_is_encoded(vocabulary: Vocabulary, shape: str, folder: Path) -> None:
    length = 1_000_100
    text = "a" + " " * length + "b"
    found = vocabulary.encode(text).tolist()
    if shape in SENTENCEPIECE:  # no pattern is matched
        assert found == ordinary(folder).encode(text).ids
    elif shape == "neox":  # 41,670 times 24 and once 20 spaces
        spaces = [vocabulary.encode(" " * some).tolist() for some in (24, 20)]
        assert found == [*vocabulary.encode("a"), *spaces[0] * 41_670, *spaces[1], *vocabulary.encode("b")]
    else:
        # The oracle panics too. By the pattern: "a", all but the last space, then what the last one and "b" become.
        merging = Tokenizer(ordinary(folder).model)
        merging.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        spaces = merging.encode("Ġ" * (length - 1)).ids
        assert found == [*vocabulary.encode("a"), *spaces, *vocabulary.encode(" b")]


@of_kinds_of_white_space
def test_line_ends_in_any_number_are_encoded(vocabulary: Vocabulary) -> None:
    text = "a" + "\r\n" * 600_000 + " b"
    assert vocabulary.decode(vocabulary.encode(text)) == text.encode("utf-8")


def test_a_pattern_that_longdoc_does_not_know_is_run_whole_and_says_where_it_ends(
    trained_folders: dict[str, Path], tmp_path: Path
) -> None:
    unknown = split(r" ?\p{L}+|\p{N}{1,2}|[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    library = Tokenizer.from_file(str(trained_folders["gpt2"] / "tokenizer.json"))
    library.pre_tokenizer = unknown
    library.save(str(tmp_path / "tokenizer.json"))
    vocabulary = Vocabulary.load(tmp_path)
    assert (vocabulary.backend, vocabulary.can_be_cut) == ("tiktoken", False)
    text = "ab 1234" + " " * 200 + "x"
    assert vocabulary.encode(text, longest_run=50).tolist() == ordinary(tmp_path).encode(text).ids
    with pytest.raises(DocumentError, match="a very long run of white space; leave it out or use another model"):
        vocabulary.encode("a" + " " * 1_000_100 + "b")
