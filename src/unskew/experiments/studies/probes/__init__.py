"""Probes: what papers' figures show besides accuracy, one file per probe."""

from unskew.experiments.studies.probes.base import Probe
from unskew.experiments.studies.probes.choices import draw_choices, measure_choices
from unskew.experiments.studies.probes.codes import draw_codes, measure_codes
from unskew.experiments.studies.probes.dispersion import draw_dispersion, measure_dispersion
from unskew.experiments.studies.probes.features import draw_features, measure_features

PROBES: dict[str, Probe] = {
    "dispersion": Probe(measure_dispersion, draw_dispersion),
    "choices": Probe(measure_choices, draw_choices),
    "codes": Probe(measure_codes, draw_codes),
    "features": Probe(measure_features, draw_features),
}
