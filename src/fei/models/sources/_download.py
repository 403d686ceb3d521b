"""Weights from the internet: looked for on this machine first, verified, and a clear error where they cannot be had."""

import hashlib
import re
import ssl
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlparse

import torch

from fei.common.words import in_brief
from fei.errors import InputError, ModelError

# Longer than a slow connection needs to answer; the libraries that download would try for minutes.
_PATIENCE = 15.0


def fetch_url(url: str) -> Path:
    """A file of weights in torch's cache, downloaded if it is not there yet, and verified.

    If its name ends in "-HASH.ending", as torch's files do, its SHA-256 must begin with it. One that cannot be
    downloaded, or is not what its name says, is a ModelError.
    """
    name = Path(urlparse(url).path).name
    file = Path(torch.hub.get_dir()) / "checkpoints" / name
    match = re.search(r"-([0-9a-f]{8,})\.", name)
    digest = match and match[1]

    def download() -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        shown = sys.stderr is not None and sys.stderr.isatty()
        torch.hub.download_url_to_file(url, str(file), digest, progress=shown)
        return file

    if not file.is_file():
        advice = f"download them elsewhere and put them at {file}"
        _download(url, download, f"The weights '{name}' are not on this machine", advice)
    if digest is not None:
        with file.open("rb") as stream:
            if not hashlib.file_digest(stream, "sha256").hexdigest().startswith(digest):
                wrong = f"The file {file} is not what its name says, as its SHA-256 does not begin with {digest}"
                raise ModelError(f"{wrong}; delete it, and download it again from {url}.")
    return file


def fetch_from_hub(repository: str, names: Sequence[str], *, advice: str) -> Path:
    """A file of a Hugging Face repository, from its cache, downloaded if it is not there yet.

    Of several names the first that exists is taken. The hub's own client verifies the file. The advice ends the
    sentence of the ModelError where it cannot be downloaded.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    def find(*, locally: bool) -> Path:
        *others, last = names
        for name in others:
            with suppress(EntryNotFoundError):
                return Path(hf_hub_download(repository, name, local_files_only=locally))
        return Path(hf_hub_download(repository, last, local_files_only=locally))

    with suppress(EntryNotFoundError):
        return find(locally=True)
    return _from_hub(repository, names[0], lambda: find(locally=False), advice)


def fetch_folder_from_hub(repository: str, patterns: Sequence[str], *, needed: str, advice: str) -> Path:
    """The files of a Hugging Face repository that match patterns, as a folder in its cache; see `fetch_from_hub`.

    Without a file of the needed pattern the folder in the cache is incomplete, and is downloaded again. A repository
    that does not exist is an InputError.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

    def find(*, locally: bool) -> Path:
        try:
            return Path(snapshot_download(repository, allow_patterns=list(patterns), local_files_only=locally))
        except (HFValidationError, RepositoryNotFoundError) as error:
            wrong = f"'{repository}' is neither a folder here nor a model of Hugging Face"
            raise InputError(f"{wrong}; check the path or the name.") from error

    with suppress(LocalEntryNotFoundError):
        folder = find(locally=True)
        if any(folder.glob(needed)):
            return folder
    return _from_hub(repository, needed.replace("*", ""), lambda: find(locally=False), advice)


def unreachable(url: str) -> str | None:
    """Why an address does not answer, in a few words; None if it does, even if only to refuse."""
    answers: list[str | None] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=_PATIENCE):  # noqa: S310
                answers.append(None)
        except urllib.error.HTTPError as error:
            answers.append(in_brief(error) if error.code >= 500 else None)
        except urllib.error.URLError as error:  # the downloader decides which certificates it trusts
            answers.append(None if isinstance(error.reason, ssl.SSLError) else in_brief(error))
        except Exception as error:
            answers.append(in_brief(error))

    # In a thread of its own, since neither the lookup of a name nor a list of dead addresses respects the timeout.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return answers[0] if answers else f"no answer within {_PATIENCE:.0f} seconds"


def _from_hub(repository: str, name: str, download: Callable[[], Path], advice: str) -> Path:
    from huggingface_hub import constants

    url = f"{constants.ENDPOINT}/{repository}/resolve/main/{name}"
    absent = f"The file '{name}' of '{repository}' is not in the cache {constants.HF_HUB_CACHE}"
    return _download(url, download, absent, advice)


def _download(url: str, download: Callable[[], Path], absent: str, advice: str) -> Path:
    reason = unreachable(url)
    if reason is None:
        try:
            return download()
        except InputError:
            raise
        except Exception as error:  # no space, no permission, a lost connection, a wrong hash
            reason = in_brief(error)
    raise ModelError(f"{absent} and cannot be downloaded from {url} ({reason}); {advice}.")
