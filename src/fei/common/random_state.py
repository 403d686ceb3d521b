"""Global random state lent to third-party code that draws from it, and given back."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_lock = threading.RLock()


@contextmanager
def lent_random_state(seed: int) -> Iterator[None]:
    """As `forked_random_state`, for one thread at a time: others that ask for it wait."""
    with _lock, forked_random_state(seed):
        yield


@contextmanager
def forked_random_state(seed: int) -> Iterator[None]:
    """Within the block the global generators of torch, numpy and Python start from `seed`; then they are as before."""
    # a CUDA that nobody has used yet has no state to keep, and seeding it would leave one behind
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    numpy_state, python_state = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
