package config

import (
	"context"
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

// What Parse accepts, Validate and the options accept too; it never panics.
func FuzzParse(f *testing.F) {
	file, err := os.ReadFile("testdata/redelivery.yaml")
	require.NoError(f, err)
	for _, seed := range []string{
		string(file), "", "policies:", `{"policies": {"p": {"type": "fixed", "delay": "1m", "jitter": 1e-3}}}`,
		"policies: {a: &a {type: fixed, delay: 1s}, b: *a, c: {<<: *a}}", "policies: &a [*a]", params(`'{"minDelayMs": 1}'`),
		"policies: {p: {type: exponential, min: 1ms, max: 2562047h, multiplier: 1e300}}\nconsumers: {c: {nackRedeliveryBackoff: p}}",
		"policies: {p: {type: fixed, delay: 1s}}\nworkers: {w: {concurrency: 2, keyOrder: true, memoryLimit: 1, batchMaxWait: 1s, " +
			"pauseOnFailureWindow: 2, pauseOnFailureRatio: 1, pauseOnFailureBackoff: p}}",
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
		for name, consumer := range c.Consumers {
			if consumer.ReconsumeBackoff != nil { // for Subscribe, not for Prepare
				continue
			}
			options, err := c.Options(name)
			require.NoError(t, err)
			opts, err := c.ConsumerOptions(name, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s"})
			require.NoError(t, err)
			refused := errors.New("refused")
			_, err = redelivery.SubscribeWith(func(pulsar.ConsumerOptions) (pulsar.Consumer, error) { return nil, refused }, opts,
				append(options, redelivery.WithClient(noClient{}))...)
			if !errors.Is(err, refused) {
				t.Errorf("consumer %q: %v", name, err)
			}
		}
		for name := range c.Workers {
			options, err := c.WorkerOptions(name)
			require.NoError(t, err)
			batch, err := c.Batch(name)
			require.NoError(t, err)
			if _, err := worker.NewBatch(new(redelivery.Consumer), func(context.Context, []pulsar.Message) error { return nil },
				batch, options...); err != nil {
				t.Errorf("worker %q: %v", name, err)
			}
		}
	})
}

// noClient finds no topics.
type noClient struct{ pulsar.Client }

func (noClient) TopicPartitions(string) ([]string, error) { return nil, nil }
