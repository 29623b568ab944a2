"""The settings of training as options: what the user has not named is what the method needs."""

from dataclasses import dataclass, fields
from typing import Any

from osculate.cli.methods import METHODS, MethodOptions
from osculate.cli.options import naming
from osculate.training import Settings
from osculate.training.settings import OPTIMIZERS, SCHEDULES

_USUAL = Settings()
#: Steps of a training whose length no one has named, and the epochs that they may take. Measured on digits, two classes
#: and a regression of a few hundred data each: with 200 steps no method is done, with 2,000 all are.
STEPS, LONGEST = 2000, 500
#: Data below which a step takes fewer of them, and how many: a quarter of the data at most.
FEW, SMALL = 5000, 32


def _by_default(setting: str) -> str:
    """The usual value, and those of methods that need another."""
    of = {name: {**kind.usual, **kind.recommended} for name, kind in METHODS.items()}
    others = [f"{settings[setting]} ({name})" for name, settings in of.items() if setting in settings]
    return ", ".join([str(getattr(_USUAL, setting)), *others])


@naming(
    optimizers=OPTIMIZERS,
    schedules=SCHEDULES,
    **{f"{name}_default": [_by_default(name)] for name in ("epochs", "lr", "optimizer", "schedule")},
)
@dataclass(frozen=True)
class SettingOptions:
    """How long, and in which steps.

    Args:
        epochs: passes over the data, at most; of hmc, transitions of each of its chains. By default {epochs_default},
            and as many more, up to 500 in all, as it takes to make 2,000 steps (other than with hmc).
        batch_size: data per step. By default 128; of fewer than 5,000 data 32, and a quarter of them at most.
        lr: learning rate at its highest. By default {lr_default}; that of swag times
            the squared noise for real-valued targets.
        optimizer: one of {optimizers} (with momentum 0.9); none decays weights. By default {optimizer_default}; ivon,
            vogn and hmc take steps of their own.
        schedule: of the learning rate: one of {schedules}. By default {schedule_default}.
        patience: stop after so many epochs without a better validation NLL, and keep the best weights.
    """

    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    optimizer: str | None = None
    schedule: str | None = None
    patience: int | None = None

    def settings(
        self, how: MethodOptions, seed: int, noise: float | None = None, num_data: int | None = None
    ) -> Settings:
        """The settings, with what the method needs where the user has named nothing.

        Args:
            how: the method.
            seed: of the training.
            noise: scale of a Gaussian likelihood, whose gradients are as many times larger as its square is below 1.
            num_data: N, by which a training of few data takes smaller batches and more epochs.

        Raises:
            ValueError: a setting that does not go with the method, or a value out of its range.
        """
        needed = {**how.kind.usual, **how.kind.recommended}
        named = {name: value for name, value in vars(self).items() if value is not None}
        for name, why in how.kind.refused.items():
            if name in named and named[name] != needed.get(name):
                option = f"--{name.replace('_', '-')} {named[name]}"
                raise ValueError(f"{option} does not go with --method {how.method}, which {why}: leave it out.")
        if num_data is not None and "batch_size" not in how.kind.refused:
            needed = {**_by_size(num_data, self.batch_size), **needed}
        if noise is not None and needed.get("optimizer") == "sgd":
            needed["lr"] *= noise**2
        return _USUAL.changed(**{**needed, **named}, seed=seed)

    @classmethod
    def of(cls, settings: Settings, how: MethodOptions) -> "SettingOptions":
        """The options that give these settings again, whatever the defaults are by then."""
        return cls(**{f.name: getattr(settings, f.name) for f in fields(cls) if _means_something(f.name, how)})


def _by_size(num_data: int, batch_size: int | None) -> dict[str, int]:
    """Size of a batch and epochs, of so many data.

    >>> _by_size(1078, None), _by_size(60_000, None)
    ({'batch_size': 32, 'epochs': 59}, {'batch_size': 128, 'epochs': 20})
    """
    usual = _USUAL.batch_size if num_data >= FEW else max(1, min(SMALL, num_data // 4))
    each = -(-num_data // (usual if batch_size is None else max(1, batch_size)))
    return {"batch_size": usual, "epochs": max(_USUAL.epochs, min(LONGEST, -(-STEPS // max(1, each))))}


def _means_something(name: str, how: MethodOptions) -> bool:
    return name not in how.kind.refused or name in {**how.kind.usual, **how.kind.recommended}


def summary(settings: Settings, how: MethodOptions) -> str:
    """How it will be trained, in a line.

    >>> summary(Settings(epochs=3), MethodOptions("map"))
    'map: epochs 3, batch size 128, lr 0.001, optimizer adam, schedule cosine'
    """
    shown: dict[str, Any] = {
        name.replace("_", " "): f"{value:.3g}" if isinstance(value := getattr(settings, name), float) else value
        for name in ("epochs", "batch_size", "lr", "optimizer", "schedule")
        if _means_something(name, how)
    }
    shown |= how.options
    return f"{how.method}: " + ", ".join(f"{name} {value}" for name, value in shown.items())
