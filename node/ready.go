package node

// Ready says whether the node should get traffic, and if not, why.
func (n *Node) Ready() error { return n.backend.Ready() }
