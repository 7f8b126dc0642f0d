package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// member is a Worker with its Consumer.
type member struct {
	*randomRun
	k      int
	c      *redelivery.Consumer
	w      *worker.Worker
	client pulsar.Client
	lanes  map[string]int // how many messages of a key handlers have
	cancel context.CancelFunc
	ended  chan error

	metrics *observed // nil unless the run is wide
}

func (r *randomRun) newMember() *member {
	e := &member{randomRun: r, k: len(r.all), client: r.client, lanes: map[string]int{}, ended: make(chan error, 1)}
	logger := quiet
	if r.Debug { // the Consumer logs the outcome of each message
		logger = slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	opts, options := r.consumer(e.k, r.publisher, logger)
	opts.Topic = r.topics[0]
	if r.Topics > 1 {
		opts.Topic, opts.Topics = "", r.topics
	}
	workerOptions := r.worker()
	if r.Wide {
		observe, observeWorker := e.observe()
		options, workerOptions = append(options, observe), append(workerOptions, observeWorker)
	}
	if r.Ends == clientCloses {
		e.client = r.newClient()
	}
	var err error
	for began := time.Now(); e.c == nil && time.Since(began) < 30*time.Second; { // a busy broker may not answer in time
		e.c, err = redelivery.Subscribe(e.client, opts, options...)
	}
	require.NoError(r, err)
	r.Cleanup(e.c.Close)
	if r.Batch.MaxMessages > 0 {
		e.w, err = worker.NewBatch(e.c, e.handle, r.Batch, workerOptions...)
	} else {
		e.w, err = worker.New(e.c, func(ctx context.Context, msg pulsar.Message) error { return e.handle(ctx, []pulsar.Message{msg}) }, workerOptions...)
	}
	require.NoError(r, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
	return e
}

func (e *member) start() {
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(context.Background())
	e.Cleanup(e.cancel)
	go func() { e.ended <- e.w.Run(ctx) }()
}

// leave ends a Worker, and then closes its Consumer. Both calls must return in time.
func (e *member) leave() {
	e.cancel()
	select {
	case err := <-e.ended:
		if err != nil && !e.isStuck(err) {
			e.fault("Run of Worker %d returns %v", e.k, err)
		}
	case <-time.After(e.Drain + 5*time.Second + 3*time.Second):
		e.fault("Run of Worker %d does not return: %+v", e.k, e.w.Stats())
	}
	closed := make(chan struct{})
	go func() { defer close(closed); e.c.Close() }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		e.fault("Close of Consumer %d does not return", e.k)
	}
	e.checkMetrics()
}

// interrupt pauses the Worker, or its Consumer, for a while.
func (e *member) interrupt() {
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

// called is a message in a call of a handler.
type called struct {
	*fate
	lane  string // its topic and key
	end   error
	count uint32
	heeds bool // the call fails if its context ends
	hangs bool // the call does not return for hangTime
}

// handle ends the call as the fates of its messages say. One message may make its whole batch fail.
func (e *member) handle(ctx context.Context, msgs []pulsar.Message) error {
	var all []*called
	d := ms(rand.IntN(3))
	for _, msg := range msgs {
		m := e.begin(msg)
		all, d = append(all, m), max(d, m.slow)
		if m.hangs {
			time.Sleep(hangTime)
		}
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		// If the first message does not heed its context, all messages end as planned.
		for i := 0; i < len(all) && all[0].heeds; i++ {
			all[i].end = ctx.Err()
		}
	}
	each := worker.BatchError{}
	for i, m := range all {
		if errors.Is(m.end, errPanics) || errors.Is(m.end, errExits) || errors.Is(m.end, errWhole) || len(all) == 1 {
			e.noteEnd(all, len(all) > 1)
			return returns(m.end)
		}
		each[i] = m.end
	}
	e.noteEnd(all, false)
	return each
}

// begin notes that a handler gets a message, and checks that it may.
func (e *member) begin(msg pulsar.Message) *called {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, f, lane := time.Now(), e.fateOf(msg), ""
	f.note("%d: called with count %d, of %s %v", e.k, msg.RedeliveryCount(), msg.Topic(), msg.ID())
	if f.key != "" {
		lane = topicname.Base(msg.Topic()) + " " + f.key
	}
	if isEarly := f.worker == e.k && now.Before(f.due); !isEarly {
		f.early = 0
	} else if f.early++; f.early > e.localRetries() && !e.MayFork() && !e.MayTimeOut() { // if it may time out, its ack timeout may have been over before it failed
		e.fault("early by %v: %v", f.due.Sub(now), f)
	}
	switch {
	case (f.succeeded || f.dead) && e.Exact():
		e.fault("handled again: %v", f)
	case f.busy[e.k] && !e.MayFork() && !(e.MayTimeOut() && e.Batch.MaxMessages > 0): // it may have timed out while its batch was collected
		e.fault("handled by two calls at the same time: %v", f)
	case e.KeyOrder && lane != "" && e.lanes[lane] > 0:
		e.fault("handled at the same time as another message of its key: %v", f)
	case e.Ordered() && lane != "" && f.calls == 0:
		for _, before := range f.before {
			if !before.isOver() && !before.mayBeDead {
				e.fault("handled before an earlier message of its key: %v\n%v", f, before)
			}
		}
	}
	e.last = now
	e.lanes[lane]++
	f.busy[e.k] = true
	f.calls++
	f.worker, f.due, f.dead, f.mayBeDead = e.k, time.Time{}, false, false
	hangs := f.hangs
	f.hangs = false
	return &called{f, lane, f.end(e.down.Load() && rand.IntN(20) > 0), msg.RedeliveryCount(), f.calls%2 == 0, hangs}
}

// noteEnd notes how a call ends. together means that one error is for the whole batch. Its messages may then be handled
// again at once, since the batch is halved.
func (e *member) noteEnd(all []*called, together bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = time.Now()
	for _, m := range all {
		f, end := m.fate, m.end
		if together {
			end = errWhole
		}
		f.note("%d: %v", e.k, end)
		e.count(f, end)
		e.lanes[m.lane]--
		delete(f.busy, e.k)
		if d, known := e.delay(f, end, m.count); known && !together && f.worker == e.k { // otherwise another Worker has the message
			f.due = e.last.Add(d)
		}
		if errors.Is(end, f.retry) || worker.IsSnooze(end) { // no local retry follows
			f.early = e.Local
		}
		isLast := end != nil && !worker.IsSnooze(end) && e.MaxDeliveries > 0 && m.count+1 >= e.MaxDeliveries
		f.succeeded = f.succeeded || end == nil
		f.dead = errors.Is(end, f.permanent) || isLast && !together && e.Local == 0 && e.Window == 0 // otherwise it may be tried again at once
		f.mayBeDead = f.dead || isLast || end != nil && e.MaxAge > 0
	}
}
