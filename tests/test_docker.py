"""The Dockerfile, as far as it can be checked without an engine: it agrees with the files around it.

`make lint-image` asks hadolint. Nothing here builds an image; docs/cluster.md says so.
"""

import re
import shlex
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from documented_commands import check_command
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGES = {name: (ROOT / name).read_text() for name in ("Dockerfile", "README.md", "docs/cluster.md")}
TARGETS = ("cpu", "cuda")


@dataclass(kw_only=True)
class Stage:
    """One stage: its name, what it starts from (another stage's name, or an image), and its instructions."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all_of(self, kind: str) -> list[str]:
        return [text for found, text in self.instructions if found == kind]


def parse(text: str) -> dict[str, Stage]:
    """Instructions by stage, in order. https://docs.docker.com/reference/dockerfile/#format"""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    arguments, stages, stage = {}, {}, None
    for instruction in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        kind, _, rest = instruction.strip().partition(" ")
        if not kind:
            continue
        if kind == "ARG" and stage is None:
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif kind == "FROM":
            image, _, name = rest.partition(" AS ")
            stage = stages[name] = Stage(name=name, base=re.sub(r"\$\{(\w+)\}", lambda m: arguments[m[1]], image))
        else:
            stage.instructions.append((kind, " ".join(rest.split())))
    return stages


STAGES = parse(DOCKERFILE)


def chain(name: str) -> list[Stage]:
    """A stage and the stages it starts from, the first one first."""
    stage = STAGES[name]
    return [*(chain(stage.base) if stage.base in STAGES else []), stage]


def inherited(name: str, kind: str) -> list[str]:
    return [text for stage in chain(name) for text in stage.all_of(kind)]


def pip_calls(name: str) -> list[list[str]]:
    """The words of each `pip install` and `pip wheel` of a stage."""
    calls = [part.strip() for run in STAGES[name].all_of("RUN") for part in run.split("&&")]
    return [shlex.split(call)[1:] for call in calls if call.startswith("pip ")]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().split()
    return {name.lower().replace("_", "-"): version for name, version in (line.split("==") for line in lines)}


def reaches_the_build(path: str) -> bool:
    """Whether .dockerignore lets a path through: the last rule that matches it or a folder above it decides."""
    is_ignored = False
    for rule in (ROOT / ".dockerignore").read_text().split():
        pattern, keeps = rule.removeprefix("!"), rule.startswith("!")
        parts = Path(path).parts
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        names = parts if pattern.startswith("**/") else above
        if any(fnmatchcase(name, pattern.removeprefix("**/")) for name in names):
            is_ignored = not keeps
    return not is_ignored


def copied_files() -> set[str]:
    return {
        source
        for stage in STAGES.values()
        for copy in stage.all_of("COPY")
        if not copy.startswith("--from")
        for source in copy.split()[:-1]
    }


def test_there_is_a_target_for_cpus_and_one_for_gpus_and_cpus_are_the_default() -> None:
    assert set(TARGETS) <= set(STAGES)
    assert list(STAGES)[-1] == "cpu"


def test_every_file_that_is_copied_exists_and_is_not_ignored() -> None:
    assert copied_files()
    for source in copied_files():
        assert (ROOT / source).exists(), source
        assert reaches_the_build(source), source


def test_every_installed_package_is_copied_with_its_modules() -> None:
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        folder = package.replace(".", "/")
        assert package.partition(".")[0] in copied_files(), package
        assert reaches_the_build(f"{folder}/__init__.py"), package


@pytest.mark.parametrize(
    "path", [".git/config", "tests/conftest.py", "longdoc/__pycache__/run.pyc", ".venv/bin/python"]
)
def test_what_is_no_part_of_an_image_stays_outside(path: str) -> None:
    assert not reaches_the_build(path)


def test_every_stage_is_copied_from_by_its_name() -> None:
    for stage in STAGES.values():
        for copy in stage.all_of("COPY"):
            for source in re.findall(r"--from=(\S+)", copy):
                assert source in STAGES, copy


