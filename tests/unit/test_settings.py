from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from service.settings import Settings, SettingsError, load_settings, read_dotenv

DEFAULTS = {
    "MODEL_PATH": None,
    "MODEL_FORMAT": None,
    "MODEL_NAME": None,
    "MODEL_VERSION": None,
    "DEVICE": "auto",
    "MAX_BATCH_SIZE": 32,
    "MAX_BATCH_LATENCY_MS": 5,
    "BATCH_POLICY": "eager",
    "MAX_BATCH_TOKENS": None,
    "SCHEDULER": "auto",
    "BATCH_SIZE_BUCKETS": None,
    "PAD_TO_MULTIPLE_OF": None,
    "MAX_QUEUE_SIZE": 1024,
    "MAX_INSTANCES": 1024,
    "REQUEST_TIMEOUT_MS": 30_000,
    "STALL_LIMIT_MS": 60_000,
    "EXIT_ON_STALL": False,
    "MAX_BODY_BYTES": 16 * 1024 * 1024,
    "MAX_IMAGE_PIXELS": 40_000_000,
    "WARMUP": True,
    "EXIT_ON_LOAD_ERROR": True,
    "ALLOW_PICKLE": False,
    "API_KEYS": None,
    "ADMIN_TOKEN": None,
    "METRICS_KEY": None,
    "CORS_ORIGINS": None,
    "BIND": "127.0.0.1:8000",
    "GRACEFUL_TIMEOUT_S": 35,
    "LOG_FORMAT": "json",
    "LOG_LEVEL": "info",
    "TRACING": "off",
    "THREADS": None,
}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """What the machine that runs the tests has set is not what they are about."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


def test_the_defaults_are_the_documented_ones():
    settings = Settings()
    assert {name: getattr(settings, name.lower()) for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    "variables, policy",
    [
        ({"MAX_BATCH_LATENCY_MS": "20"}, "window"),
        ({"MAX_BATCH_LATENCY_MS": "5"}, "window"),
        ({"MAX_BATCH_LATENCY_MS": ""}, "eager"),
        ({"MAX_BATCH_LATENCY_MS": "20", "BATCH_POLICY": "eager"}, "eager"),
        ({"BATCH_POLICY": "window"}, "window"),
    ],
)
def test_rows_wait_for_company_where_it_is_said_how_long(monkeypatch, variables, policy):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Settings().batch_policy == policy


def test_a_latency_in_code_counts_like_one_in_the_environment(monkeypatch):
    assert Settings(max_batch_latency_ms=20).batch_policy == "window"
    monkeypatch.setenv("BATCH_POLICY", "eager")
    assert Settings(max_batch_latency_ms=20).batch_policy == "eager"


def test_every_setting_is_described():
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("DEVICE", "gpu", "cuda:0"),
        ("DEVICE", "cuda:", "auto, cpu, cuda"),
        ("DEVICE", "cuda:٣", "auto, cpu, cuda"),
        ("MAX_BATCH_SIZE", "0", "greater than or equal to 1"),
        ("MAX_BATCH_SIZE", "many", "integer"),
        ("MAX_BATCH_SIZE", "2.5", "integer"),
        ("MAX_BATCH_LATENCY_MS", "-1", "greater than or equal to 0"),
        ("MAX_BATCH_LATENCY_MS", "nan", "than or equal to"),
        ("MAX_BATCH_LATENCY_MS", "inf", "less than or equal to 60000"),
        ("BATCH_POLICY", "fast", "'window' or 'eager'"),
        ("THREAD_PLACEMENT", "core 1", "'auto', 'off' or 'pin'"),
        ("MAX_BATCH_TOKENS", "-4", "greater than or equal to 1"),
        ("SCHEDULER", "newest first", "fifo, "),
        ("SCHEDULER", "1st", "registered"),
        ("BATCH_SIZE_BUCKETS", "4,2,32", "rising"),
        ("BATCH_SIZE_BUCKETS", "0,32", "rising"),
        ("BATCH_SIZE_BUCKETS", "32,32", "rising"),
        ("BATCH_SIZE_BUCKETS", "a,32", "integer"),
        ("PAD_TO_MULTIPLE_OF", "0", "greater than or equal to 1"),
        ("MAX_QUEUE_SIZE", "0", "greater than or equal to 1"),
        ("MAX_INSTANCES", "0", "greater than or equal to 1"),
        ("REQUEST_TIMEOUT_MS", "0", "greater than 0"),
        ("REQUEST_TIMEOUT_MS", "inf", "finite"),
        ("STALL_LIMIT_MS", "nan", "finite"),
        ("MAX_BODY_BYTES", "16M", "integer"),
        ("MAX_IMAGE_PIXELS", "0", "greater than or equal to 1"),
        ("MAX_TEXT_CHARS", "0", "greater than or equal to 1"),
        ("WARMUP", "maybe", "boolean"),
        ("EXIT_ON_LOAD_ERROR", "2", "boolean"),
        ("ALLOW_PICKLE", "perhaps", "boolean"),
        ("GRACEFUL_TIMEOUT_S", "0", "greater than or equal to 1"),
        ("THREADS", "0", "greater than or equal to 1"),
        ("OMP_NUM_THREADS", "0", "greater than or equal to 1"),
        ("MODEL_INSTANCES", "0", "greater than or equal to 1"),
        ("LOG_FORMAT", "xml", "'json' or 'text'"),
        ("LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("TRACING", "zipkin", "'off' or 'otel'"),
    ],
)
def test_a_wrong_value_is_named_with_its_variable_and_what_is_allowed(monkeypatch, name, value, allowed):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    message = str(caught.value)
    assert message.startswith(f"{name}=")
    assert allowed in message
    assert all(part in message for part in value.split(",")[:1])
    assert "\n" not in message
    assert "http" not in message


def test_every_wrong_value_has_a_line():
    with pytest.raises(SettingsError) as caught:
        load_settings(device="gpu", threads=0)
    assert [line.partition("=")[0] for line in str(caught.value).splitlines()] == ["DEVICE", "THREADS"]


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:11"])
def test_devices_that_exist_somewhere_are_accepted(device):
    assert Settings(device=device).device == device


def test_a_stop_must_be_longer_than_a_request():
    assert load_settings(request_timeout_ms=33_000).graceful_timeout_s == 35
    with pytest.raises(SettingsError, match=r"GRACEFUL_TIMEOUT_S=35 .* at least 36"):
        load_settings(request_timeout_ms=33_001)
    assert load_settings(request_timeout_ms=60_000, graceful_timeout_s=62)


def test_the_least_graceful_timeout_that_is_told_is_enough():
    for timeout_ms in (33_001, 33_400, 33_999, 34_000, 100_500):
        with pytest.raises(SettingsError) as caught:
            load_settings(request_timeout_ms=timeout_ms)
        least = int(str(caught.value).rpartition(" ")[2])
        assert load_settings(request_timeout_ms=timeout_ms, graceful_timeout_s=least)


@pytest.mark.parametrize("text", ["8,32", " 8 , 32 ", "[8, 32]"])
def test_batch_sizes_are_a_list_with_commas(monkeypatch, text):
    monkeypatch.setenv("BATCH_SIZE_BUCKETS", text)
    assert Settings().batch_size_buckets == (8, 32)


def test_a_single_batch_size_is_a_list_too(monkeypatch):
    monkeypatch.setenv("BATCH_SIZE_BUCKETS", "32")
    assert Settings().batch_size_buckets == (32,)


def test_batch_sizes_must_reach_the_largest_batch():
    with pytest.raises(SettingsError, match="BATCH_SIZE_BUCKETS ends at 16 and must end at MAX_BATCH_SIZE=32"):
        load_settings(batch_size_buckets=(4, 16))


def test_batch_sizes_must_not_exceed_the_largest_batch():
    with pytest.raises(SettingsError, match="BATCH_SIZE_BUCKETS ends at 64 and must end at MAX_BATCH_SIZE=32"):
        load_settings(batch_size_buckets=(8, 64))


def test_a_scheduler_that_is_not_registered_yet_may_be_named():
    """The settings are read in gunicorn's master, before the program that registers it is imported."""
    assert load_settings(scheduler="newest_first").scheduler == "newest_first"


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch):
    for name in ("MODEL_PATH", "MAX_BATCH_TOKENS", "BIND", "WARMUP", "BATCH_SIZE_BUCKETS"):
        monkeypatch.setenv(name, "")
    assert Settings() == Settings(model_path=None)
    assert Settings().bind == "127.0.0.1:8000"


