"""`kbmesh models`: model folders on this machine."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from kbmesh_cli.beir import open_retrieval_set
from kbmesh_cli.bootstrap import Interval
from kbmesh_cli.comparison import Measured, Quality, Questions, parse_contenders, qualities, sample
from kbmesh_cli.comparison import compare as compare_models
from kbmesh_cli.errors import CliError
from kbmesh_cli.invocation import JsonOption, invocation
from kbmesh_cli.mesh import require_local_extra
from kbmesh_cli.models import add_precision, card_to_json, pull, tell_stage
from kbmesh_cli.output import print_json, results
from kbmesh_cli.progress_lines import ProgressLines

if TYPE_CHECKING:
    from kbmesh_onnx.folder import ModelCard


class Precision(StrEnum):
    """A precision whose file is added to the fp32 model."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"


PrecisionOption = Annotated[
    Precision,
    typer.Option(help="fp16 (for CUDA) or int8 (for CPUs) adds that file to the model, proven against fp32."),
]

app = typer.Typer(help="Pull, export and inspect models on this machine.", no_args_is_help=True)


@app.command("pull")
def pull_command(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_PATH",
            help="all-MiniLM-L6-v2, which comes with kbmesh; a hub id (OWNER/NAME); or a folder.",
        ),
    ],
    precision: PrecisionOption = Precision.FP32,
    json_output: JsonOption = False,
) -> None:
    """Fetch a model and put it into the model folder, exported and proven."""
    folder = invocation(context).models_folder
    card = pull(source, folder)
    if precision is not Precision.FP32:
        card = add_precision(precision, folder / card.name)
    _show(card, folder / card.name, json_output=json_output)


@app.command()
def export(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="Folder with config.json, tokenizer.json and safetensors.")],
    name: Annotated[str | None, typer.Option(help="Name of the model. The folder's name by default.")] = None,
    precision: PrecisionOption = Precision.FP32,
    json_output: JsonOption = False,
) -> None:
    """Turn a folder with safetensors into a model folder, and prove that it gives the same vectors."""
    require_local_extra("kbmesh_onnx")
    from kbmesh_onnx.errors import OnnxError
    from kbmesh_onnx.export import export_model

    if not source.is_dir():
        raise CliError("FILE_NOT_FOUND", f"{source} is not a folder")
    models_folder = invocation(context).models_folder
    models_folder.mkdir(parents=True, exist_ok=True)
    destination = models_folder / (name or source.resolve().name)
    try:
        card = export_model(source, destination, progress=tell_stage(destination.name))
    except OnnxError as error:
        raise CliError("MODEL_NOT_EXPORTED", str(error)) from error
    if precision is not Precision.FP32:
        card = add_precision(precision, destination)
    _show(card, destination, json_output=json_output)


@app.command("list")
def list_command(context: typer.Context, json_output: JsonOption = False) -> None:
    """List the models on this machine."""
    require_local_extra("kbmesh_onnx")
    from kbmesh_onnx.errors import OnnxError
    from kbmesh_onnx.folder import load_card

    folder = invocation(context).models_folder
    cards: dict[str, ModelCard] = {}
    broken: dict[str, str] = {}
    for card_path in sorted(folder.glob("[!.]*/kbmesh.json")):
        try:
            cards[card_path.parent.name] = load_card(card_path.parent)
        except OnnxError as error:
            broken[card_path.parent.name] = str(error)
    if json_output:
        print_json(
            {
                "folder": str(folder),
                "models": [card_to_json(card, folder / name) for name, card in cards.items()],
                "broken": broken,
            }
        )
        return
    table = Table("name", "kind", "dimension", "max tokens", "fingerprint", title=str(folder), title_justify="left")
    for name, card in cards.items():
        table.add_row(name, card.kind, str(card.dimension), str(card.max_tokens), card.fingerprint[:12])
    for name, problem in broken.items():
        table.add_row(escape(name), f"[red]broken[/]: {escape(problem)}", "", "", "")
    results().print(table)
    if not cards and not broken:
        results().print("no models yet; `kbmesh models pull all-MiniLM-L6-v2` fetches one")


@app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the model's folder.")],
    json_output: JsonOption = False,
) -> None:
    """Show what is known of a model."""
    require_local_extra("kbmesh_onnx")
    from kbmesh_onnx.errors import OnnxError
    from kbmesh_onnx.folder import load_card

    folder = invocation(context).models_folder / name
    if not folder.is_dir():
        raise CliError("MODEL_NOT_FOUND", f"there is no {folder}", hint="`kbmesh models list` shows those there are")
    try:
        card = load_card(folder)
    except OnnxError as error:
        raise CliError("MODEL_BROKEN", str(error), hint=f"`kbmesh models pull {name}` makes it anew") from error
    _show(card, folder, json_output=json_output)


