"""Which contract of a project an attached definition means, or why none is meant."""

from bot.contract.interchange.agreement import differences, following
from bot.contract.interchange.flashinfer_bench import Definition
from bot.contract.load import LoadedContract
from bot.github.refusals import DEFINITION_ALONE, DEFINITION_DIFFERS, DEFINITION_SHARED
from bot.handlers.asked import contract_of
from bot.handlers.project import Project
from bot.report.echo import render_definition
from bot.sanitize import code_span

SHOWN = 20
"""Differences in an answer."""


def contract_for(definition: Definition, project: Project) -> str:
    """Name of the contract that follows a definition of this name, and covers it.

    Raises:
        RefusedError: there is none, or more than one, or none of them covers it; or one of them has mistakes.
    """
    name = code_span(definition.name)
    found = {
        each: uncovered(definition, contract_of(project, each))
        for each in following(project.contracts, definition.name)
    }
    covering = [each for each, lacking in found.items() if not lacking]
    if not found:
        raise DEFINITION_ALONE.error(detail=f"Nothing of it was run.\n\n{render_definition(definition)}")
    if len(covering) > 1:
        raise DEFINITION_SHARED.error(name=name, known=", ".join(covering))
    if not covering:
        nearest = min(found, key=lambda each: len(found[each]))
        lacking = found[nearest]
        lines = [f"- {code_span(each)}" for each in lacking[:SHOWN]]
        lines += [f"- and {len(lacking) - SHOWN} more"] if len(lacking) > SHOWN else []
        raise DEFINITION_DIFFERS.error(name=name, contract=nearest, differences="\n".join(lines))
    return covering[0]


def uncovered(definition: Definition, loaded: LoadedContract) -> list[str]:
    """What of a definition a contract does not cover, each with the definition's path."""
    return [f"{each.path}: {each.reason}" for each in differences(definition, loaded.contract)]
