"""What property tests draw: tensors of all shapes, types and layouts, and networks of all kinds; and how often.

The examples are few and always the same. ``FEI_EXAMPLES=10`` draws ten times as many, other ones in each run.
"""

import os
import random
from contextlib import contextmanager

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from networks import fingerprint, varied_cnn

from fei.errors import FEIError

MULTIPLE = int(os.environ.get("FEI_EXAMPLES", "1"))

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LAYOUTS = ("contiguous", "channels last", "strided", "transposed", "offset", "inference", "leaf")
KINDS = ("uniform", "normal", "ties", "constant", "zero", "huge", "tiny", "spike")
SIZES = ((1, 1), (1, 9), (2, 2), (5, 3), (7, 13), (8, 8), (11, 16))

seeds = st.integers(0, 2**32 - 1)


def examples(count):
    """Settings of a test that draws so many examples."""
    return settings(
        max_examples=count * MULTIPLE,
        derandomize=MULTIPLE == 1,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


def covers(*names):
    """Say which public functions a property test is about; see test_properties_registry.py."""

    def mark(test):
        test.covers = names
        return test

    return mark


def filled(shape, kind, seed, dtype=torch.float32):
    """A finite tensor of one kind of values."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    values = {
        "uniform": lambda: uniform,
        "normal": lambda: torch.randn(shape, generator=generator, dtype=torch.float64),
        "ties": lambda: (uniform * 3).floor() - 1,
        "constant": lambda: torch.full(shape, seed % 7 - 3.0, dtype=torch.float64),
        "zero": lambda: torch.zeros(shape, dtype=torch.float64),
        "huge": lambda: (2 * uniform - 1) * torch.finfo(dtype).max,
        "tiny": lambda: (2 * uniform - 1) * torch.finfo(dtype).tiny,
        "spike": lambda: (uniform == uniform.max()).double() * 1e4 if uniform.numel() else uniform,
    }[kind]()
    return values.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype)


def laid_out(tensor, layout):
    """The same values elsewhere in memory, or with another past."""
    if layout == "channels last":
        return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
    if layout == "strided" and tensor.ndim:
        wide = tensor.new_zeros(*tensor.shape[:-1], 2 * tensor.shape[-1] + 1)
        wide[..., 1::2] = tensor
        return wide[..., 1::2]
    if layout == "transposed" and tensor.ndim > 1:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "offset":
        memory = tensor.new_zeros(tensor.numel() + 3)
        return memory[3:].view(tensor.shape).copy_(tensor)
    if layout == "inference":
        with torch.inference_mode():
            return tensor.clone()
    if layout == "leaf" and tensor.is_floating_point():
        return tensor.clone().requires_grad_()
    return tensor.clone()


@st.composite
def map_batches(draw, kinds=KINDS, dtypes=FLOATS, sizes=SIZES):
    """Maps (N, 1, H, W)."""
    shape = (draw(st.integers(1, 3)), 1, *draw(st.sampled_from(sizes)))
    return filled(shape, draw(st.sampled_from(kinds)), draw(seeds), draw(st.sampled_from(dtypes)))


@st.composite
def networks(draw, **fixed):
    """Small networks in evaluation mode that differ in all that matters to whoever looks into them."""
    options = {
        "channels": draw(st.sampled_from([1, 3, 4])),
        "classes": draw(st.sampled_from([2, 3, 10, 1000])),
        "norm": draw(st.booleans()),
        "inplace": draw(st.booleans()),
        "residual": draw(st.booleans()),
        "functional": draw(st.booleans()),
        "stride": draw(st.sampled_from([1, 2])),
        "output": draw(st.sampled_from(["tensor", "record", "model output"])),
        "seed": draw(st.integers(0, 99)),
    }
    return varied_cnn(**(options | fixed))


def images_for(network, size, count=1, seed=0, dtype=torch.float32):
    """Random images in [0, 1] that a drawn network takes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, network.channels, *size, generator=generator).to(dtype)


def attempt(call):
    """What a call returns, or the `FEIError` it raises, which is one sentence; any other error is a failure."""
    try:
        return call()
    except FEIError as error:
        refusal = error
    assert str(refusal)
    assert "\n" not in str(refusal)
    return refusal


@contextmanager
def undisturbed(model=None, *tensors):
    """Nothing that a caller could notice may change within the block."""
    before = None if model is None else fingerprint(model)
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads()
    kept = [(t, t.detach().clone(), t.requires_grad, t.grad) for t in tensors]
    yield
    assert modes == (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads())
    assert before is None or fingerprint(model) == before
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    assert random.getstate() == states[2]
    for tensor, values, wants, gradient in kept:
        assert torch.equal(tensor.detach().nan_to_num(), values.nan_to_num())
        assert (tensor.requires_grad, tensor.grad) == (wants, gradient)
