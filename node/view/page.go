package view

// pageText is how much text a page of a list has, about. The whole answer is in memory until its reader has taken it.
const pageText = 2 << 20

// Room is what a page of a list has room for.
type Room struct{ rows, text int }

// NewRoom has room for a number of rows, and for so much text that a page of few rows is not cut off.
func NewRoom(rows int) Room { return Room{rows, pageText} }

// Take takes the room of a row with some text.
func (r *Room) Take(text int) { r.rows, r.text = r.rows-1, r.text-text }

// Full says that there is no room for another row. The first one always has.
func (r *Room) Full() bool { return r.rows <= 0 || r.text <= 0 }
