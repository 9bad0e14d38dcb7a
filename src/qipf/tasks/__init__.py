"""Tasks: a prediction is the class of an input or pixel, one of several labels, a token, or a row of numbers."""

from qipf.tasks.classes import Classes, Labels, Numbers
from qipf.tasks.finding import TASKS, find_task, make_task
from qipf.tasks.outputs import Outputs, Scored, TokenSummary, summarise
from qipf.tasks.pixels import Pixels
from qipf.tasks.task import Task
from qipf.tasks.tokens import Tokens, log_probability, perplexity

__all__ = [
    "TASKS",
    "Classes",
    "Labels",
    "Numbers",
    "Outputs",
    "Pixels",
    "Scored",
    "Task",
    "TokenSummary",
    "Tokens",
    "find_task",
    "log_probability",
    "make_task",
    "perplexity",
    "summarise",
]
