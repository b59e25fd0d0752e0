"""The shipped configs and the architectures are in different packages: every config is legal, and none is lost."""

import json

from easeml_db.decisions.procedures.race.portfolio import choose_portfolio
from easeml_db.decisions.procedures.race.shipped_configs import SHIPPED, SKEWED
from easeml_plpy.architectures import complete
from easeml_plpy.trainers import ARCHITECTURES


def test_shipped_configs_are_legal_and_differ():
    specifications = [
        {"architecture": name, "hyperparameters": [each.to_json() for each in ARCHITECTURES[name].hyperparameters]}
        for name in SHIPPED
    ]
    chosen = json.loads(choose_portfolio(json.dumps(specifications), None))
    for name, configs in SHIPPED.items():
        assert [dict(complete(ARCHITECTURES[name], config)) for config in configs] == chosen[name]


def test_what_is_tried_for_skewed_targets_is_legal():
    for name, configs in SKEWED.items():
        assert all(complete(ARCHITECTURES[name], config)["target_transform"] != "none" for config in configs)
