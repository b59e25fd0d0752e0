"""The architectures that are trained by gradient descent or batch by batch.

To add one: write a file with an `Architecture` and list it here. Training is the trainers' business, and a library that
has a trainer of its own declares its architectures beside it (trainers/lightgbm/). Builders import torch only when they
build, so that a session that merely lists architectures starts in milliseconds.
"""

from __future__ import annotations

from easeml_plpy.architectures.bits.bit_autoencoder import BIT_AUTOENCODER
from easeml_plpy.architectures.bits.bit_rnn import BIT_RNN
from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture, complete, fits
from easeml_plpy.architectures.ensemble import ENSEMBLE
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.images.alexnet import ALEXNET
from easeml_plpy.architectures.images.bn_alexnet import BN_ALEXNET
from easeml_plpy.architectures.images.googlenet import GOOGLENET
from easeml_plpy.architectures.images.nin import NIN
from easeml_plpy.architectures.images.resnet18 import RESNET18
from easeml_plpy.architectures.images.resnet50 import RESNET50
from easeml_plpy.architectures.images.squeezenet import SQUEEZENET
from easeml_plpy.architectures.images.vgg import VGG
from easeml_plpy.architectures.series.bilstm import BILSTM
from easeml_plpy.architectures.series.gru import GRU
from easeml_plpy.architectures.series.lstm import LSTM
from easeml_plpy.architectures.series.rnn import RNN
from easeml_plpy.architectures.series.temporal_cnn import TEMPORAL_CNN
from easeml_plpy.architectures.series.transformer import TRANSFORMER
from easeml_plpy.architectures.tables.incremental import IncrementalEstimator
from easeml_plpy.architectures.tables.lenet import LENET
from easeml_plpy.architectures.tables.linear import LINEAR
from easeml_plpy.architectures.tables.mlp import MLP
from easeml_plpy.architectures.tables.naive_bayes import GAUSSIAN_NB, MULTINOMIAL_NB
from easeml_plpy.architectures.tables.resnet import RESNET
from easeml_plpy.architectures.tables.stochastic_gradient import PASSIVE_AGGRESSIVE, PERCEPTRON, SGD
from easeml_plpy.architectures.tables.tabm import TABM
from easeml_plpy.architectures.tensors.autoencoder import AUTOENCODER
from easeml_plpy.architectures.tensors.gan import GAN
from easeml_plpy.architectures.tensors.pix2pix import PIX2PIX
from easeml_plpy.architectures.tensors.seq2seq import SEQ2SEQ
from easeml_plpy.architectures.tensors.unet import UNET
from easeml_plpy.architectures.trees.tree_kernel_svm import TREE_KERNEL_SVM
from easeml_plpy.architectures.trees.tree_lstm import TREE_LSTM
from easeml_plpy.architectures.trees.tree_rnn import TREE_RNN

__all__ = [
    "ENSEMBLE",
    "ESTIMATORS",
    "NETWORKS",
    "Architecture",
    "Config",
    "Hyperparameter",
    "IncrementalEstimator",
    "complete",
    "fits",
]

NETWORKS: tuple[Architecture, ...] = (
    *(LINEAR, MLP, RESNET, TABM, LENET),
    *(ALEXNET, BN_ALEXNET, NIN, VGG, GOOGLENET, SQUEEZENET, RESNET18, RESNET50),
    *(RNN, LSTM, BILSTM, GRU, TRANSFORMER, TEMPORAL_CNN),
    *(TREE_RNN, TREE_LSTM, TREE_KERNEL_SVM),
    *(BIT_RNN, BIT_AUTOENCODER),
    *(AUTOENCODER, UNET, GAN, PIX2PIX, SEQ2SEQ),
)
"""Those that torch trains."""
ESTIMATORS: tuple[Architecture, ...] = (SGD, PERCEPTRON, PASSIVE_AGGRESSIVE, GAUSSIAN_NB, MULTINOMIAL_NB)
"""Those of scikit-learn that are trained batch by batch."""
