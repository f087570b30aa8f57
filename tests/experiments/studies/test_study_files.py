"""Every included study is valid at every scale, and mistakes are named."""

import pytest

from unskew.data.catalogue import CATALOGUE
from unskew.errors import UnskewError
from unskew.experiments.studies.library import open_study, parse_study, read_study, study_names
from unskew.experiments.studies.measure_registry import MEASURES
from unskew.experiments.studies.probes import PROBES
from unskew.experiments.studies.study_scheduler import check_study, content_key
from unskew.methods import make_method
from unskew.models import MODELS
from unskew.utils.specs import build

PUBLISHED = {
    "feddisk": [
        *(f"Fig. {figure}{panel}" for figure in (3, 4, 5, 7) for panel in "abc"),
        *("Fig. 6", "Table I", "Table II"),
    ],
    "fedfusion": ["Table 1", "Fig. 3", "Fig. 4", "Fig. 5", "Fig. 6", "Fig. 7", "Fig. 8"],
    "ida": ["Table 1", "Table 2", "Table 3", "Fig. 2", "Fig. 3"],
    "latent": [f"Fig. {number}" for number in range(2, 10)],
    "fedsa": [*(f"Table {n}" for n in range(1, 6)), "Fig. 1", "Fig. 2", "Fig. 5", "Fig. 6"],
}

SMALL = """
title = "A study"
paper = "ida"
reproduces = ["Table 9"]
measures = ["global"]
data = { name = "digits", skew = "iid" }
train = { participation = 0.5, epochs = 2 }
[methods]
FedAvg = "fedavg"
IDA = "ida"
[[cases]]
name = "one"
train = { cohort = 3 }
[[cases]]
name = "two"
data = { clients = 7 }
[scales.cpu]
changes = "fewer"
data = { samples = 100 }
methods = { IDA = "" }
[scales.cpu.where."t*"]
train = { steps = 4 }
[scales.smoke]
changes = "fewer"
cases = ["two"]
seeds = 2
"""


def test_every_published_table_and_figure_is_reproduced_by_a_study():
    reproduced = {paper: set() for paper in PUBLISHED}
    for name in study_names():
        file = read_study(name)
        reproduced[file.paper] |= set(file.reproduces)
    for paper, published in PUBLISHED.items():
        assert set(published) <= reproduced[paper], paper


@pytest.mark.parametrize("scale", ["paper", "cpu", "smoke"])
@pytest.mark.parametrize("name", study_names())
def test_a_study_refers_to_known_names(name, scale):
    study = open_study(name, scale)
    assert set(study.file.measures) <= set(MEASURES)
    assert set(study.file.probes) <= set(PROBES)
    for case in study.cases:
        assert case.missing or case.data.name in CATALOGUE
        if case.model is not None:
            build(MODELS, case.model, "model")
        specs = [make_method(spec).spec for spec in case.methods.values()]
        assert len(set(specs)) == len(specs)
        assert case.methods or study.file.probes
    assert study.changes.strip()


@pytest.mark.parametrize("name", study_names())
def test_smoke_needs_no_data_and_claims_name_known_methods(name):
    assert {case.data.name for case in open_study(name, "smoke").cases} == {"digits"}
    file = read_study(name)
    known = set(file.methods) | {label for case in file.cases for label in case.methods}
    for claim in file.claims:
        assert claim.measure in file.measures
        if not file.probes:
            assert {claim.method, *claim.than} <= known


def resolved(scale, text=SMALL):
    from unskew.experiments.studies.study import at_scale

    return at_scale("small", parse_study("small", text), scale)


def test_a_case_changes_the_study_and_a_scale_changes_the_case():
    paper, cpu, smoke = (resolved(scale) for scale in ("paper", "cpu", "smoke"))
    one, two = paper.cases
    assert (one.train.cohort, one.train.participation, one.train.epochs) == (3, None, 2)
    assert (two.data.clients, two.train.participation) == (7, 0.5)
    assert list(cpu.cases[0].methods) == ["FedAvg"]
    assert (cpu.cases[1].train.steps, cpu.cases[1].train.epochs) == (4, None)
    assert cpu.cases[0].data.samples == 100
    assert [case.name for case in smoke.cases] == ["two"]
    assert (paper.seeds, smoke.seeds) == (3, 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reproduces", "reproduce", "reproduce is not known; did you mean 'reproduces'"),
        ("cohort = 3", "cohorts = 3", "case 'one': train.cohorts is not known"),
        ('skew = "iid"', 'skew = "idd"', "did you mean 'iid'"),
        ("samples = 100", "sample = 100", "data.sample is not known"),
        ('paper = "ida"', 'paper = "idas"', "paper must be"),
        ('cases = ["two"]', 'cases = ["three"]', "no case matches"),
        ("[scales.smoke]", "[scales.smokes]", "scales"),
        ("title =", "title", "is not TOML"),
    ],
)
def test_mistakes_are_named(old, new, message):
    assert old in SMALL
    with pytest.raises(UnskewError, match=message):
        parse_study("small", SMALL.replace(old, new))


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ('than = ["FedAvg"]\ncases = ["three"]', "no case matches 'three'"),
        ("", "give one of than"),
        ('than = ["FedAvg"]\nthan_value = 1.0', "give one of than"),
    ],
)
def test_mistakes_in_claims_are_named(claim, message):
    text = f'{SMALL}\n[[claims]]\ntext = "x"\nmeasure = "global"\nmethod = "IDA"\n{claim}\n'
    with pytest.raises(UnskewError, match=message):
        parse_study("small", text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"fedavg"', '"fedavgs"', "case 'one': method: 'fedavgs' is not known"),
        ('"ida"\n[[', '"fedavg"\n[[', "methods must be distinct"),
        ('name = "digits"', 'name = "digit"', "data: 'digit' is not known"),
        ('measures = ["global"]', 'measures = ["globe"]', "measure: 'globe' is not known"),
        ("seeds = 2", 'seeds = 2\nmodel = "mpl"', "model: 'mpl' is not known"),
    ],
)
def test_unknown_names_are_reported_before_anything_is_run(old, new, message):
    assert old in SMALL
    study = resolved("smoke", SMALL.replace(old, new))
    with pytest.raises(UnskewError, match=message.replace("'one'", "'two'")):
        check_study(study)


def test_unknown_studies_and_scales_are_named():
    with pytest.raises(UnskewError, match="did you mean 'ida-table2'"):
        read_study("ida-table")
    with pytest.raises(UnskewError, match="scale must be one of"):
        open_study("ida-table1", "big")
    with pytest.raises(UnskewError, match="seeds must be at least 1"):
        open_study("ida-table1", "smoke", 0)


def test_cached_runs_are_found_by_what_affects_their_results():
    case = open_study("ida-table1", "smoke").cases[0]
    key = content_key(case, None)

    def changed(**settings):
        return content_key(case.model_copy(update={"train": case.train.changed(settings)}), None)

    assert changed(workers=3, checkpoint_seconds=1.0, momentum=case.train.momentum) == key
    different = [changed(lr=0.123), changed(rounds=case.train.rounds + 1), changed(device="mps"),
                 content_key(case, "iid"),
                 content_key(case.model_copy(update={"model": "logistic"}), None)]  # fmt: skip
    assert len({key, *different}) == 6
