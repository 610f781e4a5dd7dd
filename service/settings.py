"""Every setting, as one frozen model read from environment variables of the same (upper-case) names."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv import dotenv_values
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.batching.policy import BatchPolicy

# Threads beside those that wait for a batch, so that probes and refusals are answered while all of those wait.
SPARE_THREADS = 8

# What gunicorn needs beyond the longest request before it kills a stopping worker, seconds.
STOP_MARGIN_S = 2

Positive = Annotated[int, Field(ge=1)]


class SettingsError(ValueError):
    """A setting is wrong; the message names the variable, its value and what is allowed, one line each."""


class Settings(BaseSettings):
    """Defaults are for a small model on a CPU. Sizes in rows, times in milliseconds unless the name says otherwise.

    Raises pydantic's ValidationError; `load_settings` turns that into a message for people.
    """

    model_config = SettingsConfigDict(frozen=True, extra="ignore", case_sensitive=False)

    model_path: str | None = Field(
        None, description="Model file or bundle directory (required, unless the app serves a handle)"
    )
    model_format: str | None = Field(None, description="Loader to use; default: told by the bundle or the file")
    model_name: str | None = Field(None, description="Default: from the bundle, else the file's stem")
    model_version: str | None = Field(None, description="Default: from the bundle, else 1")
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto, cpu, cuda or cuda:N")
    max_batch_size: Positive = Field(32, description="Rows per batch")
    max_batch_latency_ms: float = Field(5.0, ge=0, le=60_000, description="How long the oldest row waits for company")
    batch_policy: BatchPolicy = Field(
        BatchPolicy.WINDOW,
        description="window: leave on size or latency; eager: also when the worker is free and nobody is on the way",
    )
    max_batch_tokens: Positive | None = Field(
        None, description="Cost budget of a batch: rows times longest row, tokens"
    )
    scheduler: str = Field("fifo", description="Which waiting rows share a batch: fifo, length_aware, grouped")
    batch_size_buckets: tuple[int, ...] | None = Field(
        None, description="Allowed batch sizes, comma-separated; a batch is filled up to the next one"
    )
    pad_to_multiple_of: Positive | None = Field(None, description="Round the padded length of texts up, tokens")
    max_queue_size: Positive = Field(1024, description="Rows admitted and not yet in a batch")
    max_instances: Positive = Field(1024, description="Rows per request")
    request_timeout_ms: float = Field(30_000, gt=0, description="Default and upper bound of a request's deadline")
    stall_limit_ms: float = Field(60_000, gt=0, description="A batch that runs longer makes the service not live")
    max_body_bytes: Positive = Field(16 * 1024 * 1024, description="Largest request body")
    max_image_pixels: Positive = Field(40_000_000, description="Largest picture, checked before it is decoded")
    max_text_chars: Positive = Field(100_000, description="Longest text, characters")
    warmup: bool = Field(True, description="Run synthetic batches before the service is ready")
    exit_on_load_error: bool = Field(True, description="A model that cannot be loaded ends the process, non-zero")
    allow_pickle: bool = Field(False, description="Load pickle and joblib files without a pinned SHA-256")
    bind: str = Field("127.0.0.1:8000", min_length=1, description="Address that gunicorn listens on")
    graceful_timeout_s: Positive = Field(
        35, description="What a stopping server gives its last requests; must exceed REQUEST_TIMEOUT_MS by 2 s"
    )
    threads: Positive | None = Field(None, description="HTTP threads; default: 2 x MAX_BATCH_SIZE + 8, at least 72")
    omp_num_threads: Positive | None = Field(
        None, description="Native threads of the model; default: the container's CPUs"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe message that is logged"
    )

    @model_validator(mode="before")
    @classmethod
    def _any_case(cls, values: Any) -> Any:
        """`Settings(MAX_BATCH_SIZE=8)` means the same as `Settings(max_batch_size=8)`."""
        return {key.lower(): value for key, value in values.items()} if isinstance(values, dict) else values

    @field_validator("batch_size_buckets", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value

    @field_validator("batch_size_buckets")
    @classmethod
    def _rising(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (not value or min(value) < 1 or list(value) != sorted(set(value))):
            raise ValueError("must be rising batch sizes, e.g. 1,4,16,32")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        least_s = self.request_timeout_ms / 1000 + STOP_MARGIN_S
        if self.graceful_timeout_s < least_s:
            raise ValueError(
                f"GRACEFUL_TIMEOUT_S={self.graceful_timeout_s} is less than REQUEST_TIMEOUT_MS plus 2 s: "
                f"a stop could cut a request; set it to at least {least_s:.0f}"
            )
        if self.batch_size_buckets and self.batch_size_buckets[-1] < self.max_batch_size:
            raise ValueError(
                f"BATCH_SIZE_BUCKETS ends at {self.batch_size_buckets[-1]}, below MAX_BATCH_SIZE={self.max_batch_size}"
            )
        return self

    @property
    def http_threads(self) -> int:
        """Threads of the HTTP server: two batches' worth of waiting requests, and some for probes."""
        return self.threads or max(64, 2 * self.max_batch_size) + SPARE_THREADS


def load_settings(**values: Any) -> Settings:
    """Settings from the environment; `values` win over it. Raises SettingsError."""
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError("\n".join(_line(fault) for fault in error.errors(include_url=False))) from None


def read_dotenv(path: Path = Path(".env"), environ: MutableMapping[str, str] = os.environ) -> None:
    """Take over the lines of a `.env` file; variables that are set already win."""
    for name, value in dotenv_values(path).items():
        if value is not None:
            environ.setdefault(name, value)


def _line(fault: Any) -> str:
    if not fault["loc"]:
        return str(fault["msg"]).removeprefix("Value error, ")
    name = str(fault["loc"][0]).upper()
    return f"{name}={fault['input']!r}: {fault['msg'].removeprefix('Value error, ')}"
