package replica

import "testing"

func TestNodeOfAnID(t *testing.T) {
	for _, node := range []string{"n1", "node.example-2", "x", "a/b", "a/1"} {
		if id := ID(node, 7); Node(id) != node || id != ID(node, 7) || id == ID(node, 8) {
			t.Errorf("%s has %s, which is of %s", node, id, Node(id))
		}
	}
	if ID("n1", First) != "n1/1" || Node("") != "" {
		t.Error(ID("n1", First), Node(""))
	}
}
