"""Fair sharing of a client's interfaces among its flows, by weight and preference
(docs/explanation/fairness.md).
"""
