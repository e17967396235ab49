"""Ask a running kbmesh a question and print where the answers come from.

Start one with `kbmesh up`, fill it with `kbmesh ingest --create handbook examples/documents/handbook`, then:

    python examples/ask.py handbook "Who may restore a customer backup?"
"""

import sys

from kbmesh_client import KbmeshClient, KbmeshError


def main(knowledge_base: str, question: str) -> None:
    with KbmeshClient("127.0.0.1:7400") as kbmesh:
        answer = kbmesh.retrieve(question, knowledge_base, top_k=3)
    for result in answer.results:
        title = result.document.title or result.document.external_id
        print(f"[{result.citation}] {' › '.join([title, *result.heading_path])} ({result.score:.2f})")
        print(f"    {result.preview}")
    for stage in answer.degraded:
        print(f"note: {stage.stage} fell back: {stage.message}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except KbmeshError as error:
        sys.exit(f"{error.reason}: {error.message}")
