package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/history"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// trial is one fault, made while messages are at work.
type trial struct {
	fault    *fault
	work     work
	with     []string // the variants
	broker   *broker
	proxy    *proxy
	logProxy *proxy  // of the log's own client
	record   *record // what the trial does itself
	faults   int     // that may have broken connections
	started  int     // consumers
	local    *consumer
	others   []process
}

// process is a consumer in a process of its own.
type process struct {
	*exec.Cmd
	name string
}

// name is the fault's and those of the variants.
func (t *trial) name() string { return strings.Join(append([]string{t.fault.name}, t.with...), " +") }

// add makes the named variant, if it fits.
func (t *trial) add(name string) {
	for _, v := range variants {
		if v.name == name && v.fits(t.work) {
			v.set(&t.work)
			t.with = append(slices.Clip(t.with), name)
		}
	}
}

// run makes the fault and follows every message to its end.
func (t *trial) run(ctx context.Context, b *broker) (result, error) {
	var err error
	if t.fault.guarded {
		var stop func()
		if b, stop, t.work.Token, err = startGuarded(ctx); err != nil {
			return result{}, err
		}
		defer stop()
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if t.fault.inProcess {
		server, err := pulsartest.Start()
		if err != nil {
			return result{}, err
		}
		defer server.Close()
		b = &broker{url: server.URL(), admin: server.AdminURL(), inProcess: server}
	}
	if t.proxy, err = newProxy(b.url, b.admin); err != nil {
		return result{}, err
	}
	defer t.proxy.close()
	if t.logProxy, err = newProxy(b.url, b.admin); err != nil {
		return result{}, err
	}
	defer t.logProxy.close()
	t.work.LogURL = t.logProxy.url
	t.broker = b
	if t.work.URL = t.proxy.url; b.inProcess != nil {
		t.work.URL = b.url
	}
	err = patiently(ctx, func() error {
		t.work.Topic = fmt.Sprintf("persistent://public/default/chaos-%08x", rand.Uint32())
		if t.work.Partitions > 0 {
			if err := b.rest(ctx, "PUT", t.work.Topic+"/partitions", t.work.Partitions, nil); err != nil {
				return err
			}
		}
		if t.record, err = newRecord(t.work.Dir, "trial"); err != nil {
			return err
		}
		return t.send(ctx)
	})
	if err != nil {
		return result{}, fmt.Errorf("sending: %w", err)
	}
	if t.fault.guarded {
		if err := t.allow(ctx); err != nil {
			return result{}, err
		}
	}
	if err := t.start(ctx); err != nil {
		return result{}, err
	}
	defer t.stop()
	if err := t.fault.make(ctx, t); err != nil {
		return result{}, err
	}
	if t.faults > 0 {
		t.broke("over")
	}
	err = t.drain(ctx)
	var stuck *stuckError
	if errors.As(err, &stuck) { // whether they are lost another consumer shows
		t.stop()
		if err = t.start(ctx); err == nil {
			err = t.drain(ctx)
		}
	}
	if err == nil {
		t.record.note(history.Event{Kind: history.Drained})
		err = t.logIsBack(ctx)
	}
	t.stop() // so that all is written
	r, checkErr := t.finish()
	return r, errors.Join(err, checkErr)
}

// send publishes the messages, every other hundred in batches of ten, in this order, and knows that the broker has them.
func (t *trial) send(ctx context.Context) error {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: t.broker.url, Logger: silent})
	if err != nil {
		return err
	}
	defer client.Close()
	builder := pulsar.DefaultBatchBuilder
	if t.work.Type == pulsar.KeyShared {
		builder = pulsar.KeyBasedBatchBuilder
	}
	var producers [2]pulsar.Producer
	for i := range producers {
		producers[i], err = client.CreateProducer(pulsar.ProducerOptions{
			Topic: t.work.Topic, DisableBatching: i == 0, BatchingMaxMessages: 10, BatcherBuilderType: builder,
			MessageRouter: func(msg *pulsar.ProducerMessage, _ pulsar.TopicMetadata) int {
				return number(msg.Payload) % t.work.apart()
			},
		})
		if err != nil {
			return err
		}
		defer producers[i].Close()
	}
	lost := make(chan error, t.work.Messages)
	for n := range t.work.Messages {
		msg := &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "%06d%100s", n, ""), Key: fmt.Sprint(n / 10 % 10)} // one key in a batch
		published := history.Event{Kind: history.Published, Message: fmt.Sprint(n)}
		if t.work.Cumulative { // else failed messages are overtaken, and four goroutines take them
			published.Key = fmt.Sprint("partition ", n%t.work.apart())
		}
		t.record.note(published)
		producers[n/100%2].SendAsync(ctx, msg, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { lost <- err })
		if n%100 == 99 || n == t.work.Messages-1 { // the two producers would not publish in order
			if err := producers[n/100%2].FlushWithCtx(ctx); err != nil {
				return err
			}
		}
	}
	for range t.work.Messages {
		if err := <-lost; err != nil {
			return err
		}
	}
	return nil
}

