from __future__ import annotations

import pytest

from service.cpu_threads import POOL_VARIABLES, size_thread_pools


@pytest.mark.parametrize("cpus, shares, share", [(8, 1, 8), (8, 2, 4), (2, 4, 1), (7, 2, 3)])
def test_each_gets_its_share_of_the_cpus(cpus, shares, share):
    environ: dict[str, str] = {}
    assert size_thread_pools(cpus, shares, environ) == share
    assert environ == {**dict.fromkeys(POOL_VARIABLES, str(share)), "TOKENIZERS_PARALLELISM": "false"}


def test_what_the_operator_asks_of_one_library_holds_for_the_others_too():
    environ = {"OMP_NUM_THREADS": "3"}
    size_thread_pools(8, environ=environ)
    assert {environ[name] for name in POOL_VARIABLES} == {"3"}


def test_what_is_set_stays():
    environ = {"MKL_NUM_THREADS": "5", "TOKENIZERS_PARALLELISM": "true"}
    size_thread_pools(8, environ=environ)
    assert (environ["MKL_NUM_THREADS"], environ["OMP_NUM_THREADS"]) == ("5", "8")
    assert environ["TOKENIZERS_PARALLELISM"] == "true"
