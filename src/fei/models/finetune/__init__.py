"""A network for classes of the user's own: a new last layer on its features, or all of its weights trained further."""

from fei.models.finetune._data import load_sets
from fei.models.finetune._training import BATCH_SIZE, EPOCHS, LR, STEPS, Finetuned, Score, finetune, measure, save

__all__ = ["BATCH_SIZE", "EPOCHS", "LR", "STEPS", "Finetuned", "Score", "finetune", "load_sets", "measure", "save"]
