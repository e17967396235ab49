"""Documents whose files are gone: found, and deleted only where that cannot be a mistake."""

from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

from kbmesh_client import DocumentNotFound, KbmeshClient

from kbmesh_cli.errors import CliError

MOST_PRUNED_SHARE = 1 / 3
"""More than this share of a folder's documents is not deleted without being told twice: a share that is not mounted
looks like a folder whose files are gone."""


def missing_documents(
    client: KbmeshClient, knowledge_base: str, folders: Sequence[str], found: Collection[str]
) -> tuple[list[str], int]:
    """External ids of the documents below `folders` that are not in `found`, and how many documents there are below.

    A document is below a folder by its name, and was taken in from a file: others' documents may be named like it.
    Where a folder could not be listed, which is in `found` with "/" after its name, nothing below it is missing.
    """
    unlisted = tuple("" if name == "./" else name for name in found if name.endswith("/"))
    missing, below = [], 0
    for document in client.list_documents(knowledge_base, page_size=1000):
        if document.uri.startswith("file:") and any(_is_below(document.external_id, folder) for folder in folders):
            below += 1
            if document.external_id not in found and not document.external_id.startswith(unlisted):
                missing.append(document.external_id)
    return missing, below


def check_share(missing: int, below: int, *, anyway: bool) -> None:
    """Raises CliError for a prune that takes so much that it is more likely a mistake."""
    if not anyway and missing > below * MOST_PRUNED_SHARE:
        raise CliError(
            "PRUNE_REFUSED",
            f"the files of {missing:,} of {below:,} documents are gone; nothing was deleted",
            hint="--prune-anyway deletes them, if it is not the folder that is not there",
            metadata={"missing": str(missing), "documents": str(below)},
        )


def prune(client: KbmeshClient, knowledge_base: str, external_ids: Sequence[str]) -> int:
    """Deletes these documents, and tells how many were still there."""
    deleted = 0
    for external_id in external_ids:
        try:
            client.delete_document(knowledge_base, external_id)
            deleted += 1
        except DocumentNotFound:
            continue
    return deleted


def folder_names(paths: Sequence[Path], *, base: Path | None) -> list[str]:
    """The folders among `paths` as documents below them are named; "" is above all names. Raises CliError where there
    is none, or one that is not there."""
    names = []
    for path in paths:
        if not path.is_dir():
            continue
        name = path if base is None else path.resolve().relative_to(base.resolve())
        names.append("" if name == Path() else PurePosixPath(name.as_posix()).as_posix())
    if not names:
        raise CliError("USAGE", "--prune needs a folder: which files should be there is not known otherwise")
    return names


def _is_below(external_id: str, folder: str) -> bool:
    return not folder or external_id.startswith(f"{folder.rstrip('/')}/")
