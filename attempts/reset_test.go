package attempts

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// The connection is lost while the frame that removes all records waits for the answers to earlier frames, before it is
// sent. Then the first frame of the next connection removes the records.
func TestResetIsRepeatedAfterALostLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.Reset()
		f, places, _ := l.next(false)
		require.True(t, f.has(resets))
		lost, lose := context.WithCancel(t.Context())
		lose()
		require.Error(t, l.send(lost, &link{}, f, places)) // no earlier answer comes
		f, _, _ = l.next(false)
		require.True(t, f.has(resets))
	})
}
