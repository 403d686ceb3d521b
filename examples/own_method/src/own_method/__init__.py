"""A method and a metric of your own, as small as they can be. Replace both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from fei.errors import InputError
from fei.methods import Baseline, Task, checked
from fei.metrics import Metric, Subject


def odd(name: str, value: Any) -> None:
    """Refuse what is no odd number; what is wrong; what to do."""
    if not isinstance(value, int) or value < 3 or value % 2 == 0:
        raise InputError(f"`{name}` is {value!r}; give an odd number of at least 3.")


@dataclass(eq=False, kw_only=True)
class StandingOut(Baseline):
    """|x − mean of x around it|, averaged over colours: it never looks at the network, and is no explanation.

    Here belong the equation, the paper, the licence of the code it was taken from, and what it costs.

    Args:
        window: Width of the surroundings in pixels, odd.
    """

    window: int = checked(9, odd)
    version = 1  # raise it when the same options give other maps than before

    def maps(self, task: Task) -> Tensor:
        """Maps (n, H, W) of images (n, C, H, W); `task.model`, `task.run`, `task.phi` are the network's side."""
        around = F.avg_pool2d(task.images, self.window, 1, self.window // 2, count_include_pad=False)
        return (task.images - around).abs().mean(1)


def peak_share(subject: Subject) -> Tensor:
    """The share of a map's sum of magnitudes that its strongest hundredth of the pixels holds, (1,)."""
    strengths = subject.maps.abs().flatten(1).sort(descending=True).values
    few = max(1, strengths.shape[1] // 100)
    return strengths[:, :few].sum(1) / strengths.sum(1).clamp(min=1e-12)


PEAK_SHARE = Metric("peak-share", "share of the peak", None, measure=peak_share)
