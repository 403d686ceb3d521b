"""Every file, fixture and test has random numbers of its own, whatever ran before it, and in which process."""

import random
import zlib

import pytest
import torch
from hypothesis import register_random

from fei.common.random_state import forked_random_state


class TorchRandom:
    """torch's global generator as Hypothesis wants one: it starts every example from the same state."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


SLOW = "\npytestmark = pytest.mark.slow\n"
# The files that take longest begin first, so that no process ends with one of them while others have nothing to do.
LONGEST = (
    "bench_ray", "serve_browser", "explorer_browser", "benchmarks", "golden", "cli", "real_networks", "serve_load",
    "architectures", "model_structure", "bench_page_browser", "audit_networks", "audit_race", "soak",
    "bench_run", "bombs", "fuzz",
)  # fmt: skip
_TORCH = TorchRandom()  # Hypothesis keeps no more than a weak reference
register_random(_TORCH)


def own_randomness(name):
    """Within the block the global generators start from the name's own state; then they are as before."""
    return forked_random_state(zlib.crc32(name.encode()))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    with own_randomness(collector.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    with own_randomness(f"{fixturedef.argname} {getattr(request, 'param_index', 0)}"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    with own_randomness(pyfuncitem.nodeid):
        return (yield)


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="leave out the files that are marked as slow")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests in each, in random order")


def pytest_ignore_collect(collection_path, config):
    """With --quick, files that are marked as slow are not even imported."""
    if config.getoption("--quick") and collection_path.suffix == ".py":
        return True if SLOW in collection_path.read_text(encoding="utf-8") else None
    return None


def pytest_collection_modifyitems(config, items):
    seed = config.getoption("--shuffle")
    if seed is None:
        places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: (places.get(item.path.stem, len(places)), not item.get_closest_marker("slow")))
    else:
        keys = {name: random.Random(f"{seed} {name}").random() for item in items for name in (item.nodeid, item.path)}
        items.sort(key=lambda item: (keys[item.path], keys[item.nodeid]))
