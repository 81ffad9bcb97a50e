"""The command line: thin typer commands over the library."""

from __future__ import annotations

import io
import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lookright import __version__
from lookright.benchmark_cli import benchmark as benchmarks
from lookright.console import installed_versions, loader, show
from lookright.errors import EvidenceWarning, InputError, told
from lookright.evaluate_cli import compare, evaluate
from lookright.options import (
    AsJson,
    BatchTokens,
    CalibrationFile,
    Caption,
    Device,
    Dtype,
    Given,
    Images,
    KeepGoing,
    MethodName,
    ModelName,
    Plot,
    Preset,
    PresetOfCalibration,
    Revision,
    Seed,
    Settings,
    TrustRemoteCode,
    settings_changes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookright.asking import Asked
    from lookright.choice import Choice
    from lookright.model import Model

app = typer.Typer(
    name="lookright",
    help="Multimodal LLMs that answer by what they look at, not by where it stands.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lookright {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure and remove position bias in multimodal LLMs."""


@app.command()
def doctor(
    model: Annotated[
        str | None, typer.Option(help="A model's name or folder: what it needs, and if it fits.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="The model's revision.")] = None,
    device: Annotated[
        str | None, typer.Option(help="The device to try; the first accelerator by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at this machine and try the attention probe on it; exit code 1 if a check fails."""
    from lookright.doctor import as_text, examine

    report = examine(model, revision=revision, device=device)
    typer.echo(json.dumps(report.to_dict(), indent=2) if as_json else as_text(report))
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def evidence(
    model: Annotated[str, typer.Option(help="The model's name or folder.")],
    benchmark: Annotated[Path, typer.Option(help="A benchmark folder, or one .jsonl file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to save it in.")],
    orders: Annotated[
        list[str] | None,
        typer.Option(help="cyclic [default], random:T, shared:T, all or identity; repeatable."),
    ] = None,
    part: Annotated[str, typer.Option(help="instances, calibration or both.")] = "instances",
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many instances of a part.")
    ] = None,
    seed: Seed = 0,
    preset: Preset = "paper",
    changes: Settings = None,
    heads: Annotated[
        bool, typer.Option("--heads", help="Keep the attention of each head.")
    ] = False,
    maps: Annotated[
        int, typer.Option(min=0, help="Keep the attention on each token of so many instances.")
    ] = 0,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    batch_tokens: BatchTokens = None,
    trust_remote_code: TrustRemoteCode = False,
    resume: Annotated[
        bool, typer.Option(help="Go on in a folder that holds evidence, or refuse it.")
    ] = True,
    keep_going: KeepGoing = False,
    as_json: AsJson = False,
) -> None:
    """Ask a model a benchmark's questions and save the evidence; stopped, it goes on from there."""
    from lookright.gather import Request, gather
    from lookright.progress import progress

    load = loader(device, dtype, revision, trust_remote_code, batch_tokens)
    request = Request(
        benchmark,
        output,
        orders=tuple(orders or ("cyclic",)),
        part=part,
        limit=limit,
        seed=seed,
        preset=preset,
        changes=settings_changes(changes or ()),
        heads=heads,
        maps=maps,
        resume=resume,
        keep_going=keep_going,
    )
    outcome = gather(request, lambda: load(model), progress, installed_versions)
    typer.echo(json.dumps(asdict(outcome), indent=2) if as_json else outcome.as_text())
    if outcome.skipped:
        raise typer.Exit(1)


@app.command()
def calibrate(
    benchmark: Annotated[
        Path, typer.Option(help="A folder with calibration.jsonl, or one .jsonl file of samples.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The .safetensors file to save it in.")
    ],
    model: ModelName = None,
    candidates: Annotated[
        list[int] | None,
        typer.Option(
            "-n",
            min=2,
            help="Candidates; repeatable [default: as many as the samples have images].",
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="So many of the first samples [default: 5].")
    ] = None,
    preset: Preset = "paper",
    changes: Settings = None,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Learn a model's habits from a few labelled samples, so that one pass decides afterwards."""
    from lookright.asking import calibrate

    selector = calibrate(
        model,
        benchmark,
        output,
        loader(device, dtype, revision, trust_remote_code),
        candidates=candidates or (),
        samples=samples,
        preset=preset,
        changes=settings_changes(changes or ()),
        seed=seed,
    )
    if as_json:
        gains = {n: found.gamma for n, found in selector.calibrations.items()}
        typer.echo(json.dumps({"path": str(output), "gamma": gains}, indent=2))
        return
    for found in selector.calibrations.values():
        typer.echo(found.explain())
    typer.echo(f"saved in {output}")


@app.command()
def select(
    caption: Caption,
    images: Images,
    model: ModelName = None,
    calibration: CalibrationFile = None,
    method: MethodName = None,
    preset: PresetOfCalibration = None,
    given: Given = None,
    plot: Plot = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Choose the image that matches a caption, whatever the order the images come in."""
    from lookright.asking import Asked
    from lookright.choice_text import choice_table

    asked = Asked(caption, images, model, calibration, method, preset, given or (), plot)
    choice = _answer(asked, loader(device, dtype, revision, trust_remote_code))
    show(choice.to_dict() if as_json else choice_table(choice))


@app.command()
def rank(
    caption: Caption,
    images: Images,
    model: ModelName = None,
    top: Annotated[int | None, typer.Option(min=1, help="So many of the best alone.")] = None,
    calibration: CalibrationFile = None,
    method: MethodName = None,
    preset: PresetOfCalibration = None,
    given: Given = None,
    plot: Plot = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Put images in the order in which they match a caption, the best first."""
    from lookright.asking import Asked
    from lookright.choice import rank
    from lookright.choice_text import ranking_table

    asked = Asked(caption, images, model, calibration, method, preset, given or (), plot)
    choice = _answer(asked, loader(device, dtype, revision, trust_remote_code))
    ranking = rank(choice, top)
    show(ranking.to_dict() if as_json else ranking_table(ranking))


@app.command()
def score(
    evidence: Annotated[
        Path, typer.Argument(help="An evidence folder, or an .npz of recorded evidence.")
    ],
    calibration_instances: Annotated[
        str | None,
        typer.Option(help="Samples to calibrate on, as a slice [default: the run's, else 0:5]."),
    ] = None,
    instances: Annotated[
        str | None, typer.Option(help="Instances to evaluate, as a slice [default: the others].")
    ] = None,
    preset: Preset = "paper",
    methods: Annotated[
        str | None, typer.Option(help="Methods, separated by commas [default: all].")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", help="method.parameter=value, as in lad.k=4; repeatable."),
    ] = None,
    ablations: Annotated[
        bool, typer.Option("--ablations", help="Add rows of lad, each with one thing changed.")
    ] = False,
    samples: Annotated[int, typer.Option(min=1, help="Samples of one calibration.")] = 5,
    draws: Annotated[
        int | None,
        typer.Option(min=1, help="Calibrations drawn where there are more samples [default: 5]."),
    ] = None,
    orders: Annotated[
        str | None,
        typer.Option(help="Orders of a folder to evaluate, as in random:5 [default: the run's]."),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Score every method on recorded evidence; no model is needed."""
    from lookright.methods.parameters import from_assignments
    from lookright.recordings import load_evidence
    from lookright.report.tables import results_table
    from lookright.scoring import rows_of

    rows = rows_of(
        load_evidence(evidence, orders, seed),
        calibration=calibration_instances,
        instances=instances,
        preset=preset,
        methods=None if methods is None else methods.split(","),
        given=from_assignments(given or []),
        with_ablations=ablations,
        samples=samples,
        draws=draws,
        seed=seed,
    )
    show({"rows": rows} if as_json else results_table(rows))


app.command()(evaluate)
app.command()(compare)
app.add_typer(benchmarks, name="benchmark")


def _answer(asked: Asked, load: Callable[[str], Model]) -> Choice:
    """The choice, and its figure where one is wanted."""
    from lookright.asking import answer

    choice = answer(asked, load, lambda text: typer.echo(f"lookright: {text}", err=True))
    if asked.plot is not None:
        from lookright.report.look import save_figure

        save_figure(choice.plot(), asked.plot)
        typer.echo(f"lookright: the figure is in {asked.plot}", err=True)
    return choice


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    typer.echo(f"lookright: note: {told(message)}", err=True)


def main() -> None:
    """Run the command line; what a person can mend ends in one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # bars and captions on a terminal of few letters
            stream.reconfigure(errors="replace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", EvidenceWarning)
            warnings.showwarning = _show_warning
            app()
    except InputError as error:
        typer.echo(f"lookright: {told(error)}", err=True)
        sys.exit(2)
    except SystemExit as end:
        if end.code == 130:  # what typer makes of Ctrl-C
            typer.echo("lookright: stopped; what was saved by then is kept", err=True)
        raise


if __name__ == "__main__":
    main()
