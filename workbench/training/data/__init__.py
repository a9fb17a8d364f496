"""What the demos learn from: digits of people and synthetic voices, joined, distorted and stored as features."""
