"""From outside to the tape: files of a drop folder, messages of topics, and pulls."""
