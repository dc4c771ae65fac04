package store

func (r *Row) encode() []byte {
	w := writer{b: make([]byte, 0, r.size())}
	r.encodeTo(&w)
	return w.b
}

func (r *Record) encode() []byte {
	w := writer{b: make([]byte, 0, r.size())}
	r.encodeTo(&w)
	return w.b
}
