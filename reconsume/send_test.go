package reconsume

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// An answer that is there counts, though the context has ended: or a message that was published would be published
// again.
func TestAnAnswerCountsThoughTheContextHasEnded(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	for range 100 {
		answered := make(chan error, 1)
		answered <- nil
		require.NoError(t, (&made{}).wait(ended, answered, false))
	}
}
