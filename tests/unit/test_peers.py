"""The comparison with other servers: what is known of each, and what becomes of figures that are made up here."""

from __future__ import annotations

import dataclasses
import math
import platform
import re
import shutil
from xml.etree import ElementTree

import pytest

from benchmark.peers import answers, compare, rows
from benchmark.peers.chart import draw, figure_of
from benchmark.peers.document import document, table
from benchmark.peers.environments import REQUIREMENTS
from benchmark.peers.load import WRK, read_wrk
from benchmark.peers.measuring import why_missing
from benchmark.peers.peer import SERVERS, Launch
from benchmark.peers.registry import PEERS
from benchmark.peers.rows import Row, medians, merged
from benchmark.peers.running import server_environment
from benchmark.peers.separation import separation
from benchmark.peers.workloads import WORKLOADS
from service.cpu_threads import POOL_VARIABLES

INPUTS = {"tabular": [float(number) for number in range(64)], "text": "a text", "picture": b"\xff\xd8 a file"}


def row(peer="jitney", callers=32, round_number=1, workload="tabular", rate=100.0, **more):
    values = {"p50_ms": 5.0, "p99_ms": 9.0, "cpu_ms_per_request": 0.5, "seconds": 3.0, "load": WRK, "version": "x 1"}
    about = {"machine": "a machine", "measured_on": "2026-01-31"}
    return Row(workload, peer, callers, round_number, requests_per_s=rate, **(values | about | more))


def fault(peer="torchserve", said="needs Java", round_number=1, workload="tabular"):
    return Row(workload, peer, 0, round_number, fault=said, machine="a machine", measured_on="2026-01-31")


def test_every_peer_that_was_asked_for_is_known():
    asked = {"raw", "jitney", "flask_naive", "flask_batcher", "fastapi_batcher", "litserve", "bentoml", "mlserver"}
    assert set(PEERS) == asked | {"torchserve", "mosec", "pytriton", "infinity"}
    assert [name for name, peer in PEERS.items() if peer.command is None] == ["raw"]


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_serves_every_workload_or_says_why_not(name):
    peer = PEERS[name]
    assert peer.name == name
    assert set(peer.forms) <= set(WORKLOADS)
    assert bool(peer.without_forms) == (set(peer.forms) != set(WORKLOADS))
    for workload in WORKLOADS.values():
        if workload.name not in peer.forms:
            assert why_missing(dataclasses.replace(peer, lacks=lambda: None), workload) == peer.without_forms


@pytest.mark.parametrize("name", PEERS)
def test_the_packages_of_a_peer_are_pinned_in_a_file_of_its_own(name):
    pins = REQUIREMENTS / f"{name}.txt"
    assert pins.is_file() == PEERS[name].has_own_packages
    if pins.is_file():
        lines = [line for line in pins.read_text().splitlines() if line and not line.startswith("#")]
        assert lines
        assert all(re.fullmatch(r"[\w.-]+(\[[\w,]+\])?==[\w.]+", line) for line in lines)
        pinned = {line.partition("==")[0].replace("_", "-").lower() for line in lines}
        assert PEERS[name].packages[0] in pinned


def test_no_file_of_pins_and_no_script_is_left_over():
    assert {path.stem for path in REQUIREMENTS.iterdir()} == {
        name for name, peer in PEERS.items() if peer.has_own_packages
    }
    named = "".join((SERVERS.parent / "known" / f"{name}.py").read_text() for name in PEERS)
    for script in SERVERS.glob("*.py"):
        assert script.stem in named or script.stem in ("work", "raw"), script.name


@pytest.mark.parametrize(("name", "workload"), [(name, each) for name in PEERS for each in PEERS[name].forms])
def test_a_request_is_whole_and_its_head_is_the_same_for_every_input(name, workload):
    form = PEERS[name].forms[workload]
    head, _, body = form.request(INPUTS[workload], 8000).partition(b"\r\n\r\n")
    assert head.startswith(f"POST {form.path} HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n".encode())
    assert f"Content-Length: {len(body)}".encode() in head
    assert body == form.body(INPUTS[workload])
    if form.headers:
        longer = form.body(b"\xff\xd8" + bytes(100_000))
        at = int(form.headers["Inference-Header-Content-Length"])
        assert (body[at - 1 : at], longer[at - 1 : at]) == (b" ", b" ")
        assert body[at + 4 :] == INPUTS[workload]