def test_keywords_may_be_written_like_the_variables_and_win_over_them(monkeypatch):
    monkeypatch.setenv("MAX_BATCH_SIZE", "4")
    assert Settings().max_batch_size == 4
    assert Settings(MAX_BATCH_SIZE=8).max_batch_size == 8
    assert Settings(max_batch_size=8).max_batch_size == 8


def test_a_misspelt_keyword_is_an_error():
    with pytest.raises(SettingsError, match="MAX_BATCH_SZE"):
        load_settings(MAX_BATCH_SZE=8)


def test_variables_are_read_in_any_case(monkeypatch):
    monkeypatch.setenv("log_level", "WARNING")
    monkeypatch.setenv("log_format", "TEXT")
    assert (Settings().log_level, Settings().log_format) == ("warning", "text")


def test_tracing_needs_its_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert load_settings().tracing == "off"
    with pytest.raises(SettingsError, match=r"TRACING='otel': needs .* pip install 'jitney\[otel\]'"):
        load_settings(tracing="otel")


def test_settings_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().max_batch_size = 8  # type: ignore[misc]


def test_there_are_threads_for_two_batches_and_some_for_probes():
    assert Settings().http_threads == 72
    assert Settings(max_batch_size=128).http_threads == 264
    assert Settings(max_batch_size=128, model_instances=2).http_threads == 392
    assert Settings(threads=10, model_instances=2).http_threads == 10


