"""Templates name architectures that exist, and those can learn what the template takes."""

import math

import pytest

from easeml_db.decisions.templates.catalogue import TEMPLATES
from easeml_plpy.architectures import fits
from easeml_plpy.columns.task import Objects, Task
from easeml_plpy.trainers import ARCHITECTURES

EXAMPLES = {
    "image_classification": [Task("classification", (3, 32, 32), 10)],
    "image_recovery": [Task("regression", (3, 32, 32), 3072, output_shape=(3, 32, 32))],
    "tensor_to_tensor": [
        Task("regression", shape, math.prod(shape), output_shape=shape) for shape in ((7, 5), (8, 8, 1), (2, 2, 2, 2))
    ],
    "series_translation": [
        Task("regression", (9, 4), 24, output_shape=(6, 4), objects=Objects(3, 0), output_objects=Objects(3, 0))
    ],
    "series_classification": [Task("classification", (9, 4), 3, objects=Objects(3, 0))],
    "tree_classification": [Task("classification", (9, 6), 3, objects=Objects(3, 2))],
    "general_classification": [
        Task("classification", (9, 4 + n_links), 3, objects=Objects(3, n_links)) for n_links in (0, 3)
    ],
    "general_auto_encoder": [Task("regression", (9, 6), 24, output_shape=(6, 4), objects=Objects(3, 2))],
    "tabular": [Task("classification", (8,), 3), Task("classification", (28, 28), 3)],
}
NAMED = [(template, name) for template in TEMPLATES for name in template.architectures]


@pytest.mark.parametrize(("template", "name"), NAMED, ids=[f"{each.name}-{name}" for each, name in NAMED])
def test_each_architecture_of_a_template_exists_and_learns_such_a_task(template, name):
    assert None in [fits(ARCHITECTURES[name], task) for task in EXAMPLES[template.name]]
