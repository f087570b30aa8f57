"""Differential privacy of local training: the budget, the noise it needs, and DP-SGD's gradient.

``docs/privacy.md`` describes what is protected, against whom, and what is not.
"""

from unskew.privacy.accountant import (
    MAX_NOISE,
    ORDERS,
    Composition,
    noise_multiplier,
    sampling_rate,
    shared_noise_multiplier,
    spent,
)
from unskew.privacy.budget import Privacy, PrivacyLimit
from unskew.privacy.gradient import private_gradient, private_noise, reject_coupled
from unskew.privacy.information_bound import information_bound

__all__ = [
    "MAX_NOISE",
    "ORDERS",
    "Composition",
    "Privacy",
    "PrivacyLimit",
    "information_bound",
    "noise_multiplier",
    "private_gradient",
    "private_noise",
    "reject_coupled",
    "sampling_rate",
    "shared_noise_multiplier",
    "spent",
]
