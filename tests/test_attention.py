"""Attention as a clip site: found, exchanged, clipped; against explicit arithmetic, torch's kernels and autograd."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from networks import fingerprint, pictures, small_cnn, tiny_transformer
from torch import nn
from torch.nn import functional as F

import fei
from fei.bench.plan import parse_plan
from fei.bench.plan.catalog import Catalog
from fei.core.attention import attend, even_share, find_attention
from fei.core.clipgrad import get_rule
from fei.core.dataflow import trace
from fei.core.pathway import Pathway, visit_sites
from fei.core.settings import as_stored
from fei.core.sites import AttentionSite, find_sites
from fei.errors import InputError, ModelError
from fei.service.record import _missed

WAYS = ["softmax", "einsum", "transposed", "fused", "module", "module, weights"]


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def attention_of(model, x=None):
    return find_attention(model, trace(model, pictures(1) if x is None else x)[0])


def small_sites(model, select):
    return find_sites(model, trace(model, pictures(1))[0], select)


# --- found


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_compute_attention_is_found(way):
    model = tiny_transformer(way=way)
    sites = small_sites(model, "attention")
    assert len(sites) == 2
    assert all(isinstance(site, AttentionSite) for site in sites)
    assert [site.name.split(":")[0].removesuffix(".mha") for site in sites] == ["blocks.0", "blocks.1"]
    assert [site.units for site in sites] == [2 * 13 * 13] * 2
    seen = {}
    x = pictures(2)
    with torch.no_grad():
        output = visit_sites(model, sites, x, lambda i, pattern: seen.update({i: pattern}))
        torch.testing.assert_close(output, model(x))
        for i, pattern in seen.items():
            assert pattern.shape[-1] == 13
            torch.testing.assert_close(pattern.sum(-1), torch.ones(pattern.shape[:-1]))
            plain = tiny_transformer(way="softmax")
            by_hand = {}
            hook = plain.blocks[i].norm1.register_forward_hook(lambda m, args, out: by_hand.update(value=out))  # noqa: B023
            plain(x)
            hook.remove()
            mha = plain.blocks[i].mha
            qkv = F.linear(by_hand["value"], mha.in_proj_weight, mha.in_proj_bias).unflatten(-1, (3, 2, 4))
            expected = (torch.einsum("bihd,bjhd->bhij", qkv[:, :, 0], qkv[:, :, 1]) / 2).softmax(-1)
            torch.testing.assert_close(pattern.reshape(expected.shape), expected)


class Around(nn.Module):
    """Something between tokens (1, 12, 8) of an image and four logits."""

    def __init__(self, inside):
        super().__init__()
        self.embed, self.head, self.inside = nn.Conv2d(3, 8, 4, stride=4), nn.Linear(8, 4), inside
        self.weight = nn.Parameter(drawn(12, 8, dtype=torch.float32))
        self.mix = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.inside(self, self.embed(x).flatten(2).transpose(1, 2)).mean(1))


def talking_heads(self, x):
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    pattern = (heads @ heads.mT).softmax(-1)
    pattern = self.mix(pattern.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return (pattern @ heads).transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    ("inside", "count"),
    [
        (talking_heads, 1),
        (lambda self, x: ((x @ x.mT).float().softmax(2).to(x.dtype).unsqueeze(1) @ x.unsqueeze(1)).squeeze(1), 1),
        (lambda self, x: (x[:, :1] @ x.mT).softmax(-1) @ x, 1),  # a class token that asks
        (lambda self, x: F.scaled_dot_product_attention(query=x, key=x, value=x), 1),
        (lambda self, x: (x @ x.mT).softmax(-2) @ x, 0),  # over the queries
        (lambda self, x: x * x.softmax(-1), 0),  # a gate
        (lambda self, x: (x.unflatten(-1, (2, 4)).softmax(2) * x.unflatten(-1, (2, 4))).flatten(2), 0),  # split
        (lambda self, x: (x @ self.weight.T).softmax(-1) @ self.weight, 0),  # weights that are looked up
        (lambda self, x: (x.mT @ x.sum(-1, keepdim=True).mT.softmax(-1).unsqueeze(3).squeeze(1)).mT, 0),  # pooling
    ],
)
def test_a_softmax_is_attention_if_it_mixes_values_of_the_image(inside, count):
    assert len(attention_of(Around(inside).eval()).reached) == count


def test_a_classifiers_softmax_is_none():
    model = nn.Sequential(small_cnn(), nn.Softmax(-1)).eval()
    assert attention_of(model) == ([], 0, 0)


def over_channels(self, x):
    channels = x.mT.unflatten(1, (2, 4))  # (1, heads, 4 channels, 12 tokens)
    pattern = (F.normalize(channels, dim=-1) @ F.normalize(channels, dim=-1).mT).softmax(-1)
    return (pattern @ channels).flatten(1, 2).mT


def test_attention_over_channels_is_said_to_be_none_over_tokens():
    model = Around(over_channels).eval()
    assert attention_of(model) == ([], 1, 0)
    result = fei.FEI(model, "vm", steps=1, quantiles=(0.5,), sites="activation+attention").explain(pictures(1))
    assert [site["name"] for site in result.config["sites"]] == ["embed"]
    assert result.config["notes"] == [
        "1 of 1 attention layers have no token attention (they weigh channels), so they are not clipped"
    ]
    assert result.config["attention"] == {"reached": 0, "over_channels": 1, "hidden": 0}
    with pytest.raises(ModelError, match=r"no attention between tokens \(1 of 1 attention layers have no token"):
        fei.FEI(model, "vm", sites="attention").explain(pictures(1))


# --- cannot be reached


class ScriptedAttention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.matmul(x, x.transpose(1, 2)), -1) @ x


def test_scripted_attention_is_said_not_to_be_reached():
    model = tiny_transformer(way="fused")
    model.blocks[1].scripted = torch.jit.script(ScriptedAttention().eval())
    model.blocks[1].attention = lambda x: model.blocks[1].scripted(x)
    found = attention_of(model)
    assert (len(found.reached), found.hidden) == (1, 1)
    hidden = pytest.warns(UserWarning, match="1 of 2 attention layers cannot be reached")
    with hidden, pytest.warns(UserWarning, match="scripted or foreign code"):
        result = fei.FEI(model, "vm", steps=1, quantiles=(0.5,), sites="auto+attention").explain(pictures(1))
    assert result.config["attention"] == {"reached": 1, "over_channels": 0, "hidden": 1}
    assert (
        "1 of 2 attention layers cannot be reached (scripted or fused code, or no gradient), so they are not clipped"
        in result.config["notes"]
    )


def test_attention_without_a_gradient_is_said_not_to_be_reached():
    def inside(self, x):
        with torch.no_grad():
            pattern = (x @ x.mT).softmax(-1)
        return pattern @ x

    model = Around(inside).eval()
    assert attention_of(model)[1:] == (0, 1)
    with pytest.raises(
        ModelError, match=r"the network shows no attention between tokens \(1 of 1 attention layers can"
    ):
        fei.FEI(model, "vm", sites="attention").explain(pictures(1))


@pytest.mark.parametrize(
    ("sites", "sought"), [("attention", "attention between tokens;"), ("mlp", "attention, and so")]
)
def test_a_network_without_attention_has_no_such_sites(sites, sought):
    with pytest.raises(ModelError, match=f"the network shows no {sought}"):
        fei.FEI(small_cnn(), "vm", sites=sites).explain(pictures(1))


def test_images_of_another_size_than_the_positions_are_refused_in_a_sentence():
    with pytest.raises(
        ModelError, match=r"The model failed on an input of shape \(1, 3, 16, 16\) .*; pass what it takes"
    ):
        fei.FEI(tiny_transformer(), "vm").explain(pictures(1, (16, 16)))


# --- exchanged


MASKS = {
    "none": {},
    "of numbers": {"attn_mask": drawn(4, 7, 5)},
    "of truth values": {"attn_mask": drawn(2, 1, 7, 5, seed=1) > -0.5},
    "that leaves a row nothing": {"attn_mask": (torch.arange(7) != 2)[:, None].expand(7, 5)},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("dtype", "close"),
    [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)],
)
def test_explicit_attention_is_the_fused_one(mask, dtype, close):
    q, k, v = drawn(2, 4, 7, 8).to(dtype), drawn(2, 4, 5, 8, seed=1).to(dtype), drawn(2, 4, 5, 8, seed=2).to(dtype)
    options = {
        name: value.to(dtype) if torch.is_tensor(value) and value.dtype != torch.bool else value
        for name, value in MASKS[mask].items()
    }
    found, pattern = attend(q, k, v, **options)
    expected = F.scaled_dot_product_attention(q, k, v, **options)
    assert found.dtype == expected.dtype
    assert pattern.shape == (2, 4, 7, 5)
    assert ((found - expected).double().norm() / expected.double().norm()).item() < close


def test_grouped_heads_share_their_keys():
    q, k, v = drawn(2, 4, 7, 8), drawn(2, 2, 5, 8, seed=1), drawn(2, 2, 5, 8, seed=2)
    found, _ = attend(q, k, v, enable_gqa=True)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(q, k, v, enable_gqa=True))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_a_multi_head_attention_that_is_looked_into_gives_what_it_gave(weights, masked):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mha = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True, kdim=6, vdim=5).eval()
    options = {"attn_mask": drawn(3, 4, dtype=torch.float32)} if masked else {}
    options |= {"key_padding_mask": torch.tensor([[0.0, -torch.inf, 0.0, 0.0]] * 2)} if masked else {}

    class Net(nn.Module):
        def forward(self, x):
            parts = x.flatten(1).unfold(1, 32, 32)  # (2, 3, 32)
            key = x.flatten(1)[:, :24].unflatten(1, (4, 6))
            value = x.flatten(1)[:, :20].unflatten(1, (4, 5))
            return mha(parts[..., :8], key, value, need_weights=weights, **options)[0].mean(1)

    net, x = Net().eval(), drawn(2, 3, 4, 8, dtype=torch.float32)
    sites = find_sites(net, trace(net, x)[0], "attention")
    assert len(sites) == 1
    leaf = x.clone().requires_grad_()
    seen = []
    output = visit_sites(net, sites, leaf, lambda _, pattern: seen.append(pattern))
    torch.testing.assert_close(output, net(x), rtol=1e-6, atol=1e-7)
    assert seen[0].shape[-1] == 6  # four keys, a bias and a zero


# --- clipped


class Held(torch.autograd.Function):
    """The identity; what comes back is clipped against two patterns, as the table of rules says it."""

    @staticmethod
    def forward(ctx, pattern, original, rule):
        ctx.original, ctx.rule = original, rule
        ctx.save_for_backward(pattern.detach())
        return pattern.clone()

    @staticmethod
    def backward(ctx, rho):
        (now,) = ctx.saved_tensors
        keys = ctx.original.shape[-1]
        up, down = rho.clamp(min=0), rho.clamp(max=0)
        may_rise = ctx.original > 1 / keys if "b" in ctx.rule else ctx.original >= now
        blocked_up, blocked_down = ctx.rule[0] in "vbi", ctx.rule[0] in "vba"
        kept_up = torch.where(may_rise, up, 0) if blocked_up else up
        kept_down = torch.where(~may_rise, down, 0) if blocked_down else down
        return kept_up + kept_down, None, None


def by_hand(model, x, originals, rule):
    """A TinyTransformer in explicit arithmetic, its patterns clipped; without originals they are noted."""
    noted = []
    x = model.embed(x).flatten(2).transpose(1, 2)
    x = torch.cat([model.class_token.expand(len(x), -1, -1), x], 1) + model.positions
    for number, block in enumerate(model.blocks):
        y = block.norm1(x)
        qkv = (y @ block.mha.in_proj_weight.T + block.mha.in_proj_bias).reshape(len(y), 13, 3, 2, 4)
        out = []
        for head in range(2):
            q, k, v = (qkv[:, :, i, head] for i in range(3))
            pattern = (q @ k.transpose(1, 2) / 4**0.5).softmax(-1)
            if originals is not None:
                pattern = Held.apply(pattern, originals[number][head], rule)
            out.append(pattern @ v)
            noted.append(pattern.detach())
        x = x + block.mha.out_proj(torch.cat(out, -1))
        x = x + block.down(F.gelu(block.up(block.norm2(x))))
    return model.head(model.norm(x)[:, 0]), [noted[:2], noted[2:]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", ["vm", "ivm", "avm", "bm", "ibm", "abm"])
def test_gradients_clipped_at_the_patterns_by_hand(way, rule):
    model = tiny_transformer(way=way).double()
    image, perturbed = pictures(2).double(), pictures(2, seed=1).double()
    _, originals = by_hand(model, image, None, rule)
    leaf = perturbed.clone().requires_grad_()
    expected_output, _ = by_hand(model, leaf, originals, rule)
    (expected,) = torch.autograd.grad(expected_output.softmax(1)[:, 1].sum(), leaf)

    before = fingerprint(model)
    pathway = Pathway(model, find_sites(model, trace(model, image[:1])[0], "attention"), get_rule(rule))
    pathway.record(image)
    leaf = perturbed.clone().requires_grad_()
    shares = {}
    output = pathway.run(leaf, shares)
    (found,) = torch.autograd.grad(output.softmax(1)[:, 1].sum(), leaf)
    torch.testing.assert_close(output, expected_output)
    torch.testing.assert_close(found, expected)
    assert fingerprint(model) == before
    assert 0 < torch.stack(list(shares.values())).mean() < 1
    (plain,) = torch.autograd.grad(model(leaf).softmax(1)[:, 1].sum(), leaf)
    assert not torch.allclose(found, plain)


def test_the_even_share_counts_the_keys_a_row_may_attend_to():
    logits = torch.zeros(5, 4)
    logits[1, 0] = -torch.inf
    logits[2, :2] = -100.0  # Swin's mask
    logits[3, 0] = 5.0  # a sharp row still has four keys
    logits[4] = torch.tensor([-100.0, -100.0, -100.0, -100.0])  # equal, so all four are attended to
    assert even_share(logits.softmax(-1)).flatten().tolist() == pytest.approx([1 / 4, 1 / 3, 1 / 2, 1 / 4, 1 / 4])


class Windows(nn.Module):
    """Attention in two windows of 6 tokens, of which the last key of the second window is masked, as in Swin."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 8, 4, stride=4), nn.Linear(8, 4)
        mask = torch.zeros(2, 6, 6)
        mask[1, :, -1] = -100
        self.register_buffer("mask", mask)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        windows = x.reshape(-1, 6, 8)
        scores = (windows @ windows.mT).unflatten(0, (-1, 2)) + self.mask
        return self.head((scores.flatten(0, 1).softmax(-1) @ windows).reshape(x.shape).mean(1))


