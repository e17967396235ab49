"""Ask a running kbmesh a question and print where the answers come from.

Start one with `.venv/bin/kbmesh up`, fill it with
`.venv/bin/kbmesh ingest handbook examples/documents/handbook --create`, then:

    .venv/bin/python examples/ask.py
    .venv/bin/python examples/ask.py handbook "What do I do when a node's disk is full?"

KBMESH_ENDPOINT names another mesh than the one at 127.0.0.1:7400.
"""

import argparse
import os
import sys

from kbmesh_client import DEFAULT_ENDPOINT, KbmeshClient, KbmeshError, RetrieveResult


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a running kbmesh a question.")
    parser.add_argument("knowledge_base", nargs="?", default="handbook", help="where to look (%(default)s)")
    parser.add_argument(
        "question", nargs="?", default="Who may restore a customer backup?", help="what to ask (%(default)s)"
    )
    parser.add_argument(
        "--endpoint",
        default=os.environ.get("KBMESH_ENDPOINT") or DEFAULT_ENDPOINT,
        help="host:port of the retriever (%(default)s)",
    )
    arguments = parser.parse_args()

    try:
        with KbmeshClient(arguments.endpoint) as kbmesh:
            answer = kbmesh.retrieve(arguments.question, arguments.knowledge_base, top_k=3)
    except KbmeshError as error:
        sys.exit(f"{error.reason}: {error.message}")

    for result in answer.results:
        print(f"[{result.citation}] {place(result)} ({result.score:.2f})")
        print(f"    {result.preview}")
    if not answer.results:
        print(f"Nothing found in {arguments.knowledge_base}. `kbmesh kb show {arguments.knowledge_base} --documents`")
        print("lists what it holds; `kbmesh ingest` takes files in.")
    for report in answer.knowledge_bases:
        if report.error is not None:
            print(f"note: {report.knowledge_base} is {report.status}: {report.error.message}")
    for stage in answer.degraded:
        print(f"note: {stage.stage} fell back: {stage.message}")


def place(result: RetrieveResult) -> str:
    """Title and headings. The first heading of a document is often its title."""
    title = result.document.title or result.document.external_id
    headings = result.heading_path[1:] if result.heading_path[:1] == (title,) else result.heading_path
    return " › ".join([title, *headings])


if __name__ == "__main__":
    main()
