"""FEI at home in other libraries."""
