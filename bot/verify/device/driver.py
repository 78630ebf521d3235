"""Calls of the CUDA driver, whose failures are this machine's."""

from typing import Any

from cuda.bindings import driver

from bot.errors import OWNER, InfrastructureError


def done(answer: tuple[Any, ...]) -> Any:
    """The value of a driver call.

    Raises:
        InfrastructureError: it failed.
    """
    status, *values = answer
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise InfrastructureError(f"the device is out of memory: something else holds it. {OWNER}")
    if status != driver.CUresult.CUDA_SUCCESS:
        raise InfrastructureError(f"the CUDA driver said {status!r}. {OWNER}")
    return values[0] if values else None
