"""What Prometheus reads: names, types and labels, and how many series a stranger can make."""

from __future__ import annotations

import pytest
from flask import Flask
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from served import GUARD_S, POISON, Gate

from loaders.handle import ModelHandle
from loaders.signature import EncodedText, TextInput
from service.metrics.http import HttpMetrics

MODEL = {"model", "version"}
FAMILIES = {
    "http_requests": ("counter", {"method", "route", "status"}),
    "http_request_duration_seconds": ("histogram", {"method", "route", "status"}),
    "inference_batch_size": ("histogram", MODEL),
    "inference_queue_wait_seconds": ("histogram", MODEL),
    "inference_model_seconds": ("histogram", MODEL),
    "inference_preprocess_seconds": ("histogram", MODEL),
    "inference_queue_depth": ("gauge", MODEL),
    "inference_oldest_wait_seconds": ("gauge", MODEL),
    "inference_backlog_seconds": ("gauge", MODEL),
    "inference_effective_max_batch_size": ("gauge", MODEL),
    "inference_instances": ("gauge", MODEL),
    "inference_busy_instances": ("gauge", MODEL),
    "inference_flushes": ("counter", MODEL | {"reason"}),
    "inference_rows": ("counter", MODEL),
    "inference_abandoned": ("counter", MODEL),
    "inference_errors": ("counter", MODEL | {"reason"}),
    "inference_rejected": ("counter", MODEL | {"reason"}),
    "inference_batch_retries": ("counter", MODEL | {"reason"}),
    "inference_tokens": ("counter", MODEL),
    "inference_padding_tokens": ("counter", MODEL),
    "inference_model_info": ("gauge", {"name", "version", "format", "device"}),
}


def families(server, query: str = "") -> dict:
    answer = server.client.get("/metrics" + query)
    assert answer.status_code == 200
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def bounds(family) -> list[float]:
    return sorted({float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels})


def test_every_promised_family_is_there_with_its_type_and_labels(served):
    server = served(max_batch_size=4)
    server.predict([1], [POISON])
    assert server.runtime.close(GUARD_S), "a batch is counted when its callers have been answered"
    found = families(server)
    assert found.keys() >= FAMILIES.keys()
    for name, (kind, labels) in FAMILIES.items():
        samples = [sample for sample in found[name].samples if not sample.name.endswith("_created")]
        assert found[name].type == kind, name
        assert samples, name
        assert {frozenset(sample.labels.keys() - {"le"}) for sample in samples} == {frozenset(labels)}, name


def test_counts_follow_what_happened(served):
    spec = TextInput(encode=lambda text: EncodedText(tuple(text.encode())))
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="t", input=spec), max_batch_size=2)
    server.predict("a", "abc", "x")
    assert server.runtime.close(GUARD_S), "a batch is counted when its callers have been answered"
    text = server.client.get("/metrics").text
    for line in (
        'inference_rows_total{model="t",version="1"} 3.0',
        'inference_batch_size_sum{model="t",version="1"} 3.0',
        'inference_batch_size_count{model="t",version="1"} 2.0',
        'inference_tokens_total{model="t",version="1"} 5.0',
        'inference_padding_tokens_total{model="t",version="1"} 2.0',
        'inference_flushes_total{model="t",reason="size",version="1"} 1.0',
        'inference_flushes_total{model="t",reason="latency",version="1"} 1.0',
        'inference_queue_wait_seconds_count{model="t",version="1"} 3.0',
        'inference_preprocess_seconds_count{model="t",version="1"} 1.0',
        'inference_effective_max_batch_size{model="t",version="1"} 2.0',
        'inference_model_info{device="cpu",format="callable",name="t",version="1"} 1.0',
        'http_requests_total{method="POST",route="/predict",status="200"} 1.0',
    ):
        assert line in text.splitlines(), line


def test_failed_rows_and_retries_are_counted_by_reason(served):
    server = served(max_batch_size=4)
    server.predict([1], [POISON], [2], [3])
    assert server.runtime.close(GUARD_S), "a batch is counted when its callers have been answered"
    assert server.metric('inference_errors_total{model="m",reason="model",version="3"}') == 1
    assert server.metric('inference_batch_retries_total{model="m",reason="model",version="3"}') == 2


def test_failures_start_at_zero_so_that_the_first_one_is_an_increase(served):
    text = served().client.get("/metrics").text
    for reason in ("model", "oom", "output_count", "non_finite"):
        assert f'inference_errors_total{{model="m",reason="{reason}",version="3"}} 0.0' in text
    for reason in ("queue_full", "deadline", "draining"):
        assert f'inference_rejected_total{{model="m",reason="{reason}",version="3"}} 0.0' in text


