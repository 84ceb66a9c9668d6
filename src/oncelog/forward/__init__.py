"""Zone to zone: carries facts from one zone's log into another's, over the calls of `boundary.proto` alone."""