def test_every_server_gets_the_same_threads_and_limits(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("VIRTUAL_ENV", "/nowhere")
    for workload in WORKLOADS.values():
        launch = Launch(None, workload, 8000, tmp_path, tmp_path)
        environ = server_environment(launch, {"OWN": "1"})
        assert {environ[name] for name in POOL_VARIABLES} == {str(workload.native_threads)}
        assert environ["PEER_MAX_BATCH_SIZE"] == str(workload.max_batch_size)
        assert environ["OWN"] == "1"
        assert "/nowhere" not in environ.values()


def test_what_a_machine_lacks_is_said(monkeypatch):
    workload = WORKLOADS["tabular"]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "Java" in why_missing(PEERS["torchserve"], workload)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.31"))
    assert "glibc 2.35, here is glibc 2.31" in why_missing(PEERS["pytriton"], workload)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert "another library" in why_missing(PEERS["pytriton"], workload)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    assert why_missing(PEERS["pytriton"], workload) is None


def test_an_answer_that_is_not_the_raw_models_is_told():
    form = PEERS["mosec"].forms["tabular"]

    def told(outcome, content):
        return answers.fault_in(outcome, content, form, [1.0, 2.0], 1e-3)

    assert told("200", b'{"values": [1.0005, 2.0]}') == ""
    assert "off by 0.01" in told("200", b'{"values": [1.01, 2.0]}')
    assert "3 numbers, not 2" in told("200", b'{"values": [1, 2, 3]}')
    assert "cannot be read" in told("200", b'{"other": 1}')
    assert told("503", b"") == "it ended with 503"
    assert answers.fault_in("200", b'{"values": [1, 2]}', form, [1.0, math.nan], 1e-3)


def test_what_wrk_tells_is_read_with_failures_that_are_no_throughput():
    told = '{"requests": 1000, "lasted_us": 2000000, "p50_us": 1500, "p99_us": 9000, "refused": 1, "lost": 2, '
    seen = read_wrk(told + '"status": 100, "timeout": 4}')
    assert (seen.requests_per_s, seen.p50_ms, seen.p99_ms, seen.errors) == (450.0, 1.5, 9.0, 107)
    none = read_wrk(
        '{"requests": 0, "lasted_us": 1, "p50_us": 0, "p99_us": 0, "refused": 1, "lost": 0, "status": 0, "timeout": 0}'
    )
    assert math.isnan(none.p50_ms)
    assert math.isnan(none.p99_ms)


def test_rows_come_back_from_their_file(tmp_path):
    written = [fault(), row(rate=1234.5), row(callers=1, errors=3)]
    rows.write(written, tmp_path / "rows.csv")
    read = rows.read(tmp_path / "rows.csv")
    assert sorted(read, key=repr) != []
    assert [one for one in read if one.peer == "jitney"] == [written[2], written[1]]
    (missing,) = (one for one in read if one.fault)
    assert missing.fault == "needs Java"
    assert math.isnan(missing.requests_per_s)
    assert rows.read(tmp_path / "none.csv") == []


def test_figures_of_others_stay_and_those_that_are_measured_anew_go():
    old = [row("mosec"), row("jitney"), row("jitney", round_number=2), row("jitney", workload="text"), fault()]
    kept = merged(old, [row("jitney", rate=500.0)])
    assert kept == [row("mosec"), row("jitney", workload="text"), fault(), row("jitney", rate=500.0)]


def test_a_round_can_be_added_to_those_that_were_measured_before():
    old = [row("mosec"), row("jitney"), row("jitney", round_number=2)]
    new = [row("jitney", round_number=2, rate=500.0)]
    assert merged(old, new, first_round=2) == [row("mosec"), row("jitney"), *new]


def test_a_fault_that_is_mended_does_not_stay_beside_the_figures():
    mended = row("torchserve", round_number=2)
    assert merged([fault("torchserve")], [mended], first_round=2) == [mended]


def test_of_rounds_each_figure_is_the_median_and_no_error_is_lost():
    (found,) = medians([row(rate=rate, round_number=number, errors=1) for number, rate in enumerate((1.0, 9.0, 2.0))])
    assert (found.requests_per_s, found.errors) == (2.0, 3)


def test_the_table_has_every_peer_the_fastest_first_and_says_why_one_is_missing():
    some = [row("raw", rate=5.0), row("jitney"), row("mosec", rate=9000.0, errors=2), row("mosec", callers=1, rate=1.0)]
    lines = table([*some, fault(said="needs Java | and\nmore")])
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| raw model, in process",
        "| Mosec",
        "| **Jitney**",
        "| TorchServe",
    ]
    assert lines[0] == "| server | 1 caller | 32 callers |"
    assert lines[3] == "| Mosec | **1.00**; 5.00 / 9.00; 0.50 | **9,000**; 5.00 / 9.00; 0.50, 2 errors |"
    assert lines[5] == "| TorchServe | needs Java / and more |  |"
    assert "nan" not in "".join(lines)