def test_windows_are_clipped_row_by_row():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Windows().eval()
    (site,) = find_sites(model, trace(model, pictures(1))[0], "attention")
    assert site.units == 2 * 6 * 6
    visit_sites(model, [site], pictures(1), lambda _, pattern: pattern.shape[-1] == 6 or pytest.fail("six keys"))
    result = fei.FEI(model, "ibm", steps=2, quantiles=(0.3, 0.6), sites="attention").explain(pictures(2))
    assert result.trace.clipped[site.name].shape == (2, 2)
    pathway = Pathway(model, [site], get_rule("bm"))
    pathway.record(pictures(2))
    kept = pathway._kept[0].unflatten(0, (2, 2))
    patterns = []
    visit_sites(model, [site], pictures(2), lambda _, pattern: patterns.append(pattern.detach().unflatten(0, (2, 2))))
    even = torch.tensor([1 / 6, 1 / 5]).view(1, 2, 1, 1)
    assert torch.equal(kept > 0, patterns[0] > even)


# --- sites by word


def test_a_network_without_attention_has_the_sites_it_had():
    model = small_cnn()
    assert small_sites(model, "auto") == small_sites(model, "activation")
    assert [site.name for site in small_sites(model, "auto")] == ["2", "5"]
    settings = fei.FEI(model, "vm", steps=1).explain(pictures(1)).config["settings"]
    assert settings["sites"] == "activation"  # the word that results from before have
    assert fei.FEI(model).config["sites"] == "auto"
    assert as_stored({"sites": "auto"}, attends=True) == {"sites": "auto"}
    assert as_stored({"sites": "conv"}, attends=False) == {"sites": "conv"}


