"""Presigned links on an answer's message, put on as it leaves: what is kept in a cache holds none."""

import asyncio

from kbmesh.retriever.v1 import retriever_pb2 as pb

from kbmesh_retriever.attribution.links import PresignedLink, S3Links


async def sign_links(message: pb.RetrieveResponse, links: S3Links | None, *, tenant: str) -> None:
    """Puts a presigned URL in place of each link that `links` may sign for the tenant, each object's once."""
    if links is None:
        return
    signed_by_uri: dict[str, PresignedLink] = {}
    parts: list[pb.RetrieveResult | pb.FurtherCitation] = list(message.results)
    parts += [duplicate for result in message.results for duplicate in result.duplicates]
    uris = {part.link for part in parts if links.may_sign(part.link, tenant=tenant)}
    if not uris:
        return

    def sign() -> None:
        for uri in uris:
            if (link := links.sign(uri, tenant=tenant)) is not None:
                signed_by_uri[uri] = link

    await asyncio.to_thread(sign)
    for part in parts:
        if (signed := signed_by_uri.get(part.link)) is not None:
            part.link = signed.url
            if isinstance(part, pb.RetrieveResult):
                part.link_expires_at.FromDatetime(signed.expires_at)
