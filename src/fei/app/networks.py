"""The networks that visitors may choose from, loaded once, when the server starts."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

import torch
from PIL import Image
from torch import Tensor

from fei import models
from fei.core.scoring import top_classes
from fei.errors import InputError, ModelError
from fei.models import Classifier

_OFFERED = 5


@dataclass(frozen=True)
class Guess:
    """A class and the probability that the network gives it."""

    index: int
    label: str
    probability: float


class Network:
    """A network under the name by which the page calls it.

    Args:
        name: That name.
        spec: What `fei.models.load` takes.
        device: Where it computes.

    Attributes:
        classifier: The network itself; only the job that runs uses it.

    Raises:
        InputError: If there is no such network.
        ModelError: If it cannot be loaded or does not work.
    """

    def __init__(self, name: str, spec: str, device: torch.device) -> None:
        self.name, self.spec, self.device = name, spec, device
        self.classifier = models.load(spec).to(device)
        # What is offered to one visitor is computed while another's job runs, and methods may hang hooks on modules.
        self._twin: Classifier = copy.deepcopy(self.classifier)
        self._lock = threading.Lock()
        self.guesses(Image.new("RGB", (self.classifier.input_size,) * 2, "gray"))  # one that fails, fails now

    def inputs(self, image: Image.Image) -> Tensor:
        """A photo as the network takes it, (1, 3, S, S)."""
        return self._twin.preprocess(image)[None].to(self.device)

    def guesses(self, image: Image.Image) -> list[Guess]:
        """The best classes of a photo."""
        with self._lock, torch.no_grad():
            try:
                logits = self._twin(self.inputs(image))
            except (ModelError, InputError):
                raise
            except Exception as error:  # the network's own code may raise anything
                raise ModelError(f"The network '{self.name}' fails on this photo ({type(error).__name__}).") from error
        if logits.ndim != 2 or not logits.isfinite().all():
            raise ModelError(f"The network '{self.name}' does not give finite logits of shape (1, classes).")
        values, classes = top_classes(logits.float().softmax(1)[0], _OFFERED)
        return [
            Guess(index, self._twin.label(index), probability)
            for index, probability in zip(classes.tolist(), values.tolist(), strict=True)
        ]


def load_networks(specs: Sequence[str], device: torch.device) -> dict[str, Network]:
    """Load networks, each under a name that shows no folder of this machine.

    Raises:
        InputError: If there is no such network.
        ModelError: If one cannot be loaded or does not work.
    """
    networks: dict[str, Network] = {}
    for spec in dict.fromkeys(specs):
        name = short = ":".join(PurePath(part).name for part in spec.split(":"))
        number = 1
        while name in networks:
            number += 1
            name = f"{short} ({number})"
        networks[name] = Network(name, spec, device)
    return networks
