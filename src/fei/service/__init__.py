"""One image through one network: decoded once, predicted once, any method, one result, one record, one writer.

    request = Request.of("efficientnet_lite0", ["fei"], target="tabby")         what is asked for, as data
    inquiry = Inquiry.of(request)                                             the network and the methods, ready
    seen = look(inquiry.model, "cat.jpg")                                     decoded and predicted
    found = inquiry.find("fei", seen)                                         the map, and all there is with it
    record, contents = explanation_files(inquiry, request, seen, found)       as it is written

`collect` does all of it but the writing, for several images. Names are imported when first used, so that nothing heavy
is loaded before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fei.common.lazy import lazy
from fei.common.packages import need

if TYPE_CHECKING:
    from fei.service._collect import collect
    from fei.service.inquiry import Inquiry
    from fei.service.looking import Look, load_network, look
    from fei.service.record import explanation_files
    from fei.service.request import Request

need("This part of fei", "bench", "pydantic")
__all__ = ["Inquiry", "Look", "Request", "collect", "explanation_files", "load_network", "look"]
__getattr__ = lazy(
    __name__,
    {
        "Inquiry": "inquiry",
        "Request": "request",
        "collect": "_collect",
        "explanation_files": "record",
        **dict.fromkeys(("Look", "load_network", "look"), "looking"),
    },
)
