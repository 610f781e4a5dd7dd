"""Demo sources are checked before they are opened, and one model's trouble stays its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.demo import sources as sources_module
from service.demo.build import Recipe, build, is_built
from service.demo.bundles import write_bundle
from service.demo.curl import EXAMPLE_ROW, example_request
from service.demo.sources import (
    VADER,
    DemoError,
    Source,
    Sources,
    SourceUnreachableError,
    WrongDigestError,
    pip_download,
)
from service.demo.steps import Say, Step, console_report

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
EMPTY = Source("empty", "1.0", EMPTY_SHA256, licence="MIT")


def fetch_empty(source: Source, directory: Path) -> Path:
    path = directory / f"{source.package}.zip"
    path.touch()
    return path


def unreachable(source: Source, directory: Path) -> Path:
    raise SourceUnreachableError(f"{source} cannot be fetched: no route")


def write_tiny_bundle(directory: Path, sources: Sources, say: Say) -> None:
    say("writing")
    (directory / "model.txt").write_text("weights")
    write_bundle(directory, name="tiny", fmt="pickle", file="model.txt", input={"kind": "tabular"})


def needs_vader(directory: Path, sources: Sources, say: Say) -> None:
    sources.path(VADER)


def ignore(step: Step) -> None:
    pass


def test_a_file_with_another_digest_is_refused() -> None:
    with Sources(fetch_empty) as sources, pytest.raises(WrongDigestError, match="vaderSentiment"):
        sources.path(VADER)


def test_a_file_with_the_pinned_digest_is_fetched_once_and_gone_afterwards() -> None:
    fetched: list[Source] = []

    def fetch(source: Source, directory: Path) -> Path:
        fetched.append(source)
        return fetch_empty(source, directory)

    with Sources(fetch) as sources:
        path = sources.path(EMPTY)
        assert sources.path(EMPTY) == path
        assert path.exists()
    assert fetched == [EMPTY]
    assert not path.exists()


def test_pip_that_reaches_no_index_is_a_clear_error(tmp_path: Path) -> None:
    # An index that is an empty directory: nothing leaves the machine.
    options = ("--no-index", f"--find-links={tmp_path}")
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(SourceUnreachableError, match=r"vaderSentiment 3\.3\.2 cannot be fetched: .+"):
        pip_download(VADER, target, options=options)


def test_a_download_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_module, "DOWNLOAD_TIMEOUT_S", 0.001)
    with pytest.raises(SourceUnreachableError, match="not fetched within"):
        pip_download(VADER, tmp_path)


def test_an_unreachable_source_is_named_and_the_other_models_go_on(tmp_path: Path) -> None:
    steps: list[Step] = []
    recipes = {"first": Recipe(needs_vader, "demo-a"), "second": Recipe(write_tiny_bundle, "demo-b")}
    result = build(["first", "second"], tmp_path, steps.append, fetch=unreachable, recipes=recipes)
    assert result.built == {"second": tmp_path / "second"}
    assert result.failed == {"first": "vaderSentiment 3.3.2 cannot be fetched: no route"}
    assert Step("first", "not built: vaderSentiment 3.3.2 cannot be fetched: no route") in steps
    assert is_built("second", tmp_path)
    assert not is_built("first", tmp_path)


def test_a_missing_package_names_the_extra_that_brings_it(tmp_path: Path) -> None:
    def needs_a_package(directory: Path, sources: Sources, say: Say) -> None:
        raise ModuleNotFoundError("No module named 'torch'")

    result = build(["m"], tmp_path, ignore, recipes={"m": Recipe(needs_a_package, "demo-sentiment")})
    assert "'jitney[demo-sentiment]'" in result.failed["m"]


def test_an_unknown_name_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no-such-model"):
        build(["digits", "no-such-model"], tmp_path / "models", ignore)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), DemoError("too bad"), RuntimeError("out of luck")])
def test_an_interrupted_build_leaves_nothing_half_and_keeps_the_old_model(
    tmp_path: Path, trouble: BaseException
) -> None:
    recipes = {"m": Recipe(write_tiny_bundle, "x")}
    build(["m"], tmp_path, ignore, recipes=recipes)
    before = (tmp_path / "m" / "jitney.toml").read_text()

    def half(directory: Path, sources: Sources, say: Say) -> None:
        (directory / "jitney.toml").write_text("half a bun")
        raise trouble

    try:
        build(["m"], tmp_path, ignore, recipes={"m": Recipe(half, "x")})
    except KeyboardInterrupt:
        assert isinstance(trouble, KeyboardInterrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert (tmp_path / "m" / "jitney.toml").read_text() == before


def test_a_second_build_replaces_the_first(tmp_path: Path) -> None:
    recipes = {"m": Recipe(write_tiny_bundle, "x")}
    build(["m"], tmp_path, ignore, recipes=recipes)
    (tmp_path / "m" / "left-over").touch()
    build(["m"], tmp_path, ignore, recipes=recipes)
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["jitney.toml", "model.txt"]


def test_a_log_gets_one_line_per_step_and_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    report = console_report(terminal=False)
    for fraction in (0.1, 0.5, 1.0):
        report(Step("m", "training", fraction))
    report(Step("m", "ready"))
    assert capsys.readouterr().err == "m: training\nm: ready\n"


def test_a_terminal_gets_a_bar_that_is_wiped_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    report = console_report(terminal=True)
    report(Step("m", "training", 0.5))
    report(Step("m", "training", 1.0))
    shown = capsys.readouterr().err
    assert "[##########..........]  50%" in shown
    assert shown.endswith("\r\x1b[K")


@pytest.mark.parametrize("name", ["digits", "sentiment", "imagenet", "imagenet-torchscript"])
def test_every_demo_model_has_an_example_request(name: str) -> None:
    example = str(example_request(name, Path("demo-models", name)))
    assert example.startswith("# expected: ")
    assert example.splitlines()[1].startswith("curl ")
    assert len(EXAMPLE_ROW) == 64
