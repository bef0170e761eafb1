"""Tests that are not made, neither passed nor failed, because the machine was too slow for them.

They are skipped with the reason, and the ledger of scripts/test.sh lists them (scripts/ledger.py). With
HYROADS_NOT_MADE=fail, which the second try sets, they fail instead.
"""

import os

import pytest

NOT_MADE = "not made"


def not_made(why: str) -> BaseException:
    """The exception that ends the test, for the caller to raise."""
    must_be_made = os.environ.get("HYROADS_NOT_MADE") == "fail"
    return (pytest.fail.Exception if must_be_made else pytest.skip.Exception)(f"{NOT_MADE}{why}")


def needs_etcd() -> str:
    """The path of the program etcd; skips the test where there is none."""
    # Every run of tests imports this module, few of them need etcd.
    from hyroads.mininet.etcd import etcd_program
    from hyroads.mininet.programs import EmulationError

    try:
        return etcd_program()
    except EmulationError as error:
        pytest.skip(str(error))
