package reconsume

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Otherwise a published message would be published again.
func TestAnAnswerCountsThoughTheContextHasEnded(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	for range 100 {
		answered := make(chan error, 1)
		answered <- nil
		require.NoError(t, (&made{}).wait(ended, answered, false))
	}
}
