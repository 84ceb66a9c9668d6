"""The boundary of a BSFG zone: Connect calls to core commands, outcomes to answers. Sans-IO; imports core alone."""
