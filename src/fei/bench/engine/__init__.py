"""Who computes: workers, the engines that have them, and the driver that commits what comes."""
