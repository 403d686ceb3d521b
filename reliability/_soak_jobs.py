"""The work of the soak: small jobs of every kind, each of which must leave nothing behind.

A job takes a `Bench` (the networks, the images, a random generator, a folder of its own) and either returns or raises.
Refused and interrupted work is part of the mix: such a job raises if the library does *not*.
"""

from __future__ import annotations

import random
import signal
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _tiny import SIZE
from PIL import Image
from torch import Tensor

import fei
from fei import bench
from fei.bench.plan import parse_plan
from fei.bench.report import write_report
from fei.bench.store.exchange import export
from fei.data import demo_image
from fei.errors import DataError, InputError, ModelError
from fei.models import Classifier
from fei.report.explorer import write_explorer
from fei.service import collect

TINY = f"{Path(__file__).with_name('_tiny.py')}:tiny"
EMBEDDED = "efficientnet_lite0"
SPECS = (TINY, TINY, "torchvision:squeezenet1_1@none", EMBEDDED)
# a share of the embedded network's jobs run at its own size, the others at one that takes a fifth of the time
SIDES = (96, 96, 96, 224)
QUICK: dict[str, dict[str, Any]] = {
    **{name: {"steps": 2} for name in fei.methods.available("fei-*")},
    "fgvis": {"steps": 2},
    "saliency": {},
    "smoothgrad": {"samples": 3},
    "integrated-gradients": {"steps": 4},
    "guided-backprop": {},
    "gradient-shap": {"samples": 3},
    "gradcam": {},
    "gradcam++": {},
    "layercam": {},
    "xgradcam": {},
    "liftcam": {},
    "iia": {"outer": 2, "inner_steps": 2},
    "fgvce": {"permutations": 2},
    "rise": {"samples": 8, "grid": 4},
    "occlusion": {},
    "random": {},
}
ONLY_TINY: dict[str, dict[str, Any]] = {
    "scorecam": {},
    "kernel-shap": {"samples": 20, "segments": 8},
    "extremal-perturbation": {"steps": 3, "areas": [0.2], "sigma": 3.0},
}


class Stop(KeyboardInterrupt):
    """Ctrl-C, as a progress callback meets it."""


@dataclass
class Bench:
    """What a job works with; `folder` is empty when it begins, and is removed after it."""

    tiny: Classifier
    embedded: Classifier
    photo: Tensor
    noise: Tensor
    random: random.Random
    folder: Path

    @classmethod
    def make(cls, seed: int, folder: Path) -> Bench:
        embedded = fei.models.load(EMBEDDED)
        return cls(
            tiny=fei.models.load(TINY),
            embedded=embedded,
            photo=embedded.preprocess(demo_image("chelsea"))[None],
            noise=torch.rand(4, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed)),
            random=random.Random(seed),
            folder=folder,
        )

    def subject(self) -> tuple[Classifier, Tensor]:
        """A network with images: mostly the tiny one, one or two images; else the embedded one and a photograph."""
        if self.random.random() < 0.6:
            return self.tiny, self.noise[: self.random.choice((1, 2))]
        return self.embedded, self.small_photo()

    def small_photo(self) -> Tensor:
        side = self.random.choice(SIDES)
        return torch.nn.functional.interpolate(self.photo, (side, side), mode="area")

    def seeded(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.random.randrange(1000))


def warm_up(at: Bench) -> None:
    """Everything once that imports a package, or sets memory aside, when it is first used."""
    for name, options in (QUICK | ONLY_TINY).items():
        fei.methods.create(name, **options)(at.tiny, at.noise[:1])
    for spec in SPECS:
        fei.models.load(spec)
    fei.FEI(at.embedded, steps=1).explain(at.photo)


def explained(at: Bench) -> None:
    """FEI with random settings."""
    model, x = at.subject()
    options = {
        "constraint": at.random.choice(("projection", "penalty", "l1", "none")),
        "objective": at.random.choice(("insertion", "deletion", "both")),
        "residual": at.random.choice(("branch", "post_add", "both")),
        "score": at.random.choice(("softmax", "logit", "sigmoid")),
    }
    variant = at.random.choice(("vm", "ivm", "avm", "ibm", "bm", "abm", "none"))
    fei.FEI(model, variant, quantiles=(0.3, 0.7), steps=3, **options).explain(x, generator=at.seeded())


def baseline(at: Bench) -> None:
    """Any registered method, the dear ones on the tiny network alone."""
    name = at.random.choice([*QUICK, *ONLY_TINY])
    model, x = (at.tiny, at.noise[:2]) if name in ONLY_TINY else at.subject()
    fei.methods.create(name, **(QUICK | ONLY_TINY)[name])(model, x, generator=at.seeded())


