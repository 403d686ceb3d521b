"""Properties of what needs a transformer: methods, dropped tokens, and what is measured inside."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import pictures
from strategies import FLOATS, attempt, covers, examples, filled, seeds, undisturbed
from test_methods import FOR_TRANSFORMERS
from tiny_vit import tiny_vit

import fei
from fei.core.tokens import Grid
from fei.errors import FEIError
from fei.metrics.similarity import measures, similarity, tokens_apart

pytestmark = pytest.mark.slow
# torch's own backward pass of a strided convolution in bfloat16 needs instructions that not every processor has
SOUND = [dtype for dtype in FLOATS if dtype != torch.bfloat16]


@st.composite
def transformers(draw, dtype=torch.float32):
    return tiny_vit(
        draw(st.integers(0, 99)),
        draw(st.sampled_from([2, 5, 1000])),
        draw(st.sampled_from(["class", "mean"])),
        draw(st.booleans()),
        draw(st.integers(1, 3)),
        dtype=dtype,
    )


@examples(25)
@given(
    name=st.sampled_from(sorted(FOR_TRANSFORMERS)), net=transformers(), seed=seeds, target=st.none() | st.integers(0, 1)
)
def test_methods_on_any_transformer(name, net, seed, target):
    x = pictures(2, seed=seed % 1000)
    method = fei.methods.create(name)
    with undisturbed(net, x), torch.no_grad():
        maps = method(net, x, target)
    assert maps.shape == (2, 1, 12, 16)
    assert maps.isfinite().all()
    if name in ("attention-rollout", "generic-attention", "legrad"):
        assert (maps >= 0).all()
    torch.testing.assert_close(method(net, x.flip(0), target).flip(0), maps, rtol=1e-3, atol=1e-4)


@examples(10)
@given(
    name=st.sampled_from(sorted(FOR_TRANSFORMERS)),
    dtype=st.sampled_from(SOUND),
    kind=st.sampled_from(["huge", "zero"]),
)
def test_methods_on_any_precision_and_extreme_images(name, dtype, kind):
    net, x = tiny_vit(dtype=dtype), filled((1, 3, 12, 16), kind, 1, dtype)
    maps = attempt(lambda: fei.methods.create(name)(net, x))
    if isinstance(maps, FEIError):
        assert kind == "huge"
    else:
        assert maps.isfinite().all()
        assert maps.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@covers("metrics.attention_divergence")
@examples(15)
@given(
    net=transformers(),
    seed=seeds,
    kind=st.sampled_from(["uniform", "normal", "constant"]),
    rows=st.sampled_from([None, 1, 3]),
)
def test_divergence_of_attention(net, seed, kind, rows):
    x, maps = pictures(2, seed=seed % 1000), filled((2, 1, 12, 16), kind, seed)
    with undisturbed(net, x, maps):
        found = fei.metrics.attention_divergence(net, x, maps, batch_size=rows)
    assert len(found) == len(net.blocks)
    for one in found.values():
        for values in (one.kept, one.cls) if net.pool == "class" else (one.kept,):
            assert values.shape == (2, 2)
            assert ((values >= -1e-9) & (values <= math.log(2) + 1e-9)).all()
    alone = fei.metrics.attention_divergence(net, x[1:], maps[1:])
    for name, one in alone.items():
        torch.testing.assert_close(one.kept, found[name].kept[1:], rtol=1e-3, atol=1e-6)


@examples(15)
@given(net=transformers(), seed=seeds, kind=st.sampled_from(["uniform", "normal", "constant"]))
def test_dropped_tokens(net, seed, kind):
    x, maps = pictures(2, seed=seed % 1000), filled((2, 1, 12, 16), kind, seed)
    with undisturbed(net, x, maps):
        found = fei.metrics.evaluate(net, x, maps, protocol="token-drop")
    assert ((found.insertion.scores >= 0) & (found.insertion.scores <= 1 + 1e-6)).all()
    # only the order of patches counts, and the image's own rows
    again = fei.metrics.insertion(net, x[1:], 3 * maps[1:] + 1, found.target[1:], protocol="token-drop", batch_size=1)
    torch.testing.assert_close(again.scores, found.insertion.scores[1:], rtol=1e-3, atol=1e-5)


@covers("metrics.similarity.measures", "metrics.similarity.tokens_apart")
@examples(20)
@given(
    rows=st.integers(1, 3),
    others=st.integers(0, 3),
    first=st.booleans(),
    relevance=st.booleans(),
    kind=st.sampled_from(["uniform", "normal", "zero", "huge"]),
    seed=seeds,
)
def test_tokens_apart(rows, others, first, relevance, kind, seed):
    grid = Grid(2, 3, "tokens", others if first else 0, 6 + others)
    original, perturbed = filled((6 + others, 4), kind, seed), filled((rows, 6 + others, 4), kind, seed + 1)
    found = tokens_apart(original, perturbed, grid)
    assert set(measures(relevance, grid)) == {*measures(relevance, None), *found}
    assert ("cls_mse" in found) == (others > 0)
    assert all(values.shape == (rows,) for values in found.values())
    if not others:
        whole = similarity(original, perturbed)
        torch.testing.assert_close(found["patch_mse"], whole.mse)
        torch.testing.assert_close(found["patch_cosine"], whole.cosine)
    same = tokens_apart(original, original.expand(rows, -1, -1), grid)
    assert all((values == 0).all() for name, values in same.items() if name.endswith("mse"))
