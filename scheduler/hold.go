package scheduler

import (
	"errors"

	"github.com/carillon-scheduler/carillon/fsm"
)

// closeBatch is how many open runs of a backup one command closes.
const closeBatch = 1024

// onHold is a turn in a restored cluster that is not released: nothing is looked for, so nothing is claimed or moved
// on. Once it is released, the open runs of the backup are closed, piece by piece; the last piece ends the hold. All of
// that is committed state, so the next leader goes on where this leader stopped. It says false when there is no hold.
func (l *loop) onHold() bool {
	s := l.s
	hold := s.st.Info().Hold
	if l.free = !hold.On; l.free {
		return false
	}
	if l.losing || s.o.Clock.Mono() < l.pauseEnd || !hold.Releasing {
		return true
	}
	l.losing = true
	s.submit(&fsm.CloseRestored{Head: s.head(l.now), Limit: closeBatch}, func(reply *fsm.Reply, err error) {
		s.post(func() {
			l.losing = false
			if err != nil {
				// Doing it again is harmless whether it was done or not.
				l.refusedAll(err)
				if !errors.Is(err, ErrNotApplied) {
					s.log.Warn("closing runs of the backup has an unknown outcome; it is done again", "error", err)
				}
				return
			}
			l.accepted()
			if n := reply.Items[0].Count; n > 0 {
				s.log.Info("open runs of the backup recorded as lost", "runs", n)
			}
			if !s.st.Info().Hold.On {
				s.log.Warn("hold released: this cluster claims and fires from here on")
			}
		})
	})
	return true
}
