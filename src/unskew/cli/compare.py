"""``unskew compare``: train several methods on the same data, network and seeds."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.cli.data_options import (
    ClientColumn,
    Features,
    Holdout,
    LabelColumn,
    Size,
    column_names,
)
from unskew.cli.output import Json, Target, print_json, print_rich
from unskew.cli.tuning_options import Tune, TuneLr, TuneRounds, TuneTrials, tuning_options

if TYPE_CHECKING:
    from unskew.runs.runs import Runs
    from unskew.stats.verdict import Verdict


def compare_methods(
    data: Annotated[str, typer.Option(help="A source (unskew data list) or a path.")] = "digits",
    skew: Annotated[
        str | None,
        typer.Option(help="The recipe for skew (unskew data skews).", show_default="iid"),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="How many clients.", show_default="10")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Deal out so many training samples only.")
    ] = None,
    holdout: Holdout = None,
    label_column: LabelColumn = "label",
    client_column: ClientColumn = None,
    features: Features = None,
    size: Size = None,
    methods: Annotated[
        str, typer.Option(help="Methods with options, such as fedavg,fedprox:mu=0.01.")
    ] = "fedavg,mean,fedprox",
    model: Annotated[str | None, typer.Option(help="A network (unskew models).")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = 50,
    participation: Annotated[
        float | None, typer.Option(help="Share of the clients in each round.")
    ] = None,
    cohort: Annotated[
        int | None, typer.Option(help="Or their number; all, if there are fewer.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Local passes over a client's samples.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Or local steps.")] = None,
    batch_size: Annotated[int, typer.Option(help="Samples a local step.")] = 32,
    lr: Annotated[float, typer.Option(help="Local learning rate.")] = 0.05,
    seeds: Annotated[int, typer.Option(help="How many seeds, each with its own deal.", min=1)] = 3,
    evaluate_every: Annotated[int, typer.Option(help="Rounds between evaluations.")] = 1,
    target: Target = None,
    tune: Tune = False,
    tune_lr: TuneLr = None,
    tune_trials: TuneTrials = None,
    tune_rounds: TuneRounds = None,
    workers: Annotated[int | None, typer.Option(help="Processes for convolutions.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, such as momentum=0.9; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for runs, table and page.")] = None,
    resume: Annotated[
        bool,
        typer.Option(help="Go on with the runs in --out and play only what is new, or refuse to."),
    ] = True,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at once; default: one a core, if it keeps to one.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare methods on the same data, network and seeds.

    Shows a table of accuracy, the worst client, and the rounds and bytes to a target accuracy,
    and says whether the leader's lead is real; with --out it also writes every run, the table
    (CSV, LaTeX, Markdown) and a page with all figures.

    Example:  [bold]unskew compare --data digits --skew dirichlet:alpha=0.1 --clients 20 \\
    --methods fedavg,mean,fedprox:mu=0.1 --rounds 50 --seeds 3 --out runs/digits[/bold]

    With --tune every method tries as many settings as any other on a fifth of each client's
    training samples, never on test samples, and is then trained with its best one: first its
    learning rate, then the values its paper searched. Options you spell stay as you spell them.

    Example:  [bold]unskew compare --methods fedavg,fedprox,moon --tune --tune-lr 0.01,0.05,0.1 \\
    --tune-trials 6 --tune-rounds 15[/bold]
    """
    from unskew.data.config import DataConfig  # noqa: PLC0415
    from unskew.data.opening import open_data, with_tests  # noqa: PLC0415
    from unskew.experiments.comparison import compare  # noqa: PLC0415
    from unskew.experiments.config import set_values  # noqa: PLC0415
    from unskew.report.tuning_table import tuning_table  # noqa: PLC0415
    from unskew.runs.runs import check_target  # noqa: PLC0415
    from unskew.utils.specs import validated  # noqa: PLC0415

    check_target(target)
    search = tuning_options(tune, tune_lr, tune_trials, tune_rounds)
    wanted = {
        "name": data,
        "skew": skew,
        "clients": clients,
        "samples": samples,
        "holdout": holdout,
        "label_column": label_column,
        "client_column": client_column,
        "features": column_names(features),
        "size": size,
    }
    where = validated(DataConfig, wanted)
    options: dict[str, Any] = {
        "rounds": rounds,
        "participation": participation,
        "cohort": cohort,
        "epochs": epochs,
        "steps": steps,
        "batch_size": batch_size,
        "lr": lr,
        "evaluate_every": evaluate_every,
        "workers": workers,
        **set_values(settings or ()),
    }
    runs = compare(
        lambda seed: with_tests(open_data(where, seed)),
        methods,
        seeds=seeds,
        model=model,
        tune=search,
        out=out,
        resume=resume,
        jobs=jobs,
        **options,
    )
    verdict = runs.verdict()
    if json:
        print_json(_summary_rows(runs, target, verdict))
    else:
        tuned = tuning_table(runs)
        if tuned is not None:
            print_rich(tuned)
        print_rich(runs.table(target))
        if verdict is not None:
            typer.echo(str(verdict))
    if out is not None:
        from unskew.report.writing import write_comparison  # noqa: PLC0415

        command = shlex.join(["unskew", *sys.argv[1:]])
        page = write_comparison(out, runs, target=target, command=command)
        typer.echo(f"page: {page}", err=json)


def _summary_rows(
    runs: "Runs", target: float | None, verdict: "Verdict | None"
) -> list[dict[str, Any]]:
    """Return a row a method, with how it stands to the leader, and its search if there was one."""
    from unskew.report.tuning_table import tuning_facts  # noqa: PLC0415

    tuned = tuning_facts(runs)
    return [
        asdict(row)
        | {"verdict": verdict.note(row.method) if verdict else None}
        | ({"tuning": tuned[row.method]} if row.method in tuned else {})
        for row in runs.summaries(target)
    ]