def test_every_installation_is_held_to_the_pins() -> None:
    calls = [call for name in STAGES for call in pip_calls(name)]
    assert len(calls) == 6
    for call in calls:
        assert call[call.index("--constraint") + 1] == "constraints.txt", call
    named = {word for call in calls for word in call[1:] if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")}
    assert {"torch", "flash-attn", "ninja", "setuptools"} <= named
    assert named <= set(pins())


@pytest.mark.parametrize(("target", "extras"), [("build-cpu", {"cluster"}), ("build-cuda", {"cluster", "gpu"})])
def test_the_extras_of_an_image_exist_and_are_pinned(target: str, extras: set[str]) -> None:
    (found,) = [word for call in pip_calls(target) for word in call if word.startswith(".[")]
    assert set(found.removeprefix(".[").rstrip("]").split(",")) == extras
    for extra in extras:
        for requirement in map(Requirement, PROJECT["project"]["optional-dependencies"][extra]):
            assert requirement.specifier.contains(pins()[requirement.name]), requirement


def test_images_have_exact_tags() -> None:
    for image in {stage.base for stage in STAGES.values()} - set(STAGES):
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+-[a-z0-9.-]+", image), image


def test_the_python_of_the_images_is_one_that_longdoc_runs_with() -> None:
    version = re.fullmatch(r"python:([\d.]+)-.*", STAGES["runtime"].base)[1]
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(version)
    assert version.startswith(PROJECT["tool"]["mypy"]["python_version"] + ".")
    assert STAGES["environment"].base == STAGES["runtime"].base


def test_flash_attn_is_compiled_by_the_cuda_that_torch_has() -> None:
    # torch 2.13.0 asks for cuda-toolkit 13.0.3 and cuda-bindings of the same (the metadata of its Linux wheel).
    assert pins()["torch"] == "2.13.0"
    assert pins()["cuda-bindings"] == "13.0.3"
    assert re.match(r"nvidia/cuda:13\.0\.", STAGES["compiler"].base)
    assert any(f"/usr/local/cuda-{13.0}" in copy for copy in STAGES["flash-attn"].all_of("COPY"))
    assert [stage.name for stage in chain("flash-attn")][-2] == "torch-cuda"
    assert "FLASH_ATTENTION_FORCE_BUILD=TRUE" in " ".join(inherited("flash-attn", "ENV"))
    comment = DOCKERFILE[: DOCKERFILE.index("ARG CUDA_IMAGE")]
    assert f"torch {pins()['torch']}" in comment


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_longdoc_as_a_user_without_rights(target: str) -> None:
    user, _, group = inherited(target, "USER")[-1].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert f"useradd --uid {user}" in " ".join(inherited(target, "RUN"))
    entry = re.findall(r'"([^"]+)"', inherited(target, "ENTRYPOINT")[-1])
    assert entry == ["tini", "--", "longdoc"]
    assert "longdoc" in PROJECT["project"]["scripts"]
    assert " tini " in " ".join(inherited(target, "RUN"))
    assert "PATH=/opt/longdoc/bin:$PATH" in " ".join(inherited(target, "ENV"))


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_holds_no_compiler_and_no_cache_of_packages(target: str) -> None:
    for run in inherited(target, "RUN"):
        assert "pip " not in run
        assert ("apt-get install" in run) == ("rm -rf /var/lib/apt/lists/*" in run)
        assert "--no-install-recommends" in run
        assert "g++" not in run
    assert "PIP_NO_CACHE_DIR=1" in " ".join(STAGES["environment"].all_of("ENV"))
    assert set(inherited(target, "COPY")) == {f"--from=build-{target} /opt/longdoc /opt/longdoc"}


def test_the_folder_of_models_belongs_to_the_user_who_runs() -> None:
    cache = re.search(r"LONGDOC_CACHE=(\S+)", " ".join(inherited("cpu", "ENV")))[1]
    assert re.search(rf"install --directory --owner=longdoc [^&]*{cache}", " ".join(inherited("cpu", "RUN")))
    assert any("LONGDOC_CACHE" in path.read_text() for path in (ROOT / "connectors").glob("*.py"))


def docker_lines(text: str) -> list[list[str]]:
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [shlex.split(found[1], comments=True) for line in lines if (found := re.match(r"^[#\s]*(docker .*)$", line))]


@pytest.mark.parametrize("page", PAGES)
def test_documented_images_are_built_from_targets_that_exist(page: str) -> None:
    for words in docker_lines(PAGES[page]):
        if words[1] == "build":
            target = words[words.index("--target") + 1] if "--target" in words else "cpu"
            assert words[words.index("--tag") + 1] == f"longdoc:{target}"
            assert target in TARGETS
            for argument in (words[at + 1] for at, word in enumerate(words) if word == "--build-arg"):
                assert re.search(rf"^ARG {argument.partition('=')[0]}=", DOCKERFILE, re.MULTILINE), argument


@pytest.mark.parametrize("page", PAGES)
def test_documented_containers_run_commands_that_exist(page: str) -> None:
    for words in docker_lines(PAGES[page]):
        if words[1] != "run":
            continue
        (place,) = [at for at, word in enumerate(words) if word.startswith("longdoc:")]
        assert words[place].removeprefix("longdoc:") in TARGETS
        if "--entrypoint" in words:
            assert words[words.index("--entrypoint") + 1] == "ray"
            check_ray(words[place + 1 :])
        else:
            check_command(words[place + 1 :])


def check_ray(arguments: list[str]) -> None:
    from ray.scripts.scripts import start

    assert arguments[0] == "start"
    start.make_context("start", arguments[1:])
