package upstream_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/upstream"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// named is a consumer that tests recognize by its name.
type named struct {
	pulsar.Consumer
	name string
}

// journal notes the calls that it gets: as Events, and as the application's interceptor and listener.
type journal struct {
	mu    sync.Mutex
	lines []string
	call  func() // called by each interceptor; may be nil
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) events() upstream.Events {
	return upstream.Events{
		Lost:       func() { j.note("lost") },
		Prefetched: func(cm pulsar.ConsumerMessage) { j.note("prefetched by %s", cm.Consumer.(named).name) },
		Active: func(child any, topic string, active bool) {
			j.note("active %s %s %v", child.(named).name, topic, active)
		},
		Closed: func(child pulsar.Consumer, err error) { j.note("closed %s: %v", child.(named).name, err) },
		Outer:  func(inner pulsar.Consumer) pulsar.Consumer { return named{name: "outer of " + inner.(named).name} },
	}
}

func (j *journal) intercept(what string, c pulsar.Consumer) {
	j.note("interceptor: %s %s", what, c.(named).name)
	if j.call != nil {
		j.call()
	}
}

func (j *journal) BeforeConsume(cm pulsar.ConsumerMessage)                    { j.intercept("before", cm.Consumer) }
func (j *journal) OnAcknowledge(c pulsar.Consumer, _ pulsar.MessageID)        { j.intercept("acknowledge", c) }
func (j *journal) OnNegativeAcksSend(c pulsar.Consumer, _ []pulsar.MessageID) { j.intercept("nack", c) }
func (j *journal) OnConsumerClose(c pulsar.Consumer, err error) {
	j.intercept(fmt.Sprintf("close (%v)", err), c)
}

func (j *journal) BecameActive(c pulsar.Consumer, topic string, partition int32) {
	j.note("listener: active %s %s %d", c.(named).name, topic, partition)
}

func (j *journal) BecameInactive(c pulsar.Consumer, topic string, partition int32) {
	j.note("listener: inactive %s %s %d", c.(named).name, topic, partition)
}

func TestHooksCallEventsBeforeTheApplication(t *testing.T) {
	inner, closed := named{name: "inner"}, errors.New("gone")
	for _, c := range []struct {
		name        string
		call        func(*upstream.Hooks)
		event       string // "" for none
		application string
	}{
		{"BeforeConsume", func(h *upstream.Hooks) { h.BeforeConsume(pulsar.ConsumerMessage{Consumer: inner}) },
			"prefetched by inner", "interceptor: before outer of inner"},
		{"OnAcknowledge", func(h *upstream.Hooks) { h.OnAcknowledge(inner, nil) },
			"", "interceptor: acknowledge outer of inner"},
		{"OnNegativeAcksSend", func(h *upstream.Hooks) { h.OnNegativeAcksSend(inner, nil) },
			"", "interceptor: nack outer of inner"},
		{"OnConsumerClose", func(h *upstream.Hooks) { h.OnConsumerClose(inner, closed) },
			"closed inner: gone", "interceptor: close (gone) outer of inner"},
		{"BecameActive", func(h *upstream.Hooks) { h.BecameActive(inner, "t", 3) },
			"active inner t true", "listener: active outer of inner t 3"},
		{"BecameInactive", func(h *upstream.Hooks) { h.BecameInactive(inner, "t", 3) },
			"active inner t false", "listener: inactive outer of inner t 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var events []string
			if c.event != "" {
				events = []string{c.event}
			}
			for _, hasOwn := range []bool{false, true} { // interceptors and a listener of the application
				j := &journal{}
				hooks := upstream.NewHooks(j.events())
				opts, want := pulsar.ConsumerOptions{Type: pulsar.Failover}, events
				if hasOwn {
					opts.Interceptors, opts.EventListener = pulsar.ConsumerInterceptors{j}, j
					want = append(want, c.application)
				}
				hooks.Options(opts, upstream.Plan{})
				c.call(hooks)
				require.Equal(t, want, j.lines, "with interceptors and a listener of the application: %v", hasOwn)
			}
		})
	}
}

