"""A Hugging Face `tokenizer.json`: which kind it is, and what longdoc does with the parts that would change a text.

Owns the format's outer shape and the one question that decides: can tokens stand for exactly the bytes of any text?
Two kinds can: byte-level BPE, and SentencePiece's BPE or Unigram with a token for every byte (`byte_fallback`).
Refuses by name, with the reason, whatever lower-cases, rewrites or drops characters.

Three parts are left out, since a document is many segments and no byte of it may be added or lost:
  - a Unicode normalizer (NFC, NFKC): text that it would change is encoded as it stands;
  - the space that some put before a text: a segment goes on where another ended, it starts no sentence;
  - added tokens, so that a literal `<|endoftext|>` in a book is ordinary text. Added tokens of white space alone
    control nothing (runs of spaces in GPT-NeoX and its kin); they stay.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from longdoc.errors import ModelError
from longdoc.records import fingerprint

ESCAPED_SPACE = "\u2581"
#: Changes whenever the same file and text would get other ids.
_POLICY_VERSION = "1"
# A list of bytes has a place for every id, so a damaged one must not ask for all memory. No model comes near it.
_LARGEST_ID = 1 << 24
# What content of another shape than the format's raises where it is taken apart.
DAMAGE = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)

_LEFT_OUT = ("NFC", "NFKC")
_REWRITES = {
    "BertNormalizer": "it rewrites white space, and may lower-case text or strip accents",
    "Lowercase": "it lower-cases text",
    "StripAccents": "it strips accents",
    "Strip": "it drops white space at the ends of a text",
    "Precompiled": "it rewrites and drops characters by a table of its own",
    "Nmt": "it drops control characters",
    "NFD": "it takes letters with accents apart, so that hardly a text stays as it is",
    "NFKD": "it takes letters with accents apart, so that hardly a text stays as it is",
}
_LOSSY_MODELS = {
    "WordPiece": "its tokens do not say where white space was, and words that it does not know become one token",
    "WordLevel": "words that it does not know become one token",
}
_LOSSLESS_STEPS = ("ByteLevel", "Metaspace", "Split", "Digits", "Punctuation", "UnicodeScripts")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFile:
    """What a `tokenizer.json` comes to.

    `own` is the file without control tokens, `plain` is that without what longdoc leaves out: the normalizer named by
    `unicode_form`, and the space before a text where `drops_prefix` (`keeps_first_space`: it is put only where the text
    does not begin with one). `escapes_space`: a space is written U+2581, so that this character in a text needs tokens
    of its bytes. `text_tokens` are the added tokens that stay, `control_tokens` all others, by content;
    `special_tokens` are those of them that the file calls special.
    """

    name: str
    kind: Literal["byte-level", "sentencepiece"]
    unicode_form: str | None
    drops_prefix: bool
    keeps_first_space: bool
    escapes_space: bool
    text_tokens: dict[str, int] = field(repr=False)
    control_tokens: dict[str, int] = field(repr=False)
    special_tokens: frozenset[str] = field(repr=False)
    own: dict[str, Any] = field(repr=False)
    plain: dict[str, Any] = field(repr=False)

    @property
    def policy(self) -> str:
        """What is done differently from the `tokenizers` library on the file without control tokens; '' for nothing."""
        parts = {
            f"no {self.unicode_form}": self.unicode_form is not None,
            "no space before a text": self.drops_prefix,
            "U+2581 by its bytes": self.escapes_space,
        }
        return ", ".join(part for part, applies in parts.items() if applies)

    def identity(self, sha256: str) -> str:
        """What token ids depend on: the file's own hash, and the policy where it has one."""
        if not self.policy and not self.text_tokens:
            return sha256
        kept = ",".join(map(repr, sorted(self.text_tokens)))
        return fingerprint(
            (("file", sha256), ("policy", self.policy), ("kept", kept), ("version", _POLICY_VERSION)),
        )


