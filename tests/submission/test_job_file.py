"""The job file says what was chosen: what is written is what is read."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longdoc.config import read_job_file
from longdoc.errors import StartError
from longdoc.submission.job_file import job_file

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


@given(TEXTS, st.lists(TEXTS), st.booleans(), st.integers(-(2**63), 2**63 - 1))
def test_any_option_reads_as_it_was(text, texts, flag, number) -> None:
    options = {"output": text, "sources": texts, "text": flag, "span_tokens": number, "revision": None}
    read = tomllib.loads(job_file(options).decode())
    assert read == {"output": text, "sources": texts, "text": flag, "span-tokens": number}


def test_the_run_reads_it(tmp_path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(job_file({"sources": ("a", "b"), "ring_size": "auto", "retry_quarantine": True}))
    assert read_job_file(path) == {"sources": ["a", "b"], "ring_size": "auto", "retry_quarantine": True}


def test_a_text_that_is_not_utf_8_is_refused_by_its_option() -> None:
    with pytest.raises(StartError, match=r"sources /shared/b\\xff.txt is not UTF-8, and job files are"):
        job_file({"sources": ["/shared/b\udcff.txt"]})
