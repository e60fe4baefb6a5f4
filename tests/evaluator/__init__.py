"""The language by its own definition: runs a function on arrays, straight from the syntax tree to NumPy."""

from tests.evaluator.bounded import Num, Refused
from tests.evaluator.places import Endless, Stop, Unsure
from tests.evaluator.program import Result, run

__all__ = ["Endless", "Num", "Refused", "Result", "Stop", "Unsure", "run"]
