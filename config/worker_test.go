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
  billing: {concurrency: 8, timeout: 30s, drainTimeout: 0s, finishBatches: false, maxAge: 2d, keyOrder: true,
    rateLimit: 100, rateBurst: 20, localRetries: 2, localRetryBackoff: calm, pauseOnFailureWindow: 100, pauseOnFailureRatio: 0.5, pauseOnFailureBackoff: calm,
    batchMaxMessages: 50, batchMaxBytes: 4KiB, batchMaxWait: 1s, stuckLimit: 20s, cancelLost: true}
  plain:
`

func TestEachKeyOfAWorkerBecomesAnOption(t *testing.T) {
	t.Setenv("REDELIVERY_WORKERS_PLAIN_DRAIN_TIMEOUT", "10s")
	t.Setenv("REDELIVERY_WORKERS_PLAIN_KEY_ORDER", "true")
	t.Setenv("REDELIVERY_WORKERS_PLAIN_RATE_LIMIT", "0.5")
	c, err := Parse([]byte(workers))
	require.NoError(t, err)
	var none time.Duration
	no := false
	ten := 10 * s
	assert.Equal(t, map[string]Worker{
		"billing": {Concurrency: 8, Timeout: 30 * s, DrainTimeout: &none, FinishBatches: &no, MaxAge: 48 * 60 * m,
			KeyOrder:  true,
			RateLimit: 100, RateBurst: 20, LocalRetries: 2, LocalRetryBackoff: backoff.Fixed(30 * s),
			PauseOnFailureWindow: 100, PauseOnFailureRatio: 0.5, PauseOnFailureBackoff: backoff.Fixed(30 * s),
			BatchMaxMessages: 50, BatchMaxBytes: 4096, BatchMaxWait: s, StuckLimit: 20 * s, CancelLost: true},
		"plain": {DrainTimeout: &ten, KeyOrder: true, RateLimit: 0.5},
	}, c.Workers)
	for name, n := range map[string]int{"billing": 11, "plain": 3} {
		assert.Len(t, c.Workers[name].options(), n)
		w, err := c.NewBatchWorker(name, new(redelivery.Consumer), handleAll)
		require.NoError(t, err)
		assert.NotNil(t, w)
	}
	w, err := c.NewWorker("plain", new(redelivery.Consumer), handle)
	require.NoError(t, err)
	assert.NotNil(t, w)
	w, err = c.NewWorker("billing", new(redelivery.Consumer), handle)
	assert.ErrorIs(t, err, redelivery.ErrInvalidOption)
	assert.ErrorContains(t, err, `worker "billing" has batchMaxMessages, batchMaxBytes or batchMaxWait, want NewBatchWorker`)
	assert.Nil(t, w)
}

func handle(context.Context, pulsar.Message) error { return nil }

func handleAll(context.Context, []pulsar.Message) error { return nil }

func TestNewWorkerAppliesAddedOptionsAndReturnsTheirErrors(t *testing.T) {
	c, err := Parse([]byte("workers: {w: {concurrency: 2}}"))
	require.NoError(t, err)
	consumer := new(redelivery.Consumer)
	for want, make := range map[string]func() (*worker.Worker, error){
		"WithConcurrency is 0": func() (*worker.Worker,
			error) {
			return c.NewWorker("w", consumer, handle, worker.WithConcurrency(0))
		},
		"WithTimeout is 0s": func() (*worker.Worker, error) {
			return c.NewBatchWorker("w", consumer, handleAll, worker.WithTimeout(0))
		},
		"handler is nil":  func() (*worker.Worker, error) { return c.NewWorker("w", consumer, nil) },
		"consumer is nil": func() (*worker.Worker, error) { return c.NewBatchWorker("w", nil, handleAll) },
	} {
		w, err := make()
		assert.ErrorIs(t, err, redelivery.ErrInvalidOption)
		assert.ErrorContains(t, err, want)
		assert.Nil(t, w)
	}
}

func TestUndefinedWorkerIsAnError(t *testing.T) {
	c, err := Parse([]byte(workers))
	require.NoError(t, err)
	want := `config: worker is "biling", want one of the file's (billing, plain)`
	_, err = c.NewWorker("biling", new(redelivery.Consumer), handle)
	assert.EqualError(t, err, want)
	_, err = c.NewBatchWorker("biling", new(redelivery.Consumer), handleAll)
	assert.EqualError(t, err, want)
	_, err = new(Config).NewWorker("biling", new(redelivery.Consumer), handle)
	assert.EqualError(t, err, `config: worker is "biling", want one of the file's (the file has none)`)
}
