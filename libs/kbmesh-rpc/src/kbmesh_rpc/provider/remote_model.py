"""What a service is told of a model that runs at a vendor's."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kbmesh_rpc.provider.address import check_base_url, host_of
from kbmesh_rpc.provider.api_key import KeySource
from kbmesh_rpc.provider.patience import Patience


class RemoteModel(BaseModel):
    """One model at a vendor's, under the name by which callers ask for it. Holds no key, only where it stands."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=())

    model: str = ""
    """Its name at the vendor's. Unset: the name by which callers ask for it."""
    base_url: str = ""
    """Address of the API, such as https://HOST/v1. Unset: the vendor's own."""
    allow_plaintext: bool = False
    """Whether http may lead to another machine than this. Texts and the key are then readable on the way."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key. Unset: the vendor's usual one. Empty: no key is sent."""
    api_key_file: Path | None = None
    """File that holds the key, such as a mounted secret. Goes before the environment."""
    identity: str = ""
    """What stands for the address in the fingerprint. Unset: its host and port. Set it to the old host where the very
    same model moves to another address, else knowledge bases have to be rebuilt."""
    revision: str = ""
    """Part of the fingerprint. Change it when the vendor changes the model behind its name."""
    concurrency: int = Field(default=5, ge=1, le=256)
    """Calls that are in flight at once. Where there are several, one is kept free of bulk work."""
    attempts: int = Field(default=6, ge=1, le=20)
    """How often a call is made at most, where the vendor is overloaded, fails or cannot be reached."""
    timeout_seconds: float = Field(default=30.0, gt=0, le=600)
    """What one call may take."""
    batch_items: int | None = Field(default=None, ge=1, le=10_000)
    """Texts of one call. Unset: the vendor's limit."""
    batch_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    """Tokens of all texts of one call. Unset: the vendor's limit. A longer text is sent alone."""
    tokenizer: Path | None = None
    """tokenizer.json of the model, so that tokens are counted and texts cut exactly. Unset: both are estimated."""

    @model_validator(mode="after")
    def _has_a_safe_address(self) -> "RemoteModel":
        if self.base_url:
            try:
                check_base_url(self.base_url, allow_plaintext=self.allow_plaintext)
            except ValueError as error:
                # The value itself is not told: it might hold a password.
                raise ValueError(f"base_url {error}") from None
        return self

    def address(self, default: str) -> str:
        """The API's address: `base_url`, or the vendor's own."""
        return (self.base_url or default).rstrip("/")

    def place(self, default: str) -> str:
        """What stands for the address in the fingerprint."""
        return self.identity or host_of(self.address(default))

    def key_source(self, usual_env: str) -> KeySource:
        """Where the key stands. `usual_env` is the vendor's usual variable."""
        env = usual_env if self.api_key_env is None else self.api_key_env
        return KeySource(env=env, file=self.api_key_file)

    @property
    def patience(self) -> Patience:
        """How long a call is tried."""
        return Patience(attempts=self.attempts, call_seconds=self.timeout_seconds)
