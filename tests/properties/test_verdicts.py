"""What is sent is taken for the same requests as by gunicorn's own parser, or refused with the same status."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.front_end import config, judged_by_gunicorn, judged_here

CFG = config()

METHODS = [b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"get", b"G", b"GE T", b"P#ST", b"G\x00T", b""]
TARGETS = [
    b"/", b"/predict", b"/a%20b%2F?x=%20y", b"//a//b", b"/a?b?c#d", b"/a#b?c", b"*", b"http://h:1/p?q", b"http://h",
    b"h:1", b"/\xff", b"/a\x00b", b"/a b", b"/\x7f", b"", b"/?", b"?", b"/a;b=c", b"/" + b"a" * 5000, b"/%",
    b"/%zz", b"/x[", b"//[", b"http://[", b"/:x", b"/\\", b"/\"'<>^`{|}",
]  # fmt: skip
VERSIONS = [b"HTTP/1.1"] * 6 + [
    b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"http/1.1", b"HTTP/1.1 ", b"HTTP/11", b"", b"HTTP/1.1\t",
]  # fmt: skip
NAMES = [
    b"Host", b"host", b"Content-Length", b"content-length", b"Transfer-Encoding", b"Content-Type", b"Connection",
    b"Expect", b"Upgrade", b"X-Forwarded-Proto", b"X-Forwarded-Ssl", b"X-A", b"X_A", b"Content_Length",
    b"Script-Name", b"SCRIPT_NAME", b"TE", b"Trailer", b"Cookie", b"Bad Name", b"X-A ", b" X-A", b"", b"X\x00",
    b"X(", b"\xffX", b"Content-Length\x0b",
]  # fmt: skip
VALUES = [
    b"", b"x", b"0", b"5", b"05", b"+5", b"-1", b"5, 5", b"5,6", b"0x5", b" 5", b"5 ", b"9" * 30, b"\xb2", b"1_0",
    b"1e1", b"chunked", b"Chunked", b"chunked, chunked", b"gzip, chunked", b"identity", b"chunked, identity",
    b"xchunked", b",chunked", b"\x0bchunked", b"close", b"Close", b"keep-alive", b"keep-alive, close", b"upgrade",
    b"100-continue", b"200-maybe", b"https", b"http", b"on", b"https,http", b"a\x00b", b"a\x7fb", b"a\tb",
    b"caf\xe9", b"a" * 9000, b"h:1:2", b"a\rb",
]  # fmt: skip
ENDS = [b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\r\n\t"]
BODIES = [
    b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"0\r\n\r\n", b"5;x=y\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
    b"5\r\nhelloX0\r\n\r\n", b"zz\r\n", b"-5\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n",
    b"05\r\nhello\r\n00\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\nHost: x\r\n\r\n",
    b"\r\n0\r\n\r\n", b"5;\r\nhello\r\n0\r\n\r\n", b"3\r\nhe\r\n0\r\n\r\n",
]  # fmt: skip

# What is right by itself: most of a request is, so that the rest of it is looked at too.
FRAMES = [
    (b"POST / HTTP/1.1", b"Content-Length: 5", b"hello"),
    (b"POST /a%20b?c=%20 HTTP/1.1", b"Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n"),
    (b"GET /livez HTTP/1.1", b"Accept: */*", b""),
    (b"HEAD // HTTP/1.1", b"Content-Length: 0", b""),
    (b"PUT /p HTTP/1.0", b"Content-Length: 5", b"hello"),
]
FIELDS = [
    b"Host: h:1", b"Content-Type: text/plain", b"Connection: close", b"Connection: Keep-Alive", b"Expect: 100-continue",
    b"X-Forwarded-Proto: https", b"X-Forwarded-Ssl: on", b"X-Forwarded-Proto: http", b"X-A: b", b"X_A: c", b"Cookie: d",
    b"X-A:e ", b"Upgrade: h2c", b"Script-Name: /s", b"X-A: ",
]  # fmt: skip

odd_fields = st.builds(
    lambda name, colon, value: name + colon + value,
    st.sampled_from(NAMES), st.sampled_from([b": ", b":", b" : "]), st.sampled_from(VALUES),
)  # fmt: skip
odd_lines = st.builds(
    lambda *words: b" ".join(words), st.sampled_from(METHODS), st.sampled_from(TARGETS), st.sampled_from(VERSIONS)
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One request, most of it right, with something odd here and there."""

    def mostly(right: bytes, odd: st.SearchStrategy[bytes]) -> bytes:
        return draw(odd) if draw(st.integers(0, 7)) == 7 else right

    line, frame, body = draw(st.sampled_from(FRAMES))
    fields = [mostly(field, odd_fields) for field in draw(st.lists(st.sampled_from(FIELDS), max_size=5))]
    lines = [mostly(line, odd_lines), *fields, mostly(frame, odd_fields)]
    end = b"\r\n"
    head = b"".join(line + end for line in lines) + end
    if draw(st.integers(0, 7)) == 7:
        head = b"".join(line + draw(st.sampled_from(ENDS)) for line in lines) + end
    return mostly(b"", st.sampled_from([b"\r\n", b"\n"])) + head + mostly(body, st.sampled_from(BODIES))


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """One request or two, and perhaps a byte that is another one, or none, or one too many."""
    stream = b"".join(draw(st.lists(requests(), min_size=1, max_size=2)))
    if draw(st.integers(0, 3)) == 3:
        place = draw(st.integers(0, len(stream)))
        cut = draw(st.integers(0, 1))
        stream = stream[:place] + draw(st.binary(max_size=1)) + stream[place + cut :]
    return stream


def check(sent: bytes, peer: tuple[str, int], step: int) -> None:
    theirs, ours = judged_by_gunicorn(sent, CFG, peer), judged_here(sent, CFG, peer, step=step)
    assert ours == theirs


@pytest.mark.parametrize("peer", [("127.0.0.1", 5555), ("203.0.113.9", 5555)], ids=["trusted", "not trusted"])
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(sent=streams(), step=st.sampled_from([1 << 20, 1 << 20, 7, 1]))
def test_the_verdict_is_gunicorns_own(peer, sent, step):
    comes_at_once = len(sent) > 2000 or b"expect" in sent.lower()  # an expectation is answered before the rest comes
    check(sent, peer, 1 << 20 if comes_at_once else step)


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding\xa0: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5" * 9000,
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n\r\n",
        b"GET / HTTP/1.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Ssl: off\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: keep-alive, close\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 101 + b"\r\n",
        b"GET /" + b"a" * 4100 + b" HTTP/1.1\r\n\r\n",
        b"\r\nGET /" + b"a" * 4090 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 8200 + b"\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[-40:]),
)
@pytest.mark.parametrize("step", [1 << 20, 3])
def test_what_smuggles_is_judged_as_gunicorn_judges_it(sent, step):
    check(sent + SMUGGLED, ("127.0.0.1", 5555), step)