@pytest.mark.parametrize("gated", [False, True])
def test_words_for_the_parts_of_a_transformer(gated):
    model = tiny_transformer(way="fused", gated=gated)
    of = {
        word: [site.name for site in small_sites(model, word)] for word in ("activation", "attention", "mlp", "block")
    }
    assert of["activation"] == ["embed"]
    assert of["attention"] == [f"blocks.{i}:scaled_dot_product_attention" for i in range(2)]
    assert of["mlp"] == ["blocks.0.act", "blocks.1.act"]  # of a gated one the gate: SiLU's own output
    assert [name.split(":")[0] for name in of["block"]] == ["blocks.0", "blocks.1"]
    both = small_sites(model, "mlp+attention")
    assert [site.index for site in both] == [0, 1, 2, 3]
    assert [isinstance(site, AttentionSite) for site in both] == [True, False, True, False]
    with pytest.raises(InputError, match=r"Unknown sites 'mlp\+x'"):
        fei.FEI(model, sites="mlp+x")


@pytest.mark.parametrize("sites", ["auto", "attention", "mlp", "block", "first:1/2", "last:1/2"])
@pytest.mark.parametrize("way", ["fused", "module"])
def test_a_transformer_is_explained_and_left_as_it_was(sites, way):
    model = tiny_transformer(way=way)
    before = fingerprint(model)
    result = fei.FEI(model, sites=sites, steps=2, quantiles=(0.3, 0.7)).explain(pictures(2), evidence=False)
    assert result.maps.std() > 0
    assert len(result.trace.clipped) == len(result.config["sites"])
    assert fingerprint(model) == before
    assert result.config["settings"]["sites"] == sites


