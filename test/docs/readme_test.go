package docs_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
)

func snippetOfSubscribe(client pulsar.Client, opts pulsar.ConsumerOptions) error {
	// docs/usage.md: subscribe
	consumer, err := redelivery.Subscribe(client, opts,
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: 10 * time.Minute, Multiplier: 2}),
		redelivery.WithAckTimeout(10*time.Second),
		redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: time.Minute}))
	// docs/usage.md: end
	if err == nil {
		consumer.Close()
	}
	return err
}

func snippetOfRetries(ctx context.Context, client pulsar.Client, opts pulsar.ConsumerOptions) error {
	// docs/deadletter.md: begin
	opts.RetryEnable = true // delay levels 1s 5s 10s 30s 1m … 2h, or those of WithReconsumeBackoff
	consumer, err := redelivery.Subscribe(client, opts,
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 5, InitialSubscriptionName: "inspect"}))
	if err != nil {
		return err
	}
	defer consumer.Close()
	msg, err := consumer.Receive(ctx)
	if err != nil {
		return err
	}
	return consumer.ReconsumeLaterNext(ctx, msg) // published, confirmed, then acknowledged; on an error the message is still yours
	// docs/deadletter.md: end
}

func snippetOfFile(client pulsar.Client, opts pulsar.ConsumerOptions) error {
	// docs/usage.md: from a file
	file, err := config.Load("redelivery.yaml")
	if err != nil {
		return err
	}
	consumer, err := file.Subscribe(client, "billing", opts) // with the file's policies and dead letter settings
	// docs/usage.md: end
	if err == nil {
		consumer.Close()
	}
	return err
}

func snippetOfSubscribeWith(client pulsar.Client, opts pulsar.ConsumerOptions) error {
	// docs/migration.md: begin
	subscribe := func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		return client.Subscribe(opts) // in a library
	}
	consumer, err := redelivery.SubscribeWith(subscribe, opts, redelivery.WithClient(client), redelivery.WithAckTimeout(time.Minute))
	// docs/migration.md: end
	if err == nil {
		consumer.Close()
	}
	return err
}

// Every Go snippet of the pages must also be in this file or in examples/first, which are compiled.
func TestReadmeSnippetsCompile(t *testing.T) {
	assert.Error(t, snippetOfSubscribe(nil, pulsar.ConsumerOptions{}))
	assert.Error(t, snippetOfRetries(context.Background(), nil, pulsar.ConsumerOptions{}))
	assert.ErrorIs(t, snippetOfFile(nil, pulsar.ConsumerOptions{}), os.ErrNotExist)
	assert.Error(t, snippetOfSubscribeWith(nil, pulsar.ConsumerOptions{NackRedeliveryDelay: -1}))
	source, err := os.ReadFile("test/docs/readme_test.go")
	require.NoError(t, err)
	program, err := os.ReadFile("examples/first/main.go")
	require.NoError(t, err)
	compiled := strings.ReplaceAll(string(source), "\n\t", "\n") + string(program)
	for _, name := range []string{"README.md", "docs/usage.md", "docs/deadletter.md", "docs/migration.md"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		blocks := strings.Split(string(text), "```go\n")[1:]
		assert.NotEmpty(t, blocks)
		for _, block := range blocks {
			code, _, _ := strings.Cut(block, "```")
			assert.Contains(t, compiled, code)
		}
	}
}

func TestConfigurationFileOfUsageIsAccepted(t *testing.T) {
	usage, err := os.ReadFile("docs/usage.md")
	require.NoError(t, err)
	_, file, found := strings.Cut(string(usage), "```yaml\n")
	require.True(t, found)
	file, _, _ = strings.Cut(file, "```")
	c, err := config.Parse([]byte(file))
	require.NoError(t, err)
	assert.EqualValues(t, 12, c.Consumers["billing"].MaxDeliveries)
}
