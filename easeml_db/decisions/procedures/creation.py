"""A procedure from the arguments of a run as they are stored: JSON texts and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from easeml_db.decisions.procedures import JOINT, PROCEDURES, takes_joint
from easeml_db.decisions.procedures.contract import Procedure, SearchArguments
from easeml_db.decisions.procedures.options import MAX_CONFIGS, ROOT, whole_number
from easeml_db.decisions.search_space.configs import Config
from easeml_db.decisions.search_space.documents import read_document
from easeml_db.decisions.search_space.parsing import SearchSpace, Specs, space_of, specs_of
from easeml_db.decisions.search_space.refusal import refusal, shown, unknown_name
from easeml_db.decisions.search_space.specs import RESERVED
from easeml_db.words.run import Search

SEPARATOR = "|"
KEPT_CHARACTERS = 10_000  # a search space that is longer is read each time
N_TRIALS = "n_trials"  # what papers call n_configs: an option of every procedure


@dataclass(frozen=True)
class ReadSearch:
    """The arguments as values: names in their order, the checked space, how many configs, the procedure's own
    options."""

    architectures: tuple[str, ...]
    space: SearchSpace
    options: Mapping[str, object]
    is_joint: bool
    n_configs: int | None


def create_procedure(search: Search, *, arm: str | None = None, max_seconds: float | None = None) -> Procedure:
    """Make the procedure of a run, or of one of its arms; an error names the path of the wrong value. `max_seconds` is
    how long the run may take (None: no limit is known).
    """
    read = read_search(search)
    names = read.architectures if arm is None else arm.split(SEPARATOR)
    space = SearchSpace(tuple(subspace for subspace in read.space.subspaces if subspace.architecture in names))
    portfolio = _portfolio(search.portfolio_json)
    arguments = SearchArguments(
        space, search.max_epochs, read.n_configs, search.seed, read.options, portfolio, max_seconds
    )
    return PROCEDURES[search.procedure](arguments)


def arm_names(search: Search) -> list[str]:
    """Return the arms of a run whose procedure is no one-shot: its architectures, or all of them as one."""
    read = read_search(search)
    return [SEPARATOR.join(read.architectures)] if read.is_joint else list(read.architectures)


def read_search(search: Search) -> ReadSearch:
    """Read and check the arguments."""
    if search.procedure not in PROCEDURES:
        raise unknown_name("procedure", search.procedure, PROCEDURES, expected="a procedure")
    options = dict(_options(search.options_json))
    is_joint = options.pop(JOINT, False) if takes_joint(search.procedure) else False
    if not isinstance(is_joint, bool):
        raise refusal(f"{ROOT}.{JOINT}", expected="true or false", got=shown(is_joint))
    n_configs = _n_configs(options, search.n_configs)
    read = _space if len(search.search_space_json or "") <= KEPT_CHARACTERS else _space.__wrapped__
    space = read(search.architectures_json, search.search_space_json)
    return ReadSearch(tuple(_specs(search.architectures_json)), space, options, is_joint, n_configs)


@lru_cache(maxsize=16)  # a run asks several times, and later runs of a session for the same
def _space(architectures_json: str, search_space_json: str | None) -> SearchSpace:
    raw = None if search_space_json is None else read_document("search_space", search_space_json)
    return space_of(_specs(architectures_json), raw)


def _n_configs(options: dict[str, object], n_configs: int | None) -> int | None:
    """Return how many configs are asked for, as an argument of the run or as its option n_trials, taken out."""
    value = options.pop(N_TRIALS, None)
    if value is None:
        return n_configs
    n_trials = whole_number(f"{ROOT}.{N_TRIALS}", value, at_least=1, at_most=MAX_CONFIGS)
    if n_configs is not None and n_configs != n_trials:
        expected = f"n_configs, which says the same and is {n_configs}"
        raise refusal(f"{ROOT}.{N_TRIALS}", expected=expected, got=shown(n_trials), hint="Leave one of them out.")
    return n_trials


def _options(text: str | None) -> Mapping[str, object]:
    raw = None if text is None else read_document(ROOT, text)
    if raw is not None and not isinstance(raw, dict):
        raise refusal(ROOT, expected="an object", got=shown(raw), hint='Write {"eta": 3}, or leave it out.')
    return cast("Mapping[str, object]", raw or {})


def _portfolio(text: str | None) -> Mapping[str, list[Config]]:
    """Return the configs of a portfolio, an object name -> [config, ...] or null, as procedures write configs."""
    raw = cast("Mapping[str, list[Config]]", None if text is None else read_document("portfolio", text)) or {}
    return {name: [{RESERVED: name, **config} for config in configs] for name, configs in raw.items()}


@lru_cache(maxsize=16)  # every run of a session asks for a few of the same
def _specs(text: str) -> Specs:
    return specs_of(_architectures(text))


def _architectures(text: str) -> Mapping[str, object]:
    """Return specs by architecture, from either form."""
    raw = read_document("architectures", text)
    if isinstance(raw, dict):
        return raw
    if not isinstance(raw, list):
        raise refusal("architectures", expected="an array or an object", got=shown(raw))
    specs: dict[str, object] = {}
    for position, item in enumerate(raw):
        name = item.get("architecture") if isinstance(item, dict) else None
        if not isinstance(name, str) or name in specs:
            path = f"architectures[{position}].architecture"
            raise refusal(path, expected="a name, each once", got=shown(name))
        specs[name] = item.get("hyperparameters")
    return specs
