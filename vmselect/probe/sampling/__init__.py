"""What the machine does while a probe measures: a light thread that reads counters, by phase of the training."""

from vmselect.probe.sampling.alarm import Alarm
from vmselect.probe.sampling.sampler import Sampler

__all__ = ["Alarm", "Sampler"]
