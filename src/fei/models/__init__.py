"""Networks to explain, all behind one face: RGB in [0, 1] in, logits out."""

from fei.models.classifier import Classifier
from fei.models.sources import available, describe, load

__all__ = ["Classifier", "available", "describe", "load"]