// start starts the consumers.
func (t *trial) start(ctx context.Context) error {
	if t.work.Processes == 0 {
		client, err := newClient(t.work)
		if err != nil {
			return err
		}
		return patiently(ctx, func() (err error) {
			t.local, err = startConsumer(client, t.named())
			return err
		})
	}
	for range t.work.Processes {
		if err := t.startProcess(); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) startProcess() error {
	w := t.named()
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-worker", string(text))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	t.others = append(t.others, process{cmd, w.Name})
	return nil
}

// end ends the oldest consumer that has a process of its own: by os.Kill as a crash does, by os.Interrupt in order.
func (t *trial) end(by os.Signal) error {
	oldest := t.others[0]
	t.others = t.others[1:]
	if by == os.Kill {
		t.record.note(history.Event{Kind: history.Killed, Consumer: oldest.name})
	}
	err := oldest.Process.Signal(by)
	_ = oldest.Wait()
	return err
}

func (t *trial) stop() {
	if t.local != nil {
		t.local.close()
		t.local.client.Close()
		t.local = nil
	}
	for len(t.others) > 0 {
		_ = t.end(os.Interrupt)
	}
}

// until waits for a state of the messages, and shows how far they are.
func (t *trial) until(ctx context.Context, what string, reached func(counts) bool) error {
	for {
		n := t.progress()
		t.show("%s: %v", what, n)
		if reached(n) {
			return nil
		}
		if sleep(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("%s: %v: %w", what, n, context.Cause(ctx))
		}
	}
}

// stuckError says that the broker does not send its backlog, although it could.
type stuckError struct{ state }

func (e *stuckError) Error() string {
	return fmt.Sprintf("the broker has %v, and sends nothing", e.state)
}

// patience is how long the broker may do nothing with its backlog: pulsar-client-go waits up to a minute before it connects again.
const patience = 75 * time.Second

// drain waits until the broker has nothing left, and then for what might come twice.
func (t *trial) drain(ctx context.Context) error {
	topics := t.work.topics()
	if t.work.Reconsume {
		topics = append(topics, t.work.Topic+"-"+subscription+pulsar.RetryTopicSuffix)
	}
	for _, topic := range topics {
		last, since := state{}, time.Now()
		for {
			s, ok := t.broker.state(ctx, topic)
			if ok && s.backlog == 0 {
				break
			}
			if last.out != s.out || !s.isStuck() {
				last, since = s, time.Now()
			} else if time.Since(since) > patience {
				return &stuckError{s}
			}
			t.show("waiting for the rest: %v", t.progress())
			if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
				return fmt.Errorf("the broker has %v of %s: %w; %v; %s", s, topic, context.Cause(ctx), t.progress(), t.stats())
			}
		}
	}
	sleep(ctx, time.Second)
	return nil
}
