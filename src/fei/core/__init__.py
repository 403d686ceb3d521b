"""The paper, and nothing but the paper: rules, sites, masks, optimisation. Needs torch alone."""
