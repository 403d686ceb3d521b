"""Networks that compare images with texts, such as CLIP, as classifiers: the texts are the classes."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fei.errors import ModelError

_FEWEST = 2


class ImageText(nn.Module):
    """Logits (N, texts): the cosine of each image with each text, times the temperature that was learned.

    Radford et al. 2021, "Learning transferable visual models from natural language supervision", arXiv:2103.00020,
    section 2.3. Until it is given texts, by `take_labels`, it has no classes.

    Args:
        model: A network of transformers with `get_image_features` and `get_text_features`.
        tokenizer: What makes numbers of texts for it.
    """

    texts: Tensor

    def __init__(self, model: nn.Module, tokenizer: Any) -> None:
        super().__init__()
        self.model, self._tokenizer = model, tokenizer
        self.register_buffer("texts", torch.empty(0, 0), persistent=False)

    @torch.no_grad()
    def take_labels(self, labels: Sequence[str]) -> None:
        """Take texts as the classes.

        Raises:
            ModelError: If there are fewer than two: one alone has nothing to be told apart from.
        """
        if len(labels) < _FEWEST:
            raise ModelError(f"There is {len(labels)} text for the images to be compared with; give two or more.")
        tokens = self._tokenizer(list(labels), padding=True, truncation=True, return_tensors="pt")
        model: Any = self.model
        self.texts = F.normalize(_features(model.get_text_features(**tokens)), dim=-1)

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits of images (N, 3, H, W) that are normalised as the network wants them."""
        model: Any = self.model
        images = F.normalize(_features(model.get_image_features(pixel_values=pixels)), dim=-1)
        logits: Tensor = model.logit_scale.exp() * images @ self.texts.T
        return logits


def is_image_text(config: Any) -> bool:
    """Whether a configuration of transformers is that of such a network."""
    return all(getattr(config, part, None) is not None for part in ("text_config", "vision_config"))


def load_image_text(transformers: ModuleType, folder: Path) -> ImageText:
    """Such a network from a folder, from .safetensors alone and without code of its own."""
    safe = {"trust_remote_code": False, "local_files_only": True}
    with torch.random.fork_rng(devices=[]):  # what is drawn is overwritten
        model = transformers.AutoModel.from_pretrained(folder, use_safetensors=True, **safe)
    return ImageText(model, transformers.AutoTokenizer.from_pretrained(folder, **safe))


def _features(found: Any) -> Tensor:
    features: Tensor = found if isinstance(found, Tensor) else found.pooler_output
    return features
