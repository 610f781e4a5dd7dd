"""Bundles: what `jitney.toml` may say, and the digest that it pins."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from loaders import BundleError, ModelLoadError, UnsafePathError, UntrustedModelError, pin
from loaders.bundle import digest, read_bundle, verify

MODEL = '[model]\nfile = "model.bin"\n'


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(toml: str) -> Path:
        (tmp_path / "model.bin").write_bytes(b"weights")
        (tmp_path / "jitney.toml").write_bytes(toml.encode())
        return tmp_path

    return write


def test_everything_that_may_be_said_is_read(write: Callable[[str], Path]) -> None:
    bundle = read_bundle(
        write(
            '[model]\nname = "digits"\nversion = 3\nformat = "onnx"\nfile = "model.bin"\n'
            '[input]\nkind = "tabular"\ncolumns = ["a", "b"]\nwidth = 2\nallow_null = true\ndtype = "float32"\n'
            '[output]\ntask = "classification"\nlabels = ["no", "yes"]\ntop_k = 2\nsoftmax = true\n'
        )
    )
    assert bundle.artifact == (bundle.directory / "model.bin").resolve()
    assert bundle.metadata() == {
        "model": {"name": "digits", "version": "3", "format": "onnx", "file": "model.bin"},
        "input": {"kind": "tabular", "columns": ["a", "b"], "width": 2, "allow_null": True, "dtype": "float32"},
        "output": {"task": "classification", "labels": ["no", "yes"], "top_k": 2, "softmax": True},
    }


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ("[modle]\n", r"\[modle\]"),
        ("[model]\nfiel = 'model.bin'\n", r"\[model\] fiel"),
        ("[model]\nname = 'no/slash'\n", r"\[model\] name: must be 1 to 128 letters .* digits, dots, dashes"),
        ("[model]\nversion = ''\n", r"\[model\] version: must be 1 to 128 letters"),
        ("[model]\nversion = true\n", r"\[model\] version"),
        ("[model]\nversion = 1.5\n", r"\[model\] version"),
        ("[model]\nsha256 = 'abc'\n", r"\[model\] sha256: must be 64 hexadecimal digits, not 3 "),
        ("[model]\nfile = ''\n", r"\[model\] file"),
        ("[input]\n", r"\[input\] kind: is missing; it is tabular, text, image or tensor$"),
        ("[input]\ndtype = 'float32'\n", r"\[input\] kind: is missing"),
        ("input = 3\n", r"\[input\]"),
        ("[input]\nkind = 'sound'\n", r"\[input\] kind: must be tabular, text, image or tensor$"),
        ("[input]\nkind = 'tensr'\n", r"\[input\] kind: must be .*; did you mean tensor\?"),
        ("[input]\nkind = 3\n", r"\[input\] kind: must be tabular"),
        ("[input]\nkind = 'tabular'\nwidth = '4'\n", r"\[input\] width"),
        ("[input]\nkind = 'tabular'\nwidth = 0\n", r"\[input\] width"),
        ("[input]\nkind = 'tabular'\ncolumns = ['a', 'a']\n", r"\[input\] columns: .*twice"),
        ("[input]\nkind = 'tabular'\ncolumns = []\n", r"\[input\] columns"),
        ("[input]\nkind = 'tabular'\nmax_length = 4\n", r"\[input\] max_length"),
        ("[input]\nkind = 'tabular'\nallow_null = 1\n", r"\[input\] allow_null"),
        ("[input]\nkind = 'text'\nmax_length = 0\n", r"\[input\] max_length"),
        ("[input]\nkind = 'image'\nsize = [224]\n", r"\[input\] size: must have at least 2 items, not 1$"),
        ("[input]\nkind = 'image'\nsize = 224\n", r"\[input\] size"),
        ("[input]\nkind = 'image'\nsize = [0, 4]\n", r"\[input\] size"),
        ("[input]\nkind = 'image'\nmean = [1, 2]\n", r"\[input\] mean"),
        ("[input]\nkind = 'image'\nstd = [0.0, 1.0, 1.0]\n", r"\[input\] std: .*divide by zero"),
        ("[input]\nkind = 'image'\nscale = nan\n", r"\[input\] scale"),
        ("[input]\nkind = 'image'\nlayout = 'CHW'\n", r"\[input\] layout"),
        ("[input]\nkind = 'tensor'\nshape = [-2]\n", r"\[input\] shape"),
        ("[input]\nkind = 'tensor'\ndtype = 'complex64'\n", r"\[input\] dtype"),
        ("[output]\ntask = 'xyz'\n", r"\[output\] task: must be classification, regression or embedding$"),
        ("[output]\ntask = 'clasification'\n", r"\[output\] task: .*; did you mean classification\?"),
        ("[output]\nlabels = [1, 2]\n", r"\[output\] labels"),
        ("[output]\nlabels = ['a', 'a']\n", r"\[output\] labels: .*twice"),
        ("[output]\ntop_k = 0\n", r"\[output\] top_k"),
        ("[output]\ntask = 'regression'\ntop_k = 3\n", r"\[output\] top_k: only for"),
        ("[output]\ntask = 'embedding'\nsoftmax = true\n", r"\[output\] softmax: only for"),
        ("not toml", "not valid TOML"),
        ("\n[model]\n[model]\n", "not valid TOML"),
    ],
)
def test_a_mistake_is_told_with_its_key(write: Callable[[str], Path], toml: str, key: str) -> None:
    with pytest.raises(BundleError, match=key):
        read_bundle(write(toml))


def test_all_mistakes_are_told_at_once(write: Callable[[str], Path]) -> None:
    with pytest.raises(BundleError, match=r"(?s)\[input\] width.*\[output\] top_k"):
        read_bundle(write("[input]\nkind = 'tabular'\nwidth = 0\n[output]\ntop_k = 0\n"))


def test_a_file_that_is_not_text_or_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read"):
        read_bundle(tmp_path)
    (tmp_path / "jitney.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BundleError, match="not UTF-8"):
        read_bundle(tmp_path)


def test_labels_may_stand_in_a_file_of_their_own(write: Callable[[str], Path]) -> None:
    directory = write(MODEL + '[output]\nlabels = "labels.txt"\n')
    (directory / "labels.txt").write_bytes("\ufeffcat\r\nbig dog\u2028\r\nowl\n\n".encode())
    assert read_bundle(directory).metadata()["output"]["labels"] == ["cat", "big dog", "owl"]


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "empty"), (b"a\n\nb", "empty line"), (b"\xff", "cannot be read")]
)
def test_a_file_of_labels_must_be_whole(write: Callable[[str], Path], content: bytes, reason: str) -> None:
    directory = write(MODEL + '[output]\nlabels = "labels.txt"\n')
    (directory / "labels.txt").write_bytes(content)
    with pytest.raises(BundleError, match=rf"\[output\] labels: .*{reason}"):
        read_bundle(directory)


@pytest.mark.parametrize("file", ["../labels.txt", "/etc/passwd"])
def test_a_file_of_labels_stays_in_the_bundle(write: Callable[[str], Path], file: str) -> None:
    with pytest.raises(UnsafePathError, match=r"\[output\] labels"):
        read_bundle(write(MODEL + f'[output]\nlabels = "{file}"\n'))


def test_a_missing_artifact_is_told_with_its_key(write: Callable[[str], Path]) -> None:
    with pytest.raises(ModelLoadError, match=r"\[model\] file: 'other.bin'"):
        read_bundle(write('[model]\nfile = "other.bin"\n'))


def test_no_file_of_a_directory_may_lie_outside_the_bundle(write: Callable[[str], Path], tmp_path: Path) -> None:
    directory = write('[model]\nfile = "weights"\n')
    (directory / "weights").mkdir()
    (directory / "weights" / "link").symlink_to("/etc/hostname")
    with pytest.raises(UnsafePathError, match=r"\[model\] file: 'link'"):
        read_bundle(directory)


def test_the_digest_of_a_file_is_its_sha256(write: Callable[[str], Path]) -> None:
    bundle = read_bundle(write(MODEL))
    assert digest(bundle.artifact) == hashlib.sha256(b"weights").hexdigest()
    assert verify(bundle) is False


def test_a_pinned_digest_is_compared_whatever_its_case(write: Callable[[str], Path]) -> None:
    right = hashlib.sha256(b"weights").hexdigest().upper()
    assert verify(read_bundle(write(MODEL + f'sha256 = "{right}"\n'))) is True
    with pytest.raises(UntrustedModelError, match="not the pinned"):
        verify(read_bundle(write(MODEL + f'sha256 = "{"0" * 64}"\n')))


def test_the_digest_of_a_directory_changes_with_any_name_or_content_but_not_with_the_pin(tmp_path: Path) -> None:
    (tmp_path / "jitney.toml").write_text('[model]\nformat = "own"\n')
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_bytes(b"2")
    seen = [digest(tmp_path)]
    assert pin(tmp_path) == seen[0] == digest(tmp_path)
    (tmp_path / "sub" / "b").write_bytes(b"3")
    seen.append(digest(tmp_path))
    (tmp_path / "sub" / "b").rename(tmp_path / "sub" / "c")
    seen.append(digest(tmp_path))
    (tmp_path / "sub" / "jitney.toml").write_text("not the bundle's own")
    seen.append(digest(tmp_path))
    assert len(set(seen)) == 4


def test_an_artifact_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="cannot be read"):
        digest(tmp_path / "missing")


@pytest.mark.parametrize(
    "toml",
    [
        MODEL,
        "# comment\n" + MODEL + "# another\n[output]\ntop_k = 1\n",
        MODEL + f'sha256 = "{"0" * 64}"  # old\n',
        MODEL + f"'sha256'='{'0' * 64}'",
        '[output]\ntop_k = 1\n[ model ] # here\nfile = "model.bin"',
        '[output]\ntop_k = 1\n\n[model]\nfile = "model.bin"\n\n[input]\nkind = "text"\n',
        MODEL.replace("\n", "\r\n"),
        'model.file = "model.bin"\n',
        'model = { file = "model.bin" }\n',
        "[output]\n" + 'labels = [\n"""\n[model]\n"""]\n[model]\nfile = "model.bin"\n',
        "[model]",
        "",
    ],
)
def test_pinning_changes_nothing_but_the_digest(write: Callable[[str], Path], toml: str) -> None:
    directory = write(toml)
    if "file" not in toml:
        (directory / "config.json").write_text("{}")  # then the directory is the model
    there = set(directory.iterdir())
    before = tomllib.loads(toml)
    if toml.startswith("model") or '"""' in toml:
        with pytest.raises(BundleError, match="by hand"):
            pin(directory)
        assert (directory / "jitney.toml").read_text() == toml
        return
    sha256 = pin(directory)
    after = (directory / "jitney.toml").read_bytes().decode()
    assert tomllib.loads(after) == before | {"model": before.get("model", {}) | {"sha256": sha256}}
    kept = [line for line in toml.splitlines() if "sha256" not in line]
    assert [line for line in after.splitlines() if line in kept and line] == [line for line in kept if line]
    assert ("\r\n" in after) == ("\r\n" in toml)
    assert verify(read_bundle(directory))
    assert pin(directory) == sha256
    assert set(directory.iterdir()) == there


