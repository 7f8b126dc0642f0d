package attempts

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// The topic is lost while the frame that removes all records waits for the answers to earlier frames. Then the first
// frame of the next connection removes them.
func TestResetIsRepeatedAfterALostLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bare(t)
		l.Reset()
		f, places, _ := l.next(false)
		require.True(t, f.has(resets))
		lost, lose := context.WithCancel(t.Context())
		lose()
		require.Error(t, l.send(lost, &link{}, f, places)) // no answer comes
		f, _, _ = l.next(false)
		require.True(t, f.has(resets))
	})
}
