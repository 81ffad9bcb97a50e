"""The commands `benchmark build ...` and `benchmark show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookright.errors import InputError
from lookright.options import AsJson, Device, Preset, Revision, Seed

if TYPE_CHECKING:
    from lookright.benchmarks.build import Recipe
    from lookright.benchmarks.folder import Benchmark
    from lookright.benchmarks.parquet import Table
    from lookright.benchmarks.pool import Pool

benchmark = typer.Typer(
    help="Build benchmarks and look at them.", no_args_is_help=True, rich_markup_mode=None
)
build = typer.Typer(
    help="Make a benchmark folder from pictures, captions or a seed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
benchmark.add_typer(build, name="build")

Output = Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")]
Setting = Annotated[str, typer.Option(help="Negatives: random, or hard.")]
Candidates = Annotated[int, typer.Option("-n", help="Candidates of a question, 2 to 26.")]
Samples = Annotated[int, typer.Option(help="Questions to evaluate: exactly so many.")]
CalibrationSamples = Annotated[
    int, typer.Option(help="Labelled questions to calibrate from, with images of their own.")
]
EmbedderName = Annotated[
    str | None,
    typer.Option(
        help="A CLIP-like model's name or folder, for hard negatives [default: the vectors that "
        "come with the data, else openai/clip-vit-large-patch14]."
    ),
]
Embeddings = Annotated[
    Path | None,
    typer.Option(help="Where finished embeddings are kept [default: OUTPUT/embeddings]."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="role=column, as in caption=text; the roles are image, caption, question, answer, id, "
        "categories, category, image_vector and caption_vector; repeatable.",
    ),
]
Copy = Annotated[
    bool, typer.Option("--copy", help="Copy the pictures into the folder, so that it can be moved.")
]
ImageFolder = Annotated[Path, typer.Option(help="The folder of the pictures.")]


@build.command()
def coco(
    captions: Annotated[Path, typer.Argument(help="captions_val2014.json, or the like.")],
    images: ImageFolder,
    output: Output,
    instances: Annotated[
        Path | None, typer.Option(help="instances_val2014.json: the objects' categories.")
    ] = None,
    setting: Setting = "random",
    n: Candidates = 4,
    samples: Samples = 200,
    calibration_samples: CalibrationSamples = 25,
    seed: Seed = 0,
    preset: Preset = "paper",
    embedder: EmbedderName = None,
    embeddings: Embeddings = None,
    device: Device = None,
    revision: Revision = None,
    copy: Copy = False,
    as_json: AsJson = False,
) -> None:
    """MS-COCO, from its annotation files and pictures."""
    from lookright.benchmarks.build import Recipe
    from lookright.benchmarks.coco import read_coco

    recipe = Recipe(setting, n, samples, calibration_samples, seed, preset)
    if setting == "hard" and instances is None:
        raise InputError("hard negatives of COCO need its categories: give --instances")
    pool = read_coco(captions, images, instances)
    pool = _embedded(pool, recipe, output, embedder, embeddings, device, revision)
    _built(pool, recipe, output, "coco", captions.name, None if copy else images, as_json)


@build.command()
def flickr8k(
    captions: Annotated[Path, typer.Argument(help="Flickr8k.token.txt, or captions.txt (CSV).")],
    images: ImageFolder,
    output: Output,
    split: Annotated[
        Path | None, typer.Option(help="Flickr_8k.testImages.txt, or the like: only these.")
    ] = None,
    setting: Setting = "random",
    n: Candidates = 4,
    samples: Samples = 200,
    calibration_samples: CalibrationSamples = 25,
    seed: Seed = 0,
    preset: Preset = "paper",
    embedder: EmbedderName = None,
    embeddings: Embeddings = None,
    device: Device = None,
    revision: Revision = None,
    copy: Copy = False,
    as_json: AsJson = False,
) -> None:
    """Flickr8k, from its caption file and pictures."""
    from lookright.benchmarks.build import Recipe
    from lookright.benchmarks.flickr8k import read_flickr8k

    recipe = Recipe(setting, n, samples, calibration_samples, seed, preset)
    pool = read_flickr8k(captions, images, split)
    pool = _embedded(pool, recipe, output, embedder, embeddings, device, revision)
    _built(pool, recipe, output, "flickr8k", captions.name, None if copy else images, as_json)


@build.command()
def mmiu(
    annotations: Annotated[Path, typer.Argument(help="MMIU's all.json.")],
    images: ImageFolder,
    task: Annotated[str, typer.Option(help="The paper's name of a task, or MMIU's own.")],
    output: Output,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Questions to evaluate [default: all others].")
    ] = None,
    calibration_samples: CalibrationSamples = 25,
    seed: Seed = 0,
    copy: Copy = False,
    as_json: AsJson = False,
) -> None:
    """A task of MMIU whose options are the images."""
    from lookright.benchmarks.build import split, write_questions
    from lookright.benchmarks.mmiu import read_mmiu

    found, refused = read_mmiu(annotations, images, task)
    for row, reason in refused.items():
        typer.echo(f"lookright: note: {annotations}, row {row}: left out, {reason}", err=True)
    drawn = split(found, f"{annotations}, {task}", samples, calibration_samples, seed)
    facts = {
        "source": "mmiu",
        "task": task,
        "seed": seed,
        "refused": {str(row): reason for row, reason in refused.items()},
    }
    root = None if copy else images
    made = write_questions(drawn, output, facts=facts, identifiers="letters", root=root)
    _report(made, as_json)


@build.command()
def folder(
    pictures: Annotated[Path, typer.Argument(help="A folder of pictures.")],
    output: Output,
    captions: Annotated[
        Path | None,
        typer.Option(help="A .csv or .jsonl of file names and captions [default: a.txt for a.jpg]"),
    ] = None,
    setting: Setting = "random",
    n: Candidates = 4,
    samples: Samples = 200,
    calibration_samples: CalibrationSamples = 25,
    seed: Seed = 0,
    preset: Preset = "paper",
    embedder: EmbedderName = None,
    embeddings: Embeddings = None,
    device: Device = None,
    revision: Revision = None,
    copy: Copy = False,
    as_json: AsJson = False,
) -> None:
    """Pictures of one's own, with captions."""
    from lookright.benchmarks.build import Recipe
    from lookright.benchmarks.pictures import read_pictures

    recipe = Recipe(setting, n, samples, calibration_samples, seed, preset)
    pool = read_pictures(pictures, captions)
    pool = _embedded(pool, recipe, output, embedder, embeddings, device, revision)
    _built(pool, recipe, output, "folder", pictures.name, None if copy else pictures, as_json)


