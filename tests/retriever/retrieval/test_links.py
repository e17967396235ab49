"""A reader opens what an answer cites, and nobody is given more than was allowed."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any

import grpc
import httpx
import pytest
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub, add_RetrieverServiceServicer_to_server
from kbmesh_retriever.attribution.links import S3Links, link_of
from kbmesh_retriever.link_messages import sign_links
from kbmesh_retriever.retriever_messages import write_answer
from kbmesh_retriever.retriever_servicer import RetrieverServicer
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.server import Registration, running
from kbmesh_rpc.settings import ServerSettings
from retrieval_world import TENANT, CountingCatalog, ScriptedReranker, World

if find_spec("moto") is None or find_spec("boto3") is None:
    pytest.skip("kbmesh-retriever[s3] and moto are not installed", allow_module_level=True)

from s3_server import ACCESS_KEY_ID, REGION, SECRET, S3Server, s3_server

QUESTION = "pool"
KEY = "reports/übersicht 2026 (final)+1.md"
CONTENT = "The pool has fifty connections. ü".encode()


@dataclass
class ServicerApplication:
    """The application of one servicer."""

    servicer: RetrieverServicer

    @property
    def registrations(self) -> Sequence[Registration]:
        def add(server: grpc.aio.Server) -> None:
            add_RetrieverServiceServicer_to_server(self.servicer, server)

        return (Registration(name="kbmesh.retriever.v1.RetrieverService", add=add),)

    async def warm_up(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def links(server: S3Server, buckets: str = "library", **settings: Any) -> S3Links:
    made = S3Links.connect(
        **{
            "buckets": buckets,
            "access_key_id": ACCESS_KEY_ID,
            "secret_access_key": SECRET,
            "region": REGION,
            "endpoint_url": server.url,
            **settings,
        }
    )
    assert made is not None
    return made


def put(server: S3Server, key: str = KEY) -> None:
    """As whoever owns the bucket does, with the SDK's ordinary client."""
    import boto3

    client = boto3.session.Session(
        aws_access_key_id=ACCESS_KEY_ID, aws_secret_access_key=SECRET, region_name=REGION
    ).client("s3", endpoint_url=server.url)
    client.create_bucket(Bucket="library", CreateBucketConfiguration={"LocationConstraint": REGION})
    client.put_object(Bucket="library", Key=key, Body=CONTENT)
    client.close()


async def test_a_link_to_an_object_gives_its_bytes_and_then_ends(world: World, s3: S3Server) -> None:
    put(s3)
    handbook = await world.make("handbook")
    await world.add(handbook, "report", "The pool has fifty connections.", uri=f"s3://library/{KEY}")
    await world.add(handbook, "page", "A pool of another kind.")
    answer = await world.ask(QUESTION, "handbook")
    before = len(s3.requests)
    message = write_answer(answer, request_id="1")
    started = datetime.now(UTC)
    await sign_links(message, links(s3), tenant="acme")
    assert len(s3.requests) == before, "signing asks nobody"

    signed = next(result for result in message.results if result.document.external_id == "report")
    plain = next(result for result in message.results if result.document.external_id == "page")
    assert signed.document.uri == f"s3://library/{KEY}"
    expires = signed.link_expires_at.ToDatetime(tzinfo=UTC)
    assert started + timedelta(seconds=3598) <= expires <= datetime.now(UTC) + timedelta(seconds=3600)
    assert plain.link == "https://docs.example/page"
    assert not plain.HasField("link_expires_at")
    assert "X-Amz" not in message.context.text, "nothing that opens a door goes into a prompt"

    async with httpx.AsyncClient() as reader:
        opened = await reader.get(signed.link)
        assert (opened.status_code, opened.content) == (200, CONTENT)
        tampered = await reader.get(signed.link[:-1] + ("0" if signed.link[-1] != "0" else "1"))
        assert (tampered.status_code, tampered.text) == (403, "SignatureDoesNotMatch")
        elsewhere = await reader.get(signed.link.replace("/library/reports/", "/library/secrets/"))
        assert elsewhere.status_code == 403
        assert (await reader.put(signed.link, content=b"other")).status_code == 403, "it is for reading alone"
        s3.now = lambda: expires
        assert (await reader.get(signed.link)).status_code == 200
        s3.now = lambda: expires + timedelta(seconds=2)
        late = await reader.get(signed.link)
        assert (late.status_code, late.text) == (403, "Request has expired")


def test_only_what_is_allowed_is_signed(s3: S3Server) -> None:
    made = links(s3, "library/reports, tenants/of/{tenant}/,open")
    for uri in (
        "s3://library/reports/a.md", "s3://tenants/of/acme/a.md", "s3://open/a b?c#d", "s3://open/a/b",
    ):  # fmt: skip
        assert made.may_sign(uri, tenant="acme"), uri
        signed = made.sign(uri, tenant="acme")
        assert signed is not None
        assert signed.url not in repr(signed)
    for uri in (
        "s3://library/reports-of-the-board/a.md", "s3://library/other/a.md", "s3://library/reports",
        "s3://tenants/of/rival/a.md", "s3://tenants/of/acme2/a.md", "s3://tenants/of/acme/../rival/a.md",
        "s3://open/", "s3://open", "s3://open/./a", "s3://opened/a", "s3:///a", "S3://open/a", "https://open/a", "",
    ):  # fmt: skip
        assert not made.may_sign(uri, tenant="acme"), uri
        assert made.sign(uri, tenant="acme") is None
    for tenant in ("", "acme/../rival", "of/acme"):
        assert not made.may_sign(f"s3://tenants/of/{tenant}/a.md", tenant=tenant)


