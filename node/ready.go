package node

// Ready says whether the node does its part in its cluster, and if not, why. A cluster on hold is answered for as well:
// it takes requests.
func (n *Node) Ready() error { return n.service.Working() }
