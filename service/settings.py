"""Every setting, as one frozen model read from environment variables of the same (upper-case) names."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, MutableMapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv import dotenv_values
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from loaders.names import checked_name
from service.batching.policy import BatchPolicy
from service.cpu_threads import POOL_VARIABLES
from service.logs import LogFormat
from service.misspelt import misspelt
from service.placement.rule import PlacementMode

# Threads beside those that predict, half of them for probes and half for refusals while all of those are taken.
SPARE_THREADS = 8

# What gunicorn needs beyond the longest request before it kills a stopping worker, seconds.
STOP_MARGIN_S = 2

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?", re.ASCII)
_NAME = re.compile(r"[a-z_][\w.-]*", re.ASCII | re.IGNORECASE)

# What browsers send as an origin: no path, not even a slash at its end, and the host in small letters.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+")

# Eight characters are out of reach for somebody who tries them over a network; what a header holds has an end.
MIN_KEY_CHARS = 8
MAX_KEY_CHARS = 256
_KEY = re.compile(rf"[!-~]{{{MIN_KEY_CHARS},{MAX_KEY_CHARS}}}")

Positive = Annotated[int, Field(ge=1)]

# More copies of a model are a slip of the pen: each takes its memory, and a batch of HTTP threads.
MAX_MODEL_INSTANCES = 64


class SelfCheck(StrEnum):
    """What follows from a model whose answers depend on their neighbours."""

    OFF = "off"
    WARN = "warn"
    STRICT = "strict"


class ModelSharing(StrEnum):
    """Who owns a model where there are several worker processes."""

    COPY = "copy"  # each process its own
    ONE = "one"  # one process the only one, and the others ask it


class TracingMode(StrEnum):
    """Whether requests and batches are recorded as spans."""

    OFF = "off"
    OTEL = "otel"


class SettingsError(ValueError):
    """A setting is wrong; the message names the variable, its value and what is allowed, one line each."""


class Settings(BaseSettings):
    """Defaults are for a small model on a CPU. Sizes in rows, times in milliseconds unless the name says otherwise.

    Raises pydantic's ValidationError; `load_settings` turns that into a message for people.
    """

    # An empty variable is the only way to unset one in many deployment files. A misspelt keyword is an error. The text
    # of a ValidationError goes to logs, where keys have no place.
    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", case_sensitive=False, env_ignore_empty=True, hide_input_in_errors=True
    )

    model_path: str | None = Field(
        None, description="Model file or bundle directory (required, unless the app serves a handle)"
    )
    model_format: str | None = Field(None, description="Loader to use; default: told by the bundle or the file")
    model_name: str | None = Field(None, description="Default: from the bundle, else the file's stem")
    model_version: str | None = Field(None, description="Default: from the bundle, else 1")
    model_repository: str | None = Field(
        None, description="Instead of MODEL_PATH: directory of bundles <name>/<version>/, several models in one process"
    )
    model_cache_size: Positive = Field(
        4, description="Loaded versions kept from MODEL_REPOSITORY; the least recently used goes"
    )
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")
    max_batch_size: Positive = Field(32, description="Rows per batch")
    max_batch_latency_ms: float = Field(5.0, ge=0, le=60_000, description="How long the oldest row waits for company")
    batch_policy: BatchPolicy = Field(
        BatchPolicy.EAGER,
        description="window: leave on size or latency; eager: also when the worker is free and nobody is on the way. "
        "Default where MAX_BATCH_LATENCY_MS is set: window",
    )
    max_batch_tokens: Positive | None = Field(
        None, description="Cost budget of a batch: rows times longest row, tokens"
    )
    scheduler: str = Field(
        "auto",
        description="Which waiting rows share a batch: fifo, length_aware, grouped, cost, or a registered one; "
        "auto: cost for texts, else fifo",
    )
    batch_size_buckets: Annotated[tuple[int, ...] | None, NoDecode] = Field(
        None,
        description="Allowed batch sizes, e.g. 8,32; the last is MAX_BATCH_SIZE; a batch is filled up to the next",
    )
    pad_to_multiple_of: Positive | None = Field(None, description="Round the padded length of texts up, tokens")
    max_queue_size: Positive = Field(
        1024, description="Rows admitted and not yet in a batch, and requests that wait for a thread"
    )
    max_instances: Positive = Field(1024, description="Rows per request")
    request_timeout_ms: float = Field(
        30_000, gt=0, allow_inf_nan=False, description="Default and upper bound of a request's deadline"
    )
    stall_limit_ms: float = Field(
        60_000, gt=0, allow_inf_nan=False, description="A batch that runs longer makes the service not live"
    )
    exit_on_stall: bool = Field(
        False, description="A batch that runs for twice STALL_LIMIT_MS ends the process, to be replaced"
    )
    max_body_bytes: Positive = Field(
        16 * 1024 * 1024, description="Largest request body, as it is sent and when it is unpacked"
    )
    max_image_pixels: Positive = Field(40_000_000, description="Largest picture, checked before it is decoded")
    max_text_chars: Positive = Field(100_000, description="Longest text, characters")
    warmup: bool = Field(True, description="Run synthetic batches before the service is ready")
    self_check: SelfCheck = Field(
        SelfCheck.WARN,
        description="off, warn or strict (a failed load): is a row answered alike alone and in a full batch?",
    )
    exit_on_load_error: bool = Field(True, description="A model that cannot be loaded ends the process, non-zero")
    allow_pickle: bool = Field(False, description="Load pickle and joblib files without a pinned SHA-256")
    api_keys: Annotated[tuple[SecretStr, ...] | None, NoDecode] = Field(
        None, description="Keys that open the predict routes, separated by commas; unset: everybody may"
    )
    admin_token: SecretStr | None = Field(
        None, description="Key that opens loading and unloading models over HTTP; unset: nobody may"
    )
    metrics_key: SecretStr | None = Field(
        None, description="Key that opens /metrics and /status.json; unset: everybody may"
    )
    cors_origins: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        None, description="Origins whose pages may call, separated by commas, or *; unset: none"
    )
    status_page: bool = Field(True, description="Show what the service does, live, as a page at / and at /status.json")
    bind: str = Field("127.0.0.1:8000", min_length=1, description="Address that gunicorn listens on")
    web_workers: Positive = Field(
        1, description="gunicorn worker processes; each loads a whole model and has its share of the CPUs"
    )
    model_sharing: ModelSharing = Field(
        ModelSharing.COPY,
        description="With several worker processes: copy (each owns a model) or one (one process owns it, and batches "
        "for the others)",
    )
    model_instances: Positive = Field(
        1,
        le=MAX_MODEL_INSTANCES,
        description="Worker threads that serve one queue: on CPUs each with a copy of the model and its share of the "
        "CPUs (of an ONNX model all share one, and a batch that is alone has those of all), on a GPU with one copy for "
        "all, the next batch prepared while one is computed",
    )
    graceful_timeout_s: Positive = Field(
        35, description="What a stopping server gives its last requests; must exceed REQUEST_TIMEOUT_MS by 2 s"
    )
    threads: Positive | None = Field(
        None, description="HTTP threads; default: (1 + MODEL_INSTANCES) x MAX_BATCH_SIZE + 8, at least 72"
    )
    omp_num_threads: Positive | None = Field(
        None, description="Native threads of the model; default: the container's CPUs"
    )
    thread_placement: PlacementMode = Field(
        PlacementMode.AUTO,
        description="Where threads run: auto, as warm-up finds best; pin: HTTP threads on one core; off: on any core",
    )
    log_format: LogFormat = Field(
        LogFormat.JSON, description="What a line of the log is: json, an object for machines; text, for people"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe message that is logged"
    )
    tracing: TracingMode = Field(
        TracingMode.OFF, description="otel: spans of requests and batches, sent where the OTEL_* variables say"
    )

    def __init__(self, **values: Any) -> None:
        """`Settings(MAX_BATCH_SIZE=8)` is `Settings(max_batch_size=8)`; both win over the environment."""
        super().__init__(**{name.lower(): value for name, value in values.items()})

    @field_validator("bind")
    @classmethod
    def _known_address(cls, value: str) -> str:
        port = value.rpartition(":")[2]
        if value.startswith(("unix:", "fd:")):
            return value
        if ":" not in value or not port.isdecimal() or not 0 <= int(port) <= 65535:
            raise ValueError(
                "must be HOST:PORT, e.g. 127.0.0.1:8000, or :8000 for every address of the machine, or unix:PATH"
            )
        return value

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str) -> str:
        if not _DEVICE.fullmatch(value):
            raise ValueError("must be auto, cpu, cuda, or cuda:N with the number of a device, e.g. cuda:0")
        return value

    @field_validator("model_name", "model_version")
    @classmethod
    def _reachable(cls, value: str | None) -> str | None:
        return None if value is None else checked_name(value)

    @field_validator("scheduler")
    @classmethod
    def _named(cls, value: str) -> str:
        """Whether there is such a scheduler is known once the program that may register it has been imported."""
        if not _NAME.fullmatch(value):
            raise ValueError("must be auto, fifo, length_aware, grouped, cost, or the name of a registered scheduler")
        return value

    @field_validator("batch_size_buckets", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """`4,16` as an environment variable gives it, or a JSON list."""
        return _parts(value.strip("[] ")) if isinstance(value, str) else value

    @field_validator("api_keys", "cors_origins", mode="before")
    @classmethod
    def _split_words(cls, value: Any) -> Any:
        return _parts(value) if isinstance(value, str) else value

    @field_validator("api_keys")
    @classmethod
    def _usable_keys(cls, value: tuple[SecretStr, ...] | None) -> tuple[SecretStr, ...] | None:
        for position, key in enumerate(value or ()):
            _check_key(key, f"entry {position + 1} ")
        return value or None

    @field_validator("admin_token", "metrics_key")
    @classmethod
    def _usable_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _check_key(value)
        return value

    @field_validator("cors_origins")
    @classmethod
    def _exact_origins(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value and value != ("*",) and not all(map(_ORIGIN.fullmatch, value)):
            raise ValueError("must be origins as browsers send them, e.g. https://app.example.org, or * alone")
        return value or None

    @field_validator("batch_size_buckets")
    @classmethod
    def _rising(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (not value or min(value) < 1 or list(value) != sorted(set(value))):
            raise ValueError("must be rising batch sizes, e.g. 1,4,16,32")
        return value

    @field_validator("log_format", "log_level", "tracing", "thread_placement", "model_sharing", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("tracing")
    @classmethod
    def _installed(cls, value: TracingMode) -> TracingMode:
        # Looked for and not imported: this is read in gunicorn's master too.
        if value is TracingMode.OTEL and not (find_spec("opentelemetry") and find_spec("opentelemetry.sdk")):
            raise ValueError("needs packages that are not installed: pip install 'jitney[otel]'")
        return value

    @model_validator(mode="before")
    @classmethod
    def _wait_as_told(cls, given: Any) -> Any:
        """Whoever says how long rows wait for company wants them to wait."""
        is_told = isinstance(given, dict) and given.get("max_batch_latency_ms") is not None
        return {"batch_policy": BatchPolicy.WINDOW} | given if is_told else given

    @model_validator(mode="after")
    def _one_source(self) -> Settings:
        if self.model_repository is not None and self.model_path is not None:
            raise ValueError("MODEL_PATH and MODEL_REPOSITORY are both set: a process serves one of them")
        if self.model_repository is not None and self.model_format is not None:
            raise ValueError("MODEL_FORMAT cannot be set beside MODEL_REPOSITORY: each bundle tells its own")
        if self.model_repository is not None and self.model_sharing is ModelSharing.ONE:
            raise ValueError(
                "MODEL_SHARING=one shares one model, that of MODEL_PATH or the app, and no MODEL_REPOSITORY"
            )
        return self

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        least_s = self.request_timeout_ms / 1000 + STOP_MARGIN_S
        if self.graceful_timeout_s < least_s:
            raise ValueError(
                f"GRACEFUL_TIMEOUT_S={self.graceful_timeout_s} is less than REQUEST_TIMEOUT_MS plus 2 s: "
                f"a stop could cut a request; set it to at least {math.ceil(least_s)}"
            )
        if self.batch_size_buckets and self.batch_size_buckets[-1] != self.max_batch_size:
            raise ValueError(
                f"BATCH_SIZE_BUCKETS ends at {self.batch_size_buckets[-1]} and must end at "
                f"MAX_BATCH_SIZE={self.max_batch_size}, the most rows that the model may see"
            )
        return self

    @property
    def rows_inside(self) -> int:
        """The rows of a full batch for each instance of the model, and of the one that fills up meanwhile."""
        return (1 + self.model_instances) * self.max_batch_size

    @property
    def packs_texts(self) -> bool:
        """Whether short texts of a batch may share a row of the model: the scheduler must know what a batch costs then,
        and buckets are for models that want rows of their own.
        """
        return self.scheduler in _PACKING_SCHEDULERS and self.batch_size_buckets is None

    @property
    def http_threads(self) -> int:
        """Threads that predict, one for each of `rows_inside`, and some more for what is not a prediction."""
        return self.threads or max(64, self.rows_inside) + SPARE_THREADS


_PACKING_SCHEDULERS = frozenset({"auto", "cost"})

_SECRET = frozenset({"api_keys", "admin_token", "metrics_key"})


def load_settings(**values: Any) -> Settings:
    """Settings from the environment; `values` win over it. Raises SettingsError."""
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError("\n".join(_line(fault) for fault in error.errors(include_url=False))) from None


def misspelt_settings(names: Iterable[str]) -> dict[str, str]:
    """Of the names of variables those that look like a setting and are none, each with that setting."""
    own = (name for name in names if name not in POOL_VARIABLES)
    return misspelt(own, [name.upper() for name in Settings.model_fields])


def read_dotenv(path: Path = Path(".env"), environ: MutableMapping[str, str] = os.environ) -> list[str]:
    """Take over the lines of a `.env` file; variables that are set already win.

    Returns a sentence for each line that looks like a setting and is none.
    """
    lines = dotenv_values(path)
    for name, value in lines.items():
        if value is not None:
            environ.setdefault(name, value)
    return [f"{path}: {name} is no setting; did you mean {right}?" for name, right in misspelt_settings(lines).items()]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _check_key(key: SecretStr, which: str = "") -> None:
    """Raise ValueError for what is no key, without a word of it."""
    if not _KEY.fullmatch(key.get_secret_value()):
        raise ValueError(f"{which}must be {MIN_KEY_CHARS} to {MAX_KEY_CHARS} visible ASCII characters, without blanks")


def _line(fault: Any) -> str:
    message = str(fault["msg"]).removeprefix("Value error, ")
    if not fault["loc"]:
        return message
    field = str(fault["loc"][0])
    # A key that is wrong may be a right one with a slip.
    return f"{field.upper()}: {message}" if field in _SECRET else f"{field.upper()}={fault['input']!r}: {message}"
