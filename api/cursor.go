package api

import (
	"net/http"

	"github.com/carillon-scheduler/carillon/internal/sealer"
	"github.com/carillon-scheduler/carillon/job"
)

// cursors hides those that the caller is given, unless it may see every namespace.
func (c *call) cursors() *sealer.Cursors {
	if c.space.All {
		return nil
	}
	return sealer.CursorsOf(IdentityOf(c.r.Context()).Token, c.h.opts.SessionKeys, c.h.ownKey)
}

// openCursor is a cursor as it was before it was hidden.
func (c *call) openCursor(cursor string) (string, error) {
	if text, ok := c.cursors().Show(cursor); ok {
		return text, nil
	}
	return "", job.Invalid("cursor", "use the next_cursor of the page before, with the same token, or begin again",
		"this cursor was not given to this token")
}

// replyPage answers with a page of a list, whose cursor is a part of it.
func (c *call) replyPage(cursor *string, page any) error {
	*cursor = c.cursors().Hide(*cursor)
	return c.reply(http.StatusOK, page)
}
