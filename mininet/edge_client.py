class EdgeClient:
    pass
