"""From the tape to the books: a micro-batch, from its input to its commit. No Spark.

Every record gets a verdict (verdicts, identity, rules), what it changes is reversed and posted
(reversals, posting), and the ledger writes all of it in one transaction.
"""
