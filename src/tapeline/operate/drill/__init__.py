"""A drill: shuffle, repeat, delay and split the input, kill the process, and compare the books.

A seeded run. The brokerage's pipeline is fed by its simulator and compared with an independent
oracle over the truth that was written before any line was formatted. Any other pipeline is fed
with files of the user's, and compared with one static pass over them: no kill, no repeat, in order.
"""

from tapeline.operate.drill.drill import Drill
from tapeline.operate.drill.options import DrillOptions, DrillReport

__all__ = ["Drill", "DrillOptions", "DrillReport"]
