"""Pure functions of one round's uploads: client weightings and aggregation rules."""

from unskew.aggregation.bounds import clipped
from unskew.aggregation.discrepancy import discrepancy, label_divergence
from unskew.aggregation.fedsa import fedsa
from unskew.aggregation.fusion import fusion
from unskew.aggregation.geometric import geometric_median
from unskew.aggregation.inverse import inverse_accuracy, inverse_distance
from unskew.aggregation.krum import bulyan, krum, multi_krum
from unskew.aggregation.order import coordinate_median, trimmed_mean
from unskew.aggregation.product import product
from unskew.aggregation.rule import Rule, weighted_mean
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, by_samples, uniform

__all__ = [
    "ClientWeighting",
    "Rule",
    "Uploads",
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
