package worker_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// employee is a Worker with its Consumer.
type employee struct {
	*randomRun
	k      int
	c      *redelivery.Consumer
	w      *worker.Worker
	lanes  map[string]int // how many messages of a key handlers have
	cancel context.CancelFunc
	ended  chan error
}

func (r *randomRun) subscribes() *employee {
	e := &employee{randomRun: r, k: len(r.all), lanes: map[string]int{}, ended: make(chan error, 1)}
	logger := quiet
	if r.Debug { // it says what becomes of each message
		logger = slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	opts, options := r.consumer(e.k, r.publisher, logger)
	if opts.Topic = r.topics[0]; r.Topics > 1 {
		opts.Topic, opts.Topics = "", r.topics
	}
	var err error
	require.True(r, r.within(30*time.Second, func() bool { // a busy broker may not answer in time
		e.c, err = redelivery.Subscribe(r.client, opts, options...)
		return err == nil
	}), "%v", err)
	r.Cleanup(e.c.Close)
	if r.Batch.MaxMessages > 0 {
		e.w, err = worker.NewBatch(e.c, e.handleBatch, r.Batch, r.worker()...)
	} else {
		e.w, err = worker.New(e.c, e.handle, r.worker()...)
	}
	require.NoError(r, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
	return e
}

func (e *employee) starts() {
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(context.Background())
	e.Cleanup(e.cancel)
	go func() { e.ended <- e.w.Run(ctx) }()
}

// leaves ends a Worker, and then closes its Consumer. Both are to return in time.
func (e *employee) leaves() {
	e.cancel()
	select {
	case err := <-e.ended:
		if err != nil {
			e.breaks("Run of Worker %d returns %v", e.k, err)
		}
	case <-time.After(e.Drain + 5*time.Second + 3*time.Second):
		e.breaks("Run of Worker %d does not return: %+v", e.k, e.w.Stats())
	}
	closed := make(chan struct{})
	go func() { defer close(closed); e.c.Close() }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		e.breaks("Close of Consumer %d does not return", e.k)
	}
}

// interrupted has happen to a Worker what does now and then.
func (e *employee) interrupted() {
	pause := ms(e.rng.IntN(600))
	switch e.Interruption {
	case workerPauses:
		e.w.Pause()
		time.Sleep(pause)
		e.w.Resume()
	case consumerPauses:
		e.c.Pause()
		time.Sleep(pause)
		e.c.Resume()
	}
}
