"""Judging the claims of a kept result again, from its numbers per seed."""

import math
from pathlib import Path
from typing import Any

from unskew.experiments.studies.claims import judge_claims
from unskew.experiments.studies.kept_results import read_result
from unskew.experiments.studies.library import open_study, study_names
from unskew.experiments.studies.result import claim_values, markdown_of
from unskew.experiments.studies.values import Cells
from unskew.runs.atomic import write_bytes, write_json
from unskew.utils.jsonable import to_jsonable


def rejudge_result(folder: Path) -> bool:
    """Judge the claims in a folder's result.json again, and write it and result.md.

    Return whether the study is known; results of other studies stay as they are.
    """
    path = folder / "result.json"
    result = read_result(path)
    if result["study"] not in study_names():
        return False
    study = open_study(result["study"], result["scale"], result["seeds"])
    judged = judge_claims(study.file, cells_in(result), study.scale)
    result["claims"] = to_jsonable([claim_values(one) for one in judged])
    result["note"] = study.file.note
    write_json(path, result)
    write_bytes(folder / "result.md", markdown_of(study, result).encode())
    return True


def cells_in(result: dict[str, Any]) -> Cells:
    """Return the values of a result by case, method, measure and seed."""
    return {
        case["name"]: {
            row["method"]: {
                measure: {
                    int(seed): math.nan if value is None else value
                    for seed, value in found["values"].items()
                }
                for measure, found in row["measured"].items()
            }
            for row in case["rows"]
        }
        for case in result["cases"]
    }
