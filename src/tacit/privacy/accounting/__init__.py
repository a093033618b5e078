"""Upper bounds on what noise lets through: privacy-loss distributions and their composition."""
