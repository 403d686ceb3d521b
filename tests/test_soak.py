"""A slice of the soak: a round of mixed work leaves nothing behind, and the soak would see it if it did."""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))

import _soak_jobs
import soak

pytestmark = pytest.mark.slow

FLAT = soak.Sample(0, 0, rss_mb=700, descriptors=13, threads=1, children=1, temporary=0, hooks=0, tensors=300)


@pytest.fixture
def soaking():
    with soak.soaking(seed=1) as started:
        yield started


def counts(sample):
    return {name: getattr(sample, name) for name in soak.COUNTED}


def test_a_round_of_every_kind_of_work_leaves_nothing_behind(soaking):
    _soak_jobs.warm_up(soaking.bench)
    for kind in _soak_jobs.JOBS:
        if kind != "bench-workers":  # processes take seconds to start; one round of them is enough
            soaking.do(kind)
    before = soaking.sample()
    for kind in _soak_jobs.JOBS:
        soaking.do(kind)
    after = soaking.sample()
    assert soaking.failures == []
    assert soaking.litter == []
    assert counts(after) == counts(before)
    assert after.hooks == 0
    assert after.rss_mb < before.rss_mb + 150  # allocators keep a part of what they had; a leak shows over half an hour
    assert set(soaking.done) == set(_soak_jobs.JOBS)


def test_what_a_job_leaves_behind_is_seen(soaking, monkeypatch):
    kept = []

    def leaky(at):
        kept.append(tempfile.NamedTemporaryFile())  # noqa: SIM115
        kept.append(at.tiny.register_forward_hook(lambda *args: None))
        kept.append(at.noise.clone())
        (at.folder / ".result.1").touch()
        raise RuntimeError("no luck")

    monkeypatch.setitem(_soak_jobs.JOBS, "save", leaky)
    before = soaking.sample()
    soaking.do("save")
    after = soaking.sample()
    grown = {name for name in soak.COUNTED if getattr(after, name) > getattr(before, name)}
    assert grown == {"descriptors", "temporary", "hooks", "tensors"}
    assert soaking.litter == ["save: .result.1"]
    assert "no luck" in soaking.failures[0]


def series(**growth):
    """Sixteen samples in half an hour, each quantity growing by so much a sample."""
    return [
        replace(FLAT, seconds=120.0 * i, **{name: getattr(FLAT, name) + by * i for name, by in growth.items()})
        for i in range(16)
    ]


def failed(samples):
    return {name for name, verdict in soak.verdicts(samples).items() if not verdict["passed"]}


def test_flat_and_falling_is_passed():
    assert failed(series()) == set()
    assert failed(series(rss_mb=-2, tensors=0)) == set()


@pytest.mark.parametrize("name", soak.COUNTED)
def test_a_count_that_grows_fails(name):
    assert failed(series(**{name: 1})) == {name}


def test_memory_may_waver_and_must_not_rise():
    wavering = [replace(sample, rss_mb=700 + 20 * (i % 3)) for i, sample in enumerate(series())]
    assert failed(wavering) == set()
    # 4 MB every two minutes are 120 MB an hour
    assert failed(series(rss_mb=4)) == {"rss_mb"}
    assert soak.verdicts(series(rss_mb=4))["rss_mb"]["slope_mb_per_hour"] == pytest.approx(120)


def test_warm_up_is_left_out():
    warming = [
        replace(sample, rss_mb=700 if i >= 4 else 400, tensors=300 if i >= 4 else 9)
        for i, sample in enumerate(series())
    ]
    assert failed(warming) == set()
