"""Pure functions of one round's uploads: who counts how much, and how rows become one vector."""

from unskew.rules.bounds import clipped
from unskew.rules.discrepancy import discrepancy, label_divergence
from unskew.rules.fedsa import fedsa
from unskew.rules.fusion import fusion
from unskew.rules.geometric import geometric_median
from unskew.rules.inverse import inverse_accuracy, inverse_distance
from unskew.rules.krum import bulyan, krum, multi_krum
from unskew.rules.order import coordinate_median, trimmed_mean
from unskew.rules.product import product
from unskew.rules.rule import Rule, weighted_mean
from unskew.rules.uploads import Uploads
from unskew.rules.weighers import Weigher, by_samples, uniform

__all__ = [
    "Rule",
    "Uploads",
    "Weigher",
    "bulyan",
    "by_samples",
    "clipped",
    "coordinate_median",
    "discrepancy",
    "fedsa",
    "fusion",
    "geometric_median",
    "inverse_accuracy",
    "inverse_distance",
    "krum",
    "label_divergence",
    "multi_krum",
    "product",
    "trimmed_mean",
    "uniform",
    "weighted_mean",
]