@app.command()
def compare(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME[:int8]...", help="Models of this machine. The others are compared to the first."),
    ],
    data: Annotated[
        Path | None, typer.Option(metavar="SET", help="Folder or .tar.gz of a judged set in BEIR's layout.")
    ] = None,
    queries: Annotated[int | None, typer.Option(min=1, help="A sample of so many queries. All by default.")] = None,
    documents: Annotated[
        int | None, typer.Option(min=1, help="A sample of so many documents, relevant ones first. All by default.")
    ] = None,
    split: Annotated[str, typer.Option(help="Judgements to use: the name of a file in qrels.")] = "test",
    threads: Annotated[int, typer.Option(min=0, help="Threads of the model. 0: one for each core.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the samples and of the intervals.")] = 0,
    json_output: JsonOption = False,
) -> None:
    """Measure models on this machine: speed, and with --data how good they are.

    An encoder ranks all documents by cosine; a cross-encoder reorders the best 20 of the first encoder.
    """
    require_local_extra("kbmesh_onnx")
    contenders = parse_contenders(names)
    questions = _questions(data, split, queries=queries, documents=documents, seed=seed) if data is not None else None
    lines = ProgressLines("{done} of {total} batches and queries", total=_steps(questions, len(contenders)))
    found = compare_models(
        contenders, invocation(context).models_folder, questions, threads=threads, advance=lines.advance
    )
    quality = qualities(found, seed=seed) if questions is not None else None
    if json_output:
        print_json(_comparison_to_json(found, quality, data, questions))
    else:
        _show_comparison(found, quality, questions)


def _questions(data: Path, split: str, *, queries: int | None, documents: int | None, seed: int) -> Questions:
    with open_retrieval_set(data, split=split) as judged:
        whole = Questions(documents=dict(judged.documents()), queries=judged.queries, judgements=judged.judgements)
    return sample(whole, queries=queries, documents=documents, seed=seed)


def _steps(questions: Questions | None, models: int) -> int:
    if questions is None:
        return models
    return models * (-(-len(questions.documents) // 64) + len(questions.queries))


def _comparison_to_json(
    found: Sequence[Measured], quality: Sequence[Quality] | None, data: Path | None, questions: Questions | None
) -> dict[str, object]:
    def rounded(interval: Interval | None) -> dict[str, float] | None:
        if interval is None:
            return None
        return {name: round(getattr(interval, name), 5) for name in ("estimate", "low", "high")}

    return {
        "data": data.name if data is not None else None,
        "documents": len(questions.documents) if questions is not None else None,
        "queries": len(questions.queries) if questions is not None else None,
        "compared_to": str(found[0].contender),
        "models": {
            str(each.contender): {
                "kind": each.kind,
                "dimension": each.dimension,
                "max_tokens": each.max_tokens,
                "fingerprint": each.fingerprint,
                "disk_megabytes": each.disk_megabytes,
                "texts_per_second": each.texts_per_second,
                "query_ms": each.query_ms,
                "ndcg@10": rounded(quality[place].ndcg) if quality else None,
                "recall@20": quality[place].recall if quality else None,
                "difference": rounded(quality[place].difference) if quality else None,
            }
            for place, each in enumerate(found)
        },
    }


def _show_comparison(found: Sequence[Measured], quality: Sequence[Quality] | None, questions: Questions | None) -> None:
    table = Table("model", "kind", "dimension", "MB", "texts/s", "query, ms")
    if quality is not None and questions is not None:
        table.title = f"{len(questions.documents):,} documents, {len(questions.queries):,} queries"
        for column in ("nDCG@10", "recall@20", "to the first"):
            table.add_column(column)
    for place, each in enumerate(found):
        row = [
            escape(str(each.contender)),
            each.kind.replace("_", "-"),
            str(each.dimension),
            f"{each.disk_megabytes:.0f}",
            f"{each.texts_per_second:.1f}",
            f"{each.query_ms:.1f}",
        ]
        if quality is not None:
            one = quality[place]
            row += [
                f"{one.ndcg.estimate:.3f} ({one.ndcg.low:.3f} to {one.ndcg.high:.3f})",
                "" if one.recall is None else f"{one.recall:.3f}",
                ""
                if one.difference is None
                else f"{one.difference.estimate:+.3f} ({one.difference.low:+.3f} to {one.difference.high:+.3f})",
            ]
        table.add_row(*row)
    results().print(table)


def _show(card: "ModelCard", folder: Path, *, json_output: bool) -> None:
    shown = card_to_json(card, folder)
    if json_output:
        print_json(shown)
        return
    table = Table(Column(no_wrap=True), Column(overflow="fold"), show_header=False, box=None)
    for field, value in shown.items():
        if isinstance(value, dict):
            value = ", ".join(
                f"{key.replace('_', ' ')} {f'{part:.7g}' if isinstance(part, float) else part}"
                for key, part in value.items()
            )
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        table.add_row(field.replace("_", " "), escape("none" if value in ("", None) else str(value)))
    results().print(table)
