"""Faults of records: the words that decoding and translation write, and the rules read."""

UNREADABLE = "the record is"  # how the fault of a record begins that cannot be decoded at all
FAULT_SEPARATOR = "\n"  # between the faults of one record
# In the JSON of a translated record:
WARNED = "_warned"  # what is wrong and counts all the same
RETYPED = "_retyped"  # fields that came as another type