def unsupported(name: str, what: str, why: str) -> ModelError:
    """The one message for tokenizers that are refused: subject, cause, next action."""
    return ModelError(
        f"{name}: {what} cannot be used: {why}; use a model whose tokenizer keeps every byte (see docs/models.md)"
    )


def damaged(name: str, error: Exception) -> ModelError:
    """The one message for files that are no tokenizer.json at all."""
    return ModelError(f"{name}: not a tokenizer.json ({type(error).__name__}: {error}); pull the model again")


def parse(raw: bytes, name: str) -> TokenizerFile:
    """A `tokenizer.json`, taken apart. Raises `ModelError` where it is damaged or its tokens lose text."""
    try:
        content = json.loads(raw)
        return _parse(content, name)
    except DAMAGE as error:
        raise damaged(name, error) from error


def _parse(content: dict[str, Any], name: str) -> TokenizerFile:
    model = content["model"]
    normalizers = list(_flat(content.get("normalizer"), "normalizers"))
    steps = list(_flat(content.get("pre_tokenizer"), "pretokenizers"))
    _check_normalizers(normalizers, name)
    _check_model(model, name)
    _check_steps(steps, name)
    kind: Literal["byte-level", "sentencepiece"] = (
        "byte-level" if any(step["type"] == "ByteLevel" for step in steps) else "sentencepiece"
    )
    escapes = any(step["type"] in ("Replace", "Metaspace") for step in (*normalizers, *steps))
    if kind == "byte-level" and (escapes or model["type"] != "BPE" or model.get("byte_fallback")):
        why = "what its tokens stand for was not worked out"
        raise unsupported(name, "ByteLevel with anything but a plain BPE", why)
    texts, controls = _added_tokens(content, kind, model)
    own = _own(content, texts)
    forms = [step["type"] for step in normalizers if step["type"] in _LEFT_OUT]
    return TokenizerFile(
        name=name,
        kind=kind,
        unicode_form=" and ".join(forms) or None,
        drops_prefix=any(map(_puts_space, (*normalizers, *steps))),
        keeps_first_space=not any(step["type"] == "Prepend" for step in normalizers),
        escapes_space=escapes,
        text_tokens=texts,
        control_tokens=controls,
        special_tokens=frozenset(t["content"] for t in content.get("added_tokens") or () if t.get("special")),
        own=own,
        plain=own | {"normalizer": _left(normalizers), "pre_tokenizer": _without_prefix(content.get("pre_tokenizer"))},
    )


