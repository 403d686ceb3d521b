"""Which explanation can be trusted on this network? Methods are measured on it, in a race that keeps to a budget.

    found = fei.audit("torchvision:resnet50", "imagenet:/data/imagenet", budget="10m")
    found.recommended, found.verdict("gradcam", "class"), found.page

Names are imported when first used, so that nothing heavy is loaded before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fei.common.lazy import lazy
from fei.common.packages import need

if TYPE_CHECKING:
    from fei.auditing.memory import Remembered, last_audit
    from fei.auditing.result import Audit
    from fei.auditing.run import audit
    from fei.auditing.written import junit

need("An audit", "bench", "pydantic", "scipy", "skimage")
__all__ = ["Audit", "Remembered", "audit", "junit", "last_audit"]
__getattr__ = lazy(
    __name__,
    {"Audit": "result", "Remembered": "memory", "audit": "run", "junit": "written", "last_audit": "memory"},
)
