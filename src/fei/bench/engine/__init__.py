"""Where units are computed: workers, the engines that run them, and the driver that commits results as they come."""
