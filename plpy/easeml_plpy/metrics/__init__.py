"""The metrics by which a run can rank its trials.

To add one: write a file with a `Metric` (`contract.py`) and list it here. It is then measured, recorded, and shown in
easeml.metric_history, and runs can rank by it.
"""

from __future__ import annotations

from easeml_plpy.metrics.classification_metrics import ACCURACY, BALANCED_ACCURACY, LOG_LOSS, MACRO_F1
from easeml_plpy.metrics.contract import Metric
from easeml_plpy.metrics.regression_metrics import MAE, R2, RMSE
from easeml_plpy.metrics.tensor_metrics import MSE, PSNR, SSIM, TOKEN_ACCURACY

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        ACCURACY,
        BALANCED_ACCURACY,
        MACRO_F1,
        LOG_LOSS,
        RMSE,
        MAE,
        R2,
        MSE,
        PSNR,
        SSIM,
        TOKEN_ACCURACY,
    )
}
