"""What a posterior is for: each task takes anything that ``osculate.predict`` takes, and returns a frozen record."""

from osculate.tasks.calibration import (
    CalibrationRecord as CalibrationRecord,
    RegressionRecord as RegressionRecord,
    calibration as calibration,
)
from osculate.tasks.ood import OODRecord as OODRecord, ood as ood