def foreign(at: Bench) -> None:
    """A method of captum's by its name, and a plain function."""
    fei.methods.as_method("captum.attr:InputXGradient")(at.tiny, at.noise[:1])
    fei.methods.as_method(lambda model, inputs, target: inputs.mean(1))(at.tiny, at.noise)


def evaluated(at: Bench) -> None:
    """Insertion, deletion and internal faithfulness under a random protocol."""
    protocol = at.random.choice(fei.protocols.available())
    dear = protocol.startswith(("rise", "quantus"))
    model, x = (at.tiny, at.noise[:1]) if dear else at.subject()
    if model is at.embedded:
        x, protocol = x[:, :, :96, :96], "fei-paper"
    fei.metrics.evaluate(model, x, x.mean(1, keepdim=True), protocol=protocol, generator=at.seeded())


def measured(at: Bench) -> None:
    """The other metrics of a map."""
    model, x = at.tiny, at.noise[:2]
    maps = x.mean(1, keepdim=True)
    fei.metrics.infidelity(model, x, maps, samples=3)
    fei.metrics.max_sensitivity(model, fei.methods.create("saliency"), x, samples=2)
    fei.metrics.road(model, x, maps, percentiles=(20, 60))
    fei.metrics.average_drop(model, x, maps)
    fei.metrics.energy_pointing_game(maps, [(2, 2, 20, 20)] * 2)
    fei.metrics.agreement_matrix({"a": maps, "b": 1 - maps})
    fei.metrics.measure_cost(model, lambda: fei.methods.create("gradcam")(model, x))


def black_image(at: Bench) -> None:
    """The black-image test of a variant."""
    name = at.random.choice(fei.methods.available("fei-*"))
    fei.metrics.black_image(at.tiny, fei.methods.create(name, steps=2), trials=2, generator=at.seeded())


def randomised(at: Bench) -> None:
    """Cascading randomisation, on a copy of the network."""
    model, x = at.subject()
    name = at.random.choice(("gradcam", "saliency", "fei-vm"))
    method = fei.methods.create(name, **QUICK[name])
    mode = at.random.choice(("cascading", "independent"))
    fei.metrics.cascading_randomization(model, method, x, layers=2, mode=mode, generator=at.seeded())


def saved(at: Bench) -> None:
    """An explanation to disk and back, and its pictures."""
    result = fei.FEI(at.tiny, "vm", steps=2).explain(at.noise[:1])
    again = fei.Explanation.load(result.save(at.folder / "result.safetensors"))
    if not torch.equal(again.maps, result.maps):
        raise AssertionError("an explanation changed on its way to disk and back")
    again.show().savefig(at.folder / "figure.png")


def explorer(at: Bench) -> None:
    """The HTML explorer."""
    shown = collect(
        at.tiny, at.noise[:1], {name: fei.methods.create(name, **QUICK[name]) for name in ("fei-vm", "gradcam")}
    )
    write_explorer(at.folder / "explorer.html", shown)


def loaded(at: Bench) -> None:
    """Networks from a file, from torchvision with random weights, and the embedded one."""
    network = fei.models.load(at.random.choice(SPECS))
    network(torch.zeros(1, 3, network.input_size, network.input_size))


def run_alone(at: Bench) -> None:
    """A benchmark in this process, interrupted in the middle, resumed, reported and exported."""
    plan, folder = _plan(at, "saliency", "fei-vm"), at.folder / "run"
    _struck(at.random.uniform(0, 0.5), lambda: bench.run(plan, folder, threads=1, device="cpu"))
    _finish(plan, folder)
    with bench.Store.open(folder, readonly=True) as store:
        write_report(store, at.folder / "report")
        export(store, at.folder / "results.csv")


def run_workers(at: Bench) -> None:
    """A benchmark with one or two worker processes, sometimes interrupted while they start or work, then finished."""
    plan, folder = _plan(at, "gradcam", "saliency"), at.folder / "run"
    after = at.random.choice((at.random.uniform(0, 8), 60.0))
    workers = at.random.choice((1, 2))
    _struck(after, lambda: bench.run(plan, folder, workers=workers, threads=1, device="cpu"))
    _finish(plan, folder)