def test_without_buckets_or_a_key_nothing_is_signed(s3: S3Server) -> None:
    key = {"access_key_id": ACCESS_KEY_ID, "secret_access_key": SECRET}
    assert S3Links.connect(buckets="", **key) is None
    assert S3Links.connect(buckets="library", access_key_id="", secret_access_key=SECRET) is None
    assert S3Links.connect(buckets="library", access_key_id=ACCESS_KEY_ID, secret_access_key="") is None
    for wrong in ("Library", "a", "s3://library", "arn:aws:s3:::library", "quick--use1-az4--x-s3"):
        with pytest.raises(ValueError, match="s3_buckets"):
            S3Links.connect(buckets=wrong, **key)


async def test_links_of_amazon_name_the_bucket_in_the_host(s3: S3Server) -> None:
    made = links(s3, endpoint_url="", session_token="token", seconds=60)
    signed = made.sign("s3://library/a.md", tenant="acme")
    assert signed is not None
    url = httpx.URL(signed.url)
    assert url.host == "library.s3.eu-central-1.amazonaws.com" or url.host == "library.s3.amazonaws.com"
    assert url.params["X-Amz-Expires"] == "60"
    assert url.params["X-Amz-Security-Token"] == "token"


async def test_nothing_of_a_link_is_logged(world: World, s3: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = links(s3)
    signed = made.sign(f"s3://library/{KEY}", tenant="acme")
    assert signed is not None
    signature = httpx.URL(signed.url).params["X-Amz-Signature"]
    assert signature not in caplog.text
    assert SECRET not in caplog.text
    assert "AWS4-HMAC-SHA256" not in caplog.text


async def test_duplicates_are_listed_with_links_of_their_own_from_one_query(world: World, s3: S3Server) -> None:
    text = "The pool has fifty connections for the checkout service and closes idle ones."
    first = await world.make("first")
    second = await world.make("second")
    await world.add(first, "original", text, uri="https://wiki.example/pool")
    await world.add(second, "copy", text, uri=f"s3://library/{KEY}")
    await world.add(second, "third", text, uri="")
    catalog = CountingCatalog(inner=world.catalog)
    answer = await world.ask("checkout pool connections", parts={"catalog": catalog})
    assert (catalog.resolves, catalog.validations) == (1, 1), "one query for all hits of both"
    message = write_answer(answer, request_id="1")
    await sign_links(message, links(s3), tenant="acme")
    (result,) = message.results
    found = {one.document.external_id: one.link for one in result.duplicates}
    found[result.document.external_id] = result.link
    assert set(found) == {"original", "copy", "third"}
    assert found["original"] == "https://wiki.example/pool"
    assert found["copy"].startswith(f"{s3.url}/library/reports/")
    assert "X-Amz-Signature" in found["copy"]
    assert found["third"] == ""
    assert sum(one.startswith(s3.url) for one in found.values()) == 1


def test_a_uri_that_a_browser_would_run_is_no_link() -> None:
    for uri in (
        "javascript:alert(1)",
        " JavaScript:alert(1)",
        "java\tscript:alert(1)",
        "data:text/html,x",
        "vbscript:x",
    ):
        assert link_of(uri) == ""
    for uri in ("https://wiki.example", "slack://channel?id=1", "file:///a.md", "s3://b/javascript:", "", "a.md"):
        assert link_of(uri) == uri


async def test_the_service_signs_what_it_sends_kept_answers_and_streams_too(world: World, s3: S3Server) -> None:
    handbook = await world.make("handbook")
    await world.add(handbook, "report", "The pool has fifty connections.", uri=f"s3://library/{KEY}")
    servicer = RetrieverServicer(
        catalog=world.catalog,
        store=world.store,
        embedder=world.embedder,
        reranker=ScriptedReranker(scores={"pool": 0.9}),
        links=links(s3, "library/reports"),
    )
    request = pb.RetrieveRequest(query=QUESTION, knowledge_bases=[pb.KnowledgeBaseSelector(knowledge_base="handbook")])
    metadata = (("kbmesh-tenant", TENANT),)
    service = ServicerApplication(servicer)
    async with running(service, ServerSettings(port=0, metrics_port=0)) as target, open_channel(target) as channel:
        stub = RetrieverServiceStub(channel)
        answers = [await stub.Retrieve(request, metadata=metadata) for _ in range(2)]
        streamed = stub.RetrieveStream(pb.RetrieveStreamRequest(request=request), metadata=metadata)
        answers += [sent.fused if sent.HasField("fused") else sent.final async for sent in streamed]
    assert len(answers) == 4
    for answer in answers:
        (result,) = answer.results
        assert "X-Amz-Signature" in result.link
        assert result.HasField("link_expires_at")
