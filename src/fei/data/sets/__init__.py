"""The kinds of data sets, each in the layout in which it is handed out."""

from fei.data.sets._registry import SpecForm, available, check_spec, load

__all__ = ["SpecForm", "available", "check_spec", "load"]
