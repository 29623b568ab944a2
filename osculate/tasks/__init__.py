"""Tasks: functions of any posterior that ``osculate.predict`` takes, which return a frozen record."""

from osculate.tasks.active_learning import (
    Acquisition as Acquisition,
    ActiveLearning as ActiveLearning,
    acquire as acquire,
    active_learning as active_learning,
)
from osculate.tasks.bayesian_optimisation import (
    Optimisation as Optimisation,
    bayesian_optimisation as bayesian_optimisation,
)
from osculate.tasks.calibration import (
    CalibrationRecord as CalibrationRecord,
    RegressionRecord as RegressionRecord,
    calibration as calibration,
)
from osculate.tasks.comparison import Comparison as Comparison, Difference as Difference, compare as compare
from osculate.tasks.continual_learning import (
    ContinualRecord as ContinualRecord,
    continual_learning as continual_learning,
)
from osculate.tasks.ood import OODRecord as OODRecord, ood as ood
from osculate.tasks.imputation import (
    ImputationRecord as ImputationRecord,
    imputation as imputation,
    lower_half as lower_half,
)
from osculate.tasks.sensitivity import Sensitivity as Sensitivity, sensitivity as sensitivity
from osculate.tasks.sequences import (
    SequenceUncertainty as SequenceUncertainty,
    sequence_uncertainty as sequence_uncertainty,
)
from osculate.tasks.semi_supervised import (
    SemiSupervisedRecord as SemiSupervisedRecord,
    neighbour_probabilities as neighbour_probabilities,
    semi_supervised as semi_supervised,
)
