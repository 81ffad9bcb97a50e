"""The commands `evaluate` and `compare`: every method on benchmarks, and runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lookright.console import installed_versions, loader, show
from lookright.errors import InputError, shown
from lookright.options import (
    AsJson,
    BatchTokens,
    Device,
    Dtype,
    Given,
    Preset,
    Revision,
    Seed,
    TrustRemoteCode,
    names_a_method,
    settings_changes,
)

if TYPE_CHECKING:
    from lookright.job import Saved
    from lookright.towers import Towers


def evaluate(
    model: Annotated[str, typer.Option(help="The model's name on the hub, or its folder.")],
    benchmark: Annotated[
        list[Path], typer.Option(help="A benchmark folder, or one .jsonl file; repeatable.")
    ],
    run: Annotated[Path, typer.Option(help="The folder for the evidence and the results.")],
    methods: Annotated[
        str,
        typer.Option(
            help="Methods and baselines, separated by commas; all stands for the methods of one "
            "evidence, baselines for what asks questions of its own."
        ),
    ] = "all",
    embedder: Annotated[
        str | None,
        typer.Option(help="Two-tower model of the baseline embedding [default: a CLIP]."),
    ] = None,
    orders: Annotated[
        str, typer.Option(help="Orders each instance is shown in: how many, or as in shared:5.")
    ] = "5",
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Another benchmark's folder, or a saved .safetensors [default: the benchmark's "
            "own samples]."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples of one calibration.")] = 5,
    draws: Annotated[int, typer.Option(min=1, help="Calibrations, each of other samples.")] = 5,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many instances of a benchmark.")
    ] = None,
    allow_leak: Annotated[
        bool, typer.Option("--allow-leak", help="Calibrate on what is evaluated, too; marked so.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would cost, and do nothing.")
    ] = False,
    seed: Seed = 0,
    preset: Preset = "paper",
    given: Given = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    batch_tokens: BatchTokens = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate every method on benchmarks, each question asked once for all of them."""
    from lookright.job import Job
    from lookright.methods.parameters import from_assignments
    from lookright.plans import planned
    from lookright.progress import progress
    from lookright.report.tables import results_table
    from lookright.runner import evaluate

    ready = calibration is not None and calibration.suffix == ".safetensors"
    assignments = given or ()
    job = Job(
        benchmarks=tuple(benchmark),
        folder=run,
        methods=_methods(methods),
        given=from_assignments(text for text in assignments if names_a_method(text)),
        orders=orders,
        calibration=_saved(calibration) if ready and calibration is not None else calibration,
        samples=samples,
        draws=draws,
        limit=limit,
        seed=seed,
        preset=preset,
        changes=settings_changes(text for text in assignments if not names_a_method(text)),
        allow_leak=allow_leak,
    )
    if dry_run:
        from lookright.forecast import forecast

        cost = forecast(
            planned(job, progress),
            model,
            revision=revision,
            device=device,
            dtype=dtype,
            batch_tokens=batch_tokens,
        )
        show(cost.to_dict() if as_json else cost.as_text())
        if job.baselines:
            told = f"the questions of {', '.join(job.baselines)} are not in these figures"
            typer.echo(f"lookright: note: {told}", err=True)
        return
    load = loader(device, dtype, revision, trust_remote_code, batch_tokens)

    def load_towers() -> Towers:
        from lookright.baselines.embedding import EMBEDDER
        from lookright.towers import Towers

        return Towers.load(embedder or EMBEDDER, device=device)

    outcome = evaluate(job, lambda: load(model), progress, installed_versions, load_towers)
    for note in outcome.notes:
        typer.echo(f"lookright: note: {note}", err=True)
    if as_json:
        show(outcome.to_dict())
        return
    for rows in outcome.tables:
        show(results_table(rows), "")
    show(outcome.count.as_text(), f"saved in {run}")


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that `evaluate` finished.")],
    base: Annotated[
        str | None,
        typer.Option(
            help="A method of the first run to compare every method with [default: the same "
            "method; vanilla where there is one run]."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Differences between runs, or between the methods of one, on the same instances."""
    from lookright.comparison import compare
    from lookright.report.differences import differences_table

    found = compare(runs, base)
    show(found.to_dict() if as_json else differences_table(found))


def _methods(text: str) -> tuple[str, ...]:
    """The names, `all` and `baselines` spelt out; an unknown one is answered with the nearest."""
    from lookright.baselines import BASELINES
    from lookright.methods import METHODS, suggestion

    groups = {"all": tuple(METHODS), "baselines": tuple(BASELINES)}
    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if name not in {*groups, *METHODS, *BASELINES}:
            known = suggestion(name, [*METHODS, *BASELINES], "")
            raise InputError(f"unknown method {shown(name)!r}{known}")
        names += groups.get(name, (name,))
    return tuple(dict.fromkeys(names))


def _saved(path: Path) -> Saved:
    from lookright.job import Saved
    from lookright.selector_file import load

    return Saved(path, load(path)[0])
