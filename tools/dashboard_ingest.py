"""The dashboard of ingestion: documents on their way in, and what cleans up after them."""

from dashboard_model import WINDOW, Dashboard, Panel, Query, S, quantile, rate

INGEST = Dashboard(
    uid="kbmesh-ingest",
    title="kbmesh / ingest",
    why="How many documents come in, what becomes of them, what they wait for, and what is left to clean up.",
    panels=(
        Panel(
            title="Documents a second",
            drawn=True,
            unit="cps",
            why="By what became of them; unchanged ones cost no embedding.",
            queries=(Query(expr=rate("kbmesh_retriever_ingested_documents_total", "outcome"), legend="{{outcome}}"),),
        ),
        Panel(
            title="Documents that failed",
            drawn=True,
            unit="cps",
            why="By the reason of docs/errors.md.",
            queries=(
                Query(
                    expr=f"sum by (reason) (rate(kbmesh_retriever_ingest_failures_total{{{S}}}[{WINDOW}])) > 0",
                    legend="{{reason}}",
                ),
            ),
        ),
        Panel(
            title="Seconds of a document",
            drawn=True,
            unit="s",
            why="From the stream to its result.",
            queries=tuple(
                Query(expr=quantile(share, "kbmesh_retriever_ingest_document_seconds"), legend=f"p{share * 100:g}")
                for share in (0.5, 0.95)
            ),
        ),
        Panel(
            title="Documents in work",
            drawn=True,
            why="0 with a stream open: the caller sends nothing.",
            queries=(Query(expr=f"sum(kbmesh_retriever_ingest_documents_in_work{{{S}}})", legend="documents"),),
        ),
        Panel(
            title="Bytes in work",
            unit="bytes",
            why="At the retriever, and what waits at the chunker.",
            queries=(
                Query(expr=f"sum(kbmesh_retriever_ingest_bytes_in_work{{{S}}})", legend="retriever"),
                Query(expr=f"sum(kbmesh_chunker_waiting_bytes{{{S}}})", legend="chunker"),
            ),
        ),
        Panel(
            title="Chunks embedded",
            drawn=True,
            unit="cps",
            why="Chunks a second for which vectors were made: work for the embedder's bulk lane.",
            queries=(
                Query(
                    expr=f"sum(rate(kbmesh_retriever_ingest_embedded_chunks_total{{{S}}}[{WINDOW}]))", legend="chunks"
                ),
            ),
        ),
        Panel(
            title="Tokens embedded",
            unit="cps",
            why="Of those chunks: what the work really is.",
            queries=(Query(expr=f"sum(rate(kbmesh_retriever_ingest_tokens_total{{{S}}}[{WINDOW}]))", legend="tokens"),),
        ),
        Panel(
            title="Warnings and cut chunks",
            unit="cps",
            why="What was left out of documents that went in; chunks whose end the model could not read.",
            queries=(
                Query(expr=rate("kbmesh_retriever_ingest_warnings_total", "reason"), legend="{{reason}}"),
                Query(
                    expr=f"sum(rate(kbmesh_retriever_ingest_truncated_chunks_total{{{S}}}[{WINDOW}]))",
                    legend="chunks cut",
                ),
            ),
        ),
        Panel(
            title="Documents cut, by strategy",
            unit="cps",
            why="At the chunker.",
            queries=(Query(expr=rate("kbmesh_chunker_documents_total", "strategy"), legend="{{strategy}}"),),
        ),
        Panel(
            title="Chunks of a document",
            why="Mean by strategy; a jump tells of other settings or other documents.",
            queries=(
                Query(
                    expr=f"{rate('kbmesh_chunker_chunks_total', 'strategy')}"
                    f" / ({rate('kbmesh_chunker_documents_total', 'strategy')} > 0)",
                    legend="{{strategy}}",
                ),
            ),
        ),
        Panel(
            title="Readers that died",
            why="Processes that were lost to a document. Each failed one document.",
            queries=(
                Query(expr=f"sum(increase(kbmesh_chunker_reading_deaths_total{{{S}}}[5m]))", legend="in five minutes"),
            ),
        ),
        Panel(
            title="Bulk tokens that wait",
            drawn=True,
            why="At the embedder. Full: the retriever waits and asks again.",
            queries=(Query(expr=f'sum(kbmesh_embedder_queue_tokens{{{S},lane="bulk"}})', legend="tokens"),),
        ),
        Panel(
            title="Writes to the vector store, p95",
            unit="s",
            why="Where the store is kbmesh-edge, which tells.",
            queries=(
                Query(
                    expr=quantile(
                        0.95,
                        "grpc_server_handling_seconds",
                        "grpc_method",
                        more=',grpc_service="qdrant.Points",grpc_method=~"Upsert|Delete"',
                    ),
                    legend="{{grpc_method}}",
                    empty="a Qdrant cluster and Pinecone have metrics of their own",
                ),
            ),
        ),
        Panel(
            title="Swept",
            unit="cps",
            why="Old versions and deleted knowledge bases that left the vector store.",
            queries=(Query(expr=rate("kbmesh_retriever_swept_total", "kind"), legend="{{kind}}"),),
        ),
        Panel(
            title="Left by the sweeper",
            why="Due and not deleted in the last round; that round is this long ago.",
            queries=(
                Query(expr=f"sum(kbmesh_retriever_sweep_left{{{S}}})", legend="left"),
                Query(
                    expr=f"time() - max(kbmesh_retriever_last_sweep_timestamp_seconds{{{S}}} > 0)",
                    legend="seconds since the last good round",
                ),
            ),
        ),
        Panel(
            title="Rebuilds",
            why="Of knowledge bases, in the last day.",
            queries=(
                Query(
                    expr=f"sum by (event) (increase(kbmesh_retriever_rebuilds_total{{{S}}}[1d]))", legend="{{event}}"
                ),
            ),
        ),
    ),
)
