package redelivery_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

func snippet(client pulsar.Client) error {
	// README: use it
	consumer, err := redelivery.Subscribe(client, pulsar.ConsumerOptions{
		Topic:            "orders",
		SubscriptionName: "billing",
		Type:             pulsar.Shared,
	}, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: 10 * time.Minute, Multiplier: 2}))
	if err != nil {
		return err
	}
	defer consumer.Close()
	// README: end
	return nil
}

// Every Go snippet of the README stands in this file too, where the compiler sees it.
func TestReadmeSnippetsCompile(t *testing.T) {
	assert.Error(t, snippet(nil))
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("readme_test.go")
	require.NoError(t, err)
	compiled := strings.ReplaceAll(string(source), "\n\t", "\n")
	blocks := strings.Split(string(readme), "```go\n")[1:]
	assert.NotEmpty(t, blocks)
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		assert.Contains(t, compiled, code)
	}
}
