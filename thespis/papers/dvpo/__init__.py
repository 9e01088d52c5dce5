"""DVPO (Huang et al., 2025): policy optimization guided by a global value model that is fitted once and frozen."""
