"""Upper bounds on the privacy loss of noise, of one release and of many."""
