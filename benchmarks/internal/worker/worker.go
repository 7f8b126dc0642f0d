// Package worker does one task of the benchmarks in a process of its own, so that its CPU time and its memory are those
// of one client. The Java and the Python worker do the same tasks, by the same protocol.
//
// A worker reads its Task as one line of JSON from its input. It prints lines of JSON: {"publish": n} asks for n
// messages with the payloads "0" … "n-1"; the worker gets an empty line when they are published. Its last line is a
// Report.
package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

// Task describes what a worker does. Fields that its kind does not use are zero.
type Task struct {
	Program      string `json:"program"` // redelivery, go, java or python
	Kind         string `json:"kind"`    // lateness, waiting, consume, idle, batch or trackers
	URL          string `json:"url"`
	Topic        string `json:"topic"`
	Messages     int    `json:"messages"`
	Redeliveries int    `json:"redeliveries,omitempty"` // of each message
	Subscription string `json:"subscription,omitempty"` // type; Shared if ""
	Mixed        bool   `json:"mixed,omitempty"`        // message i is redelivered 1 + (i mod redeliveries) times instead
	FailsEach    int    `json:"failsEach,omitempty"`    // one message in this many is redelivered; all if 0
	HandleMs     int    `json:"handleMs,omitempty"`     // how long each delivery takes; they are handled one at a time

	Delays
	Client

	Seconds   int    `json:"seconds,omitempty"`   // how long idle CPU is measured
	Consumers int    `json:"consumers,omitempty"` // idle: consumers of the subscription; 0 means 1
	BatchSize int    `json:"batchSize,omitempty"` // of the messages published
	Tracker   string `json:"tracker,omitempty"`   // nack or acktimeout
}

// Delays are the delays of nacks.
type Delays struct {
	// The delay of a nack is min(maxMs, minMs · 2ⁿ). With an ack timeout, this formula gives the backoff after the
	// timeout; if minMs is 0, there is no backoff.
	MinMs int `json:"minMs,omitempty"`
	MaxMs int `json:"maxMs,omitempty"`
	// If firstMs is set, the first delay is firstMs, and up to spreadMs more at random. If dueInMs is set, the first
	// delays of all messages end at one moment, dueInMs after the first nack. Later delays stay short:
	// pulsar-client-go derives its tick from them.
	FirstMs  int `json:"firstMs,omitempty"`
	SpreadMs int `json:"spreadMs,omitempty"`
	DueInMs  int `json:"dueInMs,omitempty"`
}

// Client has the settings of a client. A zero field means the client's default.
type Client struct {
	AckTimeoutMs  int  `json:"ackTimeoutMs,omitempty"`
	TickMs        int  `json:"tickMs,omitempty"`        // Java's ackTimeoutTickTime
	PrecisionBits *int `json:"precisionBits,omitempty"` // upstream's NackPrecisionBit, Java's delay precision
	ResolutionMs  int  `json:"resolutionMs,omitempty"`  // this library's
	// Where this library's messages wait.
	From redelivery.Source `json:"from,omitempty"`
}

// Report is the result of a task.
type Report struct {
	Samples []float64          `json:"samples,omitempty"` // lateness of each redelivery in ms, below 0 if early
	Figures map[string]float64 `json:"figures,omitempty"`
}

type worker struct {
	Task
	in      *bufio.Reader
	out     *json.Encoder
	client  pulsar.Client
	metrics *prometheus.Registry
	ctx     context.Context // of the whole task: a context for each message would use as much CPU as the message
	due     time.Time       // when all messages are due after their first nacks, with DueInMs
}

// Run does the task that it reads from in.
func Run(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	w := &worker{in: bufio.NewReader(in), out: json.NewEncoder(out), metrics: prometheus.NewRegistry(), ctx: ctx}
	line, err := w.in.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &w.Task); err != nil {
		return err
	}
	kinds := map[string]func() (Report, error){
		"lateness": w.lateness, "waiting": w.waiting, "consume": w.consume, "idle": w.idle, "batch": w.batch,
		"trackers": w.trackers,
	}
	do, ok := kinds[w.Kind]
	if !ok {
		return fmt.Errorf("unknown kind of task %q", w.Kind)
	}
	if w.Kind != "trackers" {
		w.client, err = pulsar.NewClient(pulsar.ClientOptions{
			URL: w.URL, Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler)), MetricsRegisterer: w.metrics,
		})
		if err != nil {
			return err
		}
		defer w.client.Close()
	}
	report, err := do()
	if err != nil {
		return err
	}
	return w.out.Encode(report)
}

