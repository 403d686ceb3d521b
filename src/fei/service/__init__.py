"""One image through one network: decoded once, predicted once, any method, one result, one record, one writer.

    request = Request.of("efficientnet_lite0", ["fei-vm"], target="tabby")      what is asked for, as data
    inquiry = Inquiry.of(request)                                             the network and the methods, ready
    seen = look(inquiry.model, "cat.jpg")                                     decoded and predicted
    found = inquiry.find("fei-vm", seen)                                      the map, and all there is with it
    record, contents = explanation_files(inquiry, request, seen, found)       as it is written

`collect` does all of it but the writing, for several images. Names are imported when first used, so that nothing heavy
is loaded before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fei.service._collect import collect
    from fei.service.inquiry import Inquiry
    from fei.service.looking import Look, load_network, look
    from fei.service.record import explanation_files
    from fei.service.request import Request

_PLACES = {
    "Inquiry": "inquiry",
    "Look": "looking",
    "Request": "request",
    "collect": "_collect",
    "explanation_files": "record",
    "load_network": "looking",
    "look": "looking",
}
__all__ = ["Inquiry", "Look", "Request", "collect", "explanation_files", "load_network", "look"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"fei.service.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'fei.service' has no attribute {name!r}")
