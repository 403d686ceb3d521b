"""Networks that a function of the user's own makes, wherever that function is."""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import nn

from fei.common.words import in_brief, suggestion
from fei.errors import FEIError, InputError, ModelError
from fei.models._checkpoint import Checkpoint, load_checkpoint
from fei.models.classifier import Classifier


def load_from_factory(
    module: ModuleType, factory: str, checkpoint: Checkpoint | None, *, where: str, form: str
) -> Classifier:
    """Call a factory and wrap the network it returns.

    Args:
        module: The module that has the factory.
        factory: Its name. It is called without arguments and returns an `nn.Module` on RGB in [0, 1], which may carry
            `input_size`, `labels` and `feature_layers` (names of its own modules), or a `Classifier`.
        checkpoint: Weights for it.
        where: How an error calls the module.
        form: How an error explains what to write.

    Returns:
        The network as a classifier.

    Raises:
        InputError: If there is no such factory.
        ModelError: If it does not work, or the checkpoint does not fit.
    """
    network = _call(_find(module, factory, where, form), f"{where}:{factory}")
    classifier = network if isinstance(network, Classifier) else _wrap(network, f"{where}:{factory}")
    if checkpoint is not None:
        load_checkpoint(classifier, checkpoint)
    return classifier


def _find(module: ModuleType, name: str, where: str, form: str) -> Callable[[], Any]:
    """The callable of that name, or an error that lists those there are."""
    factory: Callable[[], Any] | None = getattr(module, name, None) if name else None
    if callable(factory):
        return factory
    known = [
        key
        for key, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
        and not key.startswith("_")
    ]
    wrong = f"'{where}' has no factory '{name}'" if name else f"'{where}' is given without a factory"
    hint = suggestion(name, known, f"it defines {', '.join(known) or 'none'}.", most=1)
    raise InputError(f"{wrong}; {hint} The form is {form}.")


def _call(factory: Callable[[], Any], what: str) -> nn.Module:
    try:
        network = factory()
    except FEIError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(f"The factory '{what}' failed ({in_brief(error)}); it is called without arguments.") from error
    if not isinstance(network, nn.Module):
        raise ModelError(f"The factory '{what}' returned a {type(network).__name__}; it must return an nn.Module.")
    return network


def _wrap(network: nn.Module, what: str) -> Classifier:
    try:
        return Classifier(
            network,
            input_size=getattr(network, "input_size", 224),
            labels=getattr(network, "labels", None),
            feature_layers=getattr(network, "feature_layers", None),
        )
    except InputError as error:
        raise ModelError(f"The network of '{what}' describes itself wrongly: {error}") from error
