package config

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

const workers = `
policies: {calm: {type: fixed, delay: 30s}}
workers:
  billing: {concurrency: 8, timeout: 30s, drainTimeout: 0s, maxAge: 2d, keyOrder: true, memoryLimit: 1000000,
    pauseOnFailureWindow: 100, pauseOnFailureRatio: 0.5, pauseOnFailureBackoff: calm,
    batchMaxMessages: 50, batchMaxBytes: 4096, batchMaxWait: 1s}
  plain:
`

func TestWorkers(t *testing.T) {
	t.Setenv("REDELIVERY_WORKERS_PLAIN_DRAIN_TIMEOUT", "10s")
	t.Setenv("REDELIVERY_WORKERS_PLAIN_KEY_ORDER", "true")
	c, err := Parse([]byte(workers))
	require.NoError(t, err)
	var none time.Duration
	ten := 10 * s
	assert.Equal(t, map[string]Worker{
		"billing": {Concurrency: 8, Timeout: 30 * s, DrainTimeout: &none, MaxAge: 48 * 60 * m, KeyOrder: true, MemoryLimit: 1_000_000,
			PauseOnFailureWindow: 100, PauseOnFailureRatio: 0.5, PauseOnFailureBackoff: backoff.Fixed(30 * s),
			BatchMaxMessages: 50, BatchMaxBytes: 4096, BatchMaxWait: s},
		"plain": {DrainTimeout: &ten, KeyOrder: true},
	}, c.Workers)
	batch, err := c.Batch("billing")
	require.NoError(t, err)
	assert.Equal(t, worker.Batch{MaxMessages: 50, MaxBytes: 4096, MaxWait: s}, batch)
	for name, n := range map[string]int{"billing": 7, "plain": 2} {
		options, err := c.WorkerOptions(name)
		require.NoError(t, err)
		assert.Len(t, options, n)
		_, err = worker.New(new(redelivery.Consumer), func(context.Context, pulsar.Message) error { return nil }, options...)
		require.NoError(t, err)
	}
}

func TestWorkerNobodyDefined(t *testing.T) {
	c, err := Parse([]byte(workers))
	require.NoError(t, err)
	want := `config: worker is "biling", want one of the file's (billing, plain)`
	_, err = c.WorkerOptions("biling")
	assert.EqualError(t, err, want)
	_, err = c.Batch("biling")
	assert.EqualError(t, err, want)
	_, err = new(Config).WorkerOptions("biling")
	assert.EqualError(t, err, `config: worker is "biling", want one of the file's (the file has none)`)
}
