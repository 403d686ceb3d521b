"""Networks to explain, all behind one face: RGB in [0, 1] in, logits out."""

from fei.models._registry import available, describe, load
from fei.models.classifier import Classifier

__all__ = ["Classifier", "available", "describe", "load"]
