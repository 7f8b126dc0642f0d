package attempts

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// This session has copied another session's record to tidy the log. The delay is still the other session's, and its
// message must not be handed out earlier.
func TestDelayOfAnotherSessionHoldsAfterItsRecordIsCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.hear(frame{session: 2, changes: []change{{Key: one, count: 1, delay: 5000, session: 2}}})
		l.hear(frame{session: l.id}) // the mark
		l.hear(frame{session: l.id, flags: copies, asOf: l.state.last,
			changes: []change{{Key: one, count: 1, delay: 5000, session: 2}}})
		r, ok := l.Again(one)
		require.True(t, ok)
		require.GreaterOrEqual(t, time.Until(r.Due), 5*time.Second)
	})
}
