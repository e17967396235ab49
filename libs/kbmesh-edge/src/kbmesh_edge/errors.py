"""What can go wrong in kbmesh-edge.

    EdgeError
    ├── CollectionNotFound        NOT_FOUND
    ├── CollectionAlreadyExists   ALREADY_EXISTS
    ├── InvalidRequest            INVALID_ARGUMENT
    ├── NotServed                 UNIMPLEMENTED: Qdrant can do it, kbmesh-edge cannot
    ├── StillOpening              UNAVAILABLE: the collections are being opened and compacted
    └── EngineFailed              INTERNAL
    FolderInUse                   the process ends: another one has the data folder

The texts are worded as Qdrant words them, so that a client that reads them sees no difference. They are bounded: a name
of a megabyte in one would break the answer, which travels in HTTP/2 headers.
"""

from kbmesh_rpc.errors import VALUE_CHARACTERS, readable


class EdgeError(Exception):
    """A call that failed. `str()` is the text for the caller."""

    def __init__(self, message: str) -> None:
        super().__init__(readable(message, VALUE_CHARACTERS))


class CollectionNotFound(EdgeError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Not found: Collection `{name}` doesn't exist!")


class CollectionAlreadyExists(EdgeError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Already exists: Collection `{name}` already exists!")


class InvalidRequest(EdgeError):
    def __init__(self, message: str) -> None:
        super().__init__(f"Wrong input: {message}")


class NotServed(EdgeError):
    def __init__(self, feature: str) -> None:
        super().__init__(f"kbmesh-edge does not serve {feature}; a Qdrant server does")


class StillOpening(EdgeError):
    def __init__(self) -> None:
        super().__init__("kbmesh-edge is opening its collections")


class EngineFailed(EdgeError):
    def __init__(self, message: str) -> None:
        super().__init__(f"Service internal error: {message}")


class FolderInUse(Exception):
    def __init__(self, folder: object) -> None:
        super().__init__(f"{folder} is in use by another kbmesh-edge process; one process serves one data folder")
