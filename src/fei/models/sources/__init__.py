"""Where networks come from: the install, torchvision, timm, Hugging Face, a function of the user's own."""

from fei.models.sources._packages import import_torchvision
from fei.models.sources._registry import available, describe, load

__all__ = ["available", "describe", "import_torchvision", "load"]