def test_buckets_tell_short_batches_apart_and_reach_past_the_timeout(served):
    server = served()
    server.predict([1])
    found = families(server)
    assert bounds(found["inference_batch_size"]) == [*(2.0**power for power in range(11)), float("inf")]
    for name in ("inference_model_seconds", "inference_queue_wait_seconds", "http_request_duration_seconds"):
        limits = bounds(found[name])
        assert sum(limit < 0.001 for limit in limits) >= 2
        assert limits[-2] > server.runtime.settings.request_timeout_ms / 1000


def test_a_stranger_cannot_make_new_series_with_paths_names_or_methods(served):
    server = served()
    for number in range(20):
        server.predict([1], path=f"/models/x{number}/predict")
        server.predict([1], path=f"/models/x{number}/versions/{number}/predict")
        server.client.get(f"/{number}.php")
        server.client.open("/predict", method=f"VERB{number}")
    samples = [sample.labels for sample in families(server)["http_requests"].samples if sample.name.endswith("_total")]
    assert {(sample["method"], sample["route"], sample["status"]) for sample in samples} == {
        ("POST", "/models/<name>/predict", "404"),
        ("POST", "/models/<name>/versions/<version>/predict", "404"),
        ("GET", "unmatched", "404"),
        ("other", "/predict", "405"),
    }
    assert not any("x1" in str(sample.labels) for family in families(server).values() for sample in family.samples)


def test_probes_are_counted_but_not_timed(served):
    server = served()
    probes = {"/healthz", "/livez", "/metrics", "/status.json", "/v2/health/live", "/v2/health/ready"}
    for path in probes:
        server.client.get(path)
    server.predict([1])
    found = families(server)
    counted = {sample.labels["route"] for sample in found["http_requests"].samples}
    timed = {sample.labels["route"] for sample in found["http_request_duration_seconds"].samples}
    assert counted == {*probes, "/predict"}
    assert timed == {"/predict"}


def test_a_scrape_may_ask_for_some_names_only(served):
    server = served()
    server.predict([1])
    assert set(families(server, "?name[]=inference_rows_total")) == {"inference_rows"}
    two = families(server, "?name[]=inference_rows_total&name[]=inference_queue_depth")
    assert set(two) == {"inference_rows", "inference_queue_depth"}
    assert families(server, "?name[]=no_such_name") == {}
    assert len(families(server, "?name[]=")) <= len(families(server))


def test_the_gauges_are_refreshed_before_they_are_read():
    refreshed = []
    app = Flask("app")
    HttpMetrics(app, CollectorRegistry(), lambda: refreshed.append(True))
    assert app.test_client().get("/metrics").status_code == 200
    assert refreshed == [True]


def test_memory_and_cpu_time_of_the_process_are_there(served):
    server = served()
    assert families(server)["process_resident_memory_bytes"].samples[0].value > 0
    assert set(families(server, "?name[]=process_open_fds")) == {"process_open_fds"}


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0", "*/*"])
def test_the_page_speaks_the_format_that_is_asked_for(served, accept):
    answer = served().client.get("/metrics", headers={"Accept": accept})
    expected = "application/openmetrics-text" if "openmetrics" in accept else "text/plain"
    assert answer.content_type.startswith(expected)


def test_worker_threads_are_told_with_those_that_have_a_batch(served):
    gate = Gate()
    handle = ModelHandle.from_callable(gate, name="m", version="3", is_thread_safe=True)
    server = served(handle, model_instances=3, max_batch_size=1)
    of_m = '{model="m",version="3"}'
    asked = server.in_thread(lambda: server.predict([1]))
    assert gate.started.wait(GUARD_S)
    assert server.metric(f"inference_instances{of_m}") == 3
    assert server.metric(f"inference_busy_instances{of_m}") == 1
    gate.release.set()
    assert asked().status_code == 200
    assert server.runtime.close(GUARD_S)
    assert server.metric(f"inference_busy_instances{of_m}") == 0


def test_no_route_tells_how_its_rule_is_told_from_others(served):
    server = served()
    assert server.client.get("/v1/models/m").status_code == 200
    assert server.client.get("/v1/models/m/versions/3").status_code == 200
    assert server.client.put("/v1/models/m").status_code == 405
    routes = ["/v1/models/<name>", "/v1/models/<name>/versions/<version>", "/v1/models/<name>"]
    for method, route, status in zip(("GET", "GET", "PUT"), routes, (200, 200, 405), strict=True):
        labels = f'method="{method}",route="{route}",status="{status}"'
        assert server.metric(f"http_requests_total{{{labels}}}") == 1


def test_a_wrong_method_is_counted_under_the_rule_of_its_path(served):
    server = served()
    server.client.get("/predict")
    server.client.put("/models/some/predict")
    server.client.open("/livez", method="BREW")
    for method, route in (("GET", "/predict"), ("PUT", "/models/<name>/predict"), ("other", "/livez")):
        assert server.metric(f'http_requests_total{{method="{method}",route="{route}",status="405"}}') == 1