def test_a_bare_file_cannot_be_pinned(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"jitney\.toml"):
        pin(tmp_path)


def test_the_only_model_file_of_a_bundle_need_not_be_named(tmp_path):
    (tmp_path / "jitney.toml").write_text('[model]\nname = "x"\n')
    (tmp_path / "model.onnx").write_bytes(b"x")
    (tmp_path / "labels.txt").write_text("a\nb\n")
    assert read_bundle(tmp_path).artifact == (tmp_path / "model.onnx").resolve()
    (tmp_path / "other.joblib").write_bytes(b"y")
    with pytest.raises(
        BundleError, match=r"\[model\] file: which one is the model\? here are model.onnx, other.joblib"
    ):
        read_bundle(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[inputs]\nx = 1\n", r"\[inputs\]: is not a table .* model, input, output; did you mean input\?"),
        ("[model]\nfil = 'a'\n", r"\[model\] fil: is not a key .* file, .*; did you mean file\?"),
        ("[input]\nkind = 'tabular'\ncolums = ['a']\n", r"\[input\] colums: .* columns, .*; did you mean columns\?"),
        (
            "[output]\nzzz = 1\n",
            r"\[output\] zzz: is not a key of a bundle, those here are task, labels, top_k, softmax$",
        ),
    ],
)
def test_an_unknown_key_is_told_what_it_might_have_been(tmp_path, text, said):
    (tmp_path / "jitney.toml").write_text(text)
    with pytest.raises(BundleError, match=said):
        read_bundle(tmp_path)


