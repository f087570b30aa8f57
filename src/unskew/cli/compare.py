"""``unskew compare``: train several methods on the same data, network and seeds.

docs/architecture.md follows this command through ten modules.
"""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.cli.collection import without_garbage_collection
from unskew.cli.compute_options import Device, Memory, Precision, compute_options
from unskew.cli.data_options import (
    ClientColumn,
    Clients,
    ColumnKinds,
    Features,
    Holdout,
    LabelColumn,
    Prepare,
    Size,
    Skew,
    Task,
    data_config,
)
from unskew.cli.deciding_options import Best, Budget, Decide, MaxSeeds, deciding_options
from unskew.cli.judging_options import FinalOption, LevelOption, Margin, MetricOption, Metrics
from unskew.cli.output import Debug, Json, Target, exit_if_untrained, print_json, print_rich
from unskew.cli.place_option import PlaceOption
from unskew.cli.recorded_output import RecordedOutput
from unskew.cli.tuning_options import (
    Tune,
    TuneBudget,
    TuneClip,
    TuneLr,
    TuneRounds,
    TuneSeeds,
    tuning_options,
)
from unskew.errors import UnskewError
from unskew.runs.file_names import PAGE

if TYPE_CHECKING:
    from unskew.data.federation import Federation


def compare_methods(
    context: typer.Context,
    data: Annotated[
        str, typer.Option(help="A data source (see unskew data list) or a path.")
    ] = "digits",
    skew: Skew = None,
    clients: Clients = None,
    samples: Annotated[
        int | None,
        typer.Option(help="Use only this many training samples, chosen at random."),
    ] = None,
    holdout: Holdout = None,
    label_column: LabelColumn = "label",
    task: Task = None,
    client_column: ClientColumn = None,
    features: Features = None,
    prepare: Prepare = "federated",
    columns: ColumnKinds = None,
    size: Size = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Comma-separated methods with their options, such as fedavg,fedprox:mu=0.01 "
            "(see unskew methods), or my.py:Class:option=value for a class in your file."
        ),
    ] = "fedavg,mean,fedprox",
    model: Annotated[
        str | None,
        typer.Option(help="A network (see unskew models).", show_default="one that fits the data"),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of training rounds.")] = 50,
    participation: Annotated[
        float | None,
        typer.Option(help="Share of the clients that train in each round.", show_default="all"),
    ] = None,
    cohort: Annotated[
        int | None, typer.Option(help="Number of clients per round, instead of a share.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Local epochs per round.", show_default="1")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Local steps per round, instead of epochs.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Batch size of a local step.")] = 32,
    lr: Annotated[float, typer.Option(help="Local learning rate.")] = 0.05,
    seeds: Annotated[
        int, typer.Option(help="Number of seeds; each has its own partition.", min=1)
    ] = 5,
    evaluate_every: Annotated[int, typer.Option(help="Rounds between evaluations.")] = 1,
    metric: MetricOption = None,
    metrics: Metrics = None,
    final: FinalOption = "mean",
    margin: Margin = 1.0,
    level: LevelOption = None,
    decide: Decide = False,
    max_seeds: MaxSeeds = None,
    budget: Budget = None,
    best: Best = False,
    target: Target = None,
    tune: Tune = False,
    tune_lr: TuneLr = None,
    tune_clip: TuneClip = None,
    tune_budget: TuneBudget = None,
    tune_rounds: TuneRounds = None,
    tune_seeds: TuneSeeds = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Worker processes of a run with runner=processes.", show_default="one per core"
        ),
    ] = None,
    device: Device = None,
    memory: Memory = None,
    precision: Precision = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, such as momentum=0.9; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs, the table and the report page.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            help="Resume or reuse the runs in --out; with --no-resume, stop if there are any."
        ),
    ] = True,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Number of runs at the same time.",
            show_default="one per core, if each run uses one core",
        ),
    ] = None,
    on: PlaceOption = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare methods on the same data, network and seeds.

    Prints one row per method: its accuracy, the accuracy of the worst client, and the rounds and
    megabytes until a target accuracy. A test over the seeds then shows which methods are
    significantly better or worse than FedAvg (or the first method), which are equivalent to it, and
    which may be the best. With --out, every run, the table (CSV, LaTeX,
    Markdown) and a report page with all figures are written to a folder.

    Example:  [bold]unskew compare --data digits --skew dirichlet:alpha=0.1 --clients 20 \\
    --methods fedavg,mean,fedprox:mu=0.1 --rounds 50 --seeds 5 --out runs/digits[/bold]

    A method of yours needs only a file (see unskew new method --help):  [bold]unskew compare \\
    --methods fedavg,my.py:GradNorm:mu=0.5+ida[/bold]

    A table is used as it is, with gaps, categories, dates and unscaled numbers (docs/tables.md):
    [bold]unskew compare --data visits.csv --label-column ill --client-column site \\
    --holdout 0.2[/bold]

    With --tune, the learning rate and the options of each method are tuned on a fifth of each
    client's training samples, never on test samples. Every method gets the same budget, counted in
    rounds of training, and is then trained with its best setting: one that failed with none of the
    seeds. Options that you give in --methods are not changed.

    With --decide, --seeds is only a first wave: seeds are added until every method has an answer,
    and methods that have one are not trained further.

    Example:  [bold]unskew compare --methods fedavg,fedprox,fedavgm --decide --budget 20m[/bold]

    With --on, runs are executed by a cluster, with the same results bit for bit; the same command
    resumes what was stopped or killed.

    Example:  [bold]unskew compare --methods fedavg,fedprox --seeds 30 --out /shared/runs \\
    --on slurm:partition=cpu,time=2h[/bold]

    Example:  [bold]unskew compare --methods fedavg,fedprox,moon --tune --tune-lr 0.005,0.5 \\
    --tune-budget 180 --tune-rounds 15[/bold]
    """
    del debug
    recorded = RecordedOutput(context.params)
    if recorded.print_again():
        _print_page(out, json=json)
        return
    with without_garbage_collection():
        from unskew.cli.forest import print_forest  # noqa: PLC0415
        from unskew.data.load import depends_on_seed, open_data  # noqa: PLC0415
        from unskew.engine.settings import Settings  # noqa: PLC0415
        from unskew.experiments.comparison import compare  # noqa: PLC0415
        from unskew.experiments.config import set_values  # noqa: PLC0415
        from unskew.report.rows import method_rows  # noqa: PLC0415
        from unskew.report.tuning_table import tuning_table  # noqa: PLC0415
        from unskew.runs.decision import decision_text  # noqa: PLC0415

    search = tuning_options(tune, tune_lr, tune_clip, tune_budget, tune_rounds, tune_seeds)
    deciding = deciding_options(decide, max_seeds, budget, best)
    config = data_config(data, locals())
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
        "metrics": metrics or (),
        "metric": metric,
        **compute_options(device, memory, precision),
        **set_values(settings or ()),
    }

    def federation(seed: int) -> "Federation":
        return _with_test_samples(open_data(config, seed))

    with recorded.recording():
        runs = compare(
            federation if depends_on_seed(config) else federation(0),
            methods,
            seeds=seeds,
            model=model,
            tune=search,
            decide=deciding,
            out=out,
            resume=resume,
            jobs=jobs,
            on=on,
            target=target,
            final=final,
            margin=margin,
            level=level,
            command=shlex.join(["unskew", *sys.argv[1:]]),
            settings=Settings.validated(options),
        )
        verdict = runs.verdict()
        if json:
            print_json(method_rows(runs, target))
        else:
            tuned = tuning_table(runs)
            if tuned is not None:
                print_rich(tuned)
            print_rich(runs.table_with_verdict(target))
            if verdict is not None:
                if len(verdict.pairs) > 1:
                    print_forest(verdict)
                typer.echo(str(verdict))
                typer.echo(decision_text(runs), nl=runs.waves is not None)
    _print_page(out, json=json)
    exit_if_untrained(runs)
    recorded.write()


def _print_page(out: Path | None, *, json: bool) -> None:
    if out is not None:
        typer.echo(f"page: {out / PAGE}", err=json)


def _with_test_samples(federation: "Federation") -> "Federation":
    """Return the federation, or raise an error if it has no test samples to compare methods on."""
    if not federation.common.samples and not federation.test.samples:
        raise UnskewError(
            f"{federation.name}: has no test samples to compare methods on; hold out a share of "
            "each client's samples (rounded down), for example with --holdout 0.2"
        )
    return federation
