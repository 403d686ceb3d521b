"""Images and data sets: read from files, or taken from what came with the install."""

from fei.data.dataset import Box, Dataset, Item
from fei.data.images import demo_image, read_image
from fei.data.sets import SpecForm, available, check_spec, load

__all__ = ["Box", "Dataset", "Item", "SpecForm", "available", "check_spec", "demo_image", "load", "read_image"]