@build.command()
def parquet(
    file: Annotated[Path, typer.Argument(help="A Parquet file with a column of images.")],
    output: Output,
    columns: Columns = None,
    setting: Setting = "random",
    n: Candidates = 4,
    samples: Samples = 200,
    calibration_samples: CalibrationSamples = 25,
    seed: Seed = 0,
    preset: Preset = "paper",
    embedder: EmbedderName = None,
    embeddings: Embeddings = None,
    device: Device = None,
    revision: Revision = None,
    as_json: AsJson = False,
) -> None:
    """A Parquet file: an image and captions in a row, or a question and a list of images."""
    from lookright.benchmarks.build import Recipe
    from lookright.benchmarks.parquet import read_parquet

    recipe = Recipe(setting, n, samples, calibration_samples, seed, preset)
    table = read_parquet(file, _given(columns))
    if table.holds_lists:
        _built_questions(table, recipe, output, "parquet", file.name, as_json)
        return
    pool = _embedded(_pool(table), recipe, output, embedder, embeddings, device, revision)
    _built(pool, recipe, output, "parquet", file.name, None, as_json)


@build.command()
def hub(
    name: Annotated[str, typer.Argument(help="A dataset's name on the hub, or its folder.")],
    output: Output,
    split: Annotated[str, typer.Option(help="The split to draw from.")] = "test",
    config: Annotated[str | None, typer.Option(help="The dataset's configuration.")] = None,
    dataset_revision: Annotated[str | None, typer.Option(help="The dataset's revision.")] = None,
    columns: Columns = None,
    setting: Setting = "random",
    n: Candidates = 4,
    samples: Samples = 200,
    calibration_samples: CalibrationSamples = 25,
    seed: Seed = 0,
    preset: Preset = "paper",
    embedder: EmbedderName = None,
    embeddings: Embeddings = None,
    device: Device = None,
    revision: Revision = None,
    as_json: AsJson = False,
) -> None:
    """A dataset of the hub, through the library `datasets`."""
    from lookright.benchmarks.build import Recipe
    from lookright.benchmarks.hub import read_hub

    recipe = Recipe(setting, n, samples, calibration_samples, seed, preset)
    table = read_hub(name, split, _given(columns), config=config, revision=dataset_revision)
    if table.holds_lists:
        _built_questions(table, recipe, output, "hub", table.source, as_json)
        return
    pool = _embedded(_pool(table), recipe, output, embedder, embeddings, device, revision)
    _built(pool, recipe, output, "hub", table.source, None, as_json)


