"""`/openapi.json` describes what the service does, and `/docs` is a page that needs nothing from elsewhere."""

from __future__ import annotations

import io
import re
import time
from importlib.resources import files

import pytest
from described import check, described
from flask import Flask
from PIL import Image
from served import GUARD_S, NOT_FINITE, POISON, SMALL_PICTURE, Gate, Served, as_handle, mean_colour, sums, upper

from loaders.handle import ModelHandle
from loaders.signature import EncodedText, OutputSpec, TabularInput, TextInput
from service import Jitney, Settings
from service.http.docs import ASSETS, PAGE

TEXT = TextInput(encode=lambda text: EncodedText(tuple(text.encode()[:3]), truncated=len(text) > 3))


def wait_until(holds):
    give_up_at = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), "red").save(file, "PNG")
    return file.getvalue()


def test_every_route_is_described_and_nothing_else(served):
    server = served()
    routes = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in server.app.url_map.iter_rules()
        for method in rule.methods - {"HEAD", "OPTIONS"}
        if not rule.rule.startswith(("/docs/", "/status/"))
    }
    api = described(server)
    told = {(path, method) for path, item in api["paths"].items() for method in item}
    # Flask answers HEAD wherever it answers GET; it is promised for the probes.
    assert told - routes == {("/healthz", "head"), ("/livez", "head")}
    assert routes <= told


def test_the_status_page_is_described_where_it_is(served):
    with_page, without = described(served()), described(served(status_page=False))
    assert with_page["paths"].keys() - without["paths"].keys() == {"/", "/status.json"}
    assert with_page["components"]["schemas"].keys() - without["components"]["schemas"].keys() == {"Status"}


ROWS = [
    {"instances": [[1, 2]]},
    {"instances": [[1, 2], [3, 4]], "timeout_ms": 5000, "model_version": "3"},
    {"instances": [[1, "a"]]},
    {"instances": []},
    {"instances": [[1]], "model_version": "9"},
    {"instances": [[POISON]]},
    {"instances": [[NOT_FINITE]]},
    {"instances": [[1]] * 2000},
    {"text": "a"},
    {},
]


@pytest.mark.parametrize("body", ROWS, ids=lambda body: repr(body)[:60])
@pytest.mark.parametrize("query", ["", "?explain=1", "?explain=x"])
def test_answers_to_rows_are_as_described(served, body, query):
    server = served()
    check(described(server), server.client.post(f"/predict{query}", json=body), "post", "/predict")


@pytest.mark.parametrize(
    "body",
    [
        {"text": "a"},
        {"text": "long one"},
        {"instances": ["a", "long one"]},
        {"text": "a", "parameters": {"proba": True}},
    ],
    ids=repr,
)
def test_answers_to_texts_are_as_described(served, body):
    handle = ModelHandle.from_callable(
        lambda rows, proba=False: [[0.25, 0.75] for _ in rows],
        name="m",
        input=TEXT,
        output=OutputSpec("classification", ("no", "yes"), top_k=2),
        parameters=["proba"],
    )
    server = served(handle)
    answer = server.client.post("/predict?explain=1", json=body)
    assert answer.status_code == 200
    check(described(server), answer, "post", "/predict")


def test_answers_to_pictures_are_as_described(served):
    server = served(ModelHandle.from_callable(mean_colour, name="m", version="3", input=SMALL_PICTURE))
    api = described(server)
    good = [
        server.client.post("/predict", data={"file": (io.BytesIO(picture()), "x.png")}),
        server.client.post("/predict", data=picture(), content_type="image/png"),
        server.client.post("/models/m/predict", data=picture(), content_type="image/png"),
    ]
    bad = [
        server.client.post("/predict", data={"file": (io.BytesIO(b"GIF89a"), "x.gif")}),
        server.client.post("/predict", data={"other": "x"}),
        server.client.post("/predict", data=b"text", content_type="text/plain"),
        server.client.post("/predict", data=b"x", content_type="multipart/form-data"),
    ]
    assert [answer.status_code for answer in good] == [200] * 3
    for answer in good + bad:
        check(api, answer, "post", "/predict")


def test_errors_of_a_route_by_name_are_as_described(served):
    server = served()
    answer = server.predict([1], path="/models/other/versions/1/predict")
    check(described(server), answer, "post", "/models/{name}/versions/{version}/predict")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/metrics", "/", "/status.json", "/openapi.json", "/docs"])
