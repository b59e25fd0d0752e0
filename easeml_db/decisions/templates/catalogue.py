"""The templates: which kind of task a program is, and which architectures may learn it. The first match counts.

They are those of ease.ml (Li et al., VLDB 2018, figure 4) in their order. Before the sixth stand two of our own, for
vectors and tables and for output tensors of other ranks, which the paper leaves to its networks over bits. The number
of tensors, their ranks and the number of recursive fields decide; names and sizes do not.
"""

from __future__ import annotations

from dataclasses import dataclass

from easeml_db.decisions.templates.program import ObjectType, Program
from easeml_db.errors import InvalidArgument

LETTERS = "ABCDEFGH"
ANY_RANK = 0


@dataclass(frozen=True)
class Pattern:
    """A pattern of objects: the ranks of the tensors and the number of recursive fields; a tail matches any further
    ones.
    """

    ranks: tuple[int, ...] = ()
    n_recursive: int = 0
    has_more_tensors: bool = False
    has_more_recursive: bool = False

    def matches(self, kind: ObjectType) -> bool:
        """Return whether an object is of this pattern."""
        ranks = [tensor.rank for tensor in kind.tensors]
        return (
            _fits(len(ranks), len(self.ranks), has_more=self.has_more_tensors)
            and all(expected in (ANY_RANK, rank) for expected, rank in zip(self.ranks, ranks, strict=False))
            and _fits(len(kind.recursive), self.n_recursive, has_more=self.has_more_recursive)
        )

    def text(self, first_letter: int = 0) -> str:
        """Return the pattern as the paper writes it, with letters for sizes from that one on."""
        tensors, place = [], first_letter
        for rank in self.ranks:
            tensors.append(f"Tensor[{','.join(LETTERS[place : place + rank]) or '*'}]")
            place += rank
        names = list("abc"[: self.n_recursive])
        tensors += ["*"] * self.has_more_tensors
        names += ["*"] * self.has_more_recursive
        return f"{{[{', '.join(tensors)}],[{', '.join(names)}]}}"


@dataclass(frozen=True)
class Template:
    """A kind of task. `architectures` are those of ours that may learn it, in the order in which arms are opened.

    `candidates` are those of the paper.
    """

    name: str
    workload: str
    input: Pattern
    output: Pattern
    candidates: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()

    def matches(self, program: Program) -> bool:
        """Return whether a program is of this kind."""
        return self.input.matches(program.input) and self.output.matches(program.output)


ANYTHING = Pattern(has_more_tensors=True, has_more_recursive=True)
VECTOR = Pattern((1,))
CHAIN = Pattern((1,), 1, has_more_tensors=True)
SERIES = ("gru", "lstm", "temporal_cnn", "transformer", "bilstm", "rnn")
TREES = ("tree_lstm", "tree_rnn", "tree_kernel_svm")

TEMPLATES = (
    Template(
        "image_classification",
        "image classification",
        Pattern((3,)),
        VECTOR,
        ("AlexNet", "ResNet", "GoogLeNet", "SqueezeNet", "VGG", "NIN", "BN-AlexNet"),
        (
            *("lenet", "mlp", "vgg", "resnet18", "nin", "alexnet", "bn_alexnet", "squeezenet", "googlenet"),
            "resnet50",
        ),
    ),
    Template(
        "image_recovery",
        "image recovery",
        Pattern((3,)),
        Pattern((3,)),
        ("Auto-encoder", "GAN", "pix2pix"),
        ("unet", "autoencoder", "pix2pix", "gan", "mlp"),
    ),
    Template(
        "series_classification", "time series classification", CHAIN, VECTOR, ("RNN", "LSTM", "bi-LSTM", "GRU"), SERIES
    ),
    Template("series_translation", "time series translation", CHAIN, CHAIN, ("seq2seq",), ("seq2seq",)),
    Template(
        "tree_classification",
        "tree classification",
        Pattern((1,), 2, has_more_tensors=True),
        VECTOR,
        ("Tree-RNN", "Tree kernel SVM"),
        TREES,
    ),
    Template(
        "tabular",
        "vectors and tables",
        Pattern((ANY_RANK,), has_more_tensors=True),
        VECTOR,
        (),
        ("lenet", "lightgbm", "mlp", "extra_trees", "linear"),
    ),
    Template(
        "tensor_to_tensor",
        "tensors out of tensors",
        Pattern((ANY_RANK,), has_more_tensors=True),
        Pattern((ANY_RANK,)),
        (),
        ("unet", "autoencoder", "seq2seq", "mlp", "linear"),
    ),
    Template(
        "general_classification",
        "general classification",
        ANYTHING,
        VECTOR,
        ("bit-level RNN",),
        (*SERIES, *TREES, "bit_rnn"),
    ),
    Template(
        "general_auto_encoder",
        "general auto-encoder",
        ANYTHING,
        ANYTHING,
        ("bit-level auto-encoder",),
        ("bit_autoencoder",),
    ),
)


def match(program: Program) -> Template:
    """Return the first template that a program is of: the last takes any."""
    return next(template for template in TEMPLATES if template.matches(program))


def template(name: str) -> Template:
    """Return the template of that name. Raises InvalidArgument."""
    chosen = next((entry for entry in TEMPLATES if entry.name == name), None)
    if chosen is None:
        names = ", ".join(entry.name for entry in TEMPLATES)
        raise InvalidArgument(f"template: there is no template {name!r}", hint=f"Choose one of: {names}.")
    return chosen


def list_templates() -> list[tuple[int, str, str, str, str, list[str], list[str]]]:
    """Return (place, name, workload, input, output, candidates of the paper, architectures of ours) of every one."""
    return [
        (
            place,
            entry.name,
            entry.workload,
            entry.input.text(),
            entry.output.text(sum(entry.input.ranks)),
            list(entry.candidates),
            list(entry.architectures),
        )
        for place, entry in enumerate(TEMPLATES, 1)
    ]


def _fits(count: int, least: int, *, has_more: bool) -> bool:
    return count >= least if has_more else count == least
