"""Where a project's contracts, merged kernels and reports are, and the verifier's order for one of its kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from bot.contract.load import read_incumbents
from bot.contract.schema import Device
from bot.errors import UsageError
from bot.evaluation import ARCHITECTURES, BaselineSource, Inspection, Job, Mode
from bot.sanitizer import Sanitation, Tool

SOURCE_LIMIT = 1 << 20
"""A file of more than a megabyte is no kernel."""


@dataclass(frozen=True, slots=True)
class Project:
    """A checkout that holds `contracts/`."""

    root: Path

    @classmethod
    def find(cls, start: Path) -> "Project":
        """The nearest folder with `contracts/`, upwards.

        Raises:
            UsageError: there is none.
        """
        for folder in (start, *start.parents):
            if (folder / "contracts").is_dir():
                return cls(folder)
        raise UsageError(
            f"no folder `contracts/` in {start} or above it: run proctor inside a project, or `proctor init`"
        )

    @property
    def reports(self) -> Path:
        """The folder of evidence."""
        return self.root / "reports"

    @property
    def contracts(self) -> Path:
        """The folder of contracts."""
        return self.root / "contracts"

    @property
    def kernels(self) -> Path:
        """The folder of merged kernels."""
        return self.root / "kernels"

    def incumbents(self, contract: str, device: Device) -> dict[str, BaselineSource]:
        """The kernels merged for this contract on this device, as this checkout names them: for each GPU its own.

        Raises:
            DataError: the index of merged kernels has mistakes.
        """
        found = read_incumbents(self.kernels, contract, device)
        return {
            target: BaselineSource(name=Path(file).stem, role="incumbent", source=source)
            for target, (file, source) in found.items()
        }

    def job(self, contract: str, name: str, source: str, mode: Mode, device: Device) -> Job:
        """The order to examine a kernel; the verifier reads the contract, and says what is wrong with it.

        Raises:
            DataError: the index of merged kernels has mistakes.
        """
        return Job(
            contracts_dir=str(self.contracts),
            contract=contract,
            candidate_name=name,
            source=source,
            mode=mode,
            device=device,
            incumbents=self.incumbents(contract, device),
        )

    def inspection(self, contract: str, name: str, source: str, architectures: Sequence[str] | None) -> Inspection:
        """The order to compile a kernel without a GPU; None: for all architectures we know.

        Raises:
            UsageError: one of them is none we know.
        """
        wanted = [known for known in ARCHITECTURES if known in (architectures or ARCHITECTURES)]
        if unknown := set(architectures or ()) - set(ARCHITECTURES):
            raise UsageError(f"unknown architecture {min(unknown)!r}; known: {', '.join(ARCHITECTURES)}")
        return Inspection(
            contracts_dir=str(self.contracts),
            contract=contract,
            candidate_name=name,
            source=source,
            architectures=wanted,
        )

    def sanitation(self, contract: str, source: str, tools: Sequence[str] | None, seconds: int) -> Sanitation:
        """The order to have a kernel watched; None: by the tools that say most.

        Raises:
            UsageError: one of them is none we know.
        """
        known = get_args(Tool)
        if unknown := set(tools or ()) - set(known):
            raise UsageError(f"unknown tool {min(unknown)!r}; known: {', '.join(known)}")
        wanted: list[Tool] = [name for name in known if name in (tools or known[:3])]
        return Sanitation(
            contracts_dir=str(self.contracts), contract=contract, source=source, tools=wanted, seconds=seconds
        )


def read_candidate(file: Path) -> str:
    """Text of a kernel file.

    Raises:
        UsageError: it is not there, not a file, too large, or not text.
    """
    try:
        if file.stat().st_size > SOURCE_LIMIT:
            raise UsageError(f"{file} is larger than {SOURCE_LIMIT >> 20} MiB: not a kernel file")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text") from None