def test_lines_of_a_dotenv_file_are_taken_over_but_variables_win(tmp_path):
    file = tmp_path / ".env"
    file.write_text("# the service\nMAX_BATCH_SIZE=8\nexport LOG_LEVEL='debug'\nBIND=0.0.0.0:9000\nEMPTY\n")
    environ = {"BIND": "127.0.0.1:1"}
    read_dotenv(file, environ)
    assert environ == {"BIND": "127.0.0.1:1", "MAX_BATCH_SIZE": "8", "LOG_LEVEL": "debug"}


def test_a_dotenv_file_need_not_exist(tmp_path):
    environ = dict(os.environ)
    read_dotenv(tmp_path / ".env", environ)
    assert environ == dict(os.environ)


@pytest.mark.parametrize("bind", ["8401", "localhost", "127.0.0.1:99999", "127.0.0.1:http"])
def test_an_address_is_a_host_and_a_port(bind):
    with pytest.raises(SettingsError, match=r"BIND='.*': must be HOST:PORT"):
        load_settings(bind=bind)


@pytest.mark.parametrize("bind", ["0.0.0.0:80", ":80", "[::1]:8000", "localhost:0", "unix:/run/jitney.sock", "fd://3"])
def test_an_address_may_be_of_any_kind_that_gunicorn_takes(bind):
    assert load_settings(bind=bind).bind == bind


def test_a_format_beside_a_repository_is_refused():
    with pytest.raises(SettingsError, match="MODEL_FORMAT cannot be set beside MODEL_REPOSITORY"):
        load_settings(model_repository="models", model_format="onnx")


def test_the_self_check_takes_one_of_its_three_words():
    assert load_settings(self_check="strict").self_check == "strict"
    with pytest.raises(SettingsError, match="SELF_CHECK='maybe'"):
        load_settings(self_check="maybe")


def test_a_misspelt_setting_in_a_dotenv_file_is_told(tmp_path):
    file = tmp_path / ".env"
    file.write_text("MAX_BATCHSIZE=3\nMODEL_PATH=m\nYOURS=1\nDATABASE_URL=x\n")
    environ: dict[str, str] = {}
    assert read_dotenv(file, environ) == [f"{file}: MAX_BATCHSIZE is no setting; did you mean MAX_BATCH_SIZE?"]
    assert environ["YOURS"] == "1"


@pytest.mark.parametrize("name", ["a b/c", "a/b", "../up", ".", "-first", "a:predict", "é", "a\nb", "x" * 129])
def test_a_name_or_version_that_no_url_reaches_is_refused(name):
    for variable in ("model_name", "model_version"):
        with pytest.raises(SettingsError, match=f"^{variable.upper()}=.*must be 1 to 128 letters"):
            load_settings(**{variable: name})
    assert load_settings(model_name="A.b-c_1", model_version="2024.1").model_name == "A.b-c_1"


def test_one_model_is_shared_or_each_process_has_its_own(monkeypatch):
    assert Settings().model_sharing == "copy"
    monkeypatch.setenv("MODEL_SHARING", "ONE")
    assert load_settings().model_sharing == "one"
    monkeypatch.setenv("MODEL_SHARING", "two")
    with pytest.raises(SettingsError, match=r"MODEL_SHARING='two'.*'copy' or 'one'"):
        load_settings()


def test_several_models_are_not_shared():
    with pytest.raises(SettingsError, match="MODEL_REPOSITORY"):
        load_settings(model_sharing="one", model_repository="/models")


def test_so_many_copies_of_a_model_as_nobody_means_are_refused():
    assert Settings(model_instances=64).model_instances == 64
    with pytest.raises(ValueError, match="less than or equal to 64"):
        Settings(model_instances=65)


@pytest.mark.parametrize(
    ("values", "packs"),
    [
        ({}, True),
        ({"scheduler": "cost"}, True),
        ({"scheduler": "fifo"}, False),
        ({"scheduler": "grouped"}, False),
        ({"scheduler": "newest_first"}, False),
        ({"batch_size_buckets": (8, 32)}, False),
    ],
)
def test_texts_share_rows_where_the_scheduler_knows_what_that_costs(values: dict[str, Any], packs: bool) -> None:
    assert Settings(**values).packs_texts is packs