def test_what_separates_jitney_from_the_best_is_said_from_the_figures():
    some = [row("raw", cpu_ms_per_request=0.1), row("jitney"), row("mosec", rate=400.0, cpu_ms_per_request=0.2)]
    said = separation(some)
    assert "With 32 callers Jitney answers 0.25 times as many requests as Mosec, the best of the others." in said
    assert "Jitney 0.50 ms (+0.40 ms), and Mosec 0.20 ms (+0.10 ms)" in said
    assert "answer as many" in separation([row("jitney"), row("mosec", rate=103.0)])
    assert "have not both been measured" in separation([row("raw"), row("jitney"), fault()])


def test_the_document_has_command_machine_dates_versions_and_tuning():
    text = document([row(), row("mosec", measured_on="2026-02-01"), fault()], "the command", "../plots")
    assert "`the command`" in text
    assert "2026-01-31, 2026-02-01, a machine." in text
    assert "Load from wrk." in text
    assert "](../plots/peers_tabular.svg)" in text
    assert "Rounds: 1, each load for 3 s." in text
    assert "| Mosec | x 1 | one worker process |" in text
    assert "MiniLM" not in text
    merged = [row(), row(callers=8, seconds=1.0), row(callers=8, round_number=2)]
    assert "Rounds: 1 to 2, each load for 1 to 3 s." in document(merged, "the command", "../plots")
    assert "Nothing was measured." in document([fault()], "the command", "../plots")


def test_every_workload_has_a_chart_with_units_and_an_honest_zero(tmp_path, monkeypatch):
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")
    some = [row(peer, callers, rate=1000.0) for peer in PEERS for callers in (1, 8, 32, 128)]
    some[5] = dataclasses.replace(some[5], requests_per_s=4000.0)
    for workload in WORKLOADS.values():
        figure = figure_of([dataclasses.replace(one, workload=workload.name) for one in some], workload)
        figure.draw_without_rendering()
        for axes in figure.axes:
            assert "requests/s" in axes.get_xlabel() or "ms" in axes.get_xlabel()
            assert axes.get_xlim()[0] == 0
            assert all(bar.get_width() <= axes.get_xlim()[1] for bar in axes.patches)
            assert len(axes.patches) == len(some)
    draw([*some, fault()], WORKLOADS["tabular"], tmp_path / "chart.svg")
    texts = {text.text for text in ElementTree.parse(tmp_path / "chart.svg").iter() if text.tag.endswith("}text")}
    assert {"Jitney", "Mosec", "128 callers", "4,000", WORKLOADS["tabular"].title} <= texts


def test_the_inputs_are_what_the_workloads_promise():
    assert all(len(row) == 64 for row in WORKLOADS["tabular"].inputs())
    words = [len(text.split()) for text in WORKLOADS["text"].inputs()]
    assert {count <= 15 for count in words} == {True, False}
    sizes = [len(file) for file in WORKLOADS["picture"].inputs()]
    assert 25_000 < sum(sizes) / len(sizes) < 35_000
    for workload in WORKLOADS.values():
        assert workload.inputs() == workload.inputs()


def test_the_options_are_those_that_are_promised(tmp_path, monkeypatch):
    found = compare.parser().parse_args(["--peers", "jitney", "--workloads", "text", "--merge", "--seconds", "2"])
    assert (found.peers, found.workloads, found.merge, found.seconds) == (["jitney"], ["text"], True, 2.0)
    assert (found.concurrency, found.rounds) == ([1, 8, 32, 128], 3)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compare.default_folder() == tmp_path / "jitney-peers"