def test_a_caption_says_what_was_not_reached():
    def told(**config):
        return _missed(SimpleNamespace(explanation=SimpleNamespace(config=config)))

    assert told(attention={"reached": 9, "over_channels": 0, "hidden": 3}) == ["3 of 12 attention layers not reached"]
    assert told(attention={"reached": 2, "over_channels": 12, "hidden": 0}) == told() == []
    assert _missed(SimpleNamespace(explanation=None)) == []


NETWORKS_FILE = """
import sys
sys.path.insert(0, {tests!r})
from networks import small_cnn, tiny_transformer

def described(net):
    net.input_size, net.labels = 16, ["a", "b", "c", "d"]
    return net

def cnn():
    return described(small_cnn())

def transformer():
    return described(tiny_transformer(size=(16, 16)))
"""


def test_only_on_a_transformer_has_the_default_another_key_than_convolutions_alone(tmp_path):
    file = tmp_path / "made.py"
    file.write_text(NETWORKS_FILE.format(tests=str(Path(__file__).parent)), encoding="utf-8")
    plan = parse_plan(
        f'name = "x"\n[[pairs]]\nmodel = "{file.as_posix()}:cnn"\n[[pairs]]\nmodel = "{file.as_posix()}:transformer"\n'
        '[[methods]]\nname = "fei-vm"\n[[methods]]\nname = "fei-vm"\nlabel = "x"\noptions = { sites = "activation" }\n'
        "[black_image]\ntrials = 1\n"
    )
    catalog = Catalog(plan)
    assert [(network.problem, network.attends) for network in catalog.networks] == [(None, False), (None, True)]
    on_cnn, on_transformer = ([e.unit.key for e in catalog.entries() if e.unit.pair == pair] for pair in (0, 1))
    assert on_cnn[0] == on_cnn[1]
    assert on_transformer[0] != on_transformer[1]
