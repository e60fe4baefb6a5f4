"""Fixtures of the back ends' tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.native import run_native


@pytest.fixture
def native() -> Callable[..., Any]:
    """See tests.native.run_native."""
    return run_native
