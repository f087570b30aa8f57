"""Networks that run with weights from elsewhere: a client's own density, or everybody's."""

from functools import lru_cache

from unskew.models.recipe import Recipe
from unskew.network import Network
from unskew.rng import torch_seeded


@lru_cache(maxsize=16)
def network_for(recipe: Recipe, shape: tuple[int, ...]) -> Network:
    """Return a recipe's network for samples of a shape, to be called with anybody's weights."""
    with torch_seeded(0, "network"):  # its first weights are never used: leave no trace of them
        return Network(recipe.build(shape, classes=0))
