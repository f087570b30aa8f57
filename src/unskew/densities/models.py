"""Networks that run with weights from elsewhere: a client's own density, or everybody's."""

from dataclasses import dataclass
from functools import lru_cache

from torch import nn

from unskew.models.functional import FunctionalModel
from unskew.models.spec import ModelSpec
from unskew.utils.rng import torch_seeded


@dataclass(frozen=True)
class FromRecipe:
    """Builds a stage's network by a recipe, whatever the run's own is; its name says which."""

    recipe: ModelSpec

    def __call__(self, module: nn.Module, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build it."""
        del module
        return self.recipe.build(shape, classes)


@lru_cache(maxsize=16)
def network_for(recipe: ModelSpec, shape: tuple[int, ...]) -> FunctionalModel:
    """Return a recipe's network for samples of a shape, to be called with anybody's weights."""
    with torch_seeded(0, "network"):  # its first weights are never used: leave no trace of them
        return FunctionalModel(recipe.build(shape, classes=0))
