"""``unskew study``: reproduce the tables and figures of papers."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from unskew.cli.output import Debug, Json, print_json
from unskew.cli.place_option import PlaceOption

app = typer.Typer(
    no_args_is_help=True,
    help="Reproduce the tables and figures of papers, and check their claims.",
    rich_markup_mode="rich",
)

Name = Annotated[str, typer.Argument(help="A study (see unskew study list) or a TOML file.")]


@app.command("list")
def list_studies(json: Json = False) -> None:
    """List the studies, and the tables and figures that each reproduces.

    Example:  [bold]unskew study list[/bold]
    """
    from unskew.experiments.studies.library import read_study, study_names  # noqa: PLC0415

    files = {name: read_study(name) for name in study_names()}
    if json:
        print_json(
            [
                {"name": name, **file.model_dump(include={"paper", "reproduces", "title"})}
                for name, file in files.items()
            ]
        )
        return
    from unskew.utils.tables import Table  # noqa: PLC0415

    lines = [[name, ", ".join(file.reproduces), file.title] for name, file in files.items()]
    typer.echo(str(Table(["study", "reproduces", "what it compares"], lines)))


@app.command("show")
def show_study(
    name: Name,
    scale: Annotated[
        str | None, typer.Option(help="Show only this scale: smoke, cpu or paper.")
    ] = None,
    json: Json = False,
) -> None:
    """Show a study: its claims, its cases, and what each scale changes.

    Example:  [bold]unskew study show ida-table1[/bold]
    """
    from unskew.experiments.studies.description import study_json, study_text  # noqa: PLC0415
    from unskew.experiments.studies.library import open_study  # noqa: PLC0415

    scales = ("paper", "cpu", "smoke") if scale is None else (scale,)
    studies = [open_study(name, one) for one in scales]
    if json:
        print_json({study.scale: study_json(study) for study in studies})
    else:
        typer.echo(study_text(studies))


@app.command("run")
def run_one(
    name: Name,
    scale: Annotated[
        str,
        typer.Option(
            help="smoke takes a minute, cpu minutes on two cores; paper is the paper's setting."
        ),
    ] = "cpu",
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds.", show_default="the study's")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            help="Resume or reuse existing runs; with --no-resume, stop if there are any."
        ),
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the results.", show_default="studies/NAME-SCALE"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs at the same time.", show_default="one per core"),
    ] = None,
    on: PlaceOption = None,
    device: Annotated[
        str, typer.Option(help="cpu, cuda, cuda:1, mps, or auto for the best available device.")
    ] = "auto",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a study and write result.json, result.md, figures and report pages.

    Runs are saved next to the results and reused: a run that exists with the same settings is read
    instead of repeated.

    Example:  [bold]unskew study run ida-table1 --scale cpu[/bold]
    """
    del debug
    from unskew.experiments.studies.library import open_study  # noqa: PLC0415
    from unskew.experiments.studies.result import values_table  # noqa: PLC0415
    from unskew.experiments.studies.running import run_study  # noqa: PLC0415

    study = open_study(name, scale, seeds).on_device(device)
    folder = out or Path("studies") / f"{study.name}-{scale}"
    command = shlex.join(["unskew", *sys.argv[1:]])
    outcome = run_study(study, folder, resume=resume, jobs=jobs, on=on, command=command)
    if json:
        print_json(outcome.result)
        return
    sources = sorted({case.data.name for case in study.cases if case.missing is None})
    typer.echo(
        f"{study.name}, scale {study.scale}, run on {', '.join(sources)}; for differences from "
        f"the paper's setting see {folder / 'result.md'}\n"
    )
    typer.echo(str(values_table(study, outcome.result)))
    for judged in outcome.judged:
        typer.echo(f"{judged.verdict}: {judged.claim.text}\n    {judged}")
    typer.echo(f"results: {folder}")


@app.command("index")
def index_results(
    folder: Annotated[Path, typer.Argument(help="A folder with one folder of results per study.")],
    judge: Annotated[
        bool,
        typer.Option("--judge", help="First judge all claims again, from the kept numbers."),
    ] = False,
) -> None:
    """Write README.md of a folder of results: a table of all claims and their verdicts.

    Example:  [bold]unskew study index docs/results[/bold]
    """
    from unskew.experiments.studies.index import write_index  # noqa: PLC0415

    if judge:
        from unskew.experiments.studies.rejudging import rejudge_result  # noqa: PLC0415

        for path in sorted(folder.glob("*/result.json")):
            rejudge_result(path.parent)
    page, count = write_index(folder)
    typer.echo(f"{count} {'study' if count == 1 else 'studies'}: {page}")
