package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Retry and dead letter topics whose names have no namespace are in the topic's namespace, as in a Consumer's options.
func TestShortTopicNamesAreOfTheTopicsNamespace(t *testing.T) {
	v := newVisit(t.Context(), Setup{Topic: "shop/orders/new", Subscription: "billing", RetryTopic: "later",
		DeadLetterTopic: "letters"})
	require.Equal(t, "persistent://shop/orders/later", v.RetryTopic)
	require.Equal(t, "persistent://shop/orders/letters", v.DeadLetterTopic)
}
