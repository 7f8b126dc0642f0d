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
		answered := make(chan outcome, 1)
		answered <- outcome{}
		_, err := (&made{}).wait(ended, answered, false)
		require.NoError(t, err)
	}
}