// publish asks for n messages, and does not wait for them.
func (w *worker) publish(n int) error { return w.out.Encode(map[string]int{"publish": n}) }

// publishAll asks for n messages and waits until they are published.
func (w *worker) publishAll(n int) error {
	if err := w.publish(n); err != nil {
		return err
	}
	_, err := w.in.ReadString('\n')
	return err
}

// subscribe subscribes with the client that the task names. Options that the task does not set have the client's
// defaults.
func (w *worker) subscribe() (pulsar.Consumer, error) {
	opts := pulsar.ConsumerOptions{
		Topic: w.Topic, SubscriptionName: "benchmark", Type: pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}
	if w.Subscription != "" {
		opts.Type = types[w.Subscription]
	}
	if w.Program == "go" {
		if w.MinMs > 0 {
			opts.NackBackoffPolicy = backoff.Func(w.delay)
		}
		if w.PrecisionBits != nil {
			bits := int64(*w.PrecisionBits)
			opts.NackPrecisionBit = &bits
		}
		return w.client.Subscribe(opts)
	}
	var options []redelivery.Option
	if w.ResolutionMs > 0 {
		options = append(options, redelivery.WithRedeliveryResolution(ms(w.ResolutionMs)))
	}
	if w.From != "" {
		options = append(options, redelivery.WithRedeliveryFrom(w.From))
	}
	if w.AckTimeoutMs > 0 {
		options = append(options, redelivery.WithAckTimeout(ms(w.AckTimeoutMs)))
		if w.MinMs > 0 {
			options = append(options, redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Func(w.delay)))
		}
	} else if w.MinMs > 0 {
		options = append(options, redelivery.WithNackRedeliveryBackoff(backoff.Func(w.delay)))
	}
	return redelivery.Subscribe(w.client, opts, options...)
}

var types = map[string]pulsar.SubscriptionType{
	"Exclusive": pulsar.Exclusive, "Failover": pulsar.Failover, "Key_Shared": pulsar.KeyShared, "Shared": pulsar.Shared,
}

// delay is the policy of the task.
func (w *worker) delay(redeliveryCount uint32) time.Duration {
	switch {
	case redeliveryCount == 0 && w.DueInMs > 0:
		return time.Until(w.due)
	case redeliveryCount == 0 && w.FirstMs > 0:
		return ms(w.FirstMs) + time.Duration(rand.Int64N(int64(ms(w.SpreadMs))+1))
	}
	return w.exponential(redeliveryCount)
}

// exponential is min(maxMs, minMs · 2ⁿ).
func (w *worker) exponential(n uint32) time.Duration {
	return time.Duration(min(float64(ms(w.MaxMs)), float64(ms(w.MinMs))*math.Pow(2, float64(n))))
}

func (w *worker) receive(c pulsar.Consumer) (pulsar.Message, error) { return c.Receive(w.ctx) }

// acknowledge receives and acknowledges messages.
func (w *worker) acknowledge(c pulsar.Consumer, n int) error {
	for range n {
		msg, err := w.receive(c)
		if err != nil {
			return err
		}
		if err := c.Ack(msg); err != nil {
			return err
		}
	}
	return nil
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// cpu returns the CPU time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// idleCPU returns the share of one core, in percent, that the process uses while it only waits.
func (w *worker) idleCPU() float64 {
	begin := cpu()
	time.Sleep(time.Duration(w.Seconds) * time.Second)
	return 100 * (cpu() - begin).Seconds() / float64(w.Seconds)
}

// heap returns the live bytes after a collection. It also returns freed memory to the system. If the runtime did this
// later, it would count as idle CPU.
func heap() float64 {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