def test_what_is_read_is_as_described(served, path):
    server = served()
    check(described(server), server.client.get(path), "get", path)
    server.predict([1])
    check(described(server), server.client.get(path), "get", path)
    if path in ("/healthz", "/livez"):
        check(described(server), server.client.head(path), "head", path)


def test_a_full_queue_a_passed_deadline_and_a_stop_are_as_described(served):
    gate = Gate()
    server = served(gate, max_batch_size=1, max_queue_size=1)
    api = described(server)
    first = server.in_thread(lambda: server.predict([1]))
    assert gate.started.wait(GUARD_S)
    check(api, server.predict([2], timeout_ms=1), "post", "/predict")
    second = server.in_thread(lambda: server.predict([3]))
    wait_until(lambda: server.runtime.status().queued == 1)
    full = server.predict([4])
    assert full.status_code == 429
    check(api, full, "post", "/predict")
    server.runtime.begin_drain()
    for method, path in (("get", "/healthz"), ("get", "/livez")):
        check(api, server.client.get(path), method, path)
    stopping = server.predict([5])
    assert stopping.status_code == 503
    check(api, stopping, "post", "/predict")
    gate.release.set()
    assert [first().status_code, second().status_code] == [200, 200]


def test_until_the_model_is_loaded_any_input_is_described(served):
    gate = Gate()
    handle = ModelHandle.from_callable(gate, name="m", version="3", input=TabularInput(width=2))
    server = served(handle, warmup=True, ready=False)
    assert gate.started.wait(GUARD_S)
    assert "anyOf" in described(server)["components"]["schemas"]["Instance"]
    gate.release.set()
    assert server.runtime.batcher().wait_started(GUARD_S)
    assert described(server)["components"]["schemas"]["Instance"]["maxItems"] == 2


def test_the_document_tells_the_prefix_under_which_it_was_asked_for(served):
    server = served(upper)
    answer = server.client.get("/openapi.json", environ_overrides={"SCRIPT_NAME": "/ml"})
    assert answer.json["servers"] == [{"url": "/ml"}]


def test_the_page_may_load_its_own_files_and_nothing_else(served):
    server = served()
    page = server.client.get("/docs")
    assert (page.status_code, page.content_type) == (200, "text/html; charset=utf-8")
    policy = dict(part.split(" ", 1) for part in page.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    named = re.findall(r'(?:src|href)="(?!data:|#)([^"]+)"', page.text)
    assert named
    for name in named:
        # Relative, so that it is found under any prefix.
        assert not name.startswith(("/", "http"))
        assert server.client.get(f"/{name}").status_code == 200


@pytest.mark.parametrize("name", ASSETS)
def test_every_file_of_the_page_is_served_as_what_it_is(served, name):
    answer = served().client.get(f"/docs/{name}")
    assert (answer.status_code, answer.mimetype) == (200, ASSETS[name])
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for imported in re.findall(r'from "\./([^"]+)"', answer.text):
        assert imported in ASSETS


def test_the_package_holds_the_files_of_the_page_and_no_others():
    pages = {file.name: file.read_text() for file in files("service.http").joinpath("pages").iterdir()}
    assert set(pages) >= {PAGE, *ASSETS}
    for name in (PAGE, *ASSETS):
        text = pages[name].replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|\binnerHTML\b|\bouterHTML\b|insertAdjacentHTML|\beval\(", text), name


@pytest.mark.parametrize(
    "path", ["/docs/", "/docs/other.js", "/docs/docs.html", "/docs/../settings.py", "/docs/%2e%2e/docs.py"]
)
def test_nothing_else_is_served_beside_them(served, path):
    answer = served().client.get(path)
    assert (answer.status_code, answer.content_type) == (404, "application/problem+json")


def test_an_app_keeps_a_page_of_its_own_at_docs():
    app = Flask("host")
    app.add_url_rule("/docs", view_func=lambda: "our own")
    Jitney(app, Settings(max_batch_latency_ms=0, warmup=False), model_handle=as_handle(sums))
    server = Served(app)
    assert server.client.get("/docs").text == "our own"
    assert described(server)["info"]["title"] == "Jitney"
    server.close()
