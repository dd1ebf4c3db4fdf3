"""Matrices without layers: unitary ones, nearest Kronecker products, the choice of factors."""
