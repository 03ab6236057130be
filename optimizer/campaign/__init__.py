"""Campaigns: one training request carried on by itself, run after run, until its target is met or nothing is left."""
