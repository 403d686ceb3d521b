"""What the clip sites of a network cover, and in words what they do not."""

from __future__ import annotations

import warnings

from torch import nn

from fei.core.attention import Attention, find_attention
from fei.core.clipgrad import Rule
from fei.core.dataflow import ACTIVATIONS, Flow
from fei.core.settings import Settings
from fei.core.sites import AttentionSite, Site, SiteSelection, find_sites, kinds_of, unreachable
from fei.errors import ModelError

_SOUGHT = {
    "nonlinearity": "pointwise activation",
    "block": "block with a gradient",
    "attention": "attention between tokens",
    "mlp": "attention, and so no MLP of a transformer",
}


def covered_sites(model: nn.Module, flow: Flow, settings: Settings, rule: Rule) -> tuple[list[Site], list[str]]:
    """The clip sites, and what a reader of the result should know about them.

    Args:
        model: The network.
        flow: Its data flow.
        settings: Which sites are asked for.
        rule: What is clipped; none asks for no sites.

    Raises:
        ModelError: If there is no site.
    """
    if not rule.constrains:
        return [], []
    sites = find_sites(model, flow, settings.sites, settings.residual)
    attention = find_attention(model, flow)
    kinds = kinds_of(settings.sites, model, flow)
    hidden = unreachable(flow)
    if not sites:
        raise _no_site(settings.sites, hidden, _about(attention) if "attention" in kinds else [])
    notes = []
    apart = sum(call.clippable and call.function in ACTIVATIONS for call in flow.calls)
    apart -= sum(site.activation for site in sites)
    if kinds == ["activation"] and isinstance(settings.sites, str) and apart > len(sites):
        better = "'auto'" if attention.between_tokens else "'nonlinearity'"
        notes.append(
            f"only {len(sites)} value(s) are clipped, those of the convolutions, and {apart} activations are not; "
            f"sites={better} clips at the activations"
        )
    if hidden:
        notes.append(f"not covered by clip sites: {'; '.join(hidden)}")
        warnings.warn(notes[-1], stacklevel=7)
    if "attention" in kinds:
        notes += _about(attention)
        if attention.hidden:
            warnings.warn(notes[-1], stacklevel=7)
    linear = sum(not site.activation and not isinstance(site, AttentionSite) for site in sites)
    if rule.binary and linear:
        notes.append(
            f"{linear} of {len(sites)} clip sites have no activation: there a unit counts as inactive where its value "
            "is at most 0"
        )
    return sites, notes


def _about(attention: Attention) -> list[str]:
    """Phrases about the attention layers that are no sites."""
    layers, phrases = attention.layers, []
    if attention.over_channels:
        phrases.append(
            f"{attention.over_channels} of {layers} attention layers have no token attention (they weigh channels), so "
            "they are not clipped"
        )
    if attention.hidden:
        phrases.append(
            f"{attention.hidden} of {layers} attention layers cannot be reached (scripted or fused code, or no "
            "gradient), so they are not clipped"
        )
    return phrases


def _no_site(select: SiteSelection, hidden: list[str], about: list[str]) -> ModelError:
    sought = "site that the predicate keeps" if callable(select) else _SOUGHT.get(str(select), "convolution")
    advice = "pass sites=[module names] or sites='nonlinearity' to say where to clip, or variant='none'"
    if hidden:
        advice = "pass the module it was made from, or variant='none'"
    reasons = [*hidden, *about]
    seen = f" ({'; '.join(reasons)})" if reasons else ""
    return ModelError(f"No clip site was found: the network shows no {sought}{seen}; {advice}.")
