package model

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	policies "github.com/pulsar-redelivery/redelivery/backoff"
)

// modelRun is one run of an application.
type modelRun struct {
	t      *testing.T
	cfg    *modelConfig
	rng    *rand.Rand // used only by the goroutine that runs the world's events
	w      *modelWorld
	cons   *modelConsumer
	c      *redelivery.Consumer
	policy policies.Exponential

	mu      sync.Mutex // guards the fields up to head; not held during calls of the Consumer
	known   map[modelKey]*modelExpected
	order   []*modelExpected
	calls   int // running calls, except those that receive
	takes   int // running calls that receive
	seeking bool
	sought  time.Time
	closed  bool
	doubles int
	renewed int                       // messages that come as new after an operator's reset
	reached map[*modelSub]modelPlace  // the furthest message delivered
	count   int                       // messages seen by upTo
	taken   int                       // messages received from the Consumer
	again   int                       // redeliveries in a row
	head    map[*modelPart]*modelCopy // the head of each queue at the last delivery

	callbacks    [4]atomic.Uint64 // calls of each kind
	backOffCalls atomic.Int32     // calls of BackOffPolicyFunc
	steps        int
}

// newModelRun returns a run whose Consumer is subscribed.
func newModelRun(t *testing.T, cfg *modelConfig) *modelRun {
	r := &modelRun{t: t, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.base(), 2)), w: newModelWorld(),
		known: map[modelKey]*modelExpected{}, reached: map[*modelSub]modelPlace{}, head: map[*modelPart]*modelCopy{}, steps: cfg.Steps,
		policy: policies.Exponential{Min: 100 * time.Millisecond, Max: cfg.MaxDelay, Multiplier: 2}}
	opts := pulsar.ConsumerOptions{Type: cfg.Kind, ReceiverQueueSize: cfg.Queue, AckWithResponse: cfg.Response,
		EnableBatchIndexAcknowledgment: cfg.IndexAcks}
	if cfg.Group != (pulsar.AckGroupingOptions{}) {
		opts.AckGroupingOptions = &cfg.Group
	}
	if cfg.Topics == 1 { // with one topic the Consumer knows whose connection was lost
		opts.Topic = "persistent://public/default/model"
	}
	if cfg.OwnBackOff {
		opts.BackOffPolicyFunc = func() backoff.Policy { r.backOffCalls.Add(1); return backoff.NewDefaultBackoff() }
	}
	if cfg.Deep && cfg.Given >= 0 {
		opts.MessageChannel = make(chan pulsar.ConsumerMessage, cfg.Given)
	}
	var err error
	r.c, err = redelivery.SubscribeWith(func(prepared pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		require.Equal(t, cfg.Queue, prepared.ReceiverQueueSize)
		cfg.IndexAcks = prepared.EnableBatchIndexAcknowledgment
		cfg.BrokerIndexAcks = cfg.BrokerIndexAcks && cfg.IndexAcks
		r.cons = newModelConsumer(r.w, cfg, prepared, r.acked)
		return r.cons, nil
	}, opts, modelOptions(r)...)
	require.NoError(t, err)
	return r
}

// modelOptions returns the options of a run's Consumer.
func modelOptions(r *modelRun) []redelivery.Option {
	options := []redelivery.Option{
		redelivery.WithNackRedeliveryBackoff(modelPolicy{r, false}),
		redelivery.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
	}
	if !r.cfg.DefaultAcks {
		options = append(options, redelivery.WithoutBatchIndexAcks())
	}
	if r.cfg.Wide {
		options = append(options, redelivery.WithRedeliveryFrom(r.cfg.From))
	}
	if r.cfg.Resolution > 0 {
		options = append(options, redelivery.WithRedeliveryResolution(r.cfg.Resolution))
	}
	if r.cfg.MemoryLimit >= 0 {
		options = append(options, redelivery.WithMemoryLimit(r.cfg.MemoryLimit))
	}
	if r.cfg.Timeout > 0 {
		options = append(options, redelivery.WithAckTimeout(r.cfg.Timeout),
			redelivery.WithAckTimeoutRedeliveryBackoff(modelPolicy{r, true}))
	}
	return options
}

// delay returns the delay of the run's policies.
func (r *modelRun) delay(count uint32) time.Duration { return r.policy.Next(count) }

// modelPolicy is a policy of the application that may call the Consumer.
type modelPolicy struct {
	r       *modelRun
	timeout bool
}

func (p modelPolicy) Next(count uint32) time.Duration {
	kind := modelNackPolicy
	if p.timeout {
		kind = modelTimeoutPolicy
	}
	p.r.callback(kind)
	return p.r.delay(count)
}

// Kinds of callbacks.
const (
	modelNackPolicy = iota
	modelTimeoutPolicy
	modelIntercepts
	modelBeforeConsume
)

// callback is called by each function of the application that the Consumer calls. It may call the Consumer.
func (r *modelRun) callback(kind int) {
	n := r.callbacks[kind].Add(1)
	h := rand.New(rand.NewPCG(r.cfg.base(), uint64(1000+kind)+4*n)).IntN(1000)
	if r.c == nil {
		return
	}
	if !r.cfg.Callbacks || h%3 != 0 {
		return
	}
	r.c.Stats()
	switch {
	case r.cfg.Closes && n > 20 && h%10 == 0:
		r.w.note("a callback closes the Consumer")
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.c.Close()
	case h%9 == 0:
		r.ackAnother(h)
	}
}

func (r *modelRun) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// ackAnother acknowledges a message that the application already has.
func (r *modelRun) ackAnother(h int) {
	held := r.all(func(m *modelExpected) bool {
		return m.stand == modelHeld && m.settling == 0 && m.at.Before(time.Now())
	})
	if len(held) == 0 {
		return
	}
	m := held[h%len(held)]
	r.mu.Lock()
	again := m.settling > 0 || r.seeking
	if !again {
		r.begin(m)
	}
	r.mu.Unlock()
	if !again {
		r.ack(m, m.msg, "a callback's acknowledgement")
	}
}
