"""Intake: whole files out of a drop folder, immutable pieces into the tape."""

from tapeline.run.intake.intake import Form, Intake, IntakeLimits

__all__ = ["Form", "Intake", "IntakeLimits"]
