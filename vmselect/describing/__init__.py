"""Descriptions of training steps: counts the operations of a model from its definition, without training it."""
