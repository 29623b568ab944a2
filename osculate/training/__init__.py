"""Training: one function that trains any method, on batches or on all data at once."""

from osculate.training.settings import Settings as Settings, Training as Training
from osculate.training.train import train as train