def _flat(step: dict[str, Any] | None, parts: str) -> Iterator[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer in order; sequences may hold sequences."""
    if step is None:
        return
    if step["type"] == "Sequence":
        for part in step[parts]:
            yield from _flat(part, parts)
    else:
        yield step


def _check_normalizers(normalizers: list[dict[str, Any]], name: str) -> None:
    for step in normalizers:
        kind = step["type"]
        if kind in _LEFT_OUT:
            continue
        if kind == "Prepend" and step["prepend"] in (" ", ESCAPED_SPACE):
            continue
        if kind == "Replace" and step["pattern"] == {"String": " "} and step["content"] == ESCAPED_SPACE:
            continue
        raise unsupported(name, f"the normalizer {kind}", _REWRITES.get(kind, "it changes text"))


def _check_model(model: dict[str, Any], name: str) -> None:
    kind = model["type"]
    if kind not in ("BPE", "Unigram"):
        raise unsupported(name, f"the tokenizer model {kind}", _LOSSY_MODELS.get(kind, "longdoc does not know it"))
    if model.get("dropout"):
        raise unsupported(name, f"BPE with dropout={model['dropout']!r}", "the same text gets other tokens every time")
    for option in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            why = "its tokens stand for other bytes inside a word than at its edge"
            raise unsupported(name, f"BPE with {option}={model[option]!r}", why)
    for token, token_id in vocabulary_of(model).items():
        check_id(token, token_id)


def check_id(token: str, token_id: object) -> None:
    """Raise `ValueError` for a number that no token can have."""
    if type(token_id) is not int or not 0 <= token_id < _LARGEST_ID:
        raise ValueError(f"{token!r} has the id {token_id!r}")


def vocabulary_of(model: dict[str, Any]) -> dict[str, int]:
    """The entries of a BPE or a Unigram model by their ids."""
    if model["type"] == "Unigram":
        return {entry[0]: token_id for token_id, entry in enumerate(model["vocab"])}
    entries: dict[str, int] = dict(model["vocab"])
    return entries


def _check_steps(steps: list[dict[str, Any]], name: str) -> None:
    for step in steps:
        kind = step["type"]
        if kind not in _LOSSLESS_STEPS:
            raise unsupported(name, f"the pre-tokenizer {kind}", "it drops white space")
        if kind in ("Split", "Punctuation") and str(step.get("behavior", "Isolated")).lower() == "removed":
            raise unsupported(name, f"the pre-tokenizer {kind} with behavior Removed", "it drops what it splits at")
        if kind == "Metaspace" and step["replacement"] != ESCAPED_SPACE:
            why = "only U+2581 is understood"
            raise unsupported(name, f"the pre-tokenizer Metaspace with the replacement {step['replacement']!r}", why)
        if len(steps) > 1 and _puts_space(step):
            why = "it would put a space before each piece"
            raise unsupported(name, f"the pre-tokenizer {kind} with a prefix space behind or before others", why)
    if [step["type"] for step in steps].count("ByteLevel") > 1:
        raise unsupported(name, "the pre-tokenizer ByteLevel twice", "bytes would be written twice")


def _puts_space(step: dict[str, Any]) -> bool:
    """Whether a step puts a space before a text. What a file leaves out has the library's default."""
    if step["type"] == "Prepend":
        return True
    if step["type"] == "ByteLevel":
        return bool(step.get("add_prefix_space", True))
    if step["type"] == "Metaspace":
        default = "always" if step.get("add_prefix_space", True) else "never"
        return str(step.get("prepend_scheme", default)).lower() != "never"
    return False


def _without_prefix(step: dict[str, Any] | None) -> dict[str, Any] | None:
    """The pre-tokenizer without a space before a text. Only one that stands alone may have put it, see above."""
    if step is None or not _puts_space(step):
        if step is not None and step["type"] == "Sequence" and len(step["pretokenizers"]) == 1:
            return _without_prefix(step["pretokenizers"][0])
        return step
    without: dict[str, Any] = step | {"add_prefix_space": False}
    return without | {"prepend_scheme": "never"} if step["type"] == "Metaspace" else without


def _left(normalizers: list[dict[str, Any]]) -> dict[str, Any] | None:
    left = [step for step in normalizers if step["type"] == "Replace"]
    return {"type": "Sequence", "normalizers": left} if left else None


def _added_tokens(content: dict[str, Any], kind: str, model: dict[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Added tokens by content: those of white space alone, and all others."""
    texts: dict[str, int] = {}
    controls: dict[str, int] = {}
    for token in content.get("added_tokens") or ():
        check_id(token["content"], token["id"])
        blank = token["content"]
        if kind == "sentencepiece" and token.get("normalized"):
            blank = blank.replace(ESCAPED_SPACE, " ")
        bound = any(token.get(flag) for flag in ("special", "single_word", "lstrip", "rstrip"))
        is_text = not bound and blank.isspace() and model["type"] == "BPE"
        (texts if is_text else controls)[token["content"]] = token["id"]
    return texts, controls


def _own(content: dict[str, Any], texts: dict[str, int]) -> dict[str, Any]:
    model = content["model"]
    if texts:
        # The library numbers added tokens by itself, but for those that are entries.
        model = model | {"vocab": model["vocab"] | texts}
    added = [token for token in content.get("added_tokens") or () if token["content"] in texts]
    return content | {"added_tokens": added, "model": model, "truncation": None, "padding": None}
