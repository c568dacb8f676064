"""What a model's files say, found once: reading a configuration takes seconds, because transformers is imported for it.

Owns which facts are kept, beside the digest of the files they were read from and the code that read them. Only what was
accepted is kept, so a model that is refused is refused anew. `longdoc.kept` holds them, below `model-facts/`.
"""

import dataclasses
import importlib.metadata
from typing import Any

from longdoc.kept import code_sha256, keep, kept
from longdoc.model.layers import LayerShape
from longdoc.model.positions import TrainedPositions

_KIND = "model-facts"
#: Packages whose text decides what is read: between two releases it changes and the version does not.
_CODE = ("model",)


def kept_facts(digest: str) -> dict[str, Any] | None:
    """The facts of the model with this digest as `LocalModel` has them, or None where they are not known."""
    found = kept(_KIND, _subject(digest))
    try:
        facts = dict((found or {})["facts"])
        facts["positions"] = TrainedPositions(**facts["positions"])
        facts["layers"] = tuple(LayerShape(**layer) for layer in facts["layers"])
    except (KeyError, TypeError, ValueError):
        return None
    return facts


def keep_facts(digest: str, facts: dict[str, Any]) -> None:
    """Keep them for the next time."""
    plain = facts | {"positions": dataclasses.asdict(facts["positions"])}
    plain["layers"] = [dataclasses.asdict(layer) for layer in facts["layers"]]
    keep(_KIND, _subject(digest), facts=plain)


def _subject(digest: str) -> dict[str, Any]:
    versions = {name: importlib.metadata.version(name) for name in ("longdoc", "transformers")}
    return {"digest": digest, "code": code_sha256(_CODE), "versions": versions}
