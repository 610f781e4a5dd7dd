from __future__ import annotations

import hashlib
import hmac

import pytest
from pydantic import SecretStr

from service.http.keys import KeyRing
from service.settings import Settings, SettingsError, load_settings

RING = KeyRing([SecretStr("first-key"), SecretStr("second-key")])


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("presented", [["first-key"], ["second-key"], ["", "first-key"], ["second-key", "wrong-key"]])
def test_any_of_the_keys_opens(presented):
    assert RING.opens(presented)


@pytest.mark.parametrize(
    "text",
    ["", "first-ke", "first-key ", "First-Key", "first-key,second-key", "é" * 9, "\ud800", "first-key\0", "x" * 10**6],
    ids=ascii,
)
def test_nothing_else_opens_or_breaks_anything(text):
    assert not RING.opens([text])


def test_each_key_presented_is_compared_with_every_key(monkeypatch):
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: compared.append((a, b)) or compare(a, b))
    assert RING.opens(["first-key"])
    assert not RING.opens(["wrong-key"])
    assert len(compared) == 4
    assert {len(part) for pair in compared for part in pair} == {hashlib.sha256().digest_size}


class Dear(str):
    """A text that must not be turned into bytes, the first step to a digest."""

    def encode(self, *args, **kwargs):
        raise AssertionError("it was hashed")


def test_what_no_key_can_be_is_not_hashed():
    assert not RING.opens([Dear("x" * 257), Dear("é")])
    with pytest.raises(AssertionError, match="hashed"):
        RING.opens([Dear("x" * 256)])


def test_keys_are_read_as_a_list_and_never_shown(monkeypatch):
    monkeypatch.setenv("API_KEYS", "first-key, second-key")
    monkeypatch.setenv("ADMIN_TOKEN", "third-key")
    monkeypatch.setenv("METRICS_KEY", "fourth-key")
    settings = Settings()
    assert [key.get_secret_value() for key in settings.api_keys or ()] == ["first-key", "second-key"]
    for text in (repr(settings), str(settings), repr(settings.model_dump()), settings.model_dump_json(), repr(RING)):
        assert "-key" not in text


@pytest.mark.parametrize(
    "name, value, where",
    [
        ("API_KEYS", "first-key,,second-key", "entry 2"),
        ("API_KEYS", "first-key,", "entry 2"),
        ("API_KEYS", "short", "entry 1"),
        ("API_KEYS", "first-key,key with blanks", "entry 2"),
        ("ADMIN_TOKEN", "short", "must be 8 to 256 visible"),
        ("ADMIN_TOKEN", "ключ-ключ", "must be 8 to 256 visible"),
        ("METRICS_KEY", "k" * 257, "must be 8 to 256 visible"),
    ],
)
def test_a_key_that_cannot_work_stops_the_start_without_being_shown(monkeypatch, name, value, where):
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert str(caught.value).startswith(f"{name}: ")
    assert where in str(caught.value)
    assert not any(part and part in str(caught.value) for part in value.split(","))
    with pytest.raises(ValueError, match="visible ASCII") as bare:
        Settings()
    assert not any(part and part in str(bare.value) for part in value.split(","))


@pytest.mark.parametrize("text", ["", None])
def test_no_keys_mean_that_none_is_needed(monkeypatch, text):
    if text is not None:
        monkeypatch.setenv("API_KEYS", text)
    assert Settings().api_keys is None


@pytest.mark.parametrize(
    "text, origins",
    [("*", ("*",)), ("https://a.example, http://localhost:5173", ("https://a.example", "http://localhost:5173")),
     ("chrome-extension://abc", ("chrome-extension://abc",)), ("http://[::1]:80", ("http://[::1]:80",))],
)  # fmt: skip
def test_origins_are_a_list_with_commas(text, origins):
    assert Settings(cors_origins=text).cors_origins == origins


@pytest.mark.parametrize(
    "text",
    ["https://a.example/", "a.example", "https://A.example", "*,https://a.example", "https://a.example,", "null"],
)
def test_what_no_browser_sends_as_an_origin_stops_the_start(text):
    with pytest.raises(SettingsError, match=r"CORS_ORIGINS=.*https://app\.example\.org"):
        load_settings(cors_origins=text)
