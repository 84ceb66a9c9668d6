"""Files: the journal and its recovery, the index, and the disks they stand on. Knows no protocol."""
