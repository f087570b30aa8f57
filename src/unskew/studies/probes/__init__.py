"""What figures show besides accuracy, a file each."""

from unskew.studies.probes.choices import draw_choices, measure_choices
from unskew.studies.probes.codes import draw_codes, measure_codes
from unskew.studies.probes.dispersion import draw_dispersion, measure_dispersion
from unskew.studies.probes.features import draw_features, measure_features
from unskew.studies.probing import Probe

PROBES: dict[str, Probe] = {
    "dispersion": Probe(measure_dispersion, draw_dispersion),
    "choices": Probe(measure_choices, draw_choices),
    "codes": Probe(measure_codes, draw_codes),
    "features": Probe(measure_features, draw_features),
}
