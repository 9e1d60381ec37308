"""The keys of `[memory]`: where lessons, tools and past work are kept."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from ratchet.config.section import Count, Section


def _server(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    if "@" in url:
        raise ValueError("must not carry a password; put the key of the server into memory.qdrant.api_key")
    return url


class Qdrant(Section):
    url: Annotated[str, AfterValidator(_server)] | None = Field(
        None, description="address of the Qdrant server", examples=["http://127.0.0.1:6333"]
    )
    api_key: SecretStr | None = Field(
        None, min_length=1, description="key of the Qdrant server", examples=["the server's key"]
    )
    collection: str = Field(
        "ratchet",
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="collection that holds the memory; it is made when it is not there",
    )
    timeout_seconds: Count = Field(10, description="how long one request may take")


class Memory(Section):
    store: Literal["sqlite", "qdrant"] = Field(
        "sqlite",
        description="sqlite keeps the memory in a file of the home, qdrant on a server (needs the extra `qdrant`)",
    )
    qdrant: Qdrant = Field(default_factory=Qdrant, description="the Qdrant server")

    @model_validator(mode="after")
    def _server_is_named(self) -> Self:
        if self.store == "qdrant" and self.qdrant.url is None:
            raise ValueError("store is qdrant, but qdrant.url is not set; name the server, or use sqlite")
        return self
