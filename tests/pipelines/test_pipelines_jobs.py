"""The jobs as functions: what they hand to the run beside what a caller names."""

from longdoc.records import Selection
from pipelines import repositories


def test_a_commit_that_the_output_holds_is_asked_for_before_a_repository_is_opened(tmp_path, monkeypatch) -> None:
    handed: list[Selection] = []
    monkeypatch.setattr(repositories, "open_sources", lambda names, selection: handed.append(selection) or [])
    monkeypatch.setattr(repositories, "run_job", lambda config, sources, reporter: None)
    monkeypatch.setattr(
        repositories, "KnownCommits", lambda output: lambda doc_id, commit_id: 17 if output == "out" else None
    )
    repositories.index_repositories(["a"], "out", model="tiny-random", device="cpu")
    assert handed[0].known("git:a", "c") == 17
