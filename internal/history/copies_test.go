package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

func TestEarlyRetryIsFoundDespiteAFault(t *testing.T) {
	reconsumed := history.Event{Kind: history.Reconsumed, Consumer: "a", Delay: time.Minute.Microseconds(), Copy: "1:0"}
	original := history.Event{Kind: history.Delivered, Consumer: "a", Copy: "1:0"}
	again := history.Event{Kind: history.Delivered, Consumer: "b", Retry: 1, Copy: "2:0"}
	assert.Equal(t, []string{"early: came 58s before it was due"},
		texts(history.Rules{}, t, original, reconsumed, killed("a"), again))
	assert.Empty(t, texts(history.Rules{}, t, original, reconsumed, killed("a"), original),
		"a second delivery was not excused by the kill, which may have lost the acknowledgement")
}
