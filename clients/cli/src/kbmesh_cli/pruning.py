"""Documents whose files are gone: found, and deleted only where that cannot be a mistake."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from kbmesh_client import Document, DocumentNotFound, KbmeshClient

from kbmesh_cli.errors import CliError

MOST_PRUNED_SHARE = 1 / 3
"""More than this share of a folder's documents is not deleted without being told twice: a share that is not mounted
looks like a folder whose files are gone."""


@dataclass(frozen=True, kw_only=True)
class PrunedFolder:
    """A folder whose documents are looked through."""

    name: str
    """As the names of its documents begin. Empty where they begin at the folder itself."""
    base: Path
    """Where names begin."""

    def has(self, document: Document) -> bool:
        """By the document's name. Where that begins at the folder itself it tells nothing, so that the file must have
        lain here, too: other folders may have been taken in by names that look the same."""
        if self.name:
            return document.external_id.startswith(f"{self.name.rstrip('/')}/")
        path = unquote(urlsplit(document.uri).path)
        return path == f"{self.base.absolute().as_posix().rstrip('/')}/{document.external_id}"


def missing_documents(
    client: KbmeshClient, knowledge_base: str, folders: Sequence[PrunedFolder], found: Collection[str]
) -> tuple[list[str], int]:
    """External ids of the documents below `folders` that are not in `found`, and how many documents there are below.

    A document is below a folder by its name, and was taken in from a file: others' documents may be named like it.
    Where a folder could not be listed, which is in `found` with "/" after its name, nothing below it is missing.
    """
    unlisted = tuple("" if name == "./" else name for name in found if name.endswith("/"))
    missing, below = [], 0
    for document in client.list_documents(knowledge_base, page_size=1000):
        if document.uri.startswith("file:") and any(folder.has(document) for folder in folders):
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


def pruned_folders(paths: Sequence[Path], *, base: Path | None) -> list[PrunedFolder]:
    """The folders among `paths`. Raises CliError where there is none, or one that is not there."""
    folders = []
    for path in paths:
        if not path.is_dir():
            continue
        name = path if base is None else path.resolve().relative_to(base.resolve())
        names_itself = "" if name == Path() else PurePosixPath(name.as_posix()).as_posix()
        folders.append(PrunedFolder(name=names_itself, base=base or Path()))
    if not folders:
        raise CliError("USAGE", "--prune needs a folder: which files should be there is not known otherwise")
    return folders
