"""What an operator sets in a service's environment is how its models are run."""

from pathlib import Path
from typing import Any

import pytest
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.device_settings import DEFAULT_SETTINGS, DeviceSettings
from kbmesh_reranker.settings import RerankerSettings
from pydantic import ValidationError

SERVICES = pytest.mark.parametrize("service", [EmbedderSettings, RerankerSettings])


@SERVICES
def test_nothing_set_is_the_default(service: Any) -> None:
    assert service().device_settings("m") == DEFAULT_SETTINGS


@SERVICES
def test_every_setting_arrives(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "DEVICE_ID": "2",
        "DEVICE_MEMORY_MEBIBYTES": "4096",
        "ARENA_EXTEND": "next_power_of_two",
        "CUDNN_SEARCH": "exhaustive",
        "TF32": "true",
        "PRECISION": "fp16",
        "CUDA_GRAPHS": "24",
        "CUDA_GRAPH_TOKENS": "2048",
        "IO_BINDING": "on",
    }
    for name, value in environment.items():
        monkeypatch.setenv(f"KBMESH_{name}", value)
    assert service().device_settings("m") == DeviceSettings(
        device_id=2,
        device_memory_mebibytes=4096,
        arena_extend="next_power_of_two",
        cudnn_search="exhaustive",
        tf32=True,
        precision="fp16",
        cuda_graphs=24,
        cuda_graph_tokens=2048,
        io_binding="on",
    )


@SERVICES
def test_each_model_has_its_own_engines(service: Any) -> None:
    """Two models whose engines lie in one folder would find each other's timings."""
    settings = service(tensorrt=True, tensorrt_cache=Path("/engines"), tensorrt_rows=8, shrink_tokens=9000)
    found = settings.device_settings("one")
    assert (found.tensorrt_cache, found.tensorrt_rows, found.shrink_tokens) == (Path("/engines/one"), 8, 9000)


@SERVICES
def test_settings_that_exclude_each_other_end_the_start(service: Any) -> None:
    with pytest.raises(ValidationError):
        service(cuda_graphs=4, shrink_tokens=4096)
