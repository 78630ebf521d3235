"""Calls of the CUDA driver, whose failures are this machine's."""

import uuid
from typing import Any

from cuda.bindings import driver

from bot.errors import OWNER, InfrastructureError

_MODE = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_MODE


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


def first() -> str:
    """The UUID of the first device that is visible, as NVML writes it. Makes no context on it: who only waits for a
    device disturbs nobody.

    Raises:
        InfrastructureError: there is none, or several processes may not use it.
    """
    try:
        done(driver.cuInit(0))
        place = done(driver.cuDeviceGet(0))
        mode = int(done(driver.cuDeviceGetAttribute(_MODE, place)))
        found = uuid.UUID(bytes=bytes(done(driver.cuDeviceGetUuid(place)).bytes))
    except (InfrastructureError, RuntimeError) as error:
        raise unusable(error) from error
    if mode != driver.CUcomputemode.CU_COMPUTEMODE_DEFAULT:
        told = driver.CUcomputemode(mode).name.removeprefix("CU_COMPUTEMODE_").lower().replace("_", " ")
        raise InfrastructureError(
            f"the device's compute mode is {told}, but verifier and workers are several processes. "
            f"{OWNER}: `nvidia-smi -c DEFAULT`"
        )
    return f"GPU-{found}"


def unusable(error: Exception) -> InfrastructureError:
    """What to say where there is no device, or none that can be used."""
    said = str(error).splitlines()[0]
    return InfrastructureError(
        f"no CUDA device can be used here: {said}\n{OWNER}: see nvidia-smi, the compute mode and who else uses it"
    )
