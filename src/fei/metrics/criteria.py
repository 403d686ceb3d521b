"""What is asked of the numbers of a test of trust, all limits in one table, and the verdict in words."""

from __future__ import annotations

from dataclasses import dataclass

from fei.metrics.declaration import describe


@dataclass(frozen=True)
class Criterion:
    """What is asked of the mean of a metric, in words.

    Attributes:
        metric: Its name; that a higher or a lower number is better is declared there.
        about: What the map should depend on, or not depend on.
        limit: Where the verdict changes; above chance, where there is such a thing.
        holds: What is said on the better side of it.
        fails: And what on the other.
    """

    metric: str
    about: str
    limit: float
    holds: str
    fails: str

    def verdict(self, mean: float, interval: tuple[float, float] | None = None, chance: float = 0.0) -> str:
        """In words; where the interval of the mean holds the limit, that nothing can be said."""
        limit = self.limit + chance
        if interval is not None and interval[0] <= limit <= interval[1]:
            return "not clear from these images"
        good = mean >= limit if describe(self.metric).higher_is_better else mean <= limit
        return self.holds if good else self.fails


def criterion(metric: str) -> Criterion:
    """What is asked of a metric."""
    return next(one for one in CRITERIA if one.metric == metric)


CRITERIA = (
    Criterion("random_class", "class", 0.4, "about its class", "hardly depends on the class"),
    Criterion("runner_up", "class", 0.7, "tells the runner-up apart", "hardly tells the runner-up apart"),
    Criterion("stability", "seed", 0.9, "stable", "depends on the seed"),
    Criterion("classifier_randomization", "weights", 0.4, "depends on the weights", "hardly depends on the classifier"),
    Criterion("cascade", "weights", 0.4, "changes with its layers", "hardly changes with its layers"),
    Criterion("emprt", "weights", 0.01, "simpler than without the weights", "no simpler than without the weights"),
    Criterion("grid_rank", "place", 0.05, "points at its class", "does not point at its class"),
)