def refused(at: Bench) -> None:
    """Bad input of every kind: one clear error each, and nothing left behind."""
    x, folder = at.noise[:1], at.folder
    (folder / "broken.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    _must(InputError, lambda: fei.FEI(at.tiny, "wm"))
    _must(InputError, lambda: fei.FEI(at.tiny).explain(x[0]))
    _must(InputError, lambda: fei.FEI(at.tiny, steps=1).explain(x, target=99))
    _must(InputError, lambda: fei.FEI(at.tiny, steps=1).explain(x * float("nan")))
    _must(InputError, lambda: fei.methods.create("gradcam", layer="nowhere")(at.embedded, at.small_photo()))
    _must(InputError, lambda: fei.metrics.insertion(at.tiny, x, x))
    _must(InputError, lambda: fei.metrics.black_image(at.tiny, "gradcam", trials=1))
    _must(InputError, lambda: fei.models.load("nothing.py:nobody"))
    _must(DataError, lambda: fei.Explanation.load(folder / "broken.safetensors"))
    _must(DataError, lambda: at.embedded.preprocess(folder / "broken.png"))
    _must(ModelError, lambda: fei.models.load(f"{TINY}:{folder / 'broken.safetensors'}"))
    _must(InputError, lambda: parse_plan("name = 3"))


def interrupted(at: Bench) -> None:
    """Ctrl-C from the progress callback, in the middle of everything that has one."""
    model, x = at.subject()

    def stop(done: int, total: int) -> None:
        if done >= 2:
            raise Stop

    name = at.random.choice(("fei-vm", "fei-bm", "smoothgrad", "rise", "integrated-gradients"))
    method = fei.methods.create(name, **(QUICK[name] | ({"steps": 4} if name.startswith("fei-") else {})))
    maps = x.mean(1, keepdim=True)
    _must(Stop, lambda: method(model, x.repeat(2, 1, 1, 1), batch_size=5, progress=stop))
    _must(Stop, lambda: fei.metrics.evaluate(model, x, maps, batch_size=2, progress=stop))
    _must(Stop, lambda: fei.metrics.black_image(at.tiny, "fei-none", trials=4, progress=stop))
    _must(Stop, lambda: fei.metrics.cascading_randomization(model, "gradcam", x, layers=2, progress=stop))


JOBS: dict[str, Callable[[Bench], None]] = {
    "explain": explained,
    "method": baseline,
    "foreign": foreign,
    "evaluate": evaluated,
    "metrics": measured,
    "black-image": black_image,
    "randomisation": randomised,
    "save": saved,
    "explorer": explorer,
    "load": loaded,
    "bench": run_alone,
    "bench-workers": run_workers,
    "refused": refused,
    "interrupted": interrupted,
}
# how often a kind is drawn; processes take seconds to start
WEIGHTS = dict.fromkeys(JOBS, 4) | {"explain": 8, "method": 8, "interrupted": 6, "bench-workers": 2}


def _plan(at: Bench, *names: str) -> bench.Plan:
    """A plan of two images and two methods on the tiny network, with its own images in the job's folder."""
    photos = at.folder / "photos"
    photos.mkdir()
    for number in range(2):
        pixels = np.random.default_rng(at.random.randrange(1 << 30)).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(photos / f"{number}.png")
    text = f"name = 'soak'\nkeep_maps = true\n[[pairs]]\nmodel = '{TINY}'\nname = 'Tiny'\ndata = '{photos}'\n"
    for name in names:
        options = ", ".join(f"{option} = {value}" for option, value in QUICK[name].items())
        text += f"[[methods]]\nname = '{name}'\noptions = {{ {options} }}\n"
    return parse_plan(text)


def _finish(plan: bench.Plan, folder: Path) -> None:
    """Compute what is left of a run; every unit must then be done."""
    summary = bench.run(plan, folder, threads=1, device="cpu")
    if summary.failed or summary.done + summary.skipped != 4:
        raise AssertionError(f"of four units, a run that was taken up again did {summary}")


def _struck(after: float, call: Callable[[], Any]) -> None:
    """Run a call that Ctrl-C strikes after that many seconds, unless it ends before."""
    timer = threading.Timer(after, signal.raise_signal, (signal.SIGINT,))
    with warnings.catch_warnings():
        # Python may be struck between opening a file and entering its `with`: the file is then closed as it is freed,
        # which is a warning and no leak. Leaks are seen in the count of open files.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            timer.start()
            call()
            timer.cancel()
            timer.join()  # if it has struck by now, the interruption comes here
        except KeyboardInterrupt:
            pass
        finally:
            timer.cancel()
            timer.join()


def _must(error: type[BaseException], call: Callable[[], Any]) -> None:
    """Run a call that has to raise that error, and no other."""
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__} was raised")
