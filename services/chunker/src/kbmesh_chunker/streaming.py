"""Documents that come in parts: their chunks are given as they are cut.

FIXED and SEMANTIC decide where to cut by a bounded neighbourhood, so that no more of a text than that is kept. The
chunks are those that the whole document gives, however it is divided into parts. What must be seen whole is collected
up to the limit of documents.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import DocumentTooLarge

from kbmesh_chunker.blank import is_visible
from kbmesh_chunker.chunking import Chunker, Progress, resolve
from kbmesh_chunker.config import ConfigRequest, Strategy
from kbmesh_chunker.documents.media_type import JSON, MAIL, parse_media_type, type_by_content, type_by_name
from kbmesh_chunker.documents.reader import BINARY_READERS, TEXT_READERS, parsed_type, read
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_chunker.documents.stream_decoding import StreamDecoder
from kbmesh_chunker.piece import Chunk
from kbmesh_chunker.strategies.rows import must_be_whole
from kbmesh_chunker.summary import Summary, summarize
from kbmesh_chunker.text_stream import BATCH_CHARACTERS, STREAMED, StreamPlan, TextStream

HEAD_BYTES = 400_000
"""So much of a document decides what it is: front matter, the first heading, and what the content looks like."""
_JSON_HEAD_BYTES = 4_000_200
"""JSON that is larger is not looked for."""


class CollectedDocumentTooLarge(DocumentTooLarge):
    """The document must be seen whole and is larger than the server accepts."""

    def __init__(self, *, limit: int, actual: int) -> None:
        super().__init__(limit=limit, actual=actual)
        self.message += "; FIXED and SEMANTIC cut plain text and Markdown as it comes, without this limit"


async def stream_document(
    chunker: Chunker,
    source: SourceDocument,
    request: ConfigRequest,
    parts: AsyncIterator[bytes],
    *,
    deadline: Deadline | None,
    path: str = "config",
    head_bytes: int = HEAD_BYTES,
    batch_characters: int = BATCH_CHARACTERS,
) -> AsyncGenerator[Chunk | Summary, None]:
    """The chunks of a document whose content comes in `parts`, and at last the summary.

    No part is asked for before the chunks of those before it were taken. `source.content` is of no account. Raises
    what `Chunker.chunk` raises; the chunks that were given before stand. `head_bytes` decide what the document is,
    and it is cut whenever `batch_characters` more have come.
    """
    limit = chunker.limits.max_document_bytes
    progress = Progress(deadline=deadline)
    data = bytearray()
    needed = min(head_bytes, limit)
    decided = False
    try:
        with chunker.admission.reserve(0) as reservation:
            async for part in parts:
                reservation.grow(len(part))
                data += part
                if not decided and len(data) > needed:
                    head = bytes(data[:needed])
                    if (
                        needed < min(_JSON_HEAD_BYTES, limit)
                        and head_bytes >= HEAD_BYTES
                        and _may_be_json(source, head)
                    ):
                        needed = min(_JSON_HEAD_BYTES, limit)
                        continue
                    plan = await chunker.aside(_plan, chunker, source, request, head, path)
                    if plan is not None:
                        stream = TextStream(chunker, plan, progress, path, batch_characters=batch_characters)
                        async for item in stream.run(data, parts):
                            yield item
                        return
                    decided = True
                if decided and len(data) > limit:
                    raise CollectedDocumentTooLarge(limit=limit, actual=len(data))
            whole = replace(source, content=bytes(data))
            del data
            # The chunker takes this room itself.
            reservation.give_back()
            chunked = await chunker.chunk(whole, request, deadline=deadline, path=path)
        for chunk in chunked.chunks:
            yield chunk
        yield summarize(chunked)
    finally:
        progress.leave()


def _may_be_json(source: SourceDocument, head: bytes) -> bool:
    if parse_media_type(source.media_type).media_type or type_by_name(source.filename):
        return False
    return head.decode("latin-1").replace("\0", "").lstrip("\xef\xbb\xbf\xfe\xff\r\n\t ")[:1] in {"[", "{"}


def _plan(
    chunker: Chunker, source: SourceDocument, request: ConfigRequest, head: bytes, path: str
) -> StreamPlan | None:
    """How to cut a document that begins with `head`; None where it must be seen whole. Raises what `read` raises."""
    if request.strategy is not Strategy.AUTO and request.strategy not in STREAMED:
        return None
    declared = parse_media_type(source.media_type)
    media_type = declared.media_type or type_by_name(source.filename)
    parsed = parsed_type(replace(source, content=head))
    if parsed:
        if parsed not in {JSON, MAIL} and parsed not in BINARY_READERS and parsed not in TEXT_READERS:
            read(replace(source, content=head), limits=chunker.limits)
        return None
    decoder = StreamDecoder(head, charset=declared.charset, media_type=media_type or "application/octet-stream")
    text = decoder.decode(head)
    if (media_type or type_by_content(text)) in TEXT_READERS:
        return None
    # White space says nothing yet: a letter stands for what follows.
    text = text if is_visible(text) else text + "x"
    limits = replace(chunker.limits, max_document_bytes=4 * len(text))
    extracted = read(replace(source, content=text), limits=limits)
    document = extracted.main
    if len(extracted.parts) > 1 or document.layout is not None or document.context or document.pages is not None:
        return None
    config, reason = resolve(request, document, path)
    if config.strategy not in STREAMED or must_be_whole(document, config.strategy):
        return None
    document = replace(document, text="", warnings=(*decoder.warnings, *document.warnings))
    decoder = StreamDecoder(head, charset=declared.charset, media_type=document.media_type)
    return StreamPlan(document=document, config=config, reason=reason, decoder=decoder)
