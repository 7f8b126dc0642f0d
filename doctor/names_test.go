package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The options of a Consumer resolve short names in the same way.
func TestShortTopicNamesGetTheNamespaceOfTheTopic(t *testing.T) {
	v := newVisit(t.Context(), Setup{Topic: "shop/orders/new", Subscription: "billing", RetryTopic: "later",
		DeadLetterTopic: "letters"})
	require.Equal(t, "persistent://shop/orders/later", v.RetryTopic)
	require.Equal(t, "persistent://shop/orders/letters", v.DeadLetterTopic)
}