// Close must not wait for an interceptor that calls it.
func TestInterceptorRunsIsTrueDuringACall(t *testing.T) {
	j := &journal{}
	hooks := upstream.NewHooks(j.events())
	hooks.Options(pulsar.ConsumerOptions{Interceptors: pulsar.ConsumerInterceptors{j}}, upstream.Plan{})
	j.call = func() { require.True(t, hooks.InterceptorRuns()) }
	require.False(t, hooks.InterceptorRuns())
	hooks.OnAcknowledge(named{}, nil)
	require.False(t, hooks.InterceptorRuns())
	j.call = func() { panic("the application's") }
	require.Panics(t, func() { hooks.OnAcknowledge(named{}, nil) })
	require.False(t, hooks.InterceptorRuns(), "the interceptor panicked and still counts as running")
}

// The epochs of package partition depend on this order.
func TestPrefetchedIsCalledBeforeTheMessageCanBeRead(t *testing.T) {
	broker := pulsartest.NewServer(t)
	var sent sync.Map
	hooks := upstream.NewHooks(silent(upstream.Events{Prefetched: func(cm pulsar.ConsumerMessage) {
		time.Sleep(time.Millisecond)
		sent.Store(string(cm.Payload()), true)
	}}))
	consumer := subscribe(t, broker.Client(t), hooks, pulsar.ConsumerOptions{Topic: "t"}, upstream.Plan{Channel: 10})
	publish(t, broker, "t", 50)
	for range 50 {
		payload := string(waittest.Next(t, consumer.Chan()).Payload())
		_, isSent := sent.Load(payload)
		require.True(t, isSent, payload)
	}
}

func TestActiveIsCalledForFailoverPartitions(t *testing.T) {
	broker := pulsartest.NewServer(t)
	require.NoError(t, broker.CreatePartitionedTopic("p", 1)) // its active consumer is the one whose name sorts first
	client := broker.Client(t)
	active := make(chan bool, 10)
	hooks := upstream.NewHooks(silent(upstream.Events{Active: func(_ any, topic string, is bool) {
		if topic == "persistent://public/default/p-partition-0" {
			active <- is
		}
	}}))
	opts := pulsar.ConsumerOptions{Topic: "p", Type: pulsar.Failover, Name: "b"}
	subscribe(t, client, hooks, opts, upstream.Plan{Channel: 10})
	require.True(t, waittest.Next(t, active))
	opts.Name = "a"
	other := subscribe(t, client, newHooks(), opts, upstream.Plan{Channel: 10})
	if waittest.Next(t, active) { // the broker may report twice that b is active
		require.False(t, waittest.Next(t, active))
	}
	other.Close()
	require.True(t, waittest.Next(t, active))
}

func TestFlushWaitsUntilRequestsWereSent(t *testing.T) {
	for _, c := range []struct {
		name       string
		resolution time.Duration
		before     time.Duration // time since the last request; negative for none
		wait       time.Duration
	}{
		{"nothing was requested", 160 * time.Millisecond, -1, 0},
		{"at once", 160 * time.Millisecond, 0, 2*150*time.Millisecond + 20*time.Millisecond},
		{"a while ago", 160 * time.Millisecond, 200 * time.Millisecond, 120 * time.Millisecond},
		{"long ago", 160 * time.Millisecond, time.Minute, 0},
		{"the tick is long", time.Minute, 0, time.Second},
		{"the tick is not known", 0, 0, 20 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hooks := newHooks()
				hooks.Options(pulsar.ConsumerOptions{}, upstream.Plan{Resolution: c.resolution})
				if c.before >= 0 {
					hooks.Asked()
					time.Sleep(c.before)
				}
				start := time.Now()
				hooks.Flush()
				require.Equal(t, c.wait, time.Since(start))
			})
		})
	}
}
