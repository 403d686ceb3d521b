"""FEI: faithfulness-guided ensemble interpretation (paper, algorithm 1)."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from fei.common.threads import one_at_a_time
from fei.core.attention import find_attention
from fei.core.checks import check_call, check_finite, default_rows, explained_failure, layout_of, only, underlying
from fei.core.clipgrad import Rule, get_rule
from fei.core.coverage import covered_sites
from fei.core.dataflow import Call, Flow, Value, uncompiled
from fei.core.evidence import Evidence, measure_evidence
from fei.core.explanation import Explanation
from fei.core.focus import Focus, find_focus
from fei.core.folding import FirstPass, first_pass
from fei.core.grouping import collected, groups_of
from fei.core.optimization import Optimization, Watcher
from fei.core.pathway import Pathway, folding_that_holds
from fei.core.randomness import image_digest, seed_of
from fei.core.scoring import Score, Target, check_score, check_target, evaluate, logits_of, named_target
from fei.core.settings import Settings, as_stored, described, make_settings, previewed
from fei.core.sites import SiteSelection, kinds_of
from fei.errors import InputError
from fei.progress import Progress, reporter
from fei.references import References, ReferenceSpec, another_photograph, normalised_zero


class FEI:
    r"""Attribution by masks that keep both the prediction and the network's computational pathway.

    For each quantile q a mask α of full resolution is optimised so that the blend x̃ = α⊙x + (1−α)⊙R keeps the score
    φ(x̃) while α covers the fraction 1−q of the pixels:

        L(α_q) = −φ(x̃(α_q)) + β·|Σ α_q − (1−q)·|P||,        M = mean over q of α_q.

    During back-propagation the gradient at each clip site passes ClipGrad (`fei.clip_gradient`), which zeroes every
    direction that would move a unit away from its activation on the original image.

    Args:
        model: A classifier in evaluation mode, (N, C, H, W) to logits (N, classes). It is only ever called. What
            torch.compile, DataParallel or DistributedDataParallel wraps is explained itself.
        variant: Clipping rule: "vm" (the paper's recommendation), "ivm", "avm", "ibm", "bm", "abm" or "none". Without
            one it is the preset's, and without a preset too it is the flagship, preset "fei".
        preset: Where options left at ``None`` come from: "fei" (about its class, with fresh references), "preview" (the
            same in ten rows, to look at while waiting), "fast" (the paper's method in fewer steps; the default with a
            variant) or "paper".
        quantiles: Q, in increasing order inside (0,1).
        steps: Optimisation steps T per quantile.
        beta: Weight β of the area penalty, or of the L1 norm.
        lr: Step size: Adam's, or with projection the mean step of a pixel.
        constraint: How the area is held: "penalty" (the equation above, Adam), "projection" (exact, with steps
            proportional to the gradient), and for ablations "l1" (β‖α‖₁) and "none", with one mask and no quantiles.
        reduction: Σα in the penalty as "sum" or "mean".
        init: Where α starts: "zero", "area" (uniform, of the right area) or a number.
        nesting: "independent" masks, or masks of which those of larger quantiles lie inside those of smaller ones:
            "cumulative" as in the paper, or "shared", where all are parts of one field, see
            `fei.core.quantiles.SharedUpdate`.
        sites: Where gradients are clipped, see `fei.core.sites.find_sites`.
        residual: What is clipped at residual additions, likewise.
        objective: "insertion" keeps φ with the α-pixels present; "deletion" lowers φ with the α-pixels (area q)
            replaced by R; "both" is −φ of the one plus φ of the other.
        score: φ: "softmax", "sigmoid", "logit", or a callable on (logits, class indices).
        early_stop: Freeze a mask once it moves less than this, on average over its pixels, in ten steps. Where one
            image takes several passes per step (`internal_batch_size` below the number of quantiles) frozen masks take
            none.
        seed: Seeds whatever is random (the reference), per image.
        contrast: How far masks are kept from what speaks for any class, λ from 0 (the paper) to 1, see
            `fei.core.optimization.contrasted`. A step then takes two passes backwards.
        focus: How far masks are led to where in the image the class has its evidence, from 0 (the paper) to 1: the
            gradient at the last feature layer is weighted by (1 − focus) + focus·W, see
            `fei.core.relevance.evidence_weights`.
        prior: How much the evidence of the class at the last feature layer counts in the map beside the masks, from 0
            (the paper) to 1: M = (mean over q of α_q + prior·ranks of the evidence) / (1 + prior).
        smooth: σ in pixels of the Gaussian that smooths each mask's gradient; 0 (the paper) for none.
        coarse: σ at the first step, from which it falls to `smooth` at the last; by default it is the same throughout.
        reference: R where a call gives no `baselines`, by name: "color" (the paper), "color:resample", …, see
            `fei.Reference`.
        tries: How many of an image's masks are tried at each step, in turns, where they share a field; all by default.

    Examples:
        >>> explainer = fei.FEI(model, steps=2)
        >>> tuple(explainer.attribute(images).shape)
        (2, 1, 16, 16)
        >>> fei.FEI(model, "vm", quantiles=(0.3, 0.7), steps=2).explain(images, target=1).alphas.shape[1]
        2
    """

    multiplies_by_inputs = False
    mask_per_channel = False

    def __init__(
        self,
        model: nn.Module,
        variant: str | None = None,
        *,
        preset: str | None = None,
        quantiles: tuple[float, ...] | list[float] | None = None,
        steps: int | None = None,
        beta: float = 0.1,
        lr: float | None = None,
        constraint: str | None = None,
        reduction: str = "sum",
        init: str | float | None = None,
        nesting: str | None = None,
        sites: SiteSelection = "auto",
        residual: str = "branch",
        objective: str = "insertion",
        score: Score = "softmax",
        early_stop: float | None = None,
        seed: int = 0,
        contrast: float | None = None,
        focus: float | None = None,
        prior: float | None = None,
        smooth: float | None = None,
        reference: str | None = None,
        coarse: float | None = None,
        tries: int | None = None,
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "model")}
        if not isinstance(model, nn.Module):
            raise InputError(f"`model` must be a torch.nn.Module; got {type(model).__name__}; wrap it in one.")
        self.model = underlying(model)
        self.settings: Settings = make_settings(**options)

    @property
    def rule(self) -> Rule:
        """What is clipped."""
        return get_rule(self.settings.variant)

    @property
    def forward_func(self) -> nn.Module:
        """The model, under the name captum looks for."""
        return self.model

    def has_convergence_delta(self) -> bool:
        """Captum asks; there is no completeness axiom to measure a delta from."""
        return False

    @torch.inference_mode(False)  # also because captum's NoiseTunnel calls what a decorator has wrapped
    def attribute(
        self,
        inputs: Tensor | tuple[Tensor],
        target: Target = None,
        baselines: ReferenceSpec | tuple[ReferenceSpec] = None,
        *,
        internal_batch_size: int | None = None,
        generator: torch.Generator | None = None,
        progress: bool | Progress = False,
    ) -> Tensor | tuple[Tensor]:
        """Attribution maps (N, 1, H, W), higher where a pixel matters more; arguments as in `explain`.

        A 1-tuple of inputs gives a 1-tuple of maps, as captum's methods do.
        """
        maps = self._found(inputs, target, baselines, internal_batch_size, generator, progress, told=False).maps
        return (maps,) if isinstance(inputs, tuple) else maps

    @property
    def config(self) -> dict[str, Any]:
        """The settings as plain data."""
        return described(self.settings)

    def explain(
        self,
        inputs: Tensor | tuple[Tensor],
        target: Target = None,
        baselines: ReferenceSpec | tuple[ReferenceSpec] = None,
        *,
        internal_batch_size: int | None = None,
        generator: torch.Generator | None = None,
        progress: bool | Progress = False,
        on_step: Watcher | None = None,
        evidence: bool = True,
    ) -> Explanation:
        """Masks, maps and how they came about.

        Args:
            inputs: Images (N, C, H, W) in the model's input space.
            target: Class to explain: an index or a name, one per image, a callable on the model's output that returns a
                score per row, or ``None`` for the model's top class.
            baselines: The reference R: a name, a `fei.Reference`, a number, a tensor, a callable on the images, or
                ``None`` for that of the settings.
            internal_batch_size: Rows (images × masks that are tried) in one forward pass. Short batches are padded to
                it, so that a result does not depend on what else is in the batch. ``None``: one image with all of its.
            generator: Supplies the seed (its initial seed) in place of the constructor's.
            progress: ``True`` for a progress bar, or a callable on (steps done, steps in all).
            on_step: Called after each step with its number, from 1, and the masks (n, k, 1, H, W) of the images that
                are worked on; to be looked at, not changed.
            evidence: Whether to see what the masks keep of the score, which takes some passes forwards more.
        """
        found = self._found(inputs, target, baselines, internal_batch_size, generator, progress, on_step)
        return replace(found, evidence=self.weigh(found, target)) if evidence else found

    @one_at_a_time
    @torch.inference_mode(False)
    @torch.enable_grad()  # whatever mode the caller is in: captum's sensitivity_max calls under no_grad
    def _found(
        self,
        inputs: Tensor | tuple[Tensor],
        target: Target,
        baselines: ReferenceSpec | tuple[ReferenceSpec],
        size: int | None,
        generator: torch.Generator | None,
        progress: bool | Progress,
        on_step: Watcher | None = None,
        told: bool = True,
    ) -> Explanation:
        """What `explain` gives; unless it is `told`, without what is computed for the traces alone."""
        from fei import __version__

        x, size = check_call(self.model, inputs, size, "internal_batch_size")
        target, settings = named_target(self.model, target), self.settings
        seed = seed_of(generator, settings.seed)
        tried = settings.tried
        rows = tried if size is None else size if size < tried else size // tried * tried
        x, seen = self._survey(x, rows)
        flow = seen.flow
        sites, notes = covered_sites(self.model, flow, settings, self.rule)
        attention, kinds = find_attention(self.model, flow), kinds_of(settings.sites, self.model, flow)
        classes = None if callable(target) else logits_of(seen.output, 1).shape[1]
        chosen = check_target(target, len(x), classes)
        if classes is not None:
            check_score(settings.score, classes)
        digests = [image_digest(image) for image in x]
        given = only(baselines, "baselines")
        references = References(settings.reference if given is None else given, x, digests, self.model, seed)
        focus = self._find_focus(flow, x, target, notes) if settings.focus or settings.prior else None
        focused = None if focus is None else focus.site
        kept = sites if focused is None else [*sites, focused]
        pathway = Pathway(self.model, sites, self.rule, folding_that_holds(self.model, seen, kept), focused)
        del seen  # its graph holds all values of the pass
        results = []
        channels = x.shape[1] if self.mask_per_channel else 1
        groups = list(groups_of(x, references, target, chosen, rows, settings, channels))
        with reporter(progress, len(groups) * settings.steps) as tick:
            for group, real in groups:
                results.append((Optimization(pathway, group, settings, focus).run(tick, on_step, told=told), real))
        config = {
            "settings": as_stored(self.config, attends=attention.between_tokens) | {"seed": seed},
            "reference": {"kind": references.name, "resample": references.resample},
            **({"focus": focused.name} if focused is not None else {}),
            **({"attention": attention.counts} if "attention" in kinds else {}),
            "sites": [asdict(site) | {"key": list(site.key)} for site in pathway.sites],
            "notes": notes,
            "images": digests,
            "target": "callable" if callable(target) else "given" if chosen is not None else "predicted",
            "chunk_rows": rows,
            "threads": torch.get_num_threads(),
            "device": str(x.device),
            "dtype": str(x.dtype).removeprefix("torch."),
            **_autocast(x.device.type),
            "channels_last": layout_of(x) is torch.channels_last,
            "versions": {"fei": __version__, "torch": str(torch.__version__)},
        }
        return collected(results, pathway.sites, x, references.values, config, settings.prior)

    def refine(self, *given: Any, **how: Any) -> Iterator[Explanation]:
        """A preview (preset "preview") to look at while waiting, and then what `explain` gives; arguments as there.

        It has a tenth of the passes, and no evidence. Of other settings than the flagship's there is none.

        Examples:
            >>> for result in fei.FEI(model, steps=4).refine(images):
            ...     print(result.preview, result.config["settings"]["steps"])
            True 3
            False 4
        """
        if (first := self.preview) is not None:
            yield first.explain(*given, **how | {"progress": False, "on_step": None, "evidence": False})
        yield self.explain(*given, **how)

    @property
    def preview(self) -> FEI | None:
        """What makes the preview of `refine`; ``None`` where there is none."""
        settings = previewed(self.settings)
        if settings is None:
            return None
        quicker = copy.copy(self)
        quicker.settings = settings
        return quicker

    @one_at_a_time
    @torch.inference_mode(False)
    def weigh(self, found: Explanation, target: Target = None) -> Evidence:
        """How much of the score the masks of an explanation keep, over references that no default optimises with.

        These are the network's mean colour and another photograph, see `fei.references.another_photograph`.

        Args:
            found: What `explain` returned for this network.
            target: The callable that was explained, if it was one.
        """
        x, seed = found.inputs, found.config["settings"]["seed"]

        def score(batch: Tensor, images: Tensor) -> Tensor:
            with uncompiled():
                output = self.model(batch.clone())
            return evaluate(output, target if callable(target) else None, found.target[images], self.settings.score)

        fills = [make(x, self.model) for make in (normalised_zero, another_photograph)]
        digests = found.config["images"]
        return measure_evidence(score, x, found.alphas, fills, digests, seed, default_rows(x))

    def _survey(self, x: Tensor, rows: int) -> tuple[Tensor, FirstPass]:
        """The images in the layout they are computed in, and a pass on the first of them.

        On a CPU convolutions are faster channels last; only a network that reshapes with ``view`` may refuse that, some
        only where there is more than one row, which is tried where such a view was seen, or where calls are hidden.
        """
        last = x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x
        with explained_failure(x):
            try:
                seen = first_pass(self.model, last[:1])
                doubtful = bool(seen.flow.blind) or any(map(_views_places, seen.flow.calls))
                if doubtful and rows > 1 and layout_of(last) is torch.channels_last:
                    two = last[[0, 0]].contiguous(memory_format=torch.channels_last)
                    with uncompiled():
                        self.model(two.requires_grad_().clone())  # with a gradient, as in the passes to come
            except RuntimeError:
                last = x.contiguous()
                seen = first_pass(self.model, last[:1])
        check_finite(seen.output)
        return last, seen

    def _find_focus(self, flow: Flow, x: Tensor, target: Target, notes: list[str]) -> Focus | None:
        """Where the evidence is read; nowhere, and a note, where the network has no places that speak for a class."""
        from fei.models.layers import feature_layers

        def score(output: Any) -> Tensor:
            return target(output) if callable(target) else logits_of(output, 1).amax(1)

        layers = feature_layers(self.model, x)
        focus = find_focus(self.model, flow, x[:1], layers[-1] if layers else None, score)
        if focus is None:
            seen = "the tokens of the network form no grid that is known" if layers else "no feature layer was found"
            notes.append(f"{seen}, so nothing is focused on the class")
            warnings.warn(notes[-1], stacklevel=7)
        return focus


def _autocast(device: str) -> dict[str, str]:
    """The precision that the caller's ``torch.autocast`` computes in, if there is one."""
    if not torch.is_autocast_enabled(device):
        return {}
    return {"autocast": str(torch.get_autocast_dtype(device)).removeprefix("torch.")}


def _views_places(call: Call) -> bool:
    """Whether a call reshapes, without a copy, a value that has several places, whose order in memory then matters."""
    given = call.args[0] if call.args else None
    return call.function in ("view", "view_as") and isinstance(given, Value) and given.shape[2:].numel() > 1
