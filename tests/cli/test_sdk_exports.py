"""The SDK's public surface is what it says, and needs nothing but the stubs and grpcio."""

import subprocess
import sys

import kbmesh_client


def test_the_surface_is_this() -> None:
    assert set(kbmesh_client.__all__) == {
        *("KbmeshClient", "AsyncKbmeshClient", "TlsFiles", "TlsFilesError"),
        *("DEFAULT_ENDPOINT", "MAX_DOCUMENT_BYTES", "MAX_MESSAGE_BYTES", "RECONNECT_SECONDS"),
        *("KnowledgeBase", "RetrievalDefaults", "Placement", "Distance"),
        *("Rebuild", "RebuildState", "RebuildIncomplete", "RebuildNotFound"),
        *("IngestJob", "JobNotFound", "JobResult"),
        *("IngestDocument", "IngestResult", "IngestOutcome", "ItemError", "Document", "DocumentWarning", "SourceType"),
        *("Chunk", "ChunkedDocument", "ChunkingConfig", "ChunkingStrategy", "SizeUnit", "Span", "StrategyOptions"),
        *("SemanticOptions", "DocumentOptions", "DocumentPart", "EmailOptions", "SlackOptions", "CodeOptions"),
        *("SimilarityOptions", "PropositionOptions"),
        *("Retrieval", "RetrieveResult", "RetrievalStrategy", "KnowledgeBaseSelector", "ScoreStage"),
        *(
            "CacheState",
            "DisplayKind",
            "Profile",
            "RetrievalOptions",
            "KnowledgeBasesLike",
            "FusionMethod",
            "FusionOptions",
        ),
        *("Filter", "FilterLike", "Condition", "Scores", "Ranks", "DocumentSource", "DisplayField"),
        *("FurtherCitation", "Citation", "ContextBlock", "KnowledgeBaseReport", "KnowledgeBaseStatus"),
        *("Degradation", "NotApplied", "Stage", "RerankMethod", "StageTrace", "CandidateTrace"),
        *("KbmeshError", "ErrorDetails", "FieldViolation", "InvalidRequest", "DocumentRejected", "AccessDenied"),
        *(
            "NotFound",
            "KnowledgeBaseNotFound",
            "DocumentNotFound",
            "ModelNotFound",
            "KnowledgeBaseAlreadyExists",
            "ProfileAlreadyExists",
            "ProfileNotFound",
        ),
        *("Conflict", "ModelMismatch", "Overloaded", "DeadlineExceeded", "Cancelled", "ServiceUnavailable"),
        *("FeatureUnsupported", "ServerFault"),
    }


def test_every_name_is_there() -> None:
    for name in kbmesh_client.__all__:
        assert hasattr(kbmesh_client, name)


def test_importing_it_loads_no_server_and_no_model() -> None:
    program = "import sys, kbmesh_client; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"kbmesh_rpc", "kbmesh_onnx", "numpy", "pydantic", "onnxruntime", "qdrant_client"}.intersection(loaded)
