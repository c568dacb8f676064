"""What the hub's library raises, as one line with a cause and a next action; and silence while it works.

Never shows the library's own text: it carries addresses, and an address may carry a password.
"""

import contextlib
import logging
from collections.abc import Iterator

from longdoc.errors import ModelError


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no remarks of the library; what was set before is set again."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    logger = logging.getLogger("huggingface_hub")
    level, had_bars = logger.level, not are_progress_bars_disabled()
    logger.setLevel(logging.ERROR)
    disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if had_bars:
            enable_progress_bars()


@contextlib.contextmanager
def explained(asked: str, revision: str | None) -> Iterator[None]:
    """Turn what the library raises into one line with a next action. Never its own text: it carries addresses."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # the library raises its own errors, those of its HTTP library, and plain OSErrors
        if _is_of_the_disk(error):
            raise
        raise ModelError(f"model {asked}: {_why(_causes(error), revision or 'main')}") from None


def _is_of_the_disk(error: Exception) -> bool:
    from huggingface_hub.errors import HfHubHTTPError

    of_the_network = isinstance(error, (HfHubHTTPError, ConnectionError, TimeoutError))
    return isinstance(error, OSError) and error.errno is not None and not of_the_network


def _why(causes: list[BaseException], revision: str | None) -> str:
    from huggingface_hub import errors

    # The first that applies: a gated repository is also one that was not found, in the library's classes.
    answers: list[tuple[type[BaseException], str]] = [
        (errors.HFValidationError, "the hub has no names of this form; check it"),
        (
            errors.GatedRepoError,
            (
                "its makers give it only to those who accepted their terms; accept them on its page of the hub, and "
                "set HF_TOKEN to a token of that account"
            ),
        ),
        (
            errors.RevisionNotFoundError,
            f"the hub has no revision {revision or 'main'} of it; name a branch, a tag or a commit id",
        ),
        (
            errors.RepositoryNotFoundError,
            (
                "the hub has no model of this name, or shows it to some users only; check the name, or set HF_TOKEN "
                "to a token that may read it"
            ),
        ),
        (errors.RemoteEntryNotFoundError, "the hub lists a file that it does not have; try again later"),
    ]
    for kind, answer in answers:
        if any(isinstance(cause, kind) for cause in causes):
            return answer
    for cause in causes:
        if isinstance(cause, errors.HfHubHTTPError):
            return _why_refused(cause.response.status_code)
        if "Consistency check failed" in str(cause):
            return "a file came incomplete; run the same again, what came whole is not fetched again"
    last = type(causes[-1])
    of_the_network = any(
        isinstance(cause, (ConnectionError, TimeoutError)) or type(cause).__module__.startswith("httpx")
        for cause in causes
    )
    trouble = "the hub is out of reach" if of_the_network else "its files cannot be fetched"
    return f"{trouble} ({last.__name__}); check the network, proxies and HF_ENDPOINT, or name a folder with safetensors"


def _why_refused(status: int) -> str:
    if status in (401, 403):
        return "the hub refuses it to this user; set HF_TOKEN to a token that may read it"
    return f"the hub answers with HTTP {status}; try again later, or check HF_ENDPOINT"


def _causes(error: BaseException) -> list[BaseException]:
    found = [error]
    while (cause := found[-1].__cause__ or found[-1].__context__) is not None and cause not in found:
        found.append(cause)
    return found
