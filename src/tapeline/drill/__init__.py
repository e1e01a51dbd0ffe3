"""A drill: shuffle, repeat, delay and split the input, kill the process, and compare the books.

A seeded run. The brokerage's pipeline is fed by its simulator and compared with an independent
oracle over the truth that was written before any line was formatted. Any other pipeline is fed
with files of the user's, and compared with one static pass over them: no kill, no repeat, in order.
"""

from tapeline.drill.asked import Asked, Done
from tapeline.drill.conduct import Drill

__all__ = ["Asked", "Done", "Drill"]