@pytest.mark.parametrize(
    ("model", "there", "keys", "kind"),
    [
        ('file = "m.bin"\nformat = "joblib"\n', "m.bin", "", "tabular"),
        ('file = "m.pkl"\n', "m.pkl", "", "tabular"),
        ("", "m.joblib", "allow_null = true\n", "tabular"),
        ("", "config.json", "max_length = 9\n", "text"),
        ("", "m.onnx", 'columns = ["a"]\n', "tabular"),
        ("", "m.pt2", "size = [2, 2]\n", "image"),
        ("", "m.pt", "shape = [2]\n", "tensor"),
    ],
)
def test_a_kind_that_format_or_keys_tell_may_be_left_out(tmp_path, model, there, keys, kind):
    (tmp_path / there).write_bytes(b"{}")
    (tmp_path / "jitney.toml").write_text(f"[model]\n{model}[input]\n{keys}")
    declared = read_bundle(tmp_path).tables.input
    assert declared is not None
    assert declared.kind == kind
    assert read_bundle(tmp_path).metadata()["input"]["kind"] == kind


def test_no_message_is_in_the_words_of_the_library_that_checks_the_tables(tmp_path):
    wrong = {
        "model": ("name = 3", "version = 1.5", 'sha256 = "xyz"', 'file = ""', 'dtype = "int8"', "compile = 1"),
        'input]\nkind = "tabular"\n#': ("columns = []", "columns = 3", "width = 0", "allow_null = 1", "dtype = 8"),
        'input]\nkind = "image"\n#': ("size = [1]", "scale = nan", "mean = [1]", "std = [0, 0, 0]", "crop = 1"),
        'input]\nkind = "tensor"\n#': ("shape = [0]", "dtype = 'complex'"),
        "output": ("labels = 3", "labels = []", "top_k = 0", "softmax = 1", "task = 1"),
    }
    for table, lines in wrong.items():
        for line in lines:
            (tmp_path / "jitney.toml").write_text(f"[{table}]\n{line}\n")
            with pytest.raises(BundleError) as caught:
                read_bundle(tmp_path)
            said = str(caught.value)
            assert line.partition(" ")[0] in said
            assert not [word for word in ("should", "pattern", "discriminator", "Value error", "tag") if word in said]


@pytest.mark.parametrize(
    "table", ["", '[model]\nname = "x"\n', '[model]\nformat = "onnx"\n', '[model]\nformat = "own"\n']
)
def test_what_holds_no_model_is_not_pinned(tmp_path, table):
    (tmp_path / "jitney.toml").write_text(table)
    with pytest.raises(BundleError, match=r"\[model\] file: there is no model file here"):
        pin(tmp_path)
    assert (tmp_path / "jitney.toml").read_text() == table


def test_a_digest_stands_at_the_end_of_its_table(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"x")
    toml = '[model]\nname = "x"\nversion = "2"\n\n# what it takes\n[input]\nkind = "tabular"\n'
    (tmp_path / "jitney.toml").write_text(toml)
    sha256 = pin(tmp_path)
    assert (tmp_path / "jitney.toml").read_text() == toml.replace('"2"\n', f'"2"\nsha256 = "{sha256}"\n')
