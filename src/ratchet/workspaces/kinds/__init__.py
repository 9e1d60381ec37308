"""The kinds of workspaces, each behind `ratchet.workspaces.checkout.Checkout`."""
