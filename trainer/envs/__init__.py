"""Tool environments: the contract (`base`), the shipped ones, and how a name becomes one (`registry`)."""
