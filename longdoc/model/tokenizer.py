"""The tokenizer of a model, without opening the model: counting tokens needs neither torch nor transformers.

Owns the short way to a model's folder. What it does not know (a GGUF file, a name that was never pulled) goes the long
way, which opens the model. Does not ask whether the tokenizer fits the model; a run does.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from longdoc.model.cached import Report, remembered
from longdoc.model.pull import pull
from longdoc.model.registry import BUILT_INS
from longdoc.model.sources import find_model

if TYPE_CHECKING:
    from longdoc.tokenization.vocabulary import Vocabulary


def find_vocabulary(asked: str, *, report: Report) -> "Vocabulary":
    """The vocabulary of the model that `asked` names, as `find_model` understands names. Raises `ModelError`."""
    from longdoc.tokenization.vocabulary import Vocabulary  # not at the top: pulling models needs no tokenizer

    return Vocabulary.load(find_tokenizer_folder(asked, report=report))


def find_tokenizer_folder(asked: str, *, report: Report) -> Path:
    """The folder that holds the model's `tokenizer.json`. Raises `ModelError`."""
    if entry := BUILT_INS.get(asked):
        return pull(entry, report)
    try:
        path = Path(asked).expanduser()
        if (path / "tokenizer.json").is_file() and (path / "config.json").is_file():
            return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return find_model(asked, report=report).folder  # which says what is wrong with the name
    return remembered(asked) or find_model(asked, report=report).folder
