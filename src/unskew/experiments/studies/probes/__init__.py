"""Probes: what papers' figures show besides accuracy, one file per probe."""

from unskew.experiments.studies.probes.base import Probe
from unskew.experiments.studies.probes.choices import measure_choices, plot_choices
from unskew.experiments.studies.probes.codes import measure_codes, plot_codes
from unskew.experiments.studies.probes.dispersion import measure_dispersion, plot_dispersion
from unskew.experiments.studies.probes.features import measure_features, plot_features

PROBES: dict[str, Probe] = {
    "dispersion": Probe(measure_dispersion, plot_dispersion),
    "choices": Probe(measure_choices, plot_choices),
    "codes": Probe(measure_codes, plot_codes),
    "features": Probe(measure_features, plot_features),
}
