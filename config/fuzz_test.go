package config

import (
	"errors"
	"os"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// If Parse accepts a file, policies.Validate accepts the file's policies, and SubscribeWith and the constructors of
// Workers accept its options. Parse never panics.
func FuzzParse(f *testing.F) {
	file, err := os.ReadFile("testdata/redelivery.yaml")
	require.NoError(f, err)
	for _, seed := range []string{
		string(file), "", "policies:", `{"policies": {"p": {"type": "fixed", "delay": "1m", "jitter": 1e-3}}}`,
		"policies: {a: &a {type: fixed, delay: 1s}, b: *a, c: {<<: *a}}", "policies: &a [*a]",
		params(`'{"minDelayMs": 1}'`),
		"policies: {p: {type: exponential, min: 1ms, max: 2562047h, multiplier: 1e300}}\nconsumers: {c: " +
			"{nackRedeliveryBackoff: p}}",
		"policies: {p: {type: fixed, delay: 1s}}\nworkers: {w: {concurrency: 2, keyOrder: true, batchMaxWait: 1s, " +
			"pauseOnFailureWindow: 2, pauseOnFailureRatio: 1, pauseOnFailureBackoff: p}}",
		"policies: {p: {type: fixed, delay: 1s}}\nconsumers: {c: {reconsumeBackoff: p, nackRetryTopic: 1m, " +
			"maxReconsumes: 2, retryTopic: r, " +
			"omitCause: true, memoryLimit: 1GiB, redeliveryFrom: broker, resolution: 1m, withoutChecks: true}, d: " +
			"{maxRedeliverCount: 3, deadLetterTopic: d}}",
		"policies: {p: {type: mine, n: !!int x, f: .inf, b: yes, d: 2001-01-01, x: !!binary aaaa}}",
	} {
		f.Add([]byte(seed))
	}
	mine := NewPolicy("mine", func(params map[string]any) (backoff.RedeliveryBackoff, error) {
		return backoff.Exponential{Multiplier: float64(len(params))}, nil
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data, mine)
		if err != nil {
			if c != nil || err.Error() == "" {
				t.Errorf("config %v with error %q", c, err)
			}
			return
		}
		for name, policy := range c.Policies {
			if err := policies.Validate(policy); err != nil {
				t.Errorf("policy %q: %v", name, err)
			}
			for _, d := range backoff.Schedule(policy, 100) {
				if d < 0 {
					t.Errorf("policy %q delays by %v", name, d)
				}
			}
		}
		for name := range c.Consumers {
			refused := errors.New("refused")
			subscribe := func(pulsar.ConsumerOptions) (pulsar.Consumer, error) { return nil, refused }
			for _, dlq := range []*pulsar.DLQPolicy{nil, {MaxDeliveries: 1}} {
				opts, options, err := c.ConsumerOptions(name,
					pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Shared, DLQ: dlq})
				require.NoError(t, err)
				_, err = redelivery.SubscribeWith(subscribe, opts,
					append(options, redelivery.WithClient(noClient{}))...)
				if !errors.Is(err, refused) {
					t.Errorf("consumer %q: %v", name, err)
				}
			}
		}
		for name, w := range c.Workers {
			_, err := c.NewBatchWorker(name, new(redelivery.Consumer), handleAll)
			require.NoError(t, err, "worker %q", name)
			if _, err := c.NewWorker(name, new(redelivery.Consumer),
				handle); (err != nil) != (w.batch() != worker.Batch{}) {
				t.Errorf("worker %q: %v", name, err)
			}
		}
	})
}

// noClient finds no topics.
type noClient struct{ pulsar.Client }

func (noClient) TopicPartitions(string) ([]string, error) { return nil, nil }