@build.command()
def scenes(
    output: Output,
    style: Annotated[str, typer.Option(help="a or b: the look of things and words.")] = "a",
    kind: Annotated[
        str, typer.Option(help="match (captions), odd (another background), or larger.")
    ] = "match",
    combinations: Annotated[
        str, typer.Option(help="Of attributes: all, seen (in training), or unseen.")
    ] = "all",
    setting: Setting = "random",
    n: Candidates = 4,
    samples: Samples = 200,
    calibration_samples: CalibrationSamples = 25,
    seed: Seed = 0,
    embedder: Annotated[
        str | None,
        typer.Option(help="Hard negatives are the nearest scenes by this CLIP-like model."),
    ] = None,
    embeddings: Embeddings = None,
    device: Device = None,
    revision: Revision = None,
    as_json: AsJson = False,
) -> None:
    """Rendered scenes: no data is needed."""
    from lookright.benchmarks.build import Recipe
    from lookright.benchmarks.scenes_build import World, build_scenes, scene_pool
    from lookright.progress import progress

    world = World(style, kind, combinations)
    recipe = Recipe(setting, n, samples, calibration_samples, seed)
    if embedder is None:
        _report(build_scenes(world, recipe, output, progress), as_json)
        return
    if setting != "hard":
        raise InputError("an embedder chooses hard negatives: say --setting hard")
    pool = _embedded(
        scene_pool(world, recipe, progress), recipe, output, embedder, embeddings, device, revision
    )
    _built(pool, recipe, output, "scenes", f"style {style}", None, as_json)


@benchmark.command()
def show(
    path: Annotated[Path, typer.Argument(help="A benchmark folder, or one .jsonl file.")],
    check: Annotated[
        bool, typer.Option("--check", help="Open every image and look for leaks; exit code 1 then.")
    ] = False,
    sheet: Annotated[
        Path | None, typer.Option(help="Save a contact sheet (.png or .html).")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Questions on the sheet.")] = 12,
    as_json: AsJson = False,
) -> None:
    """Say what a benchmark holds; nothing in it is changed."""
    import json
    from dataclasses import asdict

    from lookright.benchmarks.sheet import save_sheet, summarise

    found, summary = summarise(path, check)
    if sheet is not None:
        save_sheet(found, sheet, count)
        typer.echo(f"lookright: the contact sheet is in {sheet}", err=True)
    typer.echo(json.dumps(asdict(summary), indent=2) if as_json else summary.as_text())
    if summary.problems:
        raise typer.Exit(1)


def _given(columns: list[str] | None) -> dict[str, str]:
    found = {}
    for text in columns or ():
        role, equals, name = text.partition("=")
        if not equals or not role or not name:
            raise InputError(f"--column {text!r}: give role=column, as in caption=text")
        found[role] = name
    return found


def _pool(table: Table) -> Pool:
    from lookright.benchmarks.parquet import pool_of

    return pool_of(table)


def _embedded(
    pool: Pool,
    recipe: Recipe,
    output: Path,
    embedder: str | None,
    embeddings: Path | None,
    device: str | None,
    revision: str | None,
) -> Pool:
    """The pool with vectors, where hard negatives need some that it has not."""
    has_both = pool.image_vectors is not None and pool.caption_vectors is not None
    if recipe.setting != "hard" or (has_both and embedder is None):
        return pool
    from lookright.baselines.embedding import EMBEDDER
    from lookright.benchmarks.embed import embed_pool
    from lookright.benchmarks.folder import check_is_new
    from lookright.progress import progress
    from lookright.towers import Towers

    check_is_new(output)
    towers = Towers.load(embedder or EMBEDDER, device=device, revision=revision)
    return embed_pool(pool, towers, embeddings or output / "embeddings", progress)


def _built(
    pool: Pool,
    recipe: Recipe,
    output: Path,
    builder: str,
    source: str,
    root: Path | None,
    as_json: bool,
) -> None:
    from lookright.benchmarks.build import build

    facts = {"builder": builder, "source": source}
    _report(build(pool, recipe, output, facts=facts, root=root), as_json)


def _built_questions(
    table: Table, recipe: Recipe, output: Path, builder: str, source: str, as_json: bool
) -> None:
    """Rows that are questions already: their negatives are not ours to choose."""
    from lookright.benchmarks.build import split, write_questions
    from lookright.benchmarks.parquet import questions_of

    if recipe.setting == "hard":
        raise InputError(f"{table.source}: its rows have their candidates; leave out --setting")
    found, skipped = questions_of(table, recipe.n)
    drawn = split(
        found, table.source, recipe.samples, recipe.calibration_samples, recipe.seed, skipped
    )
    facts: dict[str, Any] = {"builder": builder, "source": source, "seed": recipe.seed}
    _report(write_questions(drawn, output, facts=facts), as_json)


def _report(made: Benchmark, as_json: bool) -> None:
    """What was made, and what was passed over."""
    import json

    facts = {
        "path": str(made.path),
        "instances": len(made.instances),
        "calibration": len(made.calibration),
        "n": made.meta["n"],
        "skipped": made.meta["skipped"],
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    typer.echo(
        f"{made.path}: {len(made.instances):,} questions, {len(made.calibration):,} to calibrate "
        "from"
    )
    for reason, count in made.meta["skipped"].items():
        typer.echo(f"{count:,} passed over: {reason}")
